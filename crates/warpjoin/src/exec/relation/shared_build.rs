//! Tables of joins that several joins probe, by number.

use std::collections::HashMap;
use std::sync::Arc;

use super::JoinTable;
use crate::codegen::FilterTest;
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

/// A table that several joins probe.
#[derive(Debug, Clone)]
pub(crate) struct SharedBuild {
    pub table: Arc<JoinTable>,
    /// The payload column of each build column.
    pub payload_of: Vec<Option<usize>>,
    /// What was made of its keys.
    pub filters: Vec<(FilterTest, Arc<JoinTable>)>,
}

impl SharedBuild {
    pub(in crate::exec) fn new((table, payload_of): (Arc<JoinTable>, Vec<Option<usize>>)) -> Self {
        Self { table, payload_of, filters: vec![] }
    }
}
