//! The table provider of resident tables, and loading a table onto the devices.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session as CatalogSession, TableProvider};
use datafusion::common::{DataFusionError, Result, Statistics, TableReference};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use warpjoin::{MemoryBudget, Session, Table};

use crate::config::{Distribute, WarpjoinOptions};
use crate::kept::{Registered, TableId};
use crate::runtime::thread::{pump, pump_partitions};
use crate::runtime::{Devices, WarpjoinRuntime};
use crate::table::load::load;
use crate::table::scan::DeviceScanExec;
use crate::table::statistics::table_statistics;

/// A table that stays on the devices across queries.
///
/// It accepts no filters, so they stay in the plan where the optimizer rule sees them. Its row counts, null counts and
/// known distinct counts are exact.
#[derive(Debug, Clone)]
pub struct DeviceTableProvider {
    table: Arc<Table>,
    /// Shared by clones: the table is dropped with the last of them.
    registered: Arc<Registered>,
}

impl DeviceTableProvider {
    /// A provider of a table that is already on the devices. Its columns are evicted to host memory when queries need
    /// the room.
    pub fn new(table: Arc<Table>) -> Self {
        table.make_room_when_asked();
        Self { table, registered: Arc::new(Registered::new()) }
    }

    /// Loads all rows of `stream` onto the session's devices, batch by batch. With several GPUs, they are loaded onto
    /// the first one alone, as long as it has room.
    ///
    /// # Errors
    /// Returns errors of the stream, unsupported types, and running out of device memory.
    pub async fn load(session: &Arc<Session>, stream: SendableRecordBatchStream) -> Result<Self> {
        let budget = MemoryBudget::OF_DEVICES;
        let home_bytes_max = Distribute::Auto.home_bytes_max(session, budget);
        let table = load(session, stream.schema(), |upload| pump(stream, upload), budget, home_bytes_max).await?;
        Ok(Self::new(Arc::new(table)))
    }

    /// Identifies the table in kept plans.
    pub(crate) fn id(&self) -> TableId {
        self.registered.id()
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
    let plan = frame.create_physical_plan().await?;
    let schema = plan.schema();
    let send = move |upload| pump_partitions(plan, task, upload);
    let options = options_of(context);
    let budget = options.memory_budget();
    let table = load(&session, schema, send, budget, options.distribute.home_bytes_max(&session, budget)).await?;
    let provider = Arc::new(DeviceTableProvider::new(Arc::new(table)));
    replace_table(context, &name, Arc::clone(&provider) as Arc<dyn TableProvider>)?;
    Ok(provider)
}

/// Registers a table in place of another one. A catalog accepts no table under a name that is in use, so the old one is
/// removed first; if the catalog refuses the new one, the old one is registered again.
fn replace_table(context: &SessionContext, name: &TableReference, table: Arc<dyn TableProvider>) -> Result<()> {
    let old = context.deregister_table(name.clone())?;
    let Err(error) = context.register_table(name.clone(), table) else { return Ok(()) };
    if let Some(old) = old {
        context.register_table(name.clone(), old)?;
    }
    Err(error)
}

/// The `warpjoin.*` settings of `context`.
pub(crate) fn options_of(context: &SessionContext) -> WarpjoinOptions {
    context.copied_config().options().extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default()
}

/// The runtime that `context` was built with.
///
/// # Errors
/// Returns an error if the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin).
pub fn runtime_of(context: &SessionContext) -> Result<Arc<WarpjoinRuntime>> {
    context.copied_config().get_extension::<WarpjoinRuntime>().ok_or_else(|| {
        DataFusionError::Configuration("this session was built without warpjoin: call with_warpjoin".to_string())
    })
}

/// The devices that plans of `context` run on with its current settings.
///
/// # Errors
/// Returns an error if the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), or no device is available.
pub fn session_of(context: &SessionContext) -> Result<Arc<Session>> {
    match runtime_of(context)?.devices(&options_of(context)) {
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
