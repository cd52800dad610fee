//! Bounds of integers.

use arrow::datatypes::DataType;

use super::types::{bits, span_bits};

/// Bounds of an integer value, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    pub min: i128,
    pub max: i128,
}

impl Range {
    pub fn new(min: i128, max: i128) -> Self {
        Self { min, max }
    }

    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// How far a value is from the lower bound; one beyond the bounds is taken for the nearest of them.
    pub fn distance(self, value: i128) -> u64 {
        u64::try_from(value.clamp(self.min, self.max) - self.min).unwrap_or(u64::MAX)
    }

    /// The part of it that lies within `bounds`.
    pub fn within(self, bounds: Self) -> Self {
        let clamp = |value: i128| value.clamp(bounds.min, bounds.max);
        Self { min: clamp(self.min), max: clamp(self.max) }
    }

    /// Bits of `max - min`; 128 when the difference leaves an i128.
    pub fn span_bits(self) -> u32 {
        span_bits(self.min, self.max)
    }

    /// Range of a literal: its magnitude rounded up to a class, so that literals of one class
    /// generate the same code. 0 and 1 are a class: `1 - discount` has no more bits than it needs.
    pub fn of_literal(value: i128) -> Self {
        let magnitude_bits = bits(value.checked_abs().unwrap_or(i128::MAX));
        let class_bits = magnitude_bits.div_ceil(8).max(1) * 8;
        let bound = if class_bits >= 120 { i128::MAX } else { (1i128 << class_bits) - 1 };
        // 31 and 63 bits are where C types end: a literal that fits keeps the narrow type.
        let bound = match magnitude_bits {
            0 | 1 => 1,
            25..=31 => i128::from(i32::MAX),
            57..=63 => i128::from(i64::MAX),
            _ => bound,
        };
        if value < 0 { Self::new(-bound, 0) } else { Self::new(0, bound) }
    }
}

/// Range of a literal of a type; see [`Range::of_literal`]. A class may have room for numbers that the type has not, such as
/// that of the least of 32 bits: minima, maxima and orders rely on bounds within the type.
pub fn range_of_literal(value: i128, data_type: &DataType) -> Range {
    let range = Range::of_literal(value);
    match range_of_type(data_type) {
        Some(bounds) if value >= bounds.min && value <= bounds.max => range.within(bounds),
        _ => range,
    }
}

/// All values of a type that is stored as an integer, `None` for other types.
pub fn range_of_type(data_type: &DataType) -> Option<Range> {
    let range = |min: i128, max: i128| Some(Range::new(min, max));
    match data_type {
        DataType::Boolean => range(0, 1),
        DataType::Int8 => range(i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => range(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => {
            range(i32::MIN.into(), i32::MAX.into())
        }
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Decimal64(..) => range(i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => range(0, u8::MAX.into()),
        DataType::UInt16 => range(0, u16::MAX.into()),
        DataType::UInt32 => range(0, u32::MAX.into()),
        DataType::UInt64 => range(0, u64::MAX.into()),
        DataType::Decimal128(..) => range(i128::MIN, i128::MAX),
        _ => None,
    }
}

/// Scale of a decimal type; 0 for everything else.
pub fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// Largest unscaled value of a decimal's precision, or the bounds of another type.
pub fn bounds_of(data_type: &DataType) -> Option<Range> {
    match data_type {
        DataType::Decimal32(precision, _) | DataType::Decimal64(precision, _) | DataType::Decimal128(precision, _) => {
            let bound = 10i128.checked_pow(u32::from(*precision))? - 1;
            Some(Range::new(-bound, bound))
        }
        _ => range_of_type(data_type),
    }
}
