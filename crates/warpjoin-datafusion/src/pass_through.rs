//! Plan nodes that pass their input through unchanged, and annotate or check it.
//!
//! The last optimizer rule inserts them, so no other rule meets one. They must not change rows.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// What a pass-through node does.
pub trait Role: fmt::Debug + Send + Sync + Sized + 'static {
    /// The node's name.
    const NAME: &'static str;

    /// The text that EXPLAIN shows, such as `reason=...`.
    fn label(&self) -> String;

    /// A copy without the state of a run.
    #[must_use]
    fn fresh(&self) -> Self;

    /// Executes one partition.
    ///
    /// # Errors
    /// Returns errors of the input and of the node itself.
    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        input.execute(partition, context)
    }
}

/// A node with one input. It keeps the input's rows, order and partitions.
#[derive(Debug)]
pub struct PassThroughExec<R> {
    input: Arc<dyn ExecutionPlan>,
    role: R,
}

impl<R: Role> PassThroughExec<R> {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, role: R) -> Self {
        Self { input, role }
    }

    /// The input node.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    pub(crate) fn role(&self) -> &R {
        &self.role
    }
}

impl<R: Role> DisplayAs for PassThroughExec<R> {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "{}: {}", R::NAME, self.role.label()),
            DisplayFormatType::TreeRender => writeln!(f, "{}", self.role.label()),
        }
    }
}

impl<R: Role> ExecutionPlan for PassThroughExec<R> {
    fn name(&self) -> &str {
        R::NAME
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
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.role.fresh()))),
            _ => Err(DataFusionError::Internal(format!("{} needs exactly one child", R::NAME))),
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.input), self.role.fresh())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.role.execute(&self.input, partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        input_stats.first().cloned().ok_or_else(|| DataFusionError::Internal(format!("{} got no statistics", R::NAME)))
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
