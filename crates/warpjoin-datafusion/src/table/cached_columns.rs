//! The table `warpjoin.cache`: the columns of Parquet files that are on the devices.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, Session as CatalogSession, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

use crate::cache::{CachedColumnInfo, DecodedOn};
use crate::runtime::WarpjoinRuntime;
use crate::table::provider::runtime_of;

/// Registers the table `warpjoin.cache` in the default catalog of `context`: a row for each column of Parquet files that is
/// cached on devices of the session's runtime.
///
/// | column | type | meaning |
/// | --- | --- | --- |
/// | `location` | string | URL of the file, or of the innermost folder of several |
/// | `files` | unsigned 64-bit integer | number of files |
/// | `column_name` | string | |
/// | `data_type` | string | Arrow type |
/// | `rows` | unsigned 64-bit integer | |
/// | `bytes` | unsigned 64-bit integer | device memory, on all devices together |
/// | `host_bytes` | unsigned 64-bit integer | the host's memory: the column has left the devices, and is read over the bus |
/// | `last_use` | unsigned 64-bit integer | larger for later uses; the column with the smallest number leaves first |
/// | `devices` | string | such as `cuda:0, cuda:1` |
/// | `decoded_on` | string | what decoded the file's pages: `device` or `cpu` (setting `warpjoin.parquet_decode`) |
///
/// No column is null.
///
/// # Errors
/// Returns an error if the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), or has no default catalog.
pub fn register_cache_table(context: &SessionContext) -> Result<()> {
    let table = Arc::new(CachedColumns { runtime: runtime_of(context)?, schema: schema() });
    let config = context.copied_config();
    let name = &config.options().catalog.default_catalog;
    let catalog = context.catalog(name).ok_or_else(|| {
        DataFusionError::Configuration(format!("there is no catalog {name} for the table warpjoin.cache"))
    })?;
    let tables = match catalog.schema("warpjoin") {
        Some(tables) => tables,
        None => {
            let tables: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
            catalog.register_schema("warpjoin", Arc::clone(&tables))?;
            tables
        }
    };
    tables.deregister_table("cache")?;
    tables.register_table("cache".into(), table)?;
    Ok(())
}

#[derive(Debug)]
struct CachedColumns {
    runtime: Arc<WarpjoinRuntime>,
    schema: SchemaRef,
}

fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let number = |name: &str| Field::new(name, DataType::UInt64, false);
    Arc::new(Schema::new(vec![
        text("location"),
        number("files"),
        text("column_name"),
        text("data_type"),
        number("rows"),
        number("bytes"),
        number("host_bytes"),
        number("last_use"),
        text("devices"),
        text("decoded_on"),
    ]))
}

impl CachedColumns {
    /// What is cached now.
    fn batch(&self) -> Result<RecordBatch> {
        let mut rows: Vec<(CachedColumnInfo, String)> = vec![];
        for (session, cache) in self.runtime.caches() {
            let labels: Vec<String> = session.devices().iter().map(warpjoin_device::Device::label).collect();
            rows.extend(cache.columns().into_iter().map(|column| (column, labels.join(", "))));
        }
        let text = |of: &dyn Fn(&(CachedColumnInfo, String)) -> String| {
            Arc::new(rows.iter().map(of).map(Some).collect::<StringArray>()) as ArrayRef
        };
        let number = |of: &dyn Fn(&CachedColumnInfo) -> u64| {
            Arc::new(rows.iter().map(|(column, _)| of(column)).collect::<UInt64Array>()) as ArrayRef
        };
        let columns = vec![
            text(&|(column, _)| column.location.clone()),
            number(&|column| column.files as u64),
            text(&|(column, _)| column.name.clone()),
            text(&|(column, _)| column.data_type.to_string()),
            number(&|column| column.rows),
            number(&|column| column.bytes),
            number(&|column| column.host_bytes),
            number(&|column| column.last_use),
            text(&|(_, devices)| devices.clone()),
            text(&|(column, _)| match column.decoded_on {
                DecodedOn::Device => "device".into(),
                DecodedOn::Cpu => "cpu".into(),
            }),
        ];
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

#[async_trait]
impl TableProvider for CachedColumns {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn CatalogSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let table = MemTable::try_new(self.schema(), vec![vec![self.batch()?]])?;
        table.scan(state, projection, filters, limit).await
    }
}
