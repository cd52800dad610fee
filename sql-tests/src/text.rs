//! Formats answers as text of .slt files.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::DefaultColumnType;

/// Significant digits of a double. The last digits of sums depend on the order of additions.
const FLOAT_DIGITS: usize = 10;

/// The .slt types of the columns.
pub(crate) fn column_types(schema: &Schema) -> Vec<DefaultColumnType> {
    let kind = |data_type: &DataType| match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DefaultColumnType::Text,
        data_type if data_type.is_integer() => DefaultColumnType::Integer,
        data_type if data_type.is_floating() || data_type.is_decimal() => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Any,
    };
    schema.fields().iter().map(|field| kind(field.data_type())).collect()
}

/// The values as text, row by row.
///
/// # Errors
/// Returns an error if Arrow cannot format a type.
pub(crate) fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, ArrowError> {
    let mut rows = vec![];
    for batch in batches {
        let columns = batch.columns().iter().map(texts).collect::<Result<Vec<_>, _>>()?;
        rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()));
    }
    Ok(rows)
}

/// A line for each row, with values separated by `|`.
///
/// # Errors
/// Returns an error if Arrow cannot format a type.
pub fn lines(batches: &[RecordBatch]) -> Result<Vec<String>, ArrowError> {
    Ok(rows(batches)?.iter().map(|row| row.join("|")).collect())
}

fn texts(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    let nulls = column.logical_nulls();
    let text = |row: usize, value: &dyn Fn() -> String| match &nulls {
        Some(nulls) if nulls.is_null(row) => "NULL".to_string(),
        _ => value(),
    };
    let rows = 0..column.len();
    Ok(match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            rows.map(|row| text(row, &|| float(values.value(row)))).collect()
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            rows.map(|row| text(row, &|| values.value(row).to_string())).collect()
        }
        _ => {
            let options = FormatOptions::default().with_display_error(true);
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
            let shown = |row| match formatter.value(row).to_string() {
                empty if empty.is_empty() => "(empty)".to_string(),
                value => value,
            };
            rows.map(|row| text(row, &|| shown(row))).collect()
        }
    })
}

fn float(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        // -0.0 equals 0.0, and a group of both may show either.
        return (value + 0.0).to_string();
    }
    let rounded = format!("{value:.*e}", FLOAT_DIGITS - 1);
    rounded.parse::<f64>().map_or(rounded, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded() {
        assert_eq!(float(0.1 + 0.2), "0.3");
        assert_eq!(float(-0.0), "0");
        assert_eq!(float(f64::NAN), "NaN");
        assert_eq!(float(1e20), "100000000000000000000");
        assert_eq!(float(1234567.891234), "1234567.891");
    }
}
