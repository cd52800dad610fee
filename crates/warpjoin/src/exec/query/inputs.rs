//! What comes to a plan from outside.

use std::sync::{Arc, OnceLock};

use crate::exec::relation::SharedRows;
use crate::optimize::Optimized;
use crate::{Result, Table};

/// What a plan is run with. Tables belong to the session of the run.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The tables of the plan's `Input` nodes, by index.
    pub tables: Vec<Arc<Table>>,
    /// What other plans of the same query have left, and where this one leaves rows for them.
    pub shared_rows: SharedRows,
    /// Keeps the optimized plan for later runs of the same plan, if there are any: with the same settings, and without `tables`.
    pub optimized: Option<OptimizedPlan>,
}

/// The optimized form of a plan, once it has run. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct OptimizedPlan(Arc<OnceLock<Optimized>>);

impl OptimizedPlan {
    /// The optimized plan, as `make` makes it in the first run.
    pub(in crate::exec) fn get_or_make(&self, make: impl FnOnce() -> Result<Optimized>) -> Result<&Optimized> {
        if let Some(known) = self.0.get() {
            return Ok(known);
        }
        // Runs that begin at the same time may make it more than once, and all use the first.
        let made = make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

impl From<&[Arc<Table>]> for Inputs {
    fn from(tables: &[Arc<Table>]) -> Self {
        Self { tables: tables.to_vec(), ..Self::default() }
    }
}
