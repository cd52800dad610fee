//! A caller's description of a stored column.

use warpjoin_columns::column::Domain;

use super::pages::ColumnChunk;

/// A column to be decoded.
#[derive(Debug, Clone, Copy)]
pub struct StoredColumn<'a> {
    /// How its values are stored.
    pub stored: Stored,
    /// Whether its pages have definition levels.
    pub is_nullable: bool,
    /// Bounds of all values, if known; they determine the layout. Otherwise they are found during decoding, which takes
    /// more memory. Not used for strings.
    pub domain: Option<Domain>,
    /// Its row groups, in the order of the rows.
    pub chunks: &'a [ColumnChunk<'a>],
}

impl StoredColumn<'_> {
    /// Rows of all row groups.
    pub(super) fn rows(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.rows).sum()
    }
}

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
    /// Timestamps of 12 bytes, decoded to nanoseconds since 1970.
    Int96,
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

impl Stored {
    /// Whether delta encodings apply, to integer values or to lengths of strings.
    pub(super) fn has_differences(self) -> bool {
        matches!(self, Self::Int32 { .. } | Self::Int64 { .. } | Self::Strings)
    }

    /// The domain of all values of the type.
    pub(super) fn domain(self) -> Domain {
        let (min, max) = match self {
            Self::Bits => (0, 1),
            Self::Int32 { signed: true } => (i32::MIN.into(), i32::MAX.into()),
            Self::Int32 { signed: false } => (0, u32::MAX.into()),
            Self::Int64 { signed: false } => (0, u64::MAX.into()),
            Self::Int64 { signed: true } | Self::Int96 | Self::Fixed { bytes: 0..=8 } => {
                (i64::MIN.into(), i64::MAX.into())
            }
            Self::Fixed { .. } => (i128::MIN, i128::MAX),
            Self::Float => return Domain::Float32,
            Self::Double => return Domain::Float64,
            Self::Strings => return Domain::Bytes,
        };
        Domain::Int { min, max }
    }
}
