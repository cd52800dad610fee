//! Where the rows of a plan come from.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;

/// Whether rows come from somewhere: `SELECT 1 + 1` is nobody's work.
pub(crate) fn reads_tables(node: &Arc<dyn ExecutionPlan>) -> bool {
    let children = node.children();
    if children.is_empty() {
        return !node.is::<PlaceholderRowExec>() && !node.is::<EmptyExec>();
    }
    children.into_iter().any(reads_tables)
}
