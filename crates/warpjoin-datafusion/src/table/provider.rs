//! Tables whose columns stay on the devices, as DataFusion tables.

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

/// A table that stays on the devices across queries. It claims no filters, so that they stay
/// visible to the optimizer rule, and it knows
/// its rows, nulls and distinct values exactly.
#[derive(Debug, Clone)]
pub struct DeviceTableProvider {
    table: Arc<Table>,
}

impl DeviceTableProvider {
    /// A provider of a table that is on the devices already.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table }
    }

    /// Loads all of `stream` onto the session's devices, batch by batch: host memory stays bounded.
    ///
    /// # Errors
    /// Those of the stream; when a type is not supported on devices or their memory does not suffice.
    pub async fn load(session: &Arc<Session>, stream: SendableRecordBatchStream) -> Result<Self> {
        Self::load_within(session, stream, u64::MAX).await
    }

    /// The same, where no more than a budget may be in use on each device.
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

/// Loads the registered table `name` onto the devices of the session and registers the resident
/// table in its place, so that later queries read nothing else. Works on anything that DataFusion
/// can scan.
///
/// # Errors
/// When there is no such table, the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), there is no device, or
/// loading fails; the table then stays as it was.
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

/// Partitions that are read ahead of their turn have so many batches ready.
const BATCHES_AHEAD: usize = 16;

/// The rows of a plan, partition behind partition: the order that files and tables have is worth keeping, and a sample of
/// the rows is then the same each time. Where partitions come of one exchange, which would have to hold all others
/// meanwhile, they are read as they come.
fn in_order(plan: Arc<dyn ExecutionPlan>, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
    if plan.exists(|node| Ok(node.is::<RepartitionExec>()))? {
        return execute_stream(plan, task);
    }
    let schema = plan.schema();
    let partitions = execute_stream_partitioned(plan, task)?;
    let partitions: Vec<_> = partitions.into_iter().map(|rows| spawn_buffered(rows, BATCHES_AHEAD)).collect();
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(partitions).flatten())))
}

/// The devices that plans of `context` run on now.
///
/// # Errors
/// When the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), or there is no device.
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

/// What to do when the choice of devices is automatic and there is no GPU.
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
