//! One execution: uploads the children's rows, runs the part on the devices, or falls back to the CPU.
//!
//! Owns the decision whether an error falls back.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, OrderingRequirements};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::output_requirements::{OutputRequirementExec, OutputRequirements};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, RecordOutput};
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, coop};
use futures::executor::block_on;
use futures::future::{BoxFuture, FutureExt, try_join_all};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;
use warpjoin::exec::{Inputs, OptimizedPlan, SharedRows};
use warpjoin::plan::PlanKind;
use warpjoin::{Cause, ExecOptions, QueryMetrics, Table};

use super::report::{self, NodeState};
use super::{Part, WarpjoinExec};
use crate::cache::CachedScanExec;
use crate::config::OnFault;
use crate::error::to_datafusion;
use crate::fallback::Fallback;
use crate::runtime::WarpjoinRuntime;
use crate::runtime::active_query::QueryPart;
use crate::runtime::thread::{
    CancelOnDrop, Upload, on_thread, pump_partitions, receive_table, upload_channel, with_schema,
};
use crate::table::load::LoadError;
use crate::template::fill;

/// Pieces of a result that are produced ahead of the reader.
const PIECES_AHEAD: usize = 1;

/// One execution. It owns what it needs, because the node may be dropped earlier.
struct Run {
    part: Arc<Part>,
    shared_rows: SharedRows,
    optimized: OptimizedPlan,
    children: Vec<Arc<dyn ExecutionPlan>>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    state: Arc<NodeState>,
    query: Arc<QueryPart>,
}

/// Why a run on the devices failed.
enum Failure {
    /// A device error. The CPU may succeed.
    Device(warpjoin::Error),
    /// A child failed to compute a row. DataFusion's own plan may never read that row: its joins skip one side if the other
    /// is empty, and its limits stop their inputs.
    Input(DataFusionError),
    /// Any other error. The CPU would fail, too.
    Host(DataFusionError),
}

impl Failure {
    /// An error of reading an input.
    fn of_input(error: DataFusionError) -> Self {
        if is_of_data(&error) { Self::Input(error) } else { Self::Host(error) }
    }
}

/// Where the rows of an input come from.
enum Source {
    /// The rows are on the devices.
    Table(Arc<Table>),
    /// The rows come in batches, and are uploaded.
    Upload(SchemaRef, mpsc::Receiver<Upload>),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::Host(error)
    }
}

/// The output of the node. Execution starts when it is first polled.
pub(super) fn stream(node: &WarpjoinExec, context: Arc<TaskContext>) -> SendableRecordBatchStream {
    let query = match context.session_config().get_extension::<WarpjoinRuntime>() {
        Some(runtime) => runtime.active_queries().part(&context, &node.part.original),
        None => QueryPart::alone(&context, &node.part.original),
    };
    let run = Run {
        part: Arc::clone(&node.part),
        shared_rows: node.shared_rows.clone(),
        optimized: node.optimized.clone(),
        children: node.children.clone(),
        context,
        metrics: node.metrics.clone(),
        state: Arc::clone(&node.state),
        query,
    };
    let schema = Arc::clone(&node.part.plan.schema);
    let output = BaselineMetrics::new(&node.metrics, 0);
    let batches = stream::once(run.execute()).try_flatten().map_ok(move |batch| batch.record_output(&output));
    coop::make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

impl Run {
    async fn execute(self) -> Result<SendableRecordBatchStream> {
        self.query.start();
        let failure = match self.query.unless_ended(self.on_devices()).await? {
            Ok(rows) => {
                let is_done = rows.rest.is_none();
                let schema = Arc::clone(&self.part.plan.schema);
                let batches = RecordBatchStreamAdapter::new(schema, rows.into_stream(Arc::clone(&self.state)));
                return Ok(if is_done { Box::pin(batches) } else { self.query.until_ended(Box::pin(batches)) });
            }
            Err(failure) => failure,
        };
        // What was cancelled because the query was ended fails by that, not by itself.
        if let Some(ended) = self.query.why_ended() {
            return Err(ended.into());
        }
        match failure {
            Failure::Host(error) => Err(error),
            Failure::Input(error) if self.part.strict => Err(error),
            Failure::Input(error) => self.fall_back(Fallback::of_input(&error)),
            Failure::Device(error) => {
                if error.cause() == Cause::DeviceLost
                    && let Some(runtime) = self.context.session_config().get_extension::<WarpjoinRuntime>()
                {
                    runtime.report_lost(&self.part.session, &error);
                }
                self.after_device_error(error)
            }
        }
    }

    /// Falls back to the CPU, or returns the error if the settings forbid that.
    fn after_device_error(self, error: warpjoin::Error) -> Result<SendableRecordBatchStream> {
        match self.forbids_fallback(&error) {
            Some(why) => Err(to_datafusion(error).context(why)),
            None => {
                let fallback = Fallback::new(&error);
                fallback.log();
                self.fall_back(fallback)
            }
        }
    }

    /// Records the fallback, and runs the part on the CPU.
    fn fall_back(self, fallback: Fallback) -> Result<SendableRecordBatchStream> {
        report::record_fallback(&self.metrics, &fallback);
        self.state.fell_back(fallback);
        Ok(Arc::clone(&self.query).until_ended(self.on_cpu()?))
    }

    /// Why this error must not fall back to the CPU, if so.
    fn forbids_fallback(&self, error: &warpjoin::Error) -> Option<&'static str> {
        match error.cause() {
            Cause::Cancelled => Some("the query was cancelled"),
            _ if self.part.strict => Some("the devices failed, and warpjoin.strict forbids falling back to the CPU"),
            cause if cause.is_fault() && self.part.on_fault == OnFault::Error => {
                Some("a device fault, which warpjoin.on_fault turns into an error")
            }
            _ => None,
        }
    }

    async fn on_devices(&self) -> Result<DeviceRows, Failure> {
        let runtime = self.context.session_config().get_extension::<WarpjoinRuntime>();
        let permit = match &runtime {
            Some(runtime) => Some(runtime.admission().admit(self.query.permit()).await),
            None => None,
        };
        let cancel_on_drop = CancelOnDrop::default();
        let cancel = cancel_on_drop.cancellation();
        self.query.cancels(&cancel);
        let tables = try_join_all(self.children.iter().map(|child| self.cached(child))).await?;
        let (mut pumps, mut sources) = (vec![], vec![]);
        for (child, table) in self.children.iter().zip(tables) {
            sources.push(match table {
                Some(table) => Source::Table(table),
                None => {
                    let (sender, receiver) = upload_channel();
                    pumps.push(pump_partitions(Arc::clone(child), Arc::clone(&self.context), sender));
                    Source::Upload(child.schema(), receiver)
                }
            });
        }
        let (part, metrics, query) = (Arc::clone(&self.part), self.metrics.clone(), Arc::clone(&self.query));
        let inputs = Inputs {
            shared_rows: self.shared_rows.clone(),
            optimized: Some(self.optimized.clone()),
            ..Inputs::default()
        };
        let options =
            ExecOptions { batch_rows: self.context.session_config().batch_size(), cancel, ..part.settings.clone() };
        let (sender, mut pieces) = mpsc::channel(PIECES_AHEAD);
        let driver = on_thread("warpjoin-query", move || {
            // If the stream is dropped, the permit is released when the thread has freed its memory, not before.
            let _permit = permit;
            // A query that is ended does not wait for whoever reads its rows.
            let send = |piece| block_on(query.unless_ended(sender.send(piece))).is_ok_and(|sent| sent.is_ok());
            drive(&part, inputs, sources, &options, &metrics, send)
        })?;
        // A panic of the driving thread is a defect of the engine, so it counts as a device error.
        let ended = driver.map(|ended| match ended {
            Ok(ended) => ended,
            Err(error) => Err(warpjoin::Error::Internal(error.to_string())),
        });
        let (pumped, first) = futures::join!(try_join_all(pumps), pieces.recv());
        pumped.map_err(Failure::of_input)?;
        let ended = ended.boxed();
        if let Some(first) = first {
            return Ok(DeviceRows { first, rest: Some(Rest { pieces, ended, _cancel_on_drop: cancel_on_drop }) });
        }
        let (rows, metrics) = ended.await.map_err(Failure::Device)?;
        self.state.ran(metrics);
        Ok(DeviceRows { first: rows, rest: None })
    }

    /// The table of an input whose columns can be cached; missing columns are read.
    async fn cached(&self, child: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<Table>>, Failure> {
        let Some(scan) = child.downcast_ref::<CachedScanExec>() else { return Ok(None) };
        let rows = scan.role().table(&self.part.session, &self.context).await.map_err(|error| match error {
            LoadError::Source(error) => Failure::of_input(error),
            LoadError::Device(error) => Failure::Device(error),
        })?;
        if let Some((chosen, all)) = rows.as_ref().and_then(|rows| rows.row_groups) {
            report::record_row_groups(&self.metrics, chosen, all);
        }
        Ok(rows.map(|rows| rows.table))
    }

    /// Runs the template over restarted children, with the partitioning and sorts that DataFusion adds.
    fn on_cpu(&self) -> Result<SendableRecordBatchStream> {
        let children: HashMap<usize, _> = self.children.iter().cloned().enumerate().collect();
        let plan = fill(&self.part.template, &children)?;
        let options = self.context.session_config().options();
        // Without this requirement the template's order would be lost when its partitions are merged.
        let required = self.part.ordering.clone().map(OrderingRequirements::from);
        let plan = Arc::new(OutputRequirementExec::new(plan, required, Distribution::SinglePartition, None));
        let plan = EnsureRequirements::new().optimize(plan, options)?;
        let plan = OutputRequirements::new_remove_mode().optimize(plan, options)?;
        let batches = merged(&reset_plan_states(plan)?, &self.context)?;
        let schema = Arc::clone(&self.part.plan.schema);
        let fixed = Arc::clone(&schema);
        let batches = batches.map(move |batch| Ok(with_schema(batch?, &fixed)?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// Rows of a run on the devices.
struct DeviceRows {
    first: Vec<RecordBatch>,
    /// Further pieces of a large result.
    rest: Option<Rest>,
}

/// Further pieces of a result, and the end of the run with the last piece. The run ends early if this is dropped.
struct Rest {
    pieces: mpsc::Receiver<Vec<RecordBatch>>,
    ended: BoxFuture<'static, warpjoin::Result<Ended>>,
    _cancel_on_drop: CancelOnDrop,
}

/// The last rows of a run, and its cost.
type Ended = (Vec<RecordBatch>, QueryMetrics);

impl DeviceRows {
    /// A stream of all rows. An error after the first rows is an error of the query: the CPU can't continue in the
    /// middle.
    fn into_stream(self, state: Arc<NodeState>) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let rest = stream::unfold(self.rest, move |rest: Option<Rest>| {
            let state = Arc::clone(&state);
            async move {
                let mut rest = rest?;
                if let Some(piece) = rest.pieces.recv().await {
                    return Some((Ok(piece), Some(rest)));
                }
                let last = rest.ended.await.map_err(to_datafusion).map(|(rows, metrics)| {
                    state.ran(metrics);
                    rows
                });
                Some((last, None))
            }
        });
        let pieces = stream::once(async { Ok(self.first) }).chain(rest);
        pieces.map_ok(|piece: Vec<RecordBatch>| stream::iter(piece).map(Ok)).try_flatten()
    }
}

/// Whether an error comes from computing values, and not from reading files, resource limits or devices.
fn is_of_data(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => {
            !matches!(**error, ArrowError::IoError(..) | ArrowError::ExternalError(_))
        }
        DataFusionError::Execution(_) => true,
        _ => false,
    }
}

/// Merges all partitions of `plan` into one stream.
fn merged(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
    match plan.output_partitioning().partition_count() {
        0 => Ok(Box::pin(EmptyRecordBatchStream::new(plan.schema()))),
        1 => plan.execute(0, Arc::clone(context)),
        _ => CoalescePartitionsExec::new(Arc::clone(plan)).execute(0, Arc::clone(context)),
    }
}

/// Uploads the inputs and runs the device plan, on its own thread. Frees all its device memory before it returns. All
/// pieces of a large result except the last are passed to `send`, until it returns false.
fn drive(
    part: &Part,
    mut inputs: Inputs,
    sources: Vec<Source>,
    options: &ExecOptions,
    metrics: &ExecutionPlanMetricsSet,
    send: impl Fn(Vec<RecordBatch>) -> bool,
) -> warpjoin::Result<Ended> {
    let start = Instant::now();
    let budget = options.memory_budget();
    let mut scans = vec![];
    for source in sources {
        scans.push(match source {
            Source::Table(table) => {
                let projection = (0..table.schema().fields().len()).collect();
                PlanKind::Scan { table, projection }
            }
            Source::Upload(schema, batches) => {
                let home_bytes_max = part.distribute.home_bytes_max(&part.session, budget);
                let table = receive_table(&part.session, &schema, batches, &options.cancel, budget, home_bytes_max)?;
                let table = Arc::new(table);
                if budget.host_bytes > 0 {
                    table.make_room_when_asked();
                }
                inputs.tables.push(table);
                PlanKind::Input { index: inputs.tables.len() - 1 }
            }
        });
    }
    let mut plan = Cow::Borrowed(&part.plan);
    if inputs.tables.len() < scans.len() {
        plan.to_mut().replace_inputs(&|input| scans.get(input).cloned());
    }
    if !scans.is_empty() {
        // Other rows come with each run.
        inputs.optimized = None;
    }
    let upload_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (mut last, mut failed) = (None, None);
    let mut take = |piece: Vec<RecordBatch>| {
        let piece = piece.into_iter().map(|batch| with_schema(batch, &part.plan.schema)).collect::<Result<_, _>>();
        match piece.map(|piece| last.replace(piece)) {
            Ok(None) => true,
            Ok(Some(before)) => send(before),
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    };
    let mut found = warpjoin::exec::run_in_pieces(&part.session, &plan, &inputs, options, &mut take)?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    found.uploaded_bytes += inputs.tables.iter().map(|table| table.resident_bytes()).sum::<u64>();
    report::record(metrics, &found, upload_ns);
    Ok((last.unwrap_or_default(), found))
}
