//! What is known of values in generated code: kinds, bounds, C types.

use std::sync::Arc;

use arrow::datatypes::DataType;
pub(crate) use warpjoin_columns::column::scale_of;
use warpjoin_columns::column::{ColumnType, Dictionary, Domain};
pub use warpjoin_columns::column::{Range, range_of_type};
use warpjoin_columns::{Reason, Result};

/// C type of a value, of a part of it, or of what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
    F32,
    F64,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub enum Kind {
    Bool,
    Int(Range),
    F32,
    F64,
}

/// What is known of a value, without the code that computes it.
#[derive(Debug, Clone)]
pub(crate) struct ValueType {
    pub kind: Kind,
    pub data_type: DataType,
    /// For codes of strings: the distinct values.
    pub dictionary: Option<Arc<Dictionary>>,
    pub nullable: bool,
}

/// The C type of integers of some range.
pub(crate) trait RangeType {
    /// The narrowest C type that holds the range.
    fn c_type(self) -> CType;
}

impl RangeType for Range {
    fn c_type(self) -> CType {
        if self.min >= i32::MIN.into() && self.max <= i32::MAX.into() {
            CType::I32
        } else if self.min >= i64::MIN.into() && self.max <= i64::MAX.into() {
            CType::I64
        } else {
            CType::I128
        }
    }
}

impl CType {
    /// Its name in kernels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I128 => "i128",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::U128 => "u128",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 8,
            Self::I16 | Self::U16 => 16,
            Self::I32 | Self::U32 | Self::F32 => 32,
            Self::I64 | Self::U64 | Self::F64 => 64,
            Self::I128 | Self::U128 => 128,
        }
    }

    /// The unsigned type of so many bytes.
    pub fn unsigned(bytes: u32) -> Self {
        match bytes {
            1 => Self::U8,
            2 => Self::U16,
            4 => Self::U32,
            8 => Self::U64,
            _ => Self::U128,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    fn is_unsigned(self) -> bool {
        matches!(self, Self::Bool | Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U128)
    }

    /// In an expression of C++: integers narrower than 32 bits become i32.
    pub(crate) fn promoted(self) -> Self {
        match self {
            Self::Bool | Self::I8 | Self::U8 | Self::I16 | Self::U16 => Self::I32,
            other => other,
        }
    }

    /// The type in which C++ combines two operands.
    pub fn common(self, other: Self) -> Self {
        if self.is_float() || other.is_float() {
            let is_double = self == Self::F64 || other == Self::F64;
            return if is_double { Self::F64 } else { Self::F32 };
        }
        let (a, b) = (self.promoted(), other.promoted());
        // Of two of one width the unsigned one.
        match a.bits().cmp(&b.bits()) {
            std::cmp::Ordering::Less => b,
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Equal if a.is_unsigned() => a,
            std::cmp::Ordering::Equal => b,
        }
    }
}

impl Kind {
    /// Bounds of an integer.
    pub fn range(self) -> Option<Range> {
        if let Self::Int(range) = self { Some(range) } else { None }
    }

    pub(crate) fn c_type(self) -> CType {
        match self {
            Self::Bool => CType::Bool,
            Self::Int(range) => range.c_type(),
            Self::F32 => CType::F32,
            Self::F64 => CType::F64,
        }
    }

    /// What the storage of a column holds; `Reason` for columns that generated code can't read.
    pub fn of_column(column: &ColumnType) -> Result<Self> {
        Ok(match column.domain {
            Domain::Int { .. } if column.data_type == DataType::Boolean => Self::Bool,
            Domain::Int { min, max } => Self::Int(Range::new(min, max)),
            Domain::Float32 => Self::F32,
            Domain::Float64 => Self::F64,
            Domain::Bytes => return Err(Reason::Limit(format!("raw {} column", column.data_type)).into()),
        })
    }

    /// Domain of a column that stores such values.
    pub fn domain(self) -> Domain {
        match self {
            Self::Bool => Domain::Int { min: 0, max: 1 },
            Self::Int(range) => Domain::Int { min: range.min, max: range.max },
            Self::F32 => Domain::Float32,
            Self::F64 => Domain::Float64,
        }
    }
}

#[cfg(test)]
mod tests {
    use warpjoin_columns::column::range_of_literal;

    use super::*;

    #[test]
    fn literals_of_one_class_have_one_range() {
        assert_eq!(Range::of_literal(100), Range::of_literal(7));
        assert_eq!(Range::of_literal(2), Range::new(0, 255));
        assert_eq!((Range::of_literal(0), Range::of_literal(1)), (Range::new(0, 1), Range::new(0, 1)));
        assert_eq!(Range::of_literal(-3), Range::new(-255, 0));
        assert_eq!(Range::of_literal(i128::from(i32::MAX)).c_type(), CType::I32);
        assert_eq!(Range::of_literal(i128::from(i64::MAX)).c_type(), CType::I64);
        assert_eq!(Range::of_literal(i128::MIN).c_type(), CType::I128);
        assert!(Range::of_literal(i128::MAX).max == i128::MAX);
    }

    #[test]
    fn literals_stay_within_their_type() {
        for (value, data_type) in [
            (i128::from(i32::MIN), DataType::Int32),
            (i128::from(i64::MIN), DataType::Int64),
            (-128, DataType::Int8),
            (255, DataType::UInt8),
        ] {
            let (range, bounds) = (range_of_literal(value, &data_type), range_of_type(&data_type).expect("an integer"));
            assert!(range.min >= bounds.min && range.max <= bounds.max, "{value}: {range:?}");
            assert!(range.min <= value && value <= range.max, "{value}: {range:?}");
        }
    }
}
