//! Standard output that may be closed by its reader.

use std::io::{ErrorKind, Write};

use crate::error::{CliError, Result};

/// Prints a line; `println!` would panic once the reader of a pipe is gone.
///
/// # Errors
/// [`CliError::OutputClosed`] then, to be ended on quietly.
pub fn print_line(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::file("standard output")(error),
    })
}
