//! The values of random columns: common ones with many matches between tables, or the limits of a type.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{Months, NaiveDate};
use rand::Rng;
use rand::rngs::StdRng;

/// The role of a column. Columns with the same role can be compared, even if their types differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ColumnRole {
    /// The row number: distinct and never null.
    Id,
    /// Small integers of any width.
    Integer,
    /// Integers of any width at the limits of their type, `UInt64` above `i64` among them.
    ExtremeInteger,
    /// Strings of any type.
    Text,
    /// Dates and timestamps of a few months.
    Date,
    /// Dates and timestamps at the limits of their type.
    ExtremeDate,
    /// Decimals of two places.
    Decimal,
    /// Decimals of any width at the limits of their type.
    ExtremeDecimal,
    /// Floats whose sums are exact, both zeros among them, sometimes NaN and infinities.
    Float,
    /// Floats at the limits of their type, with NaN and infinities.
    ExtremeFloat,
    /// Booleans.
    Boolean,
}

impl ColumnRole {
    /// One of the types that a column of this role may have.
    pub(super) fn data_type(self, rng: &mut StdRng) -> DataType {
        use DataType::{
            Boolean, Date32, Float32, Float64, Int8, Int16, Int32, Int64, LargeUtf8, Timestamp, UInt8, UInt16, UInt32,
            UInt64, Utf8, Utf8View,
        };
        let stamp = |unit| Timestamp(unit, None);
        let dictionary = || DataType::Dictionary(Box::new(Int32), Box::new(Utf8));
        let types = match self {
            Self::Id => vec![Int64],
            Self::Integer => vec![Int8, Int16, Int32, Int32, Int64, Int64, Int64, UInt8, UInt16, UInt32, UInt64],
            Self::ExtremeInteger => vec![Int8, Int16, Int32, Int64, Int64, UInt8, UInt16, UInt32, UInt64, UInt64],
            Self::Text => vec![Utf8, Utf8View, LargeUtf8, dictionary()],
            Self::Date => vec![Date32, stamp(TimeUnit::Millisecond)],
            Self::ExtremeDate => vec![
                Date32,
                stamp(TimeUnit::Second),
                stamp(TimeUnit::Millisecond),
                stamp(TimeUnit::Microsecond),
                stamp(TimeUnit::Nanosecond),
            ],
            Self::Decimal => vec![DataType::Decimal128(12, 2), DataType::Decimal128(12, 2), DataType::Decimal64(12, 2)],
            Self::ExtremeDecimal => vec![
                DataType::Decimal128(38, 0),
                DataType::Decimal128(38, 10),
                DataType::Decimal128(20, 2),
                DataType::Decimal64(18, 4),
                DataType::Decimal32(9, 2),
            ],
            Self::Float => vec![Float64, Float64, Float32],
            Self::ExtremeFloat => vec![Float64, Float32],
            Self::Boolean => vec![Boolean],
        };
        types[rng.random_range(0..types.len())].clone()
    }

    /// All values of an extreme role, as text; `None` for other roles.
    pub(super) fn extremes(self, data_type: &DataType) -> Option<Vec<String>> {
        Some(match self {
            Self::ExtremeInteger => integer_limits(data_type),
            Self::ExtremeDecimal => decimal_limits(data_type),
            Self::ExtremeFloat => {
                let limits = match data_type {
                    DataType::Float32 => ["3.4028235e38", "-3.4028235e38", "1e-45", "-1.1754944e-38"],
                    _ => ["1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "-2.2250738585072014e-308"],
                };
                texts(&[&["NaN", "inf", "-inf", "0.0", "-0.0", "1.5"], &limits[..]].concat())
            }
            Self::ExtremeDate => date_limits(data_type),
            _ => return None,
        })
    }
}

/// A day from 1994-08-23 on. Every fourth number gives the last day of a month instead.
fn day(number: i64) -> i64 {
    let month_end = |month: i64| {
        let months = Months::new(u32::try_from(month).ok()?);
        let first = NaiveDate::from_ymd_opt(1994, 2, 1)?.checked_add_months(months)?;
        Some(i64::from(first.to_epoch_days()) - 1)
    };
    let plain = 9000 + number % 20_000;
    if number.rem_euclid(4) == 3 { month_end(number.rem_euclid(2400) / 4).unwrap_or(plain) } else { plain }
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_string()).collect()
}

fn integer_limits(data_type: &DataType) -> Vec<String> {
    let bits = 8 * data_type.primitive_width().unwrap_or(8);
    let (least, most) = if data_type.is_signed_integer() {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    };
    // Half of the range, where unsigned numbers exceed the signed type of their width.
    let half = (most + 1) / 2;
    let mut values = vec![least, least + 1, 0, 1, 2, half - 1, half, most - 1, most];
    if least < 0 {
        values.push(-1);
    }
    values.iter().map(i128::to_string).collect()
}

fn decimal_limits(data_type: &DataType) -> Vec<String> {
    let (precision, scale) = match data_type {
        DataType::Decimal128(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal32(precision, scale) => (usize::from(*precision), usize::from(scale.unsigned_abs())),
        _ => (12, 2),
    };
    let nines = "9".repeat(precision - scale);
    let most = if scale == 0 { nines } else { format!("{nines}.{}", "9".repeat(scale)) };
    vec![most.clone(), format!("-{most}"), "0".into(), "1".into(), "-1".into(), "7".into()]
}

fn date_limits(data_type: &DataType) -> Vec<String> {
    match data_type {
        DataType::Date32 => {
            texts(&["0001-01-01", "9999-12-31", "1970-01-01", "1969-12-31", "2000-02-29", "1900-03-01"])
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => texts(&[
            "1677-09-21T00:12:43.145224193",
            "2262-04-11T23:47:16.854775807",
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59.999999999",
            "2000-02-29T12:00:00",
        ]),
        _ => texts(&[
            "0001-01-01T00:00:00",
            "9999-12-31T23:59:59",
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59",
            "2000-02-29T12:00:00",
            "1900-03-01T01:00:00",
        ]),
    }
}

/// An array of the values of `numbers`. A number has the same value in all types of a role, if it is in range.
pub(super) fn array_of(
    role: ColumnRole,
    data_type: &DataType,
    numbers: &[Option<i64>],
    has_specials: bool,
) -> ArrayRef {
    let mapped = |f: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(numbers.iter().map(|number| number.map(f)).collect::<Int64Array>())
    };
    let source: ArrayRef = match role {
        ColumnRole::Id => mapped(&|n| n),
        ColumnRole::Integer => mapped(&|n| if data_type.is_signed_integer() { n % 120 - 2 } else { n % 120 }),
        ColumnRole::Text => Arc::new(numbers.iter().map(|number| number.map(text)).collect::<StringArray>()),
        ColumnRole::Date => {
            let dates = mapped(&|n| day(n));
            let dates = cast(&dates, &DataType::Int32).and_then(|dates| cast(&dates, &DataType::Date32));
            dates.unwrap_or_else(|_| mapped(&|n| n))
        }
        ColumnRole::Decimal => {
            Arc::new(numbers.iter().map(|n| n.map(|n| n as f64 * 1.25 - 3.0)).collect::<Float64Array>())
        }
        ColumnRole::Float => {
            let rows = numbers.iter().enumerate();
            let value = |(row, number): (usize, &Option<i64>)| number.map(|number| float(row, number, has_specials));
            Arc::new(rows.map(value).collect::<Float64Array>())
        }
        ColumnRole::Boolean => mapped(&|n| n % 2),
        ColumnRole::ExtremeInteger
        | ColumnRole::ExtremeDate
        | ColumnRole::ExtremeDecimal
        | ColumnRole::ExtremeFloat => {
            let values = role.extremes(data_type).unwrap_or_default();
            let value = |number: &Option<i64>| number.map(|number| values[number as usize % values.len()].as_str());
            Arc::new(numbers.iter().map(value).collect::<StringArray>())
        }
    };
    // These casts cannot fail. If one did, the array would have the wrong type, which the caller's schema rejects.
    cast(&source, data_type).unwrap_or(source)
}

fn text(number: i64) -> String {
    match number {
        0 => String::new(),
        n if n % 5 == 0 => format!("a longer value, number {n}"),
        n => format!("v{n}"),
    }
}

fn float(row: usize, number: i64, has_specials: bool) -> f64 {
    match number {
        // Both zeros occur.
        0 if row.is_multiple_of(3) => -0.0,
        _ if has_specials && row % 7 == 3 => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][(number % 3) as usize],
        number => (number % 4000) as f64 / 8.0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_value_fits_its_type() {
        use ColumnRole::{
            Boolean, Date, Decimal, ExtremeDate, ExtremeDecimal, ExtremeFloat, ExtremeInteger, Float, Id, Integer, Text,
        };
        let mut rng = StdRng::seed_from_u64(1);
        let numbers: Vec<Option<i64>> = (0..200).map(Some).collect();
        for role in [
            Id,
            Integer,
            ExtremeInteger,
            Text,
            Date,
            ExtremeDate,
            Decimal,
            ExtremeDecimal,
            Float,
            ExtremeFloat,
            Boolean,
        ] {
            for _ in 0..40 {
                let data_type = role.data_type(&mut rng);
                let array = array_of(role, &data_type, &numbers, true);
                assert_eq!((array.data_type(), array.logical_null_count()), (&data_type, 0), "{role:?}");
            }
        }
    }
}
