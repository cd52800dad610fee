//! The table provider of resident tables, and loading a table onto the devices.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session as CatalogSession, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DataFusionError, Result, Statistics, TableReference};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream, execute_stream_partitioned};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use warpjoin::{Session, Table};

use crate::config::WarpjoinOptions;
use crate::error::to_datafusion;
use crate::runtime::thread::{CancelOnDrop, on_thread, pump, receive_table, upload_channel};
use crate::runtime::{Devices, WarpjoinRuntime};
use crate::table::scan::DeviceScanExec;
use crate::table::statistics::table_statistics;

/// A table that stays on the devices across queries.
///
/// It accepts no filters, so they stay in the plan where the optimizer rule sees them. Its row counts, null counts and
/// known distinct counts are exact.
#[derive(Debug, Clone)]
pub struct DeviceTableProvider {
    table: Arc<Table>,
}

impl DeviceTableProvider {
    /// A provider of a table that is already on the devices.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table }
    }

    /// Loads all rows of `stream` onto the session's devices, batch by batch.
    ///
    /// # Errors
    /// Returns errors of the stream, unsupported types, and running out of device memory.
    pub async fn load(session: &Arc<Session>, stream: SendableRecordBatchStream) -> Result<Self> {
        Self::load_within(session, stream, u64::MAX).await
    }

    /// As [`Self::load`], with a limit on the memory in use on each device.
    async fn load_within(
        session: &Arc<Session>,
        stream: SendableRecordBatchStream,
        memory_budget_bytes: u64,
    ) -> Result<Self> {
        let schema = stream.schema();
        let session = Arc::clone(session);
        let (sender, receiver) = upload_channel();
        let cancel = CancelOnDrop::default();
        let flag = cancel.flag();
        let receive = move || receive_table(&session, &schema, receiver, &flag, memory_budget_bytes);
        let table = on_thread("warpjoin-load", receive)?;
        let (pumped, table) = futures::join!(pump(stream, sender), table);
        pumped?;
        Ok(Self::new(Arc::new(table?.map_err(to_datafusion)?)))
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

/// Loads the registered table `name` onto the devices of the session, and registers the resident table in its place.
/// Works for any table that DataFusion can scan.
///
/// # Errors
/// Returns an error if the table does not exist, the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), no device is available, or loading fails.
/// After an error the old table is still registered.
pub async fn load_table(context: &SessionContext, name: impl Into<TableReference>) -> Result<Arc<DeviceTableProvider>> {
    let name: TableReference = name.into();
    let session = session_of(context)?;
    let frame = context.table(name.clone()).await?;
    let task = Arc::new(frame.task_ctx());
    let stream = in_order(frame.create_physical_plan().await?, task)?;
    let provider = Arc::new(DeviceTableProvider::load_within(&session, stream, budget_of(context)).await?);
    context.deregister_table(name.clone())?;
    context.register_table(name, Arc::clone(&provider) as Arc<dyn TableProvider>)?;
    Ok(provider)
}

fn budget_of(context: &SessionContext) -> u64 {
    let config = context.copied_config();
    config.options().extensions.get::<WarpjoinOptions>().map_or(u64::MAX, WarpjoinOptions::memory_budget)
}

/// Batches to prefetch of each partition that is not yet read.
const BATCHES_AHEAD: usize = 16;

/// Reads a plan partition by partition, so that rows keep the order of their file or table, and samples are reproducible.
///
/// Partitions of a repartitioning are read concurrently: it would have to buffer all partitions but the current one.
fn in_order(plan: Arc<dyn ExecutionPlan>, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
    if plan.exists(|node| Ok(node.is::<RepartitionExec>()))? {
        return execute_stream(plan, task);
    }
    let schema = plan.schema();
    let partitions = execute_stream_partitioned(plan, task)?;
    let partitions: Vec<_> = partitions.into_iter().map(|rows| spawn_buffered(rows, BATCHES_AHEAD)).collect();
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(partitions).flatten())))
}

/// The devices that plans of `context` run on with its current settings.
///
/// # Errors
/// Returns an error if the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), or no device is available.
pub fn session_of(context: &SessionContext) -> Result<Arc<Session>> {
    let config = context.copied_config();
    let runtime = config.get_extension::<WarpjoinRuntime>().ok_or_else(|| {
        DataFusionError::Configuration("this session was built without warpjoin: call with_warpjoin".to_string())
    })?;
    let options = config.options().extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default();
    match runtime.devices(&options) {
        Devices::Open(session) => Ok(session),
        Devices::None(why) => Err(DataFusionError::Configuration(no_device_message(&why))),
        Devices::Refused(why) => Err(DataFusionError::Configuration(why)),
    }
}

/// The error message if `warpjoin.device` is `auto` and no GPU is available.
pub(crate) fn no_device_message(why: &str) -> String {
    format!("no GPU can be used on this machine: {why}; SET warpjoin.device = 'sim' simulates devices on the CPU")
}

#[async_trait]
impl TableProvider for DeviceTableProvider {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn CatalogSession,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.table.schema().fields().len()).collect(),
        };
        Ok(Arc::new(DeviceScanExec::try_new(Arc::clone(&self.table), projection)?))
    }

    fn statistics(&self) -> Option<Statistics> {
        let all: Vec<usize> = (0..self.table.schema().fields().len()).collect();
        Some(table_statistics(&self.table, &all))
    }
}
