//! What comes to a plan from outside.

use std::sync::Arc;

use crate::Table;
use crate::exec::relation::SharedRows;

/// What a plan is run with. Tables belong to the session of the run.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The tables of the plan's `Input` nodes, by index.
    pub tables: Vec<Arc<Table>>,
    /// What other plans of the same query have left, and where this one leaves rows for them.
    pub shared_rows: SharedRows,
}

impl From<&[Arc<Table>]> for Inputs {
    fn from(tables: &[Arc<Table>]) -> Self {
        Self { tables: tables.to_vec(), shared_rows: SharedRows::default() }
    }
}
