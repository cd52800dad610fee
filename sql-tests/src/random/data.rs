//! Random tables: types, nulls, duplicates, skew, odd sizes, many partitions and sliced batches.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema, SchemaRef};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::domain::{ColumnRole, array_of};

/// A column and how its values are drawn.
#[derive(Debug, Clone)]
pub(super) struct ColumnData {
    pub(super) name: String,
    pub(super) role: ColumnRole,
    pub(super) data_type: DataType,
    /// Whether its values may include NaN.
    pub(super) has_nan: bool,
    distinct: i64,
    null_share: f64,
    skewed: bool,
    rows: usize,
    /// Seed of its values, which are generated on demand.
    seed: u64,
}

/// A table.
#[derive(Debug, Clone)]
pub(super) struct TableData {
    pub(super) name: String,
    /// The first one is its [`ColumnRole::Id`].
    pub(super) columns: Vec<ColumnData>,
    pub(super) rows: usize,
    /// Rows of its batches.
    batch_rows: usize,
    partitions: usize,
    /// 0.0 stands in place of -0.0.
    pub(super) has_positive_zeros: bool,
    /// Numbers stand in place of NaN.
    pub(super) has_no_nan: bool,
}

const ROLES: [ColumnRole; 14] = [
    ColumnRole::Id,
    ColumnRole::Integer,
    ColumnRole::Integer,
    ColumnRole::Integer,
    ColumnRole::ExtremeInteger,
    ColumnRole::Text,
    ColumnRole::Text,
    ColumnRole::Date,
    ColumnRole::ExtremeDate,
    ColumnRole::Decimal,
    ColumnRole::ExtremeDecimal,
    ColumnRole::Float,
    ColumnRole::ExtremeFloat,
    ColumnRole::Boolean,
];

/// Most rows of a table by number of joins. Joins may match all pairs of rows.
const ROWS_MAX: [usize; 4] = [3000, 600, 90, 40];
/// Most rows of a large first table. Other tables of its query have at most [`ROWS_BESIDE_LARGE_MAX`] rows.
const ROWS_LARGE_MAX: usize = 200_000;
const ROWS_BESIDE_LARGE_MAX: usize = 6;

/// The tables of a query with `joins` joins.
pub(super) fn random_tables(rng: &mut StdRng, joins: usize) -> Vec<TableData> {
    let is_large = joins <= 1 && rng.random_bool(0.04);
    let most = |number: usize| match (is_large, number) {
        (true, 0) => ROWS_LARGE_MAX,
        (true, _) => ROWS_BESIDE_LARGE_MAX,
        (false, _) => ROWS_MAX[joins.min(ROWS_MAX.len() - 1)],
    };
    (0..=joins).map(|number| TableData::random(rng, number, most(number))).collect()
}

impl TableData {
    /// Table `t{number}` with at most `most` rows.
    fn random(rng: &mut StdRng, number: usize, most: usize) -> Self {
        let rows = match rng.random_range(0..30) {
            0 => 0,
            1 => 1,
            2 => most.min(31 + rng.random_range(0..4)),
            // Mostly small, because large tables take long.
            3..20 => rng.random_range(2..=most.clamp(2, 400)),
            _ => rng.random_range(2..=most.max(2)),
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
            partitions: [1, 1, 2, 3, 5][rng.random_range(0..5)],
            has_positive_zeros: false,
            has_no_nan: false,
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        let field = |column: &ColumnData| Field::new(&column.name, column.data_type.clone(), true);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Its rows in partitions, some of them empty, of sliced batches.
    pub(super) fn partitions(&self) -> Vec<Vec<RecordBatch>> {
        let mut partitions = vec![vec![]; self.partitions];
        let values = |column: &ColumnData| {
            let values = column.values();
            let values = if self.has_positive_zeros { floats(&values, |value| value + 0.0) } else { values };
            if self.has_no_nan { floats(&values, |value| if value.is_nan() { 1.5 } else { value }) } else { values }
        };
        let columns: Vec<ArrayRef> = self.columns.iter().map(values).collect();
        for (number, start) in (0..self.rows).step_by(self.batch_rows).enumerate() {
            let rows = self.batch_rows.min(self.rows - start);
            let columns = columns.iter().map(|column| column.slice(start, rows)).collect();
            if let Ok(batch) = RecordBatch::try_new(self.schema(), columns) {
                partitions[number % self.partitions].push(batch);
            }
        }
        partitions
    }
}

impl ColumnData {
    fn random(rng: &mut StdRng, name: String, role: ColumnRole, rows: usize) -> Self {
        let data_type = role.data_type(rng);
        // Few distinct values, so that keys have many matches, or about as many as rows.
        let distinct = match rng.random_range(0..20) {
            0 => 1,
            1..=8 => 4,
            9..=15 => 25,
            _ => rows.max(10) as i64,
        };
        let null_share = [0.0, 0.0, 0.1, 0.4, 1.0][if rng.random_bool(0.98) { rng.random_range(0..4) } else { 4 }];
        let skewed = rng.random_bool(0.2);
        let has_nan = match role {
            ColumnRole::ExtremeFloat => true,
            ColumnRole::Float => rng.random_bool(0.15),
            _ => false,
        };
        let (distinct, null_share) = if role == ColumnRole::Id { (rows as i64, 0.0) } else { (distinct, null_share) };
        Self { name, role, data_type, has_nan, distinct, null_share, skewed, rows, seed: rng.random() }
    }

    fn values(&self) -> ArrayRef {
        let Self { role, data_type, has_nan, distinct, null_share, skewed, rows, .. } = self;
        let mut rng = StdRng::seed_from_u64(self.seed);
        let numbers: Vec<Option<i64>> = match role {
            ColumnRole::Id => (0..*rows as i64).map(Some).collect(),
            _ => (0..*rows)
                .map(|_| {
                    let value = rng.random_range(0..*distinct);
                    let value = if *skewed && rng.random_bool(0.8) { 0 } else { value };
                    (!rng.random_bool(*null_share)).then_some(value)
                })
                .collect(),
        };
        array_of(*role, data_type, &numbers, *has_nan)
    }

    /// How seldom its values match those of other columns.
    pub(super) fn rarity(&self) -> i64 {
        if self.null_share == 1.0 { i64::MAX } else { self.distinct }
    }

    /// A value of a column with an extreme role, as SQL of its type; `None` for other roles.
    pub(super) fn extreme(&self, rng: &mut StdRng) -> Option<String> {
        let values = self.role.extremes(&self.data_type)?;
        Some(format!("arrow_cast('{}', '{}')", values[rng.random_range(0..values.len())], self.data_type))
    }
}

/// The same values, floats with others in their place, which have as few bits.
fn floats(values: &ArrayRef, other: impl Fn(f64) -> f64) -> ArrayRef {
    match values.data_type() {
        DataType::Float32 => {
            let single = |value| other(f64::from(value)) as f32;
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(single))
        }
        DataType::Float64 => Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(other)),
        _ => Arc::clone(values),
    }
}

impl fmt::Display for TableData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rows, batch_rows, partitions, .. } = self;
        write!(f, "{name}: {rows} rows in batches of {batch_rows}, {partitions} partitions")?;
        for column in &self.columns {
            let ColumnData { name, data_type, distinct, null_share, skewed, has_nan, .. } = column;
            write!(f, "\n  {name} {data_type}: {distinct} values, nulls {null_share}, skewed {skewed}, NaN {has_nan}")?;
        }
        Ok(())
    }
}
