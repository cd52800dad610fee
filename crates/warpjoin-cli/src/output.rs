//! Printing to standard output, which its reader may close.

use std::io::{ErrorKind, Write};

use crate::error::{CliError, Result};

/// Prints a line. Unlike `println!`, it does not panic if the reader of a pipe is gone.
///
/// # Errors
/// [`CliError::OutputClosed`] in that case. The command should then end quietly.
pub fn print_line(text: &str) -> Result<()> {
    print_all(&[text.as_bytes(), b"\n"])
}

/// Prints bytes as they are; errors as [`print_line`].
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    print_all(&[bytes])
}

fn print_all(pieces: &[&[u8]]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = pieces.iter().try_for_each(|piece| stdout.write_all(piece)).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::file("standard output")(error),
    })
}
