//! Rows that several pipelines read, or another plan.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Relation;
use crate::plan::{Share, SharedRowsId};

/// Rows that one plan leaves on the devices for a later plan of the same query. Reading removes them. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct SharedRows(Arc<Mutex<HashMap<SharedRowsId, Relation>>>);

impl SharedRows {
    pub(in crate::exec) fn locked<T>(&self, with: impl FnOnce(&mut HashMap<SharedRowsId, Relation>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Rows that several pipelines read.
#[derive(Default)]
pub(crate) struct SharedRelations {
    /// By their mark.
    pub marked: HashMap<Share, Relation>,
}
