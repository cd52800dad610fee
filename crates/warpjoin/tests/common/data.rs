//! Random tables: domains of values, and columns drawn from them.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::value::{V, array_of, decimal, int_bounds};

/// Types of random columns.
pub(crate) const TYPES: [DataType; 25] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int32,
    DataType::Int64,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Boolean,
    DataType::Float32,
    DataType::Float64,
    DataType::Date32,
    DataType::Date64,
    DataType::Timestamp(TimeUnit::Second, None),
    DataType::Timestamp(TimeUnit::Nanosecond, None),
    DataType::Utf8,
    DataType::LargeUtf8,
    DataType::Utf8View,
    DataType::Decimal32(7, 2),
    DataType::Decimal64(16, 3),
    DataType::Decimal128(12, 2),
    DataType::Decimal128(38, 0),
    DataType::Decimal128(30, 6),
];

/// Values that columns of several tables are drawn from, so that joins match.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) data_type: DataType,
    pub(crate) values: Vec<V>,
}

/// Smallest and largest stored number of a type.
fn bounds(data_type: &DataType) -> Option<(i128, i128)> {
    match decimal(data_type) {
        Some((precision, _)) => {
            let bound = 10i128.pow(precision.into()) - 1;
            Some((-bound, bound))
        }
        None => int_bounds(data_type),
    }
}

/// One value of a type, out of everything that it holds.
pub(crate) fn any_value(rng: &mut StdRng, data_type: &DataType) -> V {
    match data_type {
        DataType::Boolean => V::Bool(rng.random()),
        DataType::Float32 | DataType::Float64 => match rng.random_range(0..12) {
            0 => V::Float(f64::NAN),
            1 => V::Float(-0.0),
            2 => V::Float(0.0),
            // Multiples of a quarter: their sums are exact in any order.
            _ => V::Float(f64::from(rng.random_range(-40_000..40_000)) / 4.0),
        },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let number: u16 = rng.random_range(0..2000);
            V::Text(
                ["", "a", "ä\u{1F600}", "a longer text than twelve bytes "][usize::from(number % 4)].to_string()
                    + &number.to_string(),
            )
        }
        _ => {
            let (min, max) = bounds(data_type).expect("a number");
            V::Int(match rng.random_range(0..8) {
                0 => min,
                1 => max,
                2 => 0.clamp(min, max),
                3 => (-1).clamp(min, max),
                _ => rng.random_range(min..=max),
            })
        }
    }
}

/// Random values of a type: one, a few neighbors, a run, or all over the type.
pub(crate) fn pool(rng: &mut StdRng, data_type: &DataType) -> Pool {
    let count = *[1, 2, 5, 20, 80, 400].choose(rng).expect("some");
    let values = match bounds(data_type) {
        Some((min, max)) if rng.random_bool(0.6) => {
            let around = match rng.random_range(0..4) {
                0 => 0,
                1 => min,
                2 => max,
                _ => rng.random_range(min..=max).clamp(-1_000_000, 1_000_000),
            };
            let spread = *[0i128, 1, 10, 300, 70_000].choose(rng).expect("some");
            let value = |rng: &mut StdRng| around.saturating_add(rng.random_range(-spread..=spread)).clamp(min, max);
            (0..count).map(|_| V::Int(value(rng))).collect()
        }
        _ => (0..count).map(|_| any_value(rng, data_type)).collect(),
    };
    Pool { data_type: data_type.clone(), values }
}

/// Numbers of rows at which vectors, warps and blocks begin and end, and some between.
pub(crate) fn row_count(rng: &mut StdRng) -> usize {
    match rng.random_range(0..10) {
        0 => 0,
        1 => 1,
        2 => *[31, 32, 33, 63, 64, 65, 255, 256, 257].choose(rng).expect("some"),
        3 => rng.random_range(1000..3000),
        _ => rng.random_range(2..300),
    }
}

/// A column of `rows` values of a pool: all of it or a part, skewed or not, with nulls or not.
fn column(rng: &mut StdRng, pool: &Pool, rows: usize) -> Vec<V> {
    let length = rng.random_range(1..=pool.values.len());
    let first = rng.random_range(0..=pool.values.len() - length);
    let part = &pool.values[first..first + length];
    let nulls = *[0.0, 0.0, 0.1, 0.5, 1.0].choose(rng).expect("some");
    let skew = *[0.0, 0.0, 0.9].choose(rng).expect("some");
    let value = |rng: &mut StdRng| match (rng.random_bool(nulls), rng.random_bool(skew)) {
        (true, _) => V::Null,
        (_, true) => part[0].clone(),
        _ => part.choose(rng).expect("not empty").clone(),
    };
    (0..rows).map(|_| value(rng)).collect()
}

/// A table whose columns are drawn from some of the pools, each maybe several times.
pub(crate) fn table(rng: &mut StdRng, pools: &[Pool]) -> RecordBatch {
    let rows = row_count(rng);
    let columns = rng.random_range(1..=5);
    let chosen: Vec<&Pool> = (0..columns).map(|_| pools.choose(rng).expect("some")).collect();
    let values: Vec<Vec<V>> = chosen.iter().map(|pool| column(rng, pool, rows)).collect();
    let types: Vec<DataType> = chosen.iter().map(|pool| pool.data_type.clone()).collect();
    let strict = rng.random_bool(0.5);
    batch(&values, &types, strict)
}

/// A batch of columns; with `strict`, fields without nulls are declared so.
pub(crate) fn batch(columns: &[Vec<V>], types: &[DataType], strict: bool) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .zip(types)
        .enumerate()
        .map(|(index, (values, data_type))| {
            let nullable = !strict || values.iter().any(V::is_null);
            Field::new(format!("c{index}"), data_type.clone(), nullable)
        })
        .collect();
    let arrays = columns.iter().zip(types).map(|(values, data_type)| array_of(values, data_type)).collect();
    let options = RecordBatchOptions::new().with_row_count(columns.first().map(Vec::len));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).expect("a batch")
}
