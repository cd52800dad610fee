//! Tables of joins that several joins probe, by number.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Intermediate, JoinTable};
use crate::codegen::{FilterTest, JoinShape};
use crate::{Error, Result};

/// What the joins of a query leave for each other.
#[derive(Default)]
pub(crate) struct Joins {
    /// Tables that several joins probe.
    shared_build: HashMap<usize, SharedBuild>,
    /// Whether the build side of the last join, which left no table, had rows with a key.
    pub(in crate::exec) has_build_rows: Option<bool>,
}

impl Joins {
    /// Whether the table of that number is there.
    pub(in crate::exec) fn has_shared_build(&self, number: usize) -> bool {
        self.shared_build.contains_key(&number)
    }

    /// Leaves a table for others.
    pub(in crate::exec) fn share_build(&mut self, number: usize, table: SharedBuild) {
        self.shared_build.insert(number, table);
    }

    pub(in crate::exec) fn shared_build(&self, number: usize) -> Result<&SharedBuild> {
        self.shared_build.get(&number).ok_or_else(|| Error::internal(format!("no table {number} yet")))
    }

    pub(in crate::exec) fn shared_build_mut(&mut self, number: usize) -> Option<&mut SharedBuild> {
        self.shared_build.get_mut(&number)
    }
}

/// A build side that several joins probe.
pub(crate) struct SharedBuild {
    pub source: SharedSource,
    /// The payload column of each build column.
    pub payload_of: Vec<Option<usize>>,
    /// What was made of the keys of its tables.
    pub filters: Vec<(FilterTest, Arc<JoinTable>)>,
}

/// What a shared build side is there as.
pub(crate) enum SharedSource {
    /// One table, the same on all devices.
    Table(Arc<JoinTable>),
    /// Rows where they were made, and the tables of them by now: those that probe tell which rows each device needs.
    Rows(Arc<SharedBuildRows>, Vec<(KeyRanges, Arc<JoinTable>)>),
}

/// Of each device the least and the greatest key word that it looks for; `None`: any.
pub(crate) type KeyRanges = Option<Vec<[u64; 2]>>;

/// Build rows of which tables are made.
pub(crate) struct SharedBuildRows {
    pub rows: Intermediate,
    pub shape: JoinShape,
    pub keys: BuildKeys,
}

/// What is known of the keys of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildKeys {
    /// They may be unique, or not.
    Any,
    /// One occurs twice.
    Repeated,
    /// Only their presence counts.
    Set,
}
