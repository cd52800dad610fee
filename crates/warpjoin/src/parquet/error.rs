//! Why a column is not decoded.

use std::fmt;

use warpjoin_columns::Error;

/// Why a column was not decoded.
#[derive(Debug)]
pub enum DecodeError {
    /// Kernels can't decode it, or its bytes are damaged. Decoding on the CPU gives the rows, or the error.
    Declined(String),
    /// The device has too little free memory at present; the message says what is missing.
    NoRoom(String),
    /// A device failed.
    Device(Error),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined(why) | Self::NoRoom(why) => f.write_str(why),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl<E: Into<Error>> From<E> for DecodeError {
    fn from(error: E) -> Self {
        Self::Device(error.into())
    }
}

pub(super) fn declined<T>(why: impl Into<String>) -> Result<T, DecodeError> {
    Err(DecodeError::Declined(why.into()))
}
