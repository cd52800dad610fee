//! Tables of the schema `warpjoin`, which show the state of a runtime.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, Session as CatalogSession, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

use crate::runtime::WarpjoinRuntime;
use crate::table::provider::runtime_of;

/// The rows of a table that shows the state of a runtime.
pub(super) trait SystemRows: Debug + Send + Sync + 'static {
    /// Name of the table in the schema `warpjoin`.
    const NAME: &'static str;

    fn schema() -> Schema;

    /// The current rows, as columns.
    fn columns(runtime: &WarpjoinRuntime) -> Vec<ArrayRef>;
}

/// Registers a table in the schema `warpjoin` of the default catalog, or replaces it.
pub(super) fn register<R: SystemRows>(context: &SessionContext) -> Result<()> {
    let schema = Arc::new(R::schema());
    let table = Arc::new(SystemTable::<R> { runtime: runtime_of(context)?, schema, rows: PhantomData });
    let config = context.copied_config();
    let catalog_name = &config.options().catalog.default_catalog;
    let catalog = context.catalog(catalog_name).ok_or_else(|| {
        let what = format!("there is no catalog {catalog_name} for the table warpjoin.{}", R::NAME);
        DataFusionError::Configuration(what)
    })?;
    let tables = match catalog.schema("warpjoin") {
        Some(tables) => tables,
        None => {
            let tables: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
            catalog.register_schema("warpjoin", Arc::clone(&tables))?;
            tables
        }
    };
    tables.deregister_table(R::NAME)?;
    tables.register_table(R::NAME.into(), table)?;
    Ok(())
}

#[derive(Debug)]
struct SystemTable<R> {
    runtime: Arc<WarpjoinRuntime>,
    schema: SchemaRef,
    rows: PhantomData<R>,
}

#[async_trait]
impl<R: SystemRows> TableProvider for SystemTable<R> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    /// Returns the current rows.
    async fn scan(
        &self,
        state: &dyn CatalogSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = RecordBatch::try_new(self.schema(), R::columns(&self.runtime))?;
        MemTable::try_new(self.schema(), vec![vec![batch]])?.scan(state, projection, filters, limit).await
    }
}
