//! What a column is, on all shards: Arrow type, domain of its values, and layout in memory.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::Dictionary;
use crate::Reason;

/// Table-level facts about a column: the same on all shards.
#[derive(Debug, Clone)]
pub struct ColumnType {
    /// The declared Arrow type, which decoding gives back.
    pub data_type: DataType,
    /// Whether a validity bitmap comes with the values.
    pub has_nulls: bool,
    /// Bounds of the values that are not null; they may be wider than the data.
    pub domain: Domain,
    /// The distinct values, where the domain is one of codes.
    pub dictionary: Option<Arc<Dictionary>>,
}

impl ColumnType {
    /// Whether columns of both types hold their values alike, so that their rows can stand behind each other.
    #[doc(hidden)]
    pub fn is_stored_as(&self, other: &Self) -> bool {
        let address = |column: &Self| column.dictionary.as_ref().map(Arc::as_ptr);
        self.data_type == other.data_type
            && self.has_nulls == other.has_nulls
            && self.domain == other.domain
            && address(self) == address(other)
    }

    /// How the values lie in memory.
    pub fn layout(&self) -> Layout {
        Layout::of(self.domain)
    }
}

/// Which values a column can hold.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub enum Domain {
    /// Everything stored as an integer from `min` to `max`: integers, booleans (0 and 1), dates,
    /// times, timestamps, durations, decimals (unscaled), dictionary codes.
    Int {
        /// Smallest value.
        min: i128,
        /// Largest value.
        max: i128,
    },
    /// 32-bit floats, bit for bit.
    Float32,
    /// 64-bit floats, bit for bit.
    Float64,
    /// Raw strings: offsets (u64) and bytes.
    Bytes,
}

/// How values lie in memory, derived from the domain alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes a row: 0 (every value is `base`, nothing is stored), 1, 2, 4, 8 or 16. Raw strings
    /// have 1: their values are single bytes, found by offsets.
    pub width_bytes: u32,
    /// For widths 0 to 8, value = base + stored unsigned integer; fits an i64. 0 for width 16,
    /// which stores the i128 itself, for floats, which store their bits, and for raw strings.
    pub base: i128,
}

impl Layout {
    /// The narrowest layout for a domain.
    pub fn of(domain: Domain) -> Layout {
        let (min, max) = match domain {
            Domain::Int { min, max } => (min, max),
            Domain::Float32 => return Layout { width_bytes: 4, base: 0 },
            Domain::Float64 => return Layout { width_bytes: 8, base: 0 },
            Domain::Bytes => return Layout { width_bytes: 1, base: 0 },
        };
        // Bounds in the wrong order give a span near 2^128, and so the layout that holds anything.
        let span = max.wrapping_sub(min) as u128;
        if i64::try_from(min).is_err() || span > u128::from(u64::MAX) {
            return Layout { width_bytes: 16, base: 0 };
        }
        let width_bytes = match span as u64 {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        Layout { width_bytes, base: min }
    }
}

/// Tells whether columns of a type can live on a device, else why not.
///
/// # Errors
/// [`Reason::Type`] for every type without a layout.
pub fn check_type(data_type: &DataType) -> Result<(), Reason> {
    let supported = match data_type {
        DataType::Null | DataType::Boolean => true,
        DataType::Dictionary(key, value) => key.is_dictionary_key_type() && is_string(value),
        other if is_string(other) => true,
        other => Physical::of(other).is_some(),
    };
    if supported { Ok(()) } else { Err(Reason::Type(data_type.clone())) }
}

/// Whether this is one of the three Arrow types of text.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether values of the type are strings of bytes, text or not, which dictionaries can hold.
pub fn is_string(data_type: &DataType) -> bool {
    let is_binary = matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    );
    is_binary || is_text(data_type)
}

/// Whether values are strings, those of a dictionary among them.
pub fn holds_strings(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => holds_strings(value),
        other => is_string(other),
    }
}

/// The number type in which Arrow keeps the values of a primitive type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "internal to warpjoin")]
pub enum Physical {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

impl Physical {
    /// `None` for types that are no supported primitive.
    pub fn of(data_type: &DataType) -> Option<Self> {
        use DataType as T;
        Some(match data_type {
            T::Int8 => Self::I8,
            T::Int16 => Self::I16,
            T::Int32 | T::Date32 | T::Time32(_) | T::Decimal32(..) => Self::I32,
            T::Int64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) | T::Decimal64(..) => Self::I64,
            T::Decimal128(..) => Self::I128,
            T::UInt8 => Self::U8,
            T::UInt16 => Self::U16,
            T::UInt32 => Self::U32,
            T::UInt64 => Self::U64,
            T::Float32 => Self::F32,
            T::Float64 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of a value.
    pub fn width_bytes(self) -> u32 {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::I128 => 16,
        }
    }
}

/// Bits of a non-negative number.
pub fn bits(value: i128) -> u32 {
    128 - value.leading_zeros()
}

/// Bits of `max - min`; 128 when the difference leaves an i128.
pub fn span_bits(min: i128, max: i128) -> u32 {
    max.checked_sub(min).map_or(128, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(min: i128, max: i128) -> (u32, i128) {
        let layout = Layout::of(Domain::Int { min, max });
        (layout.width_bytes, layout.base)
    }

    #[test]
    fn fewest_bytes_that_hold_the_span() {
        assert_eq!(layout(7, 7), (0, 7));
        assert_eq!(layout(-5, 250), (1, -5));
        assert_eq!(layout(-5, 251), (2, -5));
        assert_eq!(layout(0, 0xffff), (2, 0));
        assert_eq!(layout(0, 0x1_0000), (4, 0));
        assert_eq!(layout(1, 0x1_0000_0000), (4, 1));
        assert_eq!(layout(0, 0x1_0000_0000), (8, 0));
        assert_eq!(layout(i64::MIN.into(), i64::MAX.into()), (8, i64::MIN.into()));
        assert_eq!(layout(i64::MAX.into(), u64::MAX.into()), (8, i64::MAX.into()));
    }

    #[test]
    fn bases_beyond_64_bits_are_stored_whole() {
        assert_eq!(layout(i128::from(i64::MAX) + 1, i128::from(i64::MAX) + 1), (16, 0));
        assert_eq!(layout(-1, u64::MAX.into()), (16, 0));
        assert_eq!(layout(i128::MIN, i128::MAX), (16, 0));
    }

    #[test]
    fn declined_types_say_so() {
        for declined in [
            DataType::Float16,
            DataType::Decimal256(40, 2),
            DataType::Interval(arrow::datatypes::IntervalUnit::DayTime),
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64)),
        ] {
            assert_eq!(check_type(&declined), Err(Reason::Type(declined)));
        }
    }
}
