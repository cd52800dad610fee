//! Printing to standard output, which its reader may close.

use std::io::{ErrorKind, Write};

use crate::error::{CliError, Result};

/// Prints a line. Unlike `println!`, it does not panic if the reader of a pipe is gone.
///
/// # Errors
/// [`CliError::OutputClosed`] in that case. The command should then end quietly.
pub fn print_line(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::file("standard output")(error),
    })
}
