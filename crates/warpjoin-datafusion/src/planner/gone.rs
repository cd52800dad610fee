//! Tables of one local file that is gone. DataFusion reads them as tables without rows.
//!
//! Must not know how files are read.

use std::path::PathBuf;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use url::Url;

/// Refuses a plan that reads a table of one local file that does not exist. Folders may have no files, and object stores
/// would have to be asked.
///
/// # Errors
/// One that names the table and the file.
pub(super) fn refuse_missing_files(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = provider.downcast_ref::<ListingTable>()
            && let Some(missing) = table.table_paths().iter().filter_map(local_file).find(|file| !file.exists())
        {
            let reason = format!("table {}: there is no file {} any more", scan.table_name, missing.display());
            return Err(DataFusionError::Execution(reason));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The path of a single file of this machine.
fn local_file(url: &ListingTableUrl) -> Option<PathBuf> {
    let is_file = url.scheme() == "file" && !url.is_collection() && url.get_glob().is_none();
    is_file.then(|| Url::parse(url.as_str()).ok()?.to_file_path().ok()).flatten()
}
