//! Expected and actual checksums of results: number of rows, and sum and exclusive or of row hashes.
//!
//! Expected checksums are computed from the specification of the inputs, not by an operator; those of
//! group-bys use plain atomic additions. Must not know how an operator works.

use warpjoin::{Shard, Table};
use warpjoin_device::{Arg, Buffer};

use crate::data::{POISON, data_kernel};
use crate::shared::{AGGREGATES_MAX, COLUMNS_MAX, FUNCTIONS};
use crate::{Bench, Checksum, ColumnSpec, Error, Member, Numbers, Result};

const CHECKSUM_WORDS: usize = 3;

impl Checksum {
    /// A checksum of no rows, in device memory.
    pub(crate) fn buffer(member: &Member) -> Result<Buffer> {
        Ok(member.stream().alloc_filled(CHECKSUM_WORDS as u64 * 8, 0)?)
    }

    /// Reads a checksum from device memory.
    pub(crate) fn read(member: &Member, totals: &Buffer) -> Result<Self> {
        let [rows, sum, exclusive] = member.read_words::<CHECKSUM_WORDS>(totals)?;
        Ok(Self { rows, sum, exclusive })
    }

    /// The checksum of the rows of both.
    fn and(self, other: Self) -> Self {
        let Self { rows, sum, exclusive } = other;
        Self { rows: self.rows + rows, sum: self.sum.wrapping_add(sum), exclusive: self.exclusive ^ exclusive }
    }

    /// Compares with an actual checksum.
    ///
    /// # Errors
    /// [`Error::Wrong`] when they differ.
    pub fn check(self, found: Checksum) -> Result<()> {
        if self == found { Ok(()) } else { Err(Error::Wrong { expected: self, found }) }
    }
}

/// Checksum of all rows of a table, over all its columns in order.
///
/// # Errors
/// When the table has nulls, which no bench expects, or the device fails.
pub fn checksum_of(bench: &Bench, table: &Table) -> Result<Checksum> {
    checksum_of_columns(bench, &[table])
}

/// As [`checksum_of`], over the columns of several tables with the same number of rows.
///
/// # Errors
/// As [`checksum_of`], and when the tables differ in length.
pub(crate) fn checksum_of_columns(bench: &Bench, tables: &[&Table]) -> Result<Checksum> {
    let statistics = tables.iter().flat_map(|table| table.statistics());
    if statistics.into_iter().any(|statistics| statistics.null_count > 0) {
        return Err(Error::Unexpected("the result has nulls".into()));
    }
    let shards: Vec<Vec<Shard>> = tables.iter().map(|table| table.shards()).collect();
    let mut all = Checksum { rows: 0, sum: 0, exclusive: 0 };
    for (index, member) in bench.members().iter().enumerate() {
        let shards: Vec<&Shard> = shards.iter().filter_map(|shards| shards.get(index)).collect();
        let rows = shards.first().map_or(0, |shard| shard.rows);
        if shards.len() != tables.len() || shards.iter().any(|shard| shard.rows != rows) {
            return Err(Error::Unexpected("the results have different lengths".into()));
        }
        all = all.and(checksum_on(member, rows, shards.into_iter().zip(tables))?);
    }
    Ok(all)
}

fn checksum_on<'a>(
    member: &Member,
    rows: u64,
    shards: impl Iterator<Item = (&'a Shard, &'a &'a Table)>,
) -> Result<Checksum> {
    let columns: Vec<_> = shards.flat_map(|(shard, table)| shard.columns.iter().zip(table.column_types())).collect();
    if columns.len() > COLUMNS_MAX {
        return Err(Error::Internal(format!("{} columns to check", columns.len())));
    }
    let totals = Checksum::buffer(member)?;
    let mut args = vec![Arg::U64(rows), Arg::Buffer(&totals), Arg::U64(columns.len() as u64)];
    for (column, facts) in columns {
        let layout = facts.layout();
        args.push(column.values.as_deref().map_or(Arg::Null, Arg::Buffer));
        args.push(Arg::U64(layout.width_bytes.into()));
        args.push(Arg::U64(layout.base as i64 as u64));
    }
    args.resize(3 + 3 * COLUMNS_MAX, Arg::Null);
    member.launch_rows(&data_kernel(member, "hash_rows")?, rows, &args)?;
    Checksum::read(member, &totals)
}

/// Overwrites the values of a table, so that a later result in the same memory cannot pass the check without being written.
pub(crate) fn poison(bench: &Bench, table: &Table) -> Result<()> {
    for (shard, member) in table.shards().iter().zip(bench.members()) {
        for values in shard.columns.iter().filter_map(|column| column.values.as_ref()) {
            member.stream().fill(values, 0, values.bytes(), POISON)?;
        }
        member.stream().synchronize()?;
    }
    Ok(())
}

/// An inner join. Its output is the keys, the payloads of the build side, then those of the probe side.
#[derive(Debug)]
pub struct ExpectedJoin<'a> {
    /// Number of build rows. Their key numbers are cyclic.
    pub build_rows: u64,
    /// Number of probe rows.
    pub probe_rows: u64,
    /// Key numbers of the build side.
    pub build: Numbers,
    /// Key numbers of the probe side.
    pub probe: Numbers,
    /// Key columns in the output.
    pub keys: &'a [ColumnSpec],
    /// Columns of the build side in the output.
    pub build_payloads: &'a [ColumnSpec],
    /// Columns of the probe side in the output.
    pub probe_payloads: &'a [ColumnSpec],
}

impl ExpectedJoin<'_> {
    /// Checksum of the rows that the join must output.
    ///
    /// # Errors
    /// When there are too many columns, or the device fails.
    pub fn checksum(&self, bench: &Bench) -> Result<Checksum> {
        let columns: Vec<&ColumnSpec> =
            self.keys.iter().chain(self.build_payloads).chain(self.probe_payloads).collect();
        if columns.len() > COLUMNS_MAX {
            return Err(Error::Internal(format!("{} columns to check", columns.len())));
        }
        let totals = Checksum::buffer(bench)?;
        let mut args = vec![Arg::U64(self.build_rows), Arg::U64(self.probe_rows), Arg::Buffer(&totals)];
        args.extend(self.build.args(self.build_rows));
        args.extend(self.probe.args(self.probe_rows));
        args.extend(
            [self.keys, self.build_payloads, self.probe_payloads].map(|columns| Arg::U64(columns.len() as u64)),
        );
        let length = args.len() + 4 * COLUMNS_MAX;
        args.extend(columns.iter().flat_map(|column| column.args()));
        args.resize(length, Arg::Null);
        bench.launch_rows(&data_kernel(bench, "expected_join")?, self.probe_rows, &args)?;
        Checksum::read(bench, &totals)
    }
}

/// One aggregate of a checked group-by.
#[derive(Debug, Clone)]
pub enum GroupAggregate {
    /// Number of rows.
    Count,
    /// Sum of 64-bit integers, modulo 2^64.
    Sum(ColumnSpec),
    /// Exact sum of [`crate::Value::Float`].
    SumFloat(ColumnSpec),
    /// Maximum of [`crate::Value::Float`].
    MaxFloat(ColumnSpec),
    /// Sum of [`crate::Value::Decimal`].
    SumDecimal(ColumnSpec),
}

impl GroupAggregate {
    /// The column, if it has one.
    pub fn column(&self) -> Option<&ColumnSpec> {
        match self {
            Self::Count => None,
            Self::Sum(column) | Self::SumFloat(column) | Self::MaxFloat(column) | Self::SumDecimal(column) => {
                Some(column)
            }
        }
    }

    fn function(&self) -> u64 {
        match self {
            Self::Count => FUNCTIONS[0].1,
            Self::Sum(_) => FUNCTIONS[1].1,
            Self::SumFloat(_) => FUNCTIONS[2].1,
            Self::MaxFloat(_) => FUNCTIONS[3].1,
            Self::SumDecimal(_) => FUNCTIONS[4].1,
        }
    }

    fn args(&self) -> [Arg<'static>; 5] {
        let column = self.column().map_or([Arg::U64(0); 4], ColumnSpec::args);
        [Arg::U64(self.function()), column[0], column[1], column[2], column[3]]
    }
}

/// A group-by. Its output is the key, then the aggregates.
#[derive(Debug)]
pub struct ExpectedGroups<'a> {
    /// Number of rows.
    pub rows: u64,
    /// Group numbers of the rows.
    pub numbers: Numbers,
    /// The key column.
    pub key: &'a ColumnSpec,
    /// The aggregates.
    pub aggregates: &'a [GroupAggregate],
}

impl ExpectedGroups<'_> {
    /// Checksum of the groups that the group-by must output.
    ///
    /// # Errors
    /// When there are too many aggregates, or the device fails.
    pub fn checksum(&self, bench: &Bench) -> Result<Checksum> {
        if self.aggregates.len() > AGGREGATES_MAX {
            return Err(Error::Internal(format!("{} aggregates to check", self.aggregates.len())));
        }
        let group_words = 1 + 2 * AGGREGATES_MAX as u64;
        let words = bench.stream().alloc_filled(self.numbers.distinct * group_words * 8, 0)?;
        let totals = Checksum::buffer(bench)?;
        for (entry, items) in [("group_reference", self.rows), ("expected_groups", self.numbers.distinct)] {
            let mut args = vec![Arg::U64(items), Arg::Buffer(&words), Arg::Buffer(&totals)];
            args.extend(self.numbers.args(self.rows));
            args.extend(self.key.args());
            args.push(Arg::U64(self.aggregates.len() as u64));
            let length = args.len() + 5 * AGGREGATES_MAX;
            for aggregate in self.aggregates {
                args.extend(aggregate.args());
            }
            args.resize(length, Arg::Null);
            bench.launch_rows(&data_kernel(bench, entry)?, items, &args)?;
        }
        Checksum::read(bench, &totals)
    }
}
