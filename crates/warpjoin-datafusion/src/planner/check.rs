//! Whether a kept plan is what planning the query again gives.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::exec::WarpjoinExec;
use crate::kept::LeasedExec;

/// Compares a kept plan with a new one of the same query, for `warpjoin.check_plans`.
///
/// # Errors
/// If they differ.
pub(super) fn check(kept: &Arc<dyn ExecutionPlan>, new: &Arc<dyn ExecutionPlan>) -> Result<()> {
    if is_same(kept, new) {
        return Ok(());
    }
    Err(DataFusionError::Internal(format!(
        "warpjoin.check_plans: the kept plan differs from a new one. Kept:\n{}\nNew:\n{}",
        text(kept),
        text(new)
    )))
}

/// Whether both plans are shown alike.
pub(super) fn is_same(one: &Arc<dyn ExecutionPlan>, other: &Arc<dyn ExecutionPlan>) -> bool {
    text(one) == text(other)
}

fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    let plan = plan.downcast_ref::<LeasedExec>().map_or(plan, |leased| leased.input());
    // A part explains itself once, and the values of parameters change.
    let unexplained = Arc::clone(plan).transform_up(|node| {
        let part = node.downcast_ref::<WarpjoinExec>().map(WarpjoinExec::unexplained);
        Ok(part.map_or_else(|| Transformed::no(Arc::clone(&node)), |part| Transformed::yes(Arc::new(part))))
    });
    let plan = unexplained.data().unwrap_or_else(|_| Arc::clone(plan));
    displayable(plan.as_ref()).indent(true).to_string()
}
