//! Rows of a table that stay on the host, so that a planner can measure how many rows a predicate keeps.
//!
//! Taken while a table is uploaded, when its columns are on the host anyway. Bounded: a few thousand rows however large
//! the table is.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::column::{ColumnType, Domain, EncodedColumn};
use crate::expr::Expr;
use crate::identity::Identity;

/// Rows of a sample: enough to see a row of frequency 1/1000 about twice.
const SAMPLE_ROWS: u64 = 2048;
/// Maximum conditions remembered with a sample; the least recently used one is dropped.
const CONDITIONS_MAX: usize = 64;

/// Some rows of a table, in row order, or all rows of a small one.
#[derive(Debug, Default)]
pub struct TableSample {
    rows: usize,
    columns: Vec<Arc<SampledColumn>>,
    /// Conditions over the table's columns, and the rows for which they are true.
    kept: Mutex<Vec<(Identity, Kept)>>,
}

/// The rows of a sample for which a condition is true; `None`: the host can't evaluate it.
pub(crate) type Kept = Option<Arc<[bool]>>;

/// The sampled rows of a column.
#[derive(Debug)]
pub struct SampledColumn {
    pub values: SampledValues,
    /// Which rows are not null; `None`: all.
    pub valid: Option<Vec<bool>>,
    /// Estimated distinct values in the table; `None`: unknown.
    distinct: OnceLock<Option<f64>>,
}

/// Values of sampled rows.
#[derive(Debug)]
pub enum SampledValues {
    /// Values stored as integers; codes of strings.
    Ints(Vec<i128>),
    /// Floats of either width.
    Floats(Vec<f64>),
    /// Strings that are kept as bytes are not sampled.
    Unknown,
}

impl TableSample {
    /// Adds the rows of the next column of a table.
    pub fn push(&mut self, column: &EncodedColumn) {
        let rows = sampled_rows(column.rows as u64);
        let valid = column.validity.as_ref().map(|bits| {
            rows.iter().map(|&row| bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)).collect()
        });
        self.add(rows.len(), read_values(&column.column_type, &column.values, &rows), valid);
    }

    /// Positions of the sampled rows of a table with `rows` rows.
    pub fn rows_of(rows: u64) -> Vec<u64> {
        sampled_rows(rows).into_iter().map(|row| row as u64).collect()
    }

    /// Adds the sampled rows of the next column of a table: their values in its layout, and their validity.
    pub fn push_taken(&mut self, column_type: &ColumnType, sampled: usize, values: &[u8], valid: Option<Vec<bool>>) {
        let rows: Vec<usize> = (0..sampled).collect();
        self.add(sampled, read_values(column_type, values, &rows), valid);
    }

    fn add(&mut self, rows: usize, values: SampledValues, valid: Option<Vec<bool>>) {
        self.rows = rows;
        self.columns.push(Arc::new(SampledColumn { values, valid, distinct: OnceLock::new() }));
    }

    /// Number of sampled rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A column by its position in the table.
    pub fn column(&self, index: usize) -> Option<&SampledColumn> {
        self.columns.get(index).map(|column| &**column)
    }

    /// The sample of a table that is made of columns of other tables with the same number of rows. This works because
    /// the sampled positions depend only on that number. `None` if a table has no sample.
    pub(super) fn of_columns(columns: &[(Option<&Self>, usize)]) -> Option<Self> {
        let rows = columns.first().and_then(|(sample, _)| Some((*sample)?.rows)).unwrap_or(0);
        let column = |(sample, index): &(Option<&Self>, usize)| Some(Arc::clone((*sample)?.columns.get(*index)?));
        let columns = columns.iter().map(column).collect::<Option<_>>()?;
        Some(Self { rows, columns, kept: Mutex::default() })
    }

    /// Estimated distinct values of a column in a table of `table_rows` rows.
    pub fn distinct(&self, index: usize, table_rows: u64) -> Option<f64> {
        let column = self.columns.get(index)?;
        *column.distinct.get_or_init(|| {
            let (distinct, singles) = column.count_distinct();
            (distinct > 0.0).then(|| distinct_among(self.rows as f64, distinct, singles, table_rows as f64))
        })
    }

    /// Forgets which rows conditions keep.
    pub fn forget_results(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The rows for which `condition`, over the table's columns, is true. Computed by `find` and remembered: a planner
    /// asks several times, and queries repeat.
    pub fn kept(&self, condition: &Expr, find: impl FnOnce() -> Option<Vec<bool>>) -> Kept {
        let Some(identity) = Identity::in_session(condition) else { return find().map(Arc::from) };
        let locked = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut known = locked();
            if let Some(at) = known.iter().rposition(|(known, _)| *known == identity) {
                let latest = known.remove(at);
                let kept = latest.1.clone();
                known.push(latest);
                return kept;
            }
        }
        // Not under the lock: others ask for other conditions.
        let kept: Kept = find().map(Arc::from);
        let mut known = locked();
        known.push((identity, kept.clone()));
        let excess = known.len().saturating_sub(CONDITIONS_MAX);
        known.drain(..excess);
        kept
    }
}

impl SampledColumn {
    fn count_distinct(&self) -> (f64, f64) {
        let is_valid = |row: usize| self.valid.as_ref().is_none_or(|valid| valid[row]);
        let mut values: Vec<i128> = match &self.values {
            SampledValues::Ints(values) => {
                (0..values.len()).filter(|&row| is_valid(row)).map(|row| values[row]).collect()
            }
            SampledValues::Floats(values) => {
                (0..values.len()).filter(|&row| is_valid(row)).map(|row| values[row].to_bits().into()).collect()
            }
            SampledValues::Unknown => vec![],
        };
        values.sort_unstable();
        let runs: Vec<usize> = values.chunk_by(|a, b| a == b).map(<[i128]>::len).collect();
        (runs.len() as f64, runs.iter().filter(|&&length| length == 1).count() as f64)
    }
}

/// Estimates the distinct values among `table_rows` rows from a sample of `rows` rows with `distinct` distinct values,
/// `singles` of which occur once. Assumes that all values are equally frequent.
fn distinct_among(rows: f64, distinct: f64, singles: f64, table_rows: f64) -> f64 {
    if rows >= table_rows || singles == 0.0 {
        return distinct;
    }
    let expected = |values: f64| values * -(-rows / values).exp_m1();
    let (mut low, mut high) = (distinct, table_rows);
    if expected(high) <= distinct {
        return high;
    }
    for _ in 0..50 {
        let middle = (low * high).sqrt();
        if expected(middle) < distinct { low = middle } else { high = middle }
    }
    high
}

/// Positions of randomly chosen rows, each once. Evenly spaced rows would rarely show equal values of a sorted column.
fn sampled_rows(rows: u64) -> Vec<usize> {
    if rows <= SAMPLE_ROWS {
        return (0..rows as usize).collect();
    }
    let mut sampled: Vec<usize> = (0..SAMPLE_ROWS).map(|draw| (mixed(draw) % rows) as usize).collect();
    sampled.sort_unstable();
    sampled.dedup();
    sampled
}

/// A pseudorandom number; deterministic, so that plans are too.
fn mixed(number: u64) -> u64 {
    let mut word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        word = (word ^ word >> 30).wrapping_mul(factor);
    }
    word ^ word >> 31
}

fn read_values(column_type: &ColumnType, bytes: &[u8], rows: &[usize]) -> SampledValues {
    let layout = column_type.layout();
    let width = layout.width_bytes as usize;
    let word = |row: usize| {
        let mut raw = [0u8; 16];
        if let Some(stored) = bytes.get(row * width..(row + 1) * width) {
            raw[..width].copy_from_slice(stored);
        }
        raw
    };
    match column_type.domain {
        Domain::Bytes => SampledValues::Unknown,
        Domain::Int { .. } => SampledValues::Ints(
            rows.iter().map(|&row| layout.base.wrapping_add(i128::from_le_bytes(word(row)))).collect(),
        ),
        Domain::Float32 => {
            let float = |row| f32::from_bits(i128::from_le_bytes(word(row)) as u32);
            SampledValues::Floats(rows.iter().map(|&row| float(row).into()).collect())
        }
        Domain::Float64 => {
            let float = |row| f64::from_bits(i128::from_le_bytes(word(row)) as u64);
            SampledValues::Floats(rows.iter().map(|&row| float(row)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spread_and_different() {
        for rows in [0, 1, 31, 2047, 2048, 2049, 5000, 1 << 33] {
            let sampled = sampled_rows(rows);
            assert!(sampled.len() as u64 <= rows.min(SAMPLE_ROWS));
            assert!(sampled.len() as u64 >= rows.min(SAMPLE_ROWS / 2), "{rows}");
            assert!(sampled.windows(2).all(|pair| pair[0] < pair[1]), "{rows}");
            assert!(sampled.last().is_none_or(|&last| (last as u64) < rows), "{rows}");
        }
    }

    #[test]
    fn a_condition_is_looked_at_once() {
        use arrow::datatypes::DataType;

        use crate::expr::{CompareOp, ExprKind, Scalar};
        let sample = TableSample::default();
        let condition = |number: i128| {
            let column = Expr::column(0, DataType::Int64, true);
            let literal = Expr::literal(Scalar::Int(number), DataType::Int64);
            let kind = ExprKind::Compare(CompareOp::Less, Box::new(column), Box::new(literal));
            Expr { kind, data_type: DataType::Boolean, nullable: true }
        };
        let mut looked = 0;
        let mut ask = |number: i128| {
            sample.kept(&condition(number), || {
                looked += 1;
                (number != 7).then(|| vec![number % 2 == 0; 3])
            })
        };
        for _ in 0..3 {
            assert_eq!(ask(4).as_deref(), Some(&[true; 3][..]));
            assert_eq!(ask(5).as_deref(), Some(&[false; 3][..]));
            assert_eq!(ask(7), None, "what can't be told is remembered too");
        }
        // So many others push those out.
        (0..CONDITIONS_MAX as i128).for_each(|number| drop(ask(100 + number)));
        assert_eq!(ask(4).as_deref(), Some(&[true; 3][..]));
        assert_eq!(looked, 3 + CONDITIONS_MAX + 1);
    }

    #[test]
    fn different_values_are_told_from_repeats() {
        // 2048 draws of 25 values, of 100 thousand, and of a key.
        assert_eq!(distinct_among(2048.0, 25.0, 0.0, 1e6), 25.0);
        let expected = 1e5 * -(-2048.0f64 / 1e5).exp_m1();
        let estimate = distinct_among(2048.0, expected, 2000.0, 6e7);
        assert!((5e4..2e5).contains(&estimate), "{estimate}");
        assert_eq!(distinct_among(2048.0, 2048.0, 2048.0, 6e7), 6e7);
    }
}
