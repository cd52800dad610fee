//! Dependencies of plans over files.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use warpjoin::Table;
use warpjoin::plan::{Plan, PlanKind};

use crate::cache::{CachedScanExec, ParquetScan};
use crate::config::{CacheSettings, WarpjoinOptions};
use crate::exec::WarpjoinExec;
use crate::kept::{Files, Listing, ReadColumns};
use crate::runtime::WarpjoinRuntime;

/// The dependencies of a new plan over tables with these files. `None` if the CPU reads files.
pub(super) fn files(
    plan: &Arc<dyn ExecutionPlan>,
    listings: Vec<Listing>,
    runtime: &WarpjoinRuntime,
    options: &WarpjoinOptions,
) -> Option<Files> {
    let settings = CacheSettings::of(options);
    let (mut columns, mut is_kept) = (vec![], true);
    let visited = plan.apply(|node| {
        if let Some(part) = node.downcast_ref::<WarpjoinExec>() {
            is_kept = add_columns(part, runtime, settings, &mut columns)?;
        } else if node.is::<CachedScanExec>() {
            // A child of a part, which has added it. On the CPU only the part's template runs it.
            return Ok(TreeNodeRecursion::Jump);
        } else {
            is_kept = !reads_files(node);
        }
        Ok(if is_kept { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    (visited.is_ok() && is_kept).then(|| Files::new(listings, columns))
}

/// Whether a node reads files when it runs.
pub(super) fn reads_files(node: &Arc<dyn ExecutionPlan>) -> bool {
    let source = node.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
    node.is::<CachedScanExec>() || source.is_some_and(|source| source.downcast_ref::<FileScanConfig>().is_some())
}

/// Adds the columns of a part; returns whether the part reads its files through the cache.
fn add_columns(
    part: &WarpjoinExec,
    runtime: &WarpjoinRuntime,
    settings: CacheSettings,
    columns: &mut Vec<ReadColumns>,
) -> Result<bool> {
    let (session, cache) = (part.session(), runtime.cache(part.session()));
    let later = part.children().into_iter().filter_map(|child| child.downcast_ref::<CachedScanExec>());
    columns.extend(later.map(|scan| ReadColumns::later(scan.role(), session)));
    let mut are_cached = true;
    part.template().apply(|node| {
        if reads_files(node) {
            let read = ParquetScan::of(node)
                .and_then(|scan| ReadColumns::of(scan, node.schema(), &cache, settings, session))
                .filter(|(_, table)| scans(part.plan(), table));
            are_cached = read.is_some();
            columns.extend(read.map(|(columns, _)| columns));
        }
        Ok(if are_cached { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(are_cached)
}

/// Whether a device plan reads a table.
fn scans(plan: &Plan, table: &Arc<Table>) -> bool {
    matches!(&plan.kind, PlanKind::Scan { table: scanned, .. } if Arc::ptr_eq(scanned, table))
        || plan.inputs().into_iter().any(|input| scans(input, table))
}
