//! The check of `warpjoin.check_plans`: a kept plan is what planning the query again gives.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::kept::LeasedExec;

/// Compares a kept plan with a new one of the same query.
///
/// # Errors
/// If they differ.
pub(super) fn check(kept: &Arc<dyn ExecutionPlan>, new: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let (kept, new) = (text(kept), text(new));
    if kept == new {
        return Ok(());
    }
    Err(DataFusionError::Internal(format!(
        "warpjoin.check_plans: the kept plan differs from a new one. Kept:\n{kept}\nNew:\n{new}"
    )))
}

fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    let plan = plan.downcast_ref::<LeasedExec>().map_or(plan, |leased| leased.input());
    displayable(plan.as_ref()).indent(true).to_string()
}
