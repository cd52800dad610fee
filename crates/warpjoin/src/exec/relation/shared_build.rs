//! Shared build sides: tables that several joins probe, by number.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_codegen::{FilterTest, JoinShape};
use warpjoin_columns::{Error, Result};

use super::{Intermediate, JoinTable};

/// State that the joins of a query share.
#[derive(Default)]
pub(crate) struct Joins {
    /// Tables that several joins probe.
    shared_build: HashMap<usize, SharedBuild>,
    /// Whether the build side of the last join, if it left no table, had rows whose key is not null.
    pub(in crate::exec) has_build_rows: Option<bool>,
}

impl Joins {
    /// Whether the table of this number exists.
    pub(in crate::exec) fn has_shared_build(&self, number: usize) -> bool {
        self.shared_build.contains_key(&number)
    }

    /// Stores a table for other joins.
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
    /// Runtime filters made from the keys of its tables.
    pub filters: Vec<(FilterTest, Arc<JoinTable>)>,
}

/// Form in which a shared build side exists.
pub(crate) enum SharedSource {
    /// One table, the same on all devices.
    Table(Arc<JoinTable>),
    /// Rows where they were made, and the tables built from them so far: the probing rows decide which rows each device
    /// needs.
    Rows(Arc<SharedBuildRows>, Vec<(KeyRanges, Arc<JoinTable>)>),
}

/// For each device, the least and the greatest key word that it probes with; `None`: any.
pub(crate) type KeyRanges = Option<Vec<[u64; 2]>>;

/// Build rows from which tables are built.
pub(crate) struct SharedBuildRows {
    pub rows: Intermediate,
    pub shape: JoinShape,
    pub keys: BuildKeys,
}

/// What is known about the keys of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildKeys {
    /// Keys may be unique or not.
    Any,
    /// A key occurs twice.
    Repeated,
    /// Only the existence of keys matters.
    Set,
}
