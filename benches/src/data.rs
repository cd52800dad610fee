//! Tables generated on the devices: the specification of their columns, and the launches that fill them.
//!
//! Must not know which operator reads them.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::column::{Domain, Layout};
use warpjoin::{ResidentColumn, Shard, ShardColumn, Table};
use warpjoin_device::{Arg, Buffer, Kernel, ModuleSource};

use crate::shared::{Numbering, Value, module};
use crate::{Bench, Error, Member, Result};

const FILE: (&str, &str) =
    ("benches/data.cu", concat!(include_str!("../kernels/totals.cuh"), include_str!("../kernels/data.cu")));
const ENTRIES: [&str; 5] = ["make_column", "hash_rows", "expected_join", "group_reference", "expected_groups"];
/// Fills value buffers before they are written and after they are checked.
pub(crate) const POISON: u8 = 0xa5;
const BUFFER_ALIGNMENT_BYTES: u64 = 16;

/// The key numbers of the rows of a table.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// Distribution.
    pub numbering: Numbering,
    /// Number of distinct keys of the build side, or of groups: a power of two. Key numbers from `distinct` on match
    /// nothing.
    pub distinct: u64,
    /// Number of rows with key number 0. No row has a key number from 1 to `hot_rows` - 1. Not for random distributions.
    pub hot_rows: u64,
    /// Number of rows with a key number below `distinct`. Each other row has a unique key number. Not for random
    /// distributions.
    pub hit_rows: u64,
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// Seed of random distributions.
    pub seed: u64,
}

impl Numbers {
    /// Numbers without hot keys, all of which match.
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
        let cannot_permute = self.numbering == Numbering::Permuted && !rows.is_power_of_two();
        if !self.distinct.is_power_of_two() || cannot_permute {
            return Err(Error::Internal(format!("{self:?} of {rows} rows: expected powers of two")));
        }
        Ok(())
    }
}

/// One column of a table.
#[derive(Debug, Clone)]
pub struct ColumnSpec {
    /// Name.
    pub name: String,
    /// Values.
    pub value: Value,
    /// Arrow type.
    pub data_type: DataType,
    /// Bounds of the values: the whole range of the type, except for dense keys and row numbers.
    pub domain: Domain,
    /// Seed of random values.
    pub seed: u64,
}

impl ColumnSpec {
    /// A column over the whole range of its type.
    pub fn new(name: &str, value: Value, data_type: DataType, seed: u64) -> Self {
        let domain = match (&data_type, value) {
            (_, Value::Float) => Domain::Float64,
            (_, Value::Decimal) => Domain::Int { min: -(1 << 92), max: (1 << 92) - 1 },
            (DataType::Int32, _) => Domain::Int { min: i32::MIN.into(), max: i32::MAX.into() },
            _ => Domain::Int { min: i64::MIN.into(), max: i64::MAX.into() },
        };
        Self { name: name.into(), value, data_type, domain, seed }
    }

    /// Sets the bounds to 0 and `max`.
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
        // Bases of widths up to 8 bytes fit in an i64.
        [self.value as u64, self.seed, layout.base as i64 as u64, mask].map(Arg::U64)
    }
}

/// The module of the data kernels.
pub(crate) fn data_module() -> ModuleSource {
    module(FILE, &ENTRIES)
}

pub(crate) fn data_kernel(member: &Member, entry: &str) -> Result<Kernel> {
    member.kernel(FILE, &ENTRIES, entry)
}

/// Generates a table of `rows` rows on the devices of `bench`, equal runs of them on each, and waits for it.
///
/// # Errors
/// When a device has too little memory, or the specification contradicts itself.
pub fn table(bench: &Bench, rows: u64, numbers: &Numbers, specs: &[ColumnSpec]) -> Result<Arc<Table>> {
    let (mut shards, mut first_row) = (vec![], 0);
    for (index, member) in bench.members().iter().enumerate() {
        let end = rows * (index as u64 + 1) / bench.members().len() as u64;
        let column = |values| ShardColumn { values: Some(Arc::new(values)), offsets: None, validity: None };
        let columns = columns_on(member, first_row..end, rows, numbers, specs)?.into_iter().map(column).collect();
        shards.push(Shard { rows: end - first_row, first_row, columns });
        first_row = end;
    }
    bench.members().iter().try_for_each(|member| member.stream().synchronize())?;
    let field = |spec: &ColumnSpec| Field::new(&spec.name, spec.data_type.clone(), false);
    let schema = Arc::new(Schema::new(specs.iter().map(field).collect::<Vec<_>>()));
    let columns = specs.iter().map(|spec| ResidentColumn::new(spec.data_type.clone(), spec.domain)).collect();
    Ok(Arc::new(Table::from_shards(bench.session().device_set(), schema, columns, shards)?))
}

/// Generates some rows of the columns of a table of `rows` rows on a device.
pub(crate) fn columns_on(
    member: &Member,
    own: Range<u64>,
    rows: u64,
    numbers: &Numbers,
    specs: &[ColumnSpec],
) -> Result<Vec<Buffer>> {
    numbers.check(rows)?;
    let own_rows = own.end - own.start;
    let kernel = data_kernel(member, "make_column")?;
    let make = |spec: &ColumnSpec| {
        let width_bytes = spec.width_bytes();
        let values = alloc_column(member, own_rows * width_bytes)?;
        let mut args = [own.start, own_rows, width_bytes].map(Arg::U64).to_vec();
        args.push(Arg::Buffer(&values));
        args.extend(spec.args());
        args.extend(numbers.args(rows));
        member.launch_rows(&kernel, own_rows, &args)?;
        Ok(values)
    };
    specs.iter().map(make).collect()
}

/// A buffer for `bytes` bytes of values: poisoned, and padded with zeros.
fn alloc_column(member: &Member, bytes: u64) -> Result<Buffer> {
    let padded = bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES).max(BUFFER_ALIGNMENT_BYTES);
    let buffer = member.stream().alloc_filled(padded, POISON)?;
    member.stream().fill(&buffer, bytes, padded - bytes, 0)?;
    Ok(buffer)
}
