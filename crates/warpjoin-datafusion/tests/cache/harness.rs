//! Sessions on simulated devices, and files for them.

use std::path::Path;
use std::sync::Arc;

use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use tempfile::TempDir;
use warpjoin::Session;
use warpjoin_datafusion::{MemoryShare, ParquetDecode, WarpjoinOptions, WarpjoinRuntime, register_cache_table};
use warpjoin_device::{SimOptions, open_simulated};

use crate::common::{physical, rows, run, shown, warp_on};

/// A session on two simulated devices, its runtime, and its devices.
pub(crate) struct Warp {
    pub(crate) context: SessionContext,
    pub(crate) runtime: Arc<WarpjoinRuntime>,
    pub(crate) session: Arc<Session>,
}

pub(crate) fn warp(memory_bytes: u64, cache: MemoryShare) -> Warp {
    warp_with(2, memory_bytes, |options| options.cache = cache)
}

/// The same on some devices, which decode Parquet.
pub(crate) fn warp_decoding(devices: usize) -> Warp {
    warp_with(devices, MEMORY, |options| options.parquet_decode = ParquetDecode::Device)
}

pub(crate) fn warp_with(devices: usize, memory_bytes: u64, change: impl FnOnce(&mut WarpjoinOptions)) -> Warp {
    let options = SimOptions { devices, memory_bytes, ..SimOptions::default() };
    let session = Session::new(open_simulated(&options).unwrap()).unwrap();
    let runtime = WarpjoinRuntime::new(Arc::clone(&session));
    let context = warp_on(Arc::clone(&runtime), change);
    Warp { context, runtime, session }
}

impl Warp {
    pub(crate) fn used_bytes(&self) -> u64 {
        self.session.devices().iter().map(|device| device.memory().used_bytes()).sum()
    }

    /// The answer, after a check against stock DataFusion over the same files, and the bytes that came to the devices.
    pub(crate) async fn query(&self, oracle: &SessionContext, sql: &str) -> u64 {
        let (batches, placement) = run(&self.context, sql).await;
        let (expected, _) = run(oracle, sql).await;
        assert_eq!(rows(&batches, false), rows(&expected, false), "{sql}");
        placement.device.iter().filter_map(|part| part.metrics.as_ref()).map(|metrics| metrics.uploaded_bytes).sum()
    }

    /// What decoded each cached column, in the order of their names.
    pub(crate) async fn decoded_on(&self) -> Vec<String> {
        register_cache_table(&self.context).unwrap();
        let sql = "SELECT column_name, decoded_on FROM warpjoin.cache ORDER BY column_name";
        let batches = self.context.sql(sql).await.unwrap().collect().await.unwrap();
        rows(&batches, true)
    }

    pub(crate) async fn is_resident(&self, sql: &str) -> bool {
        let plan = shown(&physical(&self.context, sql).await);
        assert!(plan.contains("WarpjoinExec"), "{plan}");
        !plan.contains("CachedScanExec") && !plan.contains("DataSourceExec")
    }
}

pub(crate) const MEMORY: u64 = 1 << 30;
/// Lookup tables of small dictionaries.
pub(crate) const LOOKUP_BYTES: u64 = 10_000;
pub(crate) const ALL: MemoryShare = MemoryShare::Percent(60);

/// Writes `rows` numbered rows from `first` on, in row groups of 1,000, some of them null.
pub(crate) async fn write(path: &Path, first: i64, rows: i64) {
    write_with(path, first, rows, &["compression = 'snappy'"]).await;
}

/// The same with further settings of the writer.
pub(crate) async fn write_with(path: &Path, first: i64, rows: i64, settings: &[&str]) {
    let sql = format!(
        "SELECT v AS id, CASE WHEN v % 7 = 0 THEN NULL ELSE v % 10 END AS k, 'name ' || (v % 100) AS name, \
         CAST(v AS DECIMAL(15, 2)) / 4 AS price, CAST(DATE '2020-01-01' + CAST(v % 365 AS INT) AS DATE) AS day, \
         CAST(v AS DOUBLE) / 3 AS share FROM generate_series({first}, {}) AS t(v)",
        first + rows - 1
    );
    let context = SessionContext::new();
    for setting in ["max_row_group_size = 1000", "data_page_row_count_limit = 300"].iter().chain(settings) {
        let sql = format!("SET datafusion.execution.parquet.{setting}");
        context.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    let frame = context.sql(&sql).await.unwrap();
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    frame.write_parquet(path.to_str().unwrap(), options, None).await.unwrap();
}

/// Has files listed again.
pub(crate) fn forget_listings(context: &SessionContext) {
    if let Some(cache) = context.runtime_env().cache_manager.get_list_files_cache() {
        cache.clear();
    }
}

pub(crate) async fn register(contexts: &[&SessionContext], name: &str, path: &Path) {
    for context in contexts {
        let _ = context.deregister_table(name).unwrap();
        forget_listings(context);
        let path = format!("{}{}", path.display(), if path.is_dir() { "/" } else { "" });
        context.register_parquet(name, path, ParquetReadOptions::default()).await.unwrap();
    }
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) const BY_KEY: &str =
    "SELECT k, count(*), sum(price), min(day), max(name) FROM t WHERE share > 100 GROUP BY k";
