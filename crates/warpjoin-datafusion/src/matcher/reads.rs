//! Whether the rows of a plan come from tables.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;

/// Whether rows come from a table: `SELECT 1 + 1` is not work for devices.
pub(crate) fn reads_tables(node: &Arc<dyn ExecutionPlan>) -> bool {
    let children = node.children();
    if children.is_empty() {
        return !node.is::<PlaceholderRowExec>() && !node.is::<EmptyExec>();
    }
    children.into_iter().any(reads_tables)
}
