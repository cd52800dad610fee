//! Enforces `warpjoin.strict`: work on the CPU is an error that names the work.
//!
//! Work with a known number of rows is refused during planning. Rows of other work are counted as it runs, up to
//! `warpjoin.strict_rows`. Must not decide what counts as work ([`crate::rules::host_work`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use futures::StreamExt;

use crate::pass_through::{PassThroughExec, Role};
use crate::rules::host_work::{HostWork, host_work};

/// The root of a refused plan. EXPLAIN shows the plan and the reason; running it is an error.
pub type RefusedExec = PassThroughExec<Refusal>;

/// Counts the rows that the CPU node above it takes, and fails the query if there are too many.
pub(crate) type RowLimitExec = PassThroughExec<RowLimit>;

/// Why a plan is refused.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// It violates `warpjoin.strict`.
    Strict(String),
    /// The devices that the settings name are not usable.
    Devices(String),
}

impl Refusal {
    fn message(&self) -> &str {
        match self {
            Self::Strict(message) | Self::Devices(message) => message,
        }
    }

    fn error(&self) -> DataFusionError {
        match self {
            Self::Strict(message) => DataFusionError::Plan(message.clone()),
            Self::Devices(message) => DataFusionError::Configuration(message.clone()),
        }
    }
}

impl Role for Refusal {
    const NAME: &'static str = "WarpjoinRefused";

    fn label(&self) -> String {
        format!("error={}", self.message())
    }

    fn fresh(&self) -> Self {
        self.clone()
    }

    fn execute(
        &self,
        _input: &Arc<dyn ExecutionPlan>,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Err(self.error())
    }
}

/// The limit of rows that a CPU node may take.
#[derive(Debug)]
pub(crate) struct RowLimit {
    rows_max: u64,
    /// Description of the work, for the error message.
    work: String,
    /// Rows of all partitions so far.
    rows: Arc<AtomicU64>,
}

impl Role for RowLimit {
    const NAME: &'static str = "WarpjoinRowLimit";

    fn label(&self) -> String {
        format!("strict_rows={}", self.rows_max)
    }

    fn fresh(&self) -> Self {
        Self { rows: Arc::default(), work: self.work.clone(), rows_max: self.rows_max }
    }

    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batches = input.execute(partition, context)?;
        let (rows_max, rows, work) = (self.rows_max, Arc::clone(&self.rows), self.work.clone());
        let schema = batches.schema();
        let counted = batches.map(move |batch| {
            let batch = batch?;
            let passed = rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed) + batch.num_rows() as u64;
            if passed > rows_max {
                return Err(DataFusionError::Execution(format!(
                    "warpjoin.strict is set, and the CPU took more than {rows_max} rows (warpjoin.strict_rows): {work}"
                )));
            }
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)))
    }
}

/// Applies `warpjoin.strict` to a finished plan: refuses the plan, or adds row limits to it.
///
/// # Errors
/// Returns an error if DataFusion cannot rebuild a node.
pub(crate) fn enforce(plan: Arc<dyn ExecutionPlan>, rows_max: u64) -> Result<Arc<dyn ExecutionPlan>> {
    let work = host_work(&plan);
    let refused: Vec<String> =
        work.iter().filter(|work| work.rows_min.max(1) > rows_max).map(ToString::to_string).collect();
    if !refused.is_empty() {
        let message = format!("warpjoin.strict is set, and this would run on the CPU: {}", refused.join("; "));
        return Ok(Arc::new(RefusedExec::new(plan, Refusal::Strict(message))));
    }
    limit_rows(&plan, &work, rows_max)
}

/// Adds a row limit below each node that is work, or above it if its output counts.
fn limit_rows(node: &Arc<dyn ExecutionPlan>, work: &[HostWork], rows_max: u64) -> Result<Arc<dyn ExecutionPlan>> {
    let own = work.iter().find(|work| work.is_of(node));
    let count = |node: Arc<dyn ExecutionPlan>, is_output: bool| match own.filter(|work| work.is_output == is_output) {
        Some(work) => {
            let limit = RowLimit { rows_max, work: work.to_string(), rows: Arc::default() };
            Arc::new(RowLimitExec::new(node, limit)) as Arc<dyn ExecutionPlan>
        }
        None => node,
    };
    let children = node.children().into_iter().map(|child| Ok(count(limit_rows(child, work, rows_max)?, false)));
    let node = replace_children_if_necessary(Arc::clone(node), children.collect::<Result<Vec<_>>>()?)?;
    Ok(count(node, true))
}
