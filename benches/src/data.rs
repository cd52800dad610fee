//! Tables made on the device: how their columns are specified, and the launch that makes them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::column::{Domain, Layout};
use warpjoin::{ResidentColumn, Shard, ShardColumn, Table};
use warpjoin_device::{Arg, Buffer, ModuleSource};

use crate::bench::{THREADS, module};
use crate::limits::kernels::{ACCESSES_IN_FLIGHT, VECTORS_IN_FLIGHT};
use crate::{Bench, Error, Result};

const FILE: (&str, &str) =
    ("benches/data.cu", concat!(include_str!("../kernels/totals.cuh"), include_str!("../kernels/data.cu")));
const ENTRIES: [&str; 5] = ["make_column", "hash_rows", "expected_join", "group_reference", "expected_groups"];
/// Columns that a checked result may have.
pub(crate) const COLUMNS_MAX: usize = 12;
/// Aggregates that a checked group-by may have.
pub(crate) const AGGREGATES_MAX: usize = 4;
/// What a value buffer is filled with before it is written, and after it was checked.
pub(crate) const POISON: u8 = 0xa5;
const BUFFER_ALIGNMENT_BYTES: u64 = 16;

/// How rows get the numbers that keys are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// The row modulo the distinct numbers.
    Cyclic,
    /// The same, in random order.
    Permuted,
    /// Drawn, all alike.
    Uniform,
    /// Drawn by Zipf's law (its continuous form).
    Zipf,
}

/// How the rows of a table get the numbers that keys are made of.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// Kind.
    pub numbering: Numbering,
    /// Numbers of the build side, or groups: a power of two. What is not below it matches nothing.
    pub distinct: u64,
    /// So many rows have number 0, and no row the numbers from 1 to `hot_rows` - 1. Not for drawn ones.
    pub hot_rows: u64,
    /// Rows with a number below `distinct`; the others have numbers of no one else. Not for drawn ones.
    pub hit_rows: u64,
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// For drawn numbers.
    pub seed: u64,
}

impl Numbers {
    /// Every one of `distinct` numbers equally often.
    pub fn new(numbering: Numbering, distinct: u64) -> Self {
        Self { numbering, distinct, hot_rows: 0, hit_rows: u64::MAX, exponent: 0.0, seed: 0x5eed }
    }

    pub(crate) fn args(&self, rows: u64) -> [Arg<'static>; 7] {
        [
            self.numbering as u64,
            self.distinct,
            self.hot_rows,
            self.hit_rows,
            u64::from(rows.max(1).ilog2()),
            self.exponent.to_bits(),
            self.seed,
        ]
        .map(Arg::U64)
    }

    fn check(&self, rows: u64) -> Result<()> {
        let permuted_badly = self.numbering == Numbering::Permuted && !rows.is_power_of_two();
        if !self.distinct.is_power_of_two() || permuted_badly {
            return Err(Error::Internal(format!("{self:?} of {rows} rows: not powers of two")));
        }
        Ok(())
    }
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A bijection of the number over the whole range of 32 bits.
    Key32,
    /// The same of 64 bits.
    Key64,
    /// The numbers below `distinct`, permuted.
    KeyDense,
    /// Another bijection of the number: the second column of a key of 16 bytes.
    KeySecond,
    /// The row number.
    Row,
    /// Random bits.
    Random,
    /// Random multiples of 1/16 below 2^20: sums of 2^29 of them are exact.
    Float,
    /// Random integers from -2^92 to 2^92 - 1, in 16 bytes.
    Decimal,
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct ColumnSpec {
    /// Name.
    pub name: String,
    /// Its values.
    pub value: Value,
    /// Its Arrow type.
    pub data_type: DataType,
    /// Bounds of its values: the whole range of the type, but for dense keys and row numbers.
    pub domain: Domain,
    /// Makes columns of random values differ.
    pub seed: u64,
}

impl ColumnSpec {
    /// A column of its type's whole range.
    pub fn new(name: &str, value: Value, data_type: DataType, seed: u64) -> Self {
        let domain = match (&data_type, value) {
            (_, Value::Float) => Domain::Float64,
            (_, Value::Decimal) => Domain::Int { min: -(1 << 92), max: (1 << 92) - 1 },
            (DataType::Int32, _) => Domain::Int { min: i32::MIN.into(), max: i32::MAX.into() },
            _ => Domain::Int { min: i64::MIN.into(), max: i64::MAX.into() },
        };
        Self { name: name.into(), value, data_type, domain, seed }
    }

    /// The same with values from 0 to `max`.
    #[must_use]
    pub fn up_to(self, max: u64) -> Self {
        Self { domain: Domain::Int { min: 0, max: max.into() }, ..self }
    }

    /// Bytes of a stored value.
    pub fn width_bytes(&self) -> u64 {
        Layout::of(self.domain).width_bytes.into()
    }

    pub(crate) fn args(&self) -> [Arg<'static>; 4] {
        let layout = Layout::of(self.domain);
        let mask = if layout.width_bytes >= 8 { u64::MAX } else { (1u64 << (8 * layout.width_bytes)) - 1 };
        // The bases of widths up to 8 bytes fit an i64.
        [self.value as u64, self.seed, layout.base as i64 as u64, mask].map(Arg::U64)
    }
}

/// The module of the data kernels.
pub(crate) fn data_module() -> ModuleSource {
    module(FILE, &ENTRIES)
}

pub(crate) fn data_kernel(bench: &Bench, entry: &str) -> Result<warpjoin_device::Kernel> {
    bench.kernel(FILE, &ENTRIES, entry)
}

/// Constants of the kernels: written down here, and given to the compiler.
pub(crate) fn definitions() -> Vec<String> {
    let numberings = [
        ("CYCLIC", Numbering::Cyclic),
        ("PERMUTED", Numbering::Permuted),
        ("UNIFORM", Numbering::Uniform),
        ("ZIPF", Numbering::Zipf),
    ];
    let values = [
        ("KEY32", Value::Key32),
        ("KEY64", Value::Key64),
        ("KEY_DENSE", Value::KeyDense),
        ("KEY_SECOND", Value::KeySecond),
        ("ROW", Value::Row),
        ("RANDOM", Value::Random),
        ("FLOAT", Value::Float),
        ("DECIMAL", Value::Decimal),
    ];
    let mut definitions: Vec<String> = vec![
        format!("THREADS={THREADS}"),
        format!("COLUMNS_MAX={COLUMNS_MAX}"),
        format!("AGGREGATES_MAX={AGGREGATES_MAX}"),
        format!("VECTORS_IN_FLIGHT={VECTORS_IN_FLIGHT}"),
        format!("ACCESSES_IN_FLIGHT={ACCESSES_IN_FLIGHT}"),
    ];
    definitions.extend(numberings.map(|(name, numbering)| format!("NUMBERS_{name}={}", numbering as u64)));
    definitions.extend(values.map(|(name, value)| format!("VALUE_{name}={}", value as u64)));
    definitions.extend(crate::checksum::FUNCTIONS.map(|(name, function)| format!("AGGREGATE_{name}={function}")));
    definitions
}

/// Makes a table of `rows` rows on the device of `bench`, and waits for it.
///
/// # Errors
/// When the device has too little memory, or the specification contradicts itself.
pub fn table(bench: &Bench, rows: u64, numbers: &Numbers, specs: &[ColumnSpec]) -> Result<Arc<Table>> {
    numbers.check(rows)?;
    let kernel = data_kernel(bench, "make_column")?;
    let (mut fields, mut columns, mut stored) = (vec![], vec![], vec![]);
    for spec in specs {
        let width_bytes = spec.width_bytes();
        let values = alloc_column(bench, rows * width_bytes)?;
        let mut args = vec![Arg::U64(rows), Arg::U64(width_bytes), Arg::Buffer(&values)];
        args.extend(spec.args());
        args.extend(numbers.args(rows));
        bench.launch_rows(&kernel, rows, &args)?;
        fields.push(Field::new(&spec.name, spec.data_type.clone(), false));
        columns.push(ResidentColumn::new(spec.data_type.clone(), spec.domain));
        stored.push(ShardColumn { values: Some(values), offsets: None, validity: None });
    }
    bench.stream().synchronize()?;
    let shards = vec![Shard { rows, first_row: 0, columns: stored }];
    Ok(Arc::new(Table::from_shards(bench.session().device_set(), Arc::new(Schema::new(fields)), columns, shards)?))
}

/// A buffer for `bytes` bytes of values, poisoned, and 0 past them.
fn alloc_column(bench: &Bench, bytes: u64) -> Result<Buffer> {
    let padded = bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES).max(BUFFER_ALIGNMENT_BYTES);
    let buffer = bench.stream().alloc_filled(padded, POISON)?;
    bench.stream().fill(&buffer, bytes, padded - bytes, 0)?;
    Ok(buffer)
}
