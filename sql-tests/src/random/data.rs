//! Random tables: types, nulls, duplicates, skew, odd sizes, sliced batches.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use rand::Rng;
use rand::rngs::StdRng;

/// What a column is for: keys of one kind can be joined, whatever their exact types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnRole {
    /// Integers of any width.
    Integer,
    /// Strings of any type.
    Text,
    /// Date32.
    Date,
    /// Decimal128.
    Decimal,
    /// Float64, both zeros among them.
    Float,
    /// Booleans.
    Boolean,
}

/// A column and how its values are drawn.
#[derive(Debug, Clone)]
pub(super) struct ColumnData {
    pub(super) name: String,
    pub(super) role: ColumnRole,
    pub(super) data_type: DataType,
    distinct: i64,
    null_share: f64,
    skewed: bool,
    values: ArrayRef,
}

/// A table.
#[derive(Debug, Clone)]
pub(super) struct TableData {
    pub(super) name: String,
    pub(super) columns: Vec<ColumnData>,
    rows: usize,
    /// Rows of its batches.
    batch_rows: usize,
}

const ROLES: [ColumnRole; 9] = [
    ColumnRole::Integer,
    ColumnRole::Integer,
    ColumnRole::Integer,
    ColumnRole::Text,
    ColumnRole::Text,
    ColumnRole::Date,
    ColumnRole::Decimal,
    ColumnRole::Float,
    ColumnRole::Boolean,
];

/// Most rows by number of joins: every row may meet every other one.
const ROWS_MAX: [usize; 4] = [5000, 600, 90, 40];

impl TableData {
    /// Table `t{number}` of a query with so many joins.
    pub(super) fn random(rng: &mut StdRng, number: usize, joins: usize) -> Self {
        let most = ROWS_MAX[joins.min(ROWS_MAX.len() - 1)];
        let rows = match rng.random_range(0..30) {
            0 => 0,
            1 => 1,
            2 => most.min(31 + rng.random_range(0..4)),
            _ => rng.random_range(2..=most),
        };
        let columns = ROLES
            .iter()
            .enumerate()
            .map(|(at, &role)| ColumnData::random(rng, format!("t{number}_c{at}"), role, rows))
            .collect();
        Self {
            name: format!("t{number}"),
            columns,
            rows,
            batch_rows: rng.random_range(1..=rows.max(1)).max(rows / 20 + 1),
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        let field = |column: &ColumnData| Field::new(&column.name, column.data_type.clone(), true);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Its rows in two partitions of sliced batches.
    pub(super) fn partitions(&self) -> Vec<Vec<RecordBatch>> {
        let mut partitions = vec![vec![], vec![]];
        for (number, start) in (0..self.rows).step_by(self.batch_rows).enumerate() {
            let rows = self.batch_rows.min(self.rows - start);
            let columns = self.columns.iter().map(|column| column.values.slice(start, rows)).collect();
            if let Ok(batch) = RecordBatch::try_new(self.schema(), columns) {
                partitions[number % 2].push(batch);
            }
        }
        partitions
    }
}

impl ColumnData {
    fn random(rng: &mut StdRng, name: String, role: ColumnRole, rows: usize) -> Self {
        let pick = |rng: &mut StdRng, types: &[DataType]| types[rng.random_range(0..types.len())].clone();
        let data_type = match role {
            ColumnRole::Integer => {
                use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32};
                pick(rng, &[Int8, Int16, Int32, Int32, Int64, Int64, Int64, UInt8, UInt16, UInt32])
            }
            ColumnRole::Text => pick(rng, &[DataType::Utf8, DataType::Utf8View, DataType::LargeUtf8]),
            ColumnRole::Date => pick(rng, &[DataType::Date32, DataType::Timestamp(TimeUnit::Millisecond, None)]),
            ColumnRole::Decimal => DataType::Decimal128(12, 2),
            ColumnRole::Float => DataType::Float64,
            ColumnRole::Boolean => DataType::Boolean,
        };
        // Few values for many matches a key, or about as many as rows.
        let distinct = match rng.random_range(0..20) {
            0 => 1,
            1..=8 => 4,
            9..=15 => 25,
            _ => rows.max(10) as i64,
        };
        let null_share = [0.0, 0.0, 0.1, 0.4, 1.0][if rng.random_bool(0.98) { rng.random_range(0..4) } else { 4 }];
        let skewed = rng.random_bool(0.2);
        let numbers: Vec<Option<i64>> = (0..rows)
            .map(|_| {
                let value = rng.random_range(0..distinct);
                let value = if skewed && rng.random_bool(0.8) { 0 } else { value };
                (!rng.random_bool(null_share)).then_some(value)
            })
            .collect();
        let values = array_of(role, &data_type, &numbers);
        Self { name, role, data_type, distinct, null_share, skewed, values }
    }
}

impl ColumnData {
    /// How seldom a value of it is met elsewhere.
    pub(super) fn rarity(&self) -> i64 {
        if self.null_share == 1.0 { i64::MAX } else { self.distinct }
    }
}

/// The same number becomes the same value in every type of a role, as far as the type reaches.
fn array_of(role: ColumnRole, data_type: &DataType, numbers: &[Option<i64>]) -> ArrayRef {
    let mapped = |f: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(numbers.iter().map(|number| number.map(f)).collect::<Int64Array>())
    };
    let source: ArrayRef = match role {
        ColumnRole::Integer => mapped(&|n| if data_type.is_signed_integer() { n % 120 - 2 } else { n % 120 }),
        ColumnRole::Text => Arc::new(
            numbers
                .iter()
                .map(|number| {
                    number.map(|n| match n {
                        0 => String::new(),
                        n if n % 5 == 0 => format!("a longer value, number {n}"),
                        n => format!("v{n}"),
                    })
                })
                .collect::<StringArray>(),
        ),
        ColumnRole::Date => {
            let dates = mapped(&|n| 9000 + n);
            let dates = cast(&dates, &DataType::Int32).and_then(|dates| cast(&dates, &DataType::Date32));
            dates.unwrap_or_else(|_| mapped(&|n| n))
        }
        ColumnRole::Decimal => {
            Arc::new(numbers.iter().map(|n| n.map(|n| n as f64 * 1.25 - 3.0)).collect::<Float64Array>())
        }
        ColumnRole::Float => {
            let value = |(row, number): (usize, i64)| match number {
                // Both zeros, which are equal.
                0 if row % 3 == 0 => -0.0,
                number => number as f64 / 8.0,
            };
            let rows = numbers.iter().enumerate();
            Arc::new(rows.map(|(row, number)| number.map(|number| value((row, number)))).collect::<Float64Array>())
        }
        ColumnRole::Boolean => mapped(&|n| n % 2),
    };
    // These casts can't fail; if one did, the mismatch of types would show at once.
    cast(&source, data_type).unwrap_or(source)
}

impl fmt::Display for TableData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} rows in batches of {}", self.name, self.rows, self.batch_rows)?;
        for column in &self.columns {
            let ColumnData { name, data_type, distinct, null_share, skewed, .. } = column;
            write!(f, "\n  {name} {data_type}: {distinct} values, nulls {null_share}, skewed {skewed}")?;
        }
        Ok(())
    }
}
