//! The line above a CPU node that says why it is one.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use warpjoin::Reason;

/// Says in EXPLAIN why the node below stays on the CPU. Everything else it passes on.
///
/// It is put in after all other rules, so that none of them has to see through it.
#[derive(Debug)]
pub struct CpuReasonExec {
    input: Arc<dyn ExecutionPlan>,
    reason: Reason,
}

impl CpuReasonExec {
    /// Says `reason` above `input`.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, reason: Reason) -> Self {
        Self { input, reason }
    }

    /// Why the node below stays on the CPU.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The node below.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

impl DisplayAs for CpuReasonExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "WarpjoinCpu: reason={}", self.reason)
            }
            DisplayFormatType::TreeRender => writeln!(f, "reason={}", self.reason),
        }
    }
}

impl ExecutionPlan for CpuReasonExec {
    fn name(&self) -> &str {
        "WarpjoinCpu"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.reason.clone()))),
            _ => Err(DataFusionError::Internal("WarpjoinCpu has one child".to_string())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        input_stats
            .first()
            .cloned()
            .ok_or_else(|| DataFusionError::Internal("WarpjoinCpu got no statistics".to_string()))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn fetch(&self) -> Option<usize> {
        self.input.fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
