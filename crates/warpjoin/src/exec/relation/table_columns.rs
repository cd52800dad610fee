//! Columns of tables, kept where they lie while a pipeline runs over them.

use warpjoin_columns::table::{Shard, ShardColumn};
use warpjoin_device::Buffer;

use super::{Relation, Source};

/// A part of a source column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Part {
    Values(usize),
    Validity(usize),
}

/// The columns of the tables that a pipeline reads. Tables may move their columns meanwhile; these buffers stay alive
/// until the pipeline's work has ended.
#[derive(Debug)]
pub(in crate::exec) struct TableColumns {
    /// Columns of the source on each device, by position in its projection; empty if the source is no table.
    source: Vec<Vec<ShardColumn>>,
    /// All shards of each table whose rows are fetched.
    fetched: Vec<Vec<Shard>>,
}

impl TableColumns {
    pub(in crate::exec) fn of(relation: &Relation, devices: usize) -> Self {
        let source = match &relation.source {
            Source::Table(table, projection) => (0..devices)
                .map(|device| projection.iter().map(|&column| table.column(device, column)).collect())
                .collect(),
            _ => vec![],
        };
        Self { source, fetched: relation.fetched.iter().map(|table| table.shards()).collect() }
    }

    /// Buffer with a part of a column of the source, if any is stored.
    pub(in crate::exec) fn buffer<'c>(&'c self, source: &'c Source, device: usize, part: Part) -> Option<&'c Buffer> {
        match (source, part) {
            (Source::Table(..), Part::Values(column)) => self.source[device][column].values.as_deref(),
            (Source::Table(..), Part::Validity(column)) => self.source[device][column].validity.as_deref(),
            (other, Part::Values(column)) => other.values(device, column),
            (other, Part::Validity(column)) => other.validity(device, column),
        }
    }

    /// Whether columns have moved since.
    pub(in crate::exec) fn have_moved(&self, relation: &Relation) -> bool {
        let now = Self::of(relation, self.source.len());
        let of_fetched = |columns: &Self| -> Vec<ShardColumn> {
            columns.fetched.iter().flatten().flat_map(|shard| shard.columns.clone()).collect()
        };
        let mut source = self.source.iter().flatten().zip(now.source.iter().flatten());
        source.any(|(before, now)| !before.is_same(now))
            || of_fetched(self).iter().zip(&of_fetched(&now)).any(|(before, now)| !before.is_same(now))
    }

    /// Shards of the table of a fetch step.
    pub(in crate::exec) fn fetched(&self, step: usize) -> &[Shard] {
        &self.fetched[step]
    }
}
