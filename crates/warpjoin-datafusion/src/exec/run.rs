//! One execution: upload the children, run on the devices, or fall back to the CPU.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

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
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;
use warpjoin::exec::Inputs;
use warpjoin::{Cause, ExecOptions, QueryOutput};

use super::report::{self, NodeState};
use super::{Part, WarpjoinExec};
use crate::config::OnFault;
use crate::error::to_datafusion;
use crate::fallback::Fallback;
use crate::runtime::WarpjoinRuntime;
use crate::runtime::thread::{CancelOnDrop, Upload, on_thread, pump, receive_table, upload_channel, with_schema};
use crate::template::fill;

/// What an execution needs, apart from the node, which may be dropped before it.
struct Run {
    part: Arc<Part>,
    children: Vec<Arc<dyn ExecutionPlan>>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    state: Arc<NodeState>,
}

/// Why there is no result from the devices.
enum Failure {
    /// The devices; the CPU may do better.
    Device(warpjoin::Error),
    /// A child could not compute a row, which DataFusion's own plan may never ask for: its joins do not read one side if
    /// the other is empty, and limits end what is below them.
    Input(DataFusionError),
    /// Anything else; the CPU would meet the same.
    Host(DataFusionError),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::Host(error)
    }
}

/// The node's result. Nothing starts before it is polled.
pub(super) fn stream(node: &WarpjoinExec, context: Arc<TaskContext>) -> SendableRecordBatchStream {
    let run = Run {
        part: Arc::clone(&node.part),
        children: node.children.clone(),
        context,
        metrics: node.metrics.clone(),
        state: Arc::clone(&node.state),
    };
    let schema = Arc::clone(&node.part.plan.schema);
    let output = BaselineMetrics::new(&node.metrics, 0);
    let batches = stream::once(run.execute()).try_flatten().map_ok(move |batch| batch.record_output(&output));
    coop::make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

impl Run {
    async fn execute(self) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(&self.part.plan.schema);
        match self.on_devices().await {
            Ok(output) => {
                let batches = stream::iter(output.batches.into_iter().map(Ok));
                Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
            }
            Err(Failure::Host(error)) => Err(error),
            Err(Failure::Input(error)) if self.part.strict => Err(error),
            Err(Failure::Input(error)) => self.instead(Fallback::of_input(&error)),
            Err(Failure::Device(error)) => {
                if error.cause() == Cause::DeviceLost
                    && let Some(runtime) = self.context.session_config().get_extension::<WarpjoinRuntime>()
                {
                    runtime.report_lost(&self.part.session, &error);
                }
                self.without_devices(error)
            }
        }
    }

    /// What becomes of the query when the devices give up.
    fn without_devices(self, error: warpjoin::Error) -> Result<SendableRecordBatchStream> {
        match self.forbids_fallback(&error) {
            Some(why) => Err(to_datafusion(error).context(why)),
            None => {
                let fallback = Fallback::new(&error);
                fallback.log();
                self.instead(fallback)
            }
        }
    }

    /// The CPU takes over.
    fn instead(self, fallback: Fallback) -> Result<SendableRecordBatchStream> {
        report::record_fallback(&self.metrics, &fallback);
        self.state.fell_back(fallback);
        self.on_cpu()
    }

    /// The setting that makes this error the query's own.
    fn forbids_fallback(&self, error: &warpjoin::Error) -> Option<&'static str> {
        match error.cause() {
            Cause::Cancelled => Some("the query was cancelled"),
            _ if self.part.strict => Some("the devices gave up, and warpjoin.strict forbids the CPU to take over"),
            cause if cause.is_fault() && self.part.on_fault == OnFault::Error => {
                Some("a fault of the devices, which warpjoin.on_fault makes an error")
            }
            _ => None,
        }
    }

    async fn on_devices(&self) -> Result<QueryOutput, Failure> {
        let runtime = self.context.session_config().get_extension::<WarpjoinRuntime>();
        let _place = match &runtime {
            Some(runtime) => Some(runtime.admission().admit(&self.context).await),
            None => None,
        };
        let cancel_on_drop = CancelOnDrop::default();
        let cancel = cancel_on_drop.flag();
        let (mut pumps, mut uploads) = (vec![], vec![]);
        for child in &self.children {
            let (sender, receiver) = upload_channel();
            pumps.push(pump(merged(child, &self.context)?, sender));
            uploads.push((child.schema(), receiver));
        }
        let (part, metrics) = (Arc::clone(&self.part), self.metrics.clone());
        let batch_rows = self.context.session_config().batch_size();
        let driver = on_thread("warpjoin-query", move || drive(&part, uploads, batch_rows, cancel, &metrics))?;
        let (pumped, output) = futures::join!(try_join_all(pumps), driver);
        pumped.map_err(|error| if is_of_data(&error) { Failure::Input(error) } else { Failure::Host(error) })?;
        // A driver that panicked is a defect of the device side.
        let output = output.map_err(|error| Failure::Device(warpjoin::Error::Internal(error.to_string())))?;
        let output = output.map_err(Failure::Device)?;
        self.state.ran(output.metrics.clone());
        Ok(output)
    }

    /// The template, over children that start anew, with DataFusion's own partitioning around it.
    fn on_cpu(&self) -> Result<SendableRecordBatchStream> {
        let children: HashMap<usize, _> = self.children.iter().cloned().enumerate().collect();
        let plan = fill(&self.part.template, &children)?;
        let options = self.context.session_config().options();
        // Else the template's sort would be lost with whatever brings its partitions together.
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

/// Whether an error comes from computing values: not from reading them, from limits, or from devices.
fn is_of_data(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => {
            !matches!(**error, ArrowError::IoError(..) | ArrowError::ExternalError(_))
        }
        DataFusionError::Execution(_) => true,
        _ => false,
    }
}

/// All partitions of `plan` in one stream.
fn merged(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
    match plan.output_partitioning().partition_count() {
        0 => Ok(Box::pin(EmptyRecordBatchStream::new(plan.schema()))),
        1 => plan.execute(0, Arc::clone(context)),
        _ => CoalescePartitionsExec::new(Arc::clone(plan)).execute(0, Arc::clone(context)),
    }
}

/// The device side, on its own thread: everything that it allocates is gone when it returns.
fn drive(
    part: &Part,
    uploads: Vec<(SchemaRef, mpsc::Receiver<Upload>)>,
    batch_rows: usize,
    cancel: Arc<AtomicBool>,
    metrics: &ExecutionPlanMetricsSet,
) -> warpjoin::Result<QueryOutput> {
    let start = Instant::now();
    let mut tables = Vec::with_capacity(uploads.len());
    for (schema, batches) in uploads {
        tables.push(Arc::new(receive_table(
            &part.session,
            &schema,
            batches,
            &cancel,
            part.settings.memory_budget_bytes,
        )?));
    }
    let upload_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let options = ExecOptions { batch_rows, cancel, ..part.settings.clone() };
    let inputs = Inputs { tables, handed_over: part.handed_over.clone() };
    let mut output = warpjoin::exec::run_with(&part.session, &part.plan, &inputs, &options)?;
    output.metrics.uploaded_bytes += inputs.tables.iter().map(|table| table.resident_bytes()).sum::<u64>();
    output.batches =
        output.batches.into_iter().map(|batch| with_schema(batch, &part.plan.schema)).collect::<Result<_, _>>()?;
    report::record(metrics, &output.metrics, upload_ns);
    Ok(output)
}
