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
    published: HashMap<usize, Published>,
}

impl Joins {
    /// Whether the table of that number is there.
    pub(in crate::exec) fn has_published(&self, number: usize) -> bool {
        self.published.contains_key(&number)
    }

    /// Leaves a table for others.
    pub(in crate::exec) fn publish(&mut self, number: usize, table: Published) {
        self.published.insert(number, table);
    }

    pub(in crate::exec) fn published(&self, number: usize) -> Result<&Published> {
        self.published.get(&number).ok_or_else(|| Error::internal(format!("no table {number} yet")))
    }

    pub(in crate::exec) fn published_mut(&mut self, number: usize) -> Option<&mut Published> {
        self.published.get_mut(&number)
    }
}

/// A table that several joins probe.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub table: Arc<JoinTable>,
    /// The payload column of each build column.
    pub payload_of: Vec<Option<usize>>,
    /// What was made of its keys.
    pub filters: Vec<(FilterTest, Arc<JoinTable>)>,
}

impl Published {
    pub(in crate::exec) fn new((table, payload_of): (Arc<JoinTable>, Vec<Option<usize>>)) -> Self {
        Self { table, payload_of, filters: vec![] }
    }
}
