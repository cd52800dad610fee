//! Columns of tables as they lie while a pipeline runs over them.

use warpjoin_device::Buffer;

use super::{Relation, Source};
use crate::table::{Shard, ShardColumn};

/// The columns of the tables that a pipeline reads: they may move meanwhile, and are kept here until its work has ended.
#[derive(Debug)]
pub(in crate::exec) struct TableColumns {
    /// Of the source, a device, by position in its projection; none where the source is no table.
    source: Vec<Vec<ShardColumn>>,
    /// Of each table whose rows are fetched, all shards.
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

    /// Buffer with the values of a column of the source, if any are stored.
    pub(in crate::exec) fn values<'c>(
        &'c self,
        source: &'c Source,
        device: usize,
        column: usize,
    ) -> Option<&'c Buffer> {
        match source {
            Source::Table(..) => self.source[device][column].values.as_deref(),
            other => other.values(device, column),
        }
    }

    /// The same of its validity.
    pub(in crate::exec) fn validity<'c>(
        &'c self,
        source: &'c Source,
        device: usize,
        column: usize,
    ) -> Option<&'c Buffer> {
        match source {
            Source::Table(..) => self.source[device][column].validity.as_deref(),
            other => other.validity(device, column),
        }
    }

    /// Shards of the table of a fetch step.
    pub(in crate::exec) fn fetched(&self, step: usize) -> &[Shard] {
        &self.fetched[step]
    }
}
