//! Inputs of a plan's execution.

use std::sync::{Arc, OnceLock};

use warpjoin_columns::{Result, Table};
use warpjoin_plan::optimize::Optimized;

use crate::exec::relation::SharedRows;

/// Inputs of a plan's execution. Tables belong to the session of the run.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The tables of the plan's `Input` nodes, by index.
    pub tables: Vec<Arc<Table>>,
    /// Rows shared with other plans of the same query: those that earlier plans left, and those that this one leaves.
    pub shared_rows: SharedRows,
    /// Keeps the optimized plan for later runs of the same plan with the same settings and without `tables`.
    pub optimized: Option<OptimizedPlan>,
}

/// The optimized form of a plan, once it has run. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct OptimizedPlan(Arc<OnceLock<Optimized>>);

impl OptimizedPlan {
    /// The optimized plan; `make` computes it in the first run.
    pub(in crate::exec) fn get_or_make(&self, make: impl FnOnce() -> Result<Optimized>) -> Result<&Optimized> {
        if let Some(known) = self.0.get() {
            return Ok(known);
        }
        // Runs that begin at the same time may compute it more than once; all use the first one.
        let made = make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

impl From<&[Arc<Table>]> for Inputs {
    fn from(tables: &[Arc<Table>]) -> Self {
        Self { tables: tables.to_vec(), ..Self::default() }
    }
}
