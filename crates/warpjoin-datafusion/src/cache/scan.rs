//! The plan node of a scan whose columns are cached when it runs.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;

use super::columns::ColumnCache;
use super::source::ParquetScan;
use crate::config::CacheSettings;
use crate::pass_through::{PassThroughExec, Role};

/// A scan of Parquet files below a device part. The part reads its columns from the cache, or adds them to it. On the
/// CPU, DataFusion's scan below runs unchanged.
pub(crate) type CachedScanExec = PassThroughExec<CachedScan>;

/// The columns of a scan, and the cache for them.
#[derive(Debug, Clone)]
pub(crate) struct CachedScan {
    pub(crate) scan: ParquetScan,
    pub(crate) schema: SchemaRef,
    pub(crate) cache: Arc<ColumnCache>,
    pub(crate) settings: CacheSettings,
}

impl CachedScanExec {
    /// The scan of `node`, with its columns cached in `cache`.
    pub(crate) fn of(
        node: &Arc<dyn ExecutionPlan>,
        scan: ParquetScan,
        cache: &Arc<ColumnCache>,
        settings: CacheSettings,
    ) -> Self {
        let cached = CachedScan { scan, schema: node.schema(), cache: Arc::clone(cache), settings };
        Self::new(Arc::clone(node), cached)
    }
}

impl Role for CachedScan {
    const NAME: &'static str = "CachedScanExec";

    fn label(&self) -> String {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let cached = self.cache.cached_columns(&self.scan);
        format!("columns=[{}], cached={cached}", names.join(", "))
    }

    fn fresh(&self) -> Self {
        self.clone()
    }
}
