//! Inputs of the benches: random tables on the first GPU, or on a simulated device where there is none.
//!
//! Owns data and devices of benches, not what is measured. Axes have the field's names: rows,
//! multiplicity (build rows a key), match rate (share of probe rows that match), groups.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use warpjoin::{Result, Session, Table, TableBuilder};
use warpjoin_device::{CudaOptions, SimOptions, open_cuda, open_simulated};

/// A session on the first GPU, or on one simulated device, and whether it is a GPU.
///
/// # Errors
/// When neither can be opened.
pub fn session() -> Result<(Arc<Session>, bool)> {
    match open_cuda(&CudaOptions { devices: Some(1), ..CudaOptions::default() }) {
        Ok(devices) => Ok((Session::new(devices)?, true)),
        Err(reason) => {
            eprintln!("no GPU ({reason}): benches run on a simulated device, whose times say nothing about GPUs");
            Ok((Session::new(open_simulated(&SimOptions::default())?)?, false))
        }
    }
}

/// A table of a 64-bit key and a 64-bit value.
///
/// # Errors
/// When it does not fit the device.
pub fn table(session: &Arc<Session>, name: &str, keys: Vec<i64>, seed: u64) -> Result<Arc<Table>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new(format!("{name}_key"), DataType::Int64, false),
        Field::new(format!("{name}_value"), DataType::Int64, false),
    ]));
    let mut random = StdRng::seed_from_u64(seed);
    let values: Vec<i64> = keys.iter().map(|_| random.random_range(0..1 << 20)).collect();
    let columns: [Arc<dyn arrow::array::Array>; 2] =
        [Arc::new(Int64Array::from(keys)), Arc::new(Int64Array::from(values))];
    let mut builder = TableBuilder::new(session, schema.clone());
    builder.push(&RecordBatch::try_new(schema, columns.to_vec())?)?;
    Ok(Arc::new(builder.finish()?))
}

/// `rows` keys in random order, spread over a wide range: each of `rows / multiplicity` values
/// `multiplicity` times.
pub fn build_keys(rows: usize, multiplicity: usize, seed: u64) -> Vec<i64> {
    let mut keys: Vec<i64> = (0..rows).map(|row| spread((row / multiplicity) as i64)).collect();
    keys.shuffle(&mut StdRng::seed_from_u64(seed));
    keys
}

/// `rows` random keys, of which a share of `match_rate` is among `distinct` build keys.
pub fn probe_keys(rows: usize, distinct: usize, match_rate: f64, seed: u64) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(seed);
    let distinct = distinct as i64;
    (0..rows)
        .map(|_| {
            let hit = random.random_bool(match_rate);
            let number = random.random_range(0..distinct);
            spread(if hit { number } else { distinct + number })
        })
        .collect()
}

/// `rows` random keys of `groups` values.
pub fn group_keys(rows: usize, groups: usize, seed: u64) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..rows).map(|_| spread(random.random_range(0..groups as i64))).collect()
}

/// Numbers far apart, so that keys are not dense.
fn spread(number: i64) -> i64 {
    number.wrapping_mul(0x9e37_79b9) & ((1 << 50) - 1)
}
