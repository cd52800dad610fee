//! Caching the columns of a table before a query reads them, and freeing them: `CACHE TABLE` and `UNCACHE TABLE`.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, TableReference, plan_err};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use warpjoin::column::check_type;

use crate::cache::{CachedScan, ParquetScan};
use crate::config::CacheSettings;
use crate::table::provider::{options_of, runtime_of, session_of};
use crate::table::scan::DeviceScanExec;

/// What [`cache_table`] has cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedTable {
    /// Number of columns that are cached now, on the devices or in host memory.
    pub columns: usize,
    /// Rows of the table.
    pub rows: u64,
    /// Memory of the columns, on all devices and the host together.
    pub bytes: u64,
    /// Columns of types that devices do not support. They are not cached.
    pub skipped: Vec<String>,
}

/// Reads all columns of a registered table of Parquet files into the column cache on the devices of the session.
/// Queries find them there like columns that another query has read. Eviction follows the same rules: the least
/// recently used columns leave when `warpjoin.cache` is exceeded or an allocation needs their memory. Cached columns
/// are not read again.
///
/// # Errors
/// Returns an error if the table does not exist or is not read from Parquet files, the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), no device is available, `warpjoin.cache` is off, the
/// files cannot be read, or the columns do not fit.
pub async fn cache_table(context: &SessionContext, name: impl Into<TableReference>) -> Result<CachedTable> {
    let name: TableReference = name.into();
    let session = session_of(context)?;
    let options = options_of(context);
    if options.cache.is_off() {
        return Err(DataFusionError::Configuration("the cache is off; SET warpjoin.cache = '60%' turns it on".into()));
    }
    let cache = runtime_of(context)?.cache(&session);
    let context_of_task = context.task_ctx();
    let mut cached = CachedTable { columns: 0, rows: 0, bytes: 0, skipped: vec![] };
    for scan in scans_of(context, &name).await? {
        let is_supported = |column: &usize| check_type(scan.key.schema().field(*column).data_type()).is_ok();
        let (columns, others): (Vec<usize>, Vec<usize>) = scan.columns.iter().copied().partition(is_supported);
        cached.skipped.extend(others.into_iter().map(|column| scan.key.schema().field(column).name().clone()));
        if columns.is_empty() {
            continue;
        }
        let scan = scan.with_columns(columns);
        let schema = scan.schema_of(&scan.columns)?;
        let columns = scan.columns.len();
        let scan = CachedScan { scan, schema, cache: Arc::clone(&cache), settings: CacheSettings::of(&options) };
        // Without a filter, of all row groups.
        let table = scan.table(&session, &context_of_task).await?.map(|rows| rows.table);
        // A table of columns that the limit refused is not kept.
        let table = table.filter(|_| cache.cached_columns(&scan.scan) == columns);
        let Some(table) = table else {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{name} is not cached: its columns do not fit warpjoin.cache ({}) and warpjoin.host_cache ({}), the memory of \
                 devices and host or DataFusion's memory limit, or a file has changed meanwhile; queries cache the columns that \
                 they read, as far as these fit",
                options.cache, options.host_cache
            )));
        };
        cached.columns += columns;
        cached.rows += table.rows();
        cached.bytes += table.resident_bytes() + table.host_bytes();
    }
    Ok(cached)
}

/// Drops the cached columns of a registered table of Parquet files, on all devices of the session's runtime, and
/// returns their number. Queries that use them keep their memory until they end; later queries read the files again.
///
/// # Errors
/// Returns an error if the table does not exist or is not read from Parquet files, or the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin).
pub async fn uncache_table(context: &SessionContext, name: impl Into<TableReference>) -> Result<usize> {
    let name: TableReference = name.into();
    let caches = runtime_of(context)?.caches();
    let scans = scans_of(context, &name).await?;
    let forgotten = |scan: &ParquetScan| caches.iter().map(|(_, cache)| cache.forget(&scan.key).len()).sum::<usize>();
    Ok(scans.iter().map(forgotten).sum())
}

/// The Parquet scans that give all rows and columns of a table.
async fn scans_of(context: &SessionContext, name: &TableReference) -> Result<Vec<ParquetScan>> {
    let table = context.table_provider(name.clone()).await?;
    let plan = table.scan(&context.state(), None, &[], None).await?;
    if plan.is::<DeviceScanExec>() {
        return plan_err!("{name} is loaded onto the devices: it is not cached, and stays there");
    }
    let mut scans = vec![];
    let is_cacheable = collect_scans(&plan, &mut scans);
    if !is_cacheable || scans.is_empty() {
        return plan_err!(
            "{name} is not read from whole Parquet files, so its columns are not cached; load_table keeps any table on the devices"
        );
    }
    Ok(scans)
}

/// Collects the Parquet scans of a plan; returns false if a leaf is not a Parquet scan.
fn collect_scans(plan: &Arc<dyn ExecutionPlan>, scans: &mut Vec<ParquetScan>) -> bool {
    if let Some(scan) = ParquetScan::of(plan) {
        scans.push(scan);
        return true;
    }
    let children = plan.children();
    !children.is_empty() && children.into_iter().all(|child| collect_scans(child, scans))
}
