//! Columns of Parquet files, decoded on devices.
//!
//! The pages of a column go to the device as they are in the file. Kernels decompress them (`kernels/decode/snappy.cu`), and
//! decode them straight into the layout of tables (`kernels/decode/values.cu`). What kernels can't decode is declined with
//! the reason, so that the caller decodes it on the CPU.
//!
//! Owns page headers, and what is launched for which pages. Must not know files, row groups of a schema, or how bounds of a
//! column are found.

mod batch;
mod column;
mod facts;
mod header;
mod kernels;
mod numbers;
mod pages;
mod table;
mod text;

pub use column::{DecodedColumn, StoredColumn, decode_column};
pub use pages::{ColumnChunk, Compression};
pub use table::decode_table;

use std::fmt;

use crate::Error;

/// How Parquet stores the values of a column: its physical type, with the sign of its logical type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Booleans.
    Bits,
    /// Integers of 4 bytes; `signed`: negative ones among them.
    Int32 {
        /// Whether values may be negative.
        signed: bool,
    },
    /// Integers of 8 bytes.
    Int64 {
        /// Whether values may be negative.
        signed: bool,
    },
    /// Floats of 4 bytes.
    Float,
    /// Floats of 8 bytes.
    Double,
    /// Signed integers of 1 to 16 bytes, the highest byte first: decimals.
    Fixed {
        /// Bytes of a value.
        bytes: u32,
    },
    /// Strings of any length, text or not.
    Strings,
}

/// Why a column was not decoded.
#[derive(Debug)]
pub enum DecodeError {
    /// Kernels can't decode it, or its bytes are damaged. Decoding on the CPU gives the rows, or the error.
    Declined(String),
    /// A device failed.
    Device(Error),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined(why) => f.write_str(why),
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

fn declined<T>(why: impl Into<String>) -> Result<T, DecodeError> {
    Err(DecodeError::Declined(why.into()))
}
