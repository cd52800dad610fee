//! Statistics of resident tables as DataFusion statistics.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use warpjoin::Table;
use warpjoin::column::{ColumnType, Domain};

/// Estimated bytes of a value of a type without a fixed width.
const STRING_BYTES_ESTIMATE: usize = 16;

/// Statistics of the columns `projection` of `table`. Row and null counts are exact; sizes are estimates for the decoded
/// columns.
pub(crate) fn table_statistics(table: &Table, projection: &[usize]) -> Statistics {
    let rows = usize::try_from(table.rows()).unwrap_or(usize::MAX);
    let schema = table.schema();
    let row_bytes: usize = projection
        .iter()
        .map(|&column| schema.field(column).data_type().primitive_width().unwrap_or(STRING_BYTES_ESTIMATE))
        .sum();
    Statistics {
        num_rows: Precision::Exact(rows),
        total_byte_size: Precision::Inexact(rows.saturating_mul(row_bytes)),
        column_statistics: projection.iter().map(|&column| column_statistics(table, column, rows)).collect(),
    }
}

fn column_statistics(table: &Table, column: usize, rows: usize) -> ColumnStatistics {
    let (Some(column_type), Some(known)) = (table.column_types().get(column), table.statistics().get(column)) else {
        return ColumnStatistics::new_unknown();
    };
    let null_count = usize::try_from(known.null_count).unwrap_or(usize::MAX);
    let mut statistics = ColumnStatistics::new_unknown().with_null_count(Precision::Exact(null_count));
    if let Some(distinct) = known.distinct.and_then(|distinct| usize::try_from(distinct).ok()) {
        statistics = statistics.with_distinct_count(Precision::Exact(distinct));
    } else if known.unique == Some(true) {
        statistics = statistics.with_distinct_count(Precision::Exact(rows.saturating_sub(null_count)));
    }
    // A domain may be wider than the values, so its bounds are inexact. A column of nulls has no minimum.
    if null_count < rows
        && let Some((min, max)) = bounds(column_type)
    {
        statistics = statistics.with_min_value(Precision::Inexact(min)).with_max_value(Precision::Inexact(max));
    }
    statistics
}

fn bounds(column_type: &ColumnType) -> Option<(ScalarValue, ScalarValue)> {
    let Domain::Int { min, max } = column_type.domain else { return None };
    Some((int_scalar(min, &column_type.data_type)?, int_scalar(max, &column_type.data_type)?))
}

/// The value of `data_type` that is stored as `value`; `None` if the type is not stored as an integer, or the value does not
/// fit.
fn int_scalar(value: i128, data_type: &DataType) -> Option<ScalarValue> {
    let i64_value = i64::try_from(value).ok();
    Some(match data_type {
        DataType::Int8 => ScalarValue::Int8(Some(value.try_into().ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(value.try_into().ok()?)),
        DataType::Int32 => ScalarValue::Int32(Some(value.try_into().ok()?)),
        DataType::Int64 => ScalarValue::Int64(Some(i64_value?)),
        DataType::UInt8 => ScalarValue::UInt8(Some(value.try_into().ok()?)),
        DataType::UInt16 => ScalarValue::UInt16(Some(value.try_into().ok()?)),
        DataType::UInt32 => ScalarValue::UInt32(Some(value.try_into().ok()?)),
        DataType::UInt64 => ScalarValue::UInt64(Some(value.try_into().ok()?)),
        DataType::Date32 => ScalarValue::Date32(Some(value.try_into().ok()?)),
        DataType::Date64 => ScalarValue::Date64(Some(i64_value?)),
        DataType::Timestamp(unit, zone) => {
            let (value, zone) = (Some(i64_value?), zone.clone());
            match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(value, zone),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(value, zone),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(value, zone),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(value, zone),
            }
        }
        DataType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(value), *precision, *scale),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_integers_become_values_of_the_type() {
        assert_eq!(int_scalar(-1, &DataType::Int8), Some(ScalarValue::Int8(Some(-1))));
        assert_eq!(int_scalar(300, &DataType::Int8), None);
        assert_eq!(int_scalar(8035, &DataType::Date32), Some(ScalarValue::Date32(Some(8035))));
        assert_eq!(int_scalar(105, &DataType::Decimal128(15, 2)), Some(ScalarValue::Decimal128(Some(105), 15, 2)));
        assert_eq!(int_scalar(1, &DataType::Utf8), None);
    }
}
