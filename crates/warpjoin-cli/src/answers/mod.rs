//! Comparison of query answers: exact, floats within [`FLOAT_TOLERANCE`].
//!
//! Owns what counts as the same answer when SQL leaves the order of rows open. Must not know who
//! computed an answer.

mod order;
mod published;
mod ties;

use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

pub use order::{RowOrder, without_limit};
pub use published::PublishedAnswer;

/// Largest relative difference of two floats that count as equal: sums add in another order.
pub const FLOAT_TOLERANCE: f64 = 1e-9;

/// Rows of equal exact cells that are matched one by one before the comparison gives up.
const MATCHED_ROWS_MAX: usize = 4096;

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
    /// Everything else in words that tell apart all values of its type.
    Exact(String),
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The same answer.
    Equal,
    /// Another answer; the first difference in words.
    Different(String),
    /// Equal, up to rows with the same sort key that a LIMIT cut through. [`Answer::check_ties`]
    /// tells whether they are legal.
    TiesAtLimit,
}

impl Answer {
    /// Takes over `batches` (any number of rows x the columns of `schema`).
    ///
    /// # Errors
    /// When Arrow can't format a type.
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

    /// Compares with what was `expected`: types, then rows. Rows are compared in order where
    /// `order` fixes it, as multisets where it does not.
    pub fn compare(&self, expected: &Answer, order: &RowOrder) -> Verdict {
        if let Some(difference) = self.schema_difference(expected) {
            return Verdict::Different(difference);
        }
        if self.rows.len() != expected.rows.len() {
            return Verdict::Different(format!("{} rows instead of {}", self.rows.len(), expected.rows.len()));
        }
        for (number, (actual, expected)) in self.rows.iter().zip(&expected.rows).enumerate() {
            if let Some(&column) = order.keys.iter().find(|&&key| !same_cell(&actual[key], &expected[key])) {
                return Verdict::Different(format!(
                    "row {number}, sort key {}: {} instead of {}",
                    self.schema.field(column).name(),
                    show(&actual[column]),
                    show(&expected[column])
                ));
            }
        }
        let mut start = 0;
        while start < self.rows.len() {
            let end = expected.end_of_ties(start, order);
            if let Some(difference) = multiset_difference(&self.rows[start..end], &expected.rows[start..end]) {
                if order.limited && end == self.rows.len() {
                    return Verdict::TiesAtLimit;
                }
                return Verdict::Different(difference);
            }
            start = end;
        }
        Verdict::Equal
    }

    /// Whether the rows of the last sort key are rows of `full`, the answer without its LIMIT:
    /// to be asked after [`Verdict::TiesAtLimit`].
    pub fn check_ties(&self, full: &Answer, order: &RowOrder) -> Verdict {
        let mut start = self.rows.len().saturating_sub(1);
        while start > 0 && same_keys(&self.rows[start - 1], &self.rows[start], order) {
            start -= 1;
        }
        let mut legal: HashMap<Vec<String>, Vec<&Vec<Cell>>> = HashMap::new();
        for row in &full.rows {
            legal.entry(exact_cells(row)).or_default().push(row);
        }
        for row in &self.rows[start..] {
            let candidates = legal.entry(exact_cells(row)).or_default();
            match candidates.iter().position(|candidate| same_row(row, candidate)) {
                Some(at) => drop(candidates.swap_remove(at)),
                None => {
                    return Verdict::Different(format!("row ({}) is not in the answer without LIMIT", show_row(row)));
                }
            }
        }
        Verdict::Equal
    }

    fn schema_difference(&self, expected: &Answer) -> Option<String> {
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

    /// First row after `start` whose sort key differs from that of the row before it.
    fn end_of_ties(&self, start: usize, order: &RowOrder) -> usize {
        let mut end = start + 1;
        while end < self.rows.len() && same_keys(&self.rows[end - 1], &self.rows[end], order) {
            end += 1;
        }
        end
    }
}

/// The first difference of two lists of equal length, whatever their order.
fn multiset_difference(actual: &[Vec<Cell>], expected: &[Vec<Cell>]) -> Option<String> {
    if actual.iter().zip(expected).all(|(a, e)| same_row(a, e)) {
        return None;
    }
    let (mut actual, mut expected): (Vec<_>, Vec<_>) = (actual.iter().collect(), expected.iter().collect());
    actual.sort_by(|a, b| total_order(a, b));
    expected.sort_by(|a, b| total_order(a, b));
    let mut start = 0;
    while start < actual.len() {
        let exact = exact_cells(expected[start]);
        let mut end = start;
        while end < expected.len() && exact_cells(expected[end]) == exact {
            end += 1;
        }
        let (wanted, got) = (&expected[start..end], &actual[start..end]);
        if !wanted.iter().zip(got).all(|(e, a)| same_row(a, e)) && !matches_one_by_one(got, wanted) {
            let (a, e) = got.iter().zip(wanted).find(|(a, e)| !same_row(a, e))?;
            return Some(format!("row ({}) instead of ({})", show_row(a), show_row(e)));
        }
        start = end;
    }
    None
}

/// Floats that differ by rounding may sort in another order: then any pairing will do.
fn matches_one_by_one(actual: &[&Vec<Cell>], expected: &[&Vec<Cell>]) -> bool {
    if actual.len() > MATCHED_ROWS_MAX {
        return false;
    }
    let mut open = actual.to_vec();
    expected.iter().all(|row| match open.iter().position(|candidate| same_row(candidate, row)) {
        Some(at) => {
            open.swap_remove(at);
            true
        }
        None => false,
    })
}

/// Exact cells first, so that rows which differ in floats alone stand together.
fn total_order(a: &[Cell], b: &[Cell]) -> Ordering {
    let exact = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Cell::Exact(a), Cell::Exact(b)) => a.cmp(b),
        (Cell::Null, Cell::Null) | (Cell::Float(_), Cell::Float(_)) => Ordering::Equal,
        _ => rank(a).cmp(&rank(b)),
    });
    let floats = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => a.total_cmp(b),
        _ => Ordering::Equal,
    });
    exact.chain(floats).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn rank(cell: &Cell) -> u8 {
    match cell {
        Cell::Null => 0,
        Cell::Float(_) => 1,
        Cell::Exact(_) => 2,
    }
}

/// A row without its floats' values.
fn exact_cells(row: &[Cell]) -> Vec<String> {
    row.iter()
        .map(|cell| match cell {
            Cell::Null => "0".to_string(),
            Cell::Float(_) => "1".to_string(),
            Cell::Exact(text) => format!("2{text}"),
        })
        .collect()
}

fn same_keys(a: &[Cell], b: &[Cell], order: &RowOrder) -> bool {
    order.keys.iter().all(|&key| same_cell(&a[key], &b[key]))
}

fn same_row(a: &[Cell], b: &[Cell]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_cell(a, b))
}

fn same_cell(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => same_float(*a, *b),
        _ => a == b,
    }
}

fn same_float(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= FLOAT_TOLERANCE * a.abs().max(b.abs())
}

fn show(cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".to_string(),
        Cell::Float(value) => value.to_string(),
        Cell::Exact(text) => text.clone(),
    }
}

fn show_row(row: &[Cell]) -> String {
    row.iter().map(show).collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn answer(rows: &[(Option<i64>, f64, &str)]) -> Answer {
        let schema = Arc::new(Schema::new(vec![
            Field::new("i", DataType::Int64, true),
            Field::new("f", DataType::Float64, true),
            Field::new("s", DataType::Utf8, true),
        ]));
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
                Arc::new(rows.iter().map(|row| Some(row.1)).collect::<Float64Array>()),
                Arc::new(rows.iter().map(|row| Some(row.2)).collect::<StringArray>()),
            ],
        )
        .unwrap();
        Answer::new(schema, &[batch]).unwrap()
    }

    fn by(keys: &[usize], limited: bool) -> RowOrder {
        RowOrder { keys: keys.to_vec(), limited }
    }

    #[test]
    fn unordered_rows_are_multisets() {
        let a = answer(&[(Some(1), 1.0, "x"), (None, 2.0, "y"), (Some(1), 1.0, "x")]);
        let permuted = answer(&[(None, 2.0, "y"), (Some(1), 1.0, "x"), (Some(1), 1.0 + 1e-12, "x")]);
        let other = answer(&[(None, 2.0, "y"), (Some(1), 1.0, "x"), (None, 2.0, "y")]);
        assert_eq!(permuted.compare(&a, &by(&[], false)), Verdict::Equal);
        assert!(matches!(other.compare(&a, &by(&[], false)), Verdict::Different(_)));
        assert!(matches!(permuted.compare(&a, &by(&[0], false)), Verdict::Different(_)));
    }

    #[test]
    fn floats_have_a_tolerance_and_nothing_else_has() {
        let a = answer(&[(Some(1), 1e15, "x"), (Some(2), f64::NAN, "x")]);
        let near = answer(&[(Some(1), 1e15 + 1.0, "x"), (Some(2), f64::NAN, "x")]);
        let far = answer(&[(Some(1), 1e15 + 1e7, "x"), (Some(2), f64::NAN, "x")]);
        assert_eq!(near.compare(&a, &by(&[0], false)), Verdict::Equal);
        assert!(matches!(far.compare(&a, &by(&[0], false)), Verdict::Different(_)));
        assert!(matches!(answer(&[]).compare(&a, &by(&[], false)), Verdict::Different(_)));
    }

    #[test]
    fn near_floats_may_change_places() {
        let a = answer(&[(Some(1), 1.0, "x"), (Some(1), 1.0 + 1e-13, "x")]);
        let b = answer(&[(Some(1), 1.0 + 1e-13, "x"), (Some(1), 1.0, "x")]);
        assert_eq!(a.compare(&b, &by(&[], false)), Verdict::Equal);
    }

    #[test]
    fn ties_at_a_limit_must_come_from_the_full_answer() {
        let full = answer(&[(Some(1), 0.0, "a"), (Some(2), 0.0, "b"), (Some(2), 0.0, "c")]);
        let expected = answer(&[(Some(1), 0.0, "a"), (Some(2), 0.0, "b")]);
        let legal = answer(&[(Some(1), 0.0, "a"), (Some(2), 0.0, "c")]);
        let wrong = answer(&[(Some(1), 0.0, "a"), (Some(2), 0.0, "d")]);
        let wrong_before_the_limit = answer(&[(Some(1), 0.0, "z"), (Some(2), 0.0, "b")]);
        let order = by(&[0], true);
        assert_eq!(legal.compare(&expected, &order), Verdict::TiesAtLimit);
        assert_eq!(legal.check_ties(&full, &order), Verdict::Equal);
        assert_eq!(wrong.compare(&expected, &order), Verdict::TiesAtLimit);
        assert!(matches!(wrong.check_ties(&full, &order), Verdict::Different(_)));
        assert!(matches!(wrong_before_the_limit.compare(&expected, &order), Verdict::Different(_)));
        assert!(matches!(legal.compare(&expected, &by(&[0], false)), Verdict::Different(_)));
    }
}
