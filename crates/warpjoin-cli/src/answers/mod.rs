//! Comparison of query answers: exact, except for floats, which may differ by [`FLOAT_TOLERANCE`].
//!
//! Owns the definition of equal answers. [`Reference`] knows which row orders a query allows. Must not know which engine
//! computed an answer.

mod compare;
mod order;
mod published;
mod reference;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use compare::{show, show_row};

pub use published::PublishedAnswer;
pub use reference::Reference;

/// Maximum relative difference of equal floats, since engines sum in different orders.
pub const FLOAT_TOLERANCE: f64 = 1e-9;
/// In queries with variances and similar aggregates, floats with a smaller absolute value count as zero.
const MOMENT_TOLERANCE: f64 = 1e-9;

/// The rows of an answer, ready to be compared.
#[derive(Debug, Clone)]
pub struct Answer {
    schema: SchemaRef,
    rows: Vec<Vec<Cell>>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Float(f64),
    /// All other types, as text that is unique per value.
    Exact(String),
}

impl Answer {
    /// Converts `batches` (any number of rows x the columns of `schema`).
    ///
    /// # Errors
    /// When Arrow cannot format a type.
    pub fn new(schema: SchemaRef, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let mut rows = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
        for batch in batches {
            let columns = batch.columns().iter().map(cells).collect::<Result<Vec<_>, _>>()?;
            let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
            rows.extend((0..batch.num_rows()).map(|_| columns.iter_mut().filter_map(Iterator::next).collect()));
        }
        Ok(Self { schema, rows })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Replaces floats that may be a rounding error of a variance by zero.
    fn with_rounded_zeros(mut self) -> Self {
        for cell in self.rows.iter_mut().flatten() {
            if matches!(cell, Cell::Float(value) if value.abs() < MOMENT_TOLERANCE) {
                *cell = Cell::Float(0.0);
            }
        }
        self
    }

    /// The first difference in the names and types of columns.
    fn schema_difference(&self, expected: &Self) -> Option<String> {
        let (actual, expected) = (self.schema.fields(), expected.schema.fields());
        if actual.len() != expected.len() {
            return Some(format!("{} columns instead of {}", actual.len(), expected.len()));
        }
        actual
            .iter()
            .zip(expected)
            .find(|(a, e)| a.name() != e.name() || a.data_type() != e.data_type())
            .map(|(a, e)| format!("column {} {} instead of {} {}", a.name(), a.data_type(), e.name(), e.data_type()))
    }
}

fn cells(column: &ArrayRef) -> Result<Vec<Cell>, ArrowError> {
    let nulls = column.logical_nulls();
    let value_or_null = |row: usize, value: Cell| match &nulls {
        Some(nulls) if nulls.is_null(row) => Cell::Null,
        _ => value,
    };
    let rows = 0..column.len();
    Ok(match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>().values();
            rows.map(|row| value_or_null(row, Cell::Float(values[row]))).collect()
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>().values();
            rows.map(|row| value_or_null(row, Cell::Float(f64::from(values[row])))).collect()
        }
        _ => {
            let options = FormatOptions::default().with_display_error(true);
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
            rows.map(|row| value_or_null(row, Cell::Exact(formatter.value(row).to_string()))).collect()
        }
    })
}
