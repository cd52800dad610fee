//! Relations of a running query: computed data, and steps that wait to be fused.

mod matches;
mod partitioned;
mod ranges;
mod shared;
mod shared_build;
mod table_columns;

use std::sync::Arc;

use arrow::datatypes::Schema;
use warpjoin_columns::Table;
use warpjoin_columns::column::{ColumnType, Domain};
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_device::Buffer;
use warpjoin_plan::plan::bounds::rows_bits;
use warpjoin_plan::plan::build::columns_of;

pub(super) use matches::{Matches, bits_for, item_table, threads_of};
pub(super) use partitioned::PartitionChoice;
pub(crate) use partitioned::{
    LONG_PARTITION_BITS_MAX, PARTITION_BITS_MAX, PartitionedRows, PartitionedShard, PassBits, RowSlice,
};
pub(super) use ranges::{ColumnRanges, are_apart};
pub(super) use shared::SharedRelations;
pub use shared::SharedRows;
pub(super) use shared_build::{BuildKeys, Joins, KeyRanges, SharedBuild, SharedBuildRows, SharedSource};
pub(super) use table_columns::{Part, TableColumns};
use warpjoin_codegen::{GroupShape, JoinShape, MatchForm, SourceShape, Step, ValidityForm};

/// Maximum range of a column's bounds for each row at which a table indexed by the value is used for rows in its order.
const SORTED_SPAN_MAX: u128 = 8;

/// A source, and steps that have not run yet. Materializing, building or aggregating it runs all of them as one kernel.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    pub source: Source,
    pub steps: Vec<Step>,
    /// The table of each probe step, in order.
    pub joins: Vec<Arc<JoinTable>>,
    /// The table of each fetch step, in order.
    pub fetched: Vec<Arc<Table>>,
    /// Columns after the last step.
    pub width: usize,
    /// Bound of the rows after the last step, over all devices. Known from the plan alone, except for joins with
    /// duplicate keys.
    pub rows_max: u64,
}

/// Where rows come from. There is one shard for each device.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Columns of a resident table.
    Table(Arc<Table>, Vec<usize>),
    /// The output rows of a pipeline.
    Intermediate(Arc<Intermediate>),
    /// The groups of a pipeline.
    Groups(Arc<GroupTable>),
    /// Matches of two relations that were partitioned by the same bits, and how they are found.
    Matches(Arc<Matches>, MatchForm),
    /// Rows of words by partition.
    Partitioned(Arc<PartitionedRows>),
    /// Some partitions of spilled rows.
    Slice(Arc<RowSlice>),
}

/// The output rows of a pipeline.
#[derive(Debug)]
pub(crate) struct Intermediate {
    pub columns: Vec<ColumnType>,
    /// Bound of the rows that was known before they were made.
    pub rows_max: u64,
    pub shards: Vec<IntermediateShard>,
    /// Ranges of columns on each device.
    ranges: ColumnRanges,
}

/// The part of an intermediate on one device.
#[derive(Debug, Default)]
pub(crate) struct IntermediateShard {
    pub rows: u64,
    pub columns: Vec<IntermediateColumn>,
}

impl IntermediateShard {
    /// Whether rows lie in host memory because the device had no room.
    pub(crate) fn is_on_host(&self) -> bool {
        self.columns.iter().flat_map(IntermediateColumn::buffers).any(Buffer::is_on_host)
    }
}

/// Values, and one byte of validity for each row. `None` where the layout stores nothing.
#[derive(Debug, Default)]
pub(crate) struct IntermediateColumn {
    pub values: Option<Buffer>,
    pub validity: Option<Buffer>,
}

impl IntermediateColumn {
    /// Its stored buffers: values, then validity.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.values.iter().chain(&self.validity)
    }
}

/// A finished group-by.
#[derive(Debug)]
pub(crate) struct GroupTable {
    pub shape: Arc<GroupShape>,
    /// Bound of the groups that was known before they were made.
    pub groups_max: u64,
    pub shards: Vec<GroupShard>,
    /// Ranges of keys on each device.
    pub ranges: ColumnRanges,
}

impl GroupTable {
    /// Groups without known ranges of keys.
    pub(crate) fn new(groups_max: u64, shape: Arc<GroupShape>, shards: Vec<GroupShard>) -> Self {
        Self { shape, groups_max, shards, ranges: vec![] }
    }

    /// For a group-by without keys: keeps the row of device `home`, and drops the empty rows of other devices.
    pub(crate) fn keep_row_of(&mut self, home: usize) {
        for (device, shard) in self.shards.iter_mut().enumerate() {
            shard.capacity = u64::from(device == home);
        }
    }
}

/// The groups on one device.
#[derive(Debug)]
pub(crate) struct GroupShard {
    pub rows: Buffer,
    /// Number of rows, including empty ones: finished groups, then the rows of the table.
    pub capacity: u64,
    /// For a table indexed by the packed key: the key of its first row.
    pub first_key: u64,
    pub finished: Option<FinishedGroups>,
}

/// Groups that were written to rows of their own.
#[derive(Debug)]
pub(crate) struct FinishedGroups {
    pub rows: Buffer,
    pub count: u64,
}

/// A hash table to probe, or a runtime filter instead: the words of a bitmap or of a Bloom filter.
#[derive(Debug)]
pub(crate) struct JoinTable {
    pub shape: Arc<JoinShape>,
    pub shards: Vec<JoinShard>,
    /// Build rows: key word, then payload.
    pub build: Arc<Intermediate>,
}

/// The hash table on one device.
#[derive(Debug)]
pub(crate) struct JoinShard {
    pub slots: Buffer,
    pub windows: u64,
    /// Build rows, with the rows of a key contiguous; only for duplicate keys.
    pub row_list: Option<Buffer>,
    /// Lowest and highest key; only for a runtime filter.
    pub bounds: Option<Buffer>,
}

impl Relation {
    pub(crate) fn new(source: Source) -> Self {
        let (width, rows_max) = match &source {
            Source::Table(table, projection) => (projection.len(), table.rows()),
            Source::Intermediate(rows) => (rows.columns.len(), rows.rows_max),
            Source::Groups(groups) => {
                (groups.shape.packing.fields.len() + groups.shape.results.len(), groups.groups_max)
            }
            Source::Matches(matches, _) => (matches.width(), matches.rows_max()),
            Source::Partitioned(rows) => (rows.shape.field_of.len(), rows.rows_max),
            Source::Slice(slice) => (slice.shape.field_of.len(), slice.rows_max),
        };
        Self { source, steps: vec![], joins: vec![], fetched: vec![], width, rows_max }
    }

    /// Bits of the row bound, rounded up, so that slightly different row counts share code.
    pub(crate) fn rows_bits(&self) -> u32 {
        rows_bits(self.rows_max)
    }

    /// The exact number of rows, if the steps pass each row of a table or an intermediate once.
    pub(crate) fn known_rows(&self, devices: usize) -> Option<u64> {
        let is_stored = matches!(self.source, Source::Table(..) | Source::Intermediate(_));
        (is_stored && !self.steps.iter().any(Step::drops_rows))
            .then(|| (0..devices).map(|device| self.source.shard_rows(device)).sum())
    }

    /// The range of the key, if all rows of a table are sorted by one integer column whose range is not much larger
    /// than the number of rows.
    pub(crate) fn span_in_order(&self, keys: &[Expr]) -> Option<u128> {
        let ([key], Source::Table(table, projection)) = (keys, &self.source) else { return None };
        let key = self.at_source(key)?;
        if let ExprKind::RowNumber { max } = key.kind {
            return Some(u128::from(max) + 1);
        }
        let ExprKind::Column(column) = key.kind else { return None };
        let &column = projection.get(column)?;
        match table.column_types()[column].domain {
            Domain::Int { min, max } if table.statistics()[column].sorted => {
                let span = max.abs_diff(min).checked_add(1)?;
                (span <= u128::from(table.rows()) * SORTED_SPAN_MAX).then_some(span)
            }
            _ => None,
        }
    }

    /// The expression over the source's columns, if rows come in the source's order.
    pub(in crate::exec) fn at_source<'e>(&'e self, expr: &'e Expr) -> Option<&'e Expr> {
        let mut expr = expr;
        for step in self.steps.iter().rev() {
            match (step, &expr.kind) {
                (Step::Project(exprs), &ExprKind::Column(column)) => expr = exprs.get(column)?,
                (Step::Compact, _) => {}
                _ => return None,
            }
        }
        Some(expr)
    }

    /// Adds a column to those of `schema`.
    pub(crate) fn append(&mut self, schema: &Schema, expr: Expr) {
        let mut exprs = columns_of(schema, self.width);
        exprs.push(expr);
        self.width = exprs.len();
        self.steps.push(Step::Project(exprs));
    }

    /// Source and steps in words.
    pub(crate) fn describe(&self) -> String {
        let mut words = vec![match &self.source {
            Source::Table(_, projection) => format!("Scan[{}]", projection.len()),
            Source::Intermediate(rows) => format!("Rows[{}]", rows.columns.len()),
            Source::Groups(_) => "Groups".to_string(),
            Source::Matches(_, form) => format!("Matches[{form:?}]"),
            Source::Partitioned(..) => "Partitions".to_string(),
            Source::Slice(slice) => format!("Slice[{}]", slice.words.len()),
        }];
        words.extend(self.steps.iter().map(|step| match step {
            Step::Filter(_) => "Filter".to_string(),
            Step::Project(_) => "Project".to_string(),
            Step::Fetch(_) => "Fetch".to_string(),
            Step::Compact => "Compact".to_string(),
            Step::Probe(step) => match step.filter {
                Some(test) => format!("RuntimeFilter[{}]", test.describe()),
                None => "Probe".to_string(),
            },
        }));
        words.join(" -> ")
    }
}

/// The device that has all rows, given the rows of each device.
fn home(rows: impl Iterator<Item = u64>) -> Option<usize> {
    let mut with_rows = rows.enumerate().filter(|(_, rows)| *rows > 0).map(|(device, _)| device);
    let first = with_rows.next().unwrap_or(0);
    with_rows.next().is_none().then_some(first)
}

impl Source {
    pub(crate) fn shape(&self) -> SourceShape {
        match self {
            Self::Table(table, projection) => {
                let types = table.column_types();
                SourceShape::Columns(projection.iter().map(|&c| types[c].clone()).collect(), ValidityForm::Bits)
            }
            Self::Intermediate(rows) => SourceShape::Columns(rows.columns.clone(), ValidityForm::Bytes),
            Self::Groups(groups) => SourceShape::Groups(groups.shape.clone()),
            Self::Matches(matches, form) => SourceShape::Matches {
                build: matches.build.shape.clone(),
                probe: matches.probe.shape.clone(),
                form: *form,
            },
            Self::Partitioned(rows) => SourceShape::Words { rows: rows.shape.clone(), by_partition: true },
            Self::Slice(slice) => SourceShape::Words { rows: slice.shape.clone(), by_partition: false },
        }
    }

    /// Lets warps share matches, after there were more matches than probe rows. Returns whether that is a change.
    pub(crate) fn share_matches(&mut self) -> bool {
        match self {
            Self::Matches(_, form @ MatchForm::Chains) => {
                *form = MatchForm::Lists;
                true
            }
            _ => false,
        }
    }

    /// Whether kernels can take some of the rows at a time.
    pub(crate) fn comes_in_chunks(&self) -> bool {
        matches!(self, Self::Table(..) | Self::Intermediate(_))
    }

    /// Rows that the kernel on `device` processes.
    pub(crate) fn shard_rows(&self, device: usize) -> u64 {
        match self {
            Self::Table(table, _) => table.shard_rows(device),
            Self::Intermediate(rows) => rows.shards[device].rows,
            Self::Groups(groups) => groups.shards[device].capacity,
            Self::Matches(matches, _) => matches.probe.shards[device].rows_max,
            Self::Partitioned(rows) => rows.shards[device].rows_max,
            Self::Slice(slice) => slice.rows,
        }
    }

    /// The device that has all rows, if one does: the first one if there are none.
    pub(crate) fn home(&self, devices: usize) -> Option<usize> {
        home((0..devices).map(|device| self.shard_rows(device)))
    }

    /// Maximum rows of a shard.
    pub(crate) fn shard_rows_max(&self, devices: usize) -> u64 {
        (0..devices).map(|device| self.shard_rows(device)).max().unwrap_or(0)
    }

    /// Buffer with the values of a column, if any are stored. A table's columns may move between calls.
    pub(crate) fn values(&self, device: usize, column: usize) -> Option<&Buffer> {
        match self {
            Self::Intermediate(rows) => rows.shards[device].columns[column].values.as_ref(),
            Self::Partitioned(rows) => rows.shards[device].words.get(column),
            Self::Slice(slice) => slice.words.get(column),
            Self::Table(..) | Self::Groups(_) | Self::Matches(..) => None,
        }
    }

    /// Buffer with the validity of a column.
    pub(crate) fn validity(&self, device: usize, column: usize) -> Option<&Buffer> {
        match self {
            Self::Intermediate(rows) => rows.shards[device].columns[column].validity.as_ref(),
            Self::Table(..) | Self::Groups(_) | Self::Matches(..) | Self::Partitioned(..) | Self::Slice(..) => None,
        }
    }

    /// Stored bytes of a row of a column.
    pub(crate) fn width_bytes(&self, column: usize) -> u64 {
        match self {
            Self::Table(table, projection) => table.column_types()[projection[column]].layout().width_bytes.into(),
            Self::Intermediate(rows) => rows.columns[column].layout().width_bytes.into(),
            Self::Groups(groups) => groups.shape.stride_words as u64 * 8,
            Self::Partitioned(rows) => rows.shape.word_bytes().get(column).copied().unwrap_or(0).into(),
            Self::Slice(slice) => slice.shape.word_bytes().get(column).copied().unwrap_or(0).into(),
            // Counted by the partitions.
            Self::Matches(..) => 0,
        }
    }
}

impl Intermediate {
    /// The device that has all rows, if one does: the first one if there are none.
    pub(crate) fn home(&self) -> Option<usize> {
        home(self.shards.iter().map(|shard| shard.rows))
    }

    /// Rows over all devices.
    pub(crate) fn rows(&self) -> u64 {
        self.shards.iter().map(|shard| shard.rows).sum()
    }
}
