//! The plan node that runs a part of a plan on the devices, and falls back to the CPU.
//!
//! Must not know which nodes devices support ([`crate::matcher`]).
//!
//! Architecture invariant: no batch leaves the node before its device work has ended, so that the CPU template can start
//! over after any device error.

pub(crate) mod cache_table;
mod cached;
mod explain;
mod report;
mod run;

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_plan::distribution_requirements::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, EvaluationType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use warpjoin::exec::{Explanation, OptimizedPlan, SharedRows};
use warpjoin::plan::Plan;
use warpjoin::{ExecOptions, QueryMetrics, Session};

use crate::config::{Distribute, OnFault, WarpjoinOptions};
use crate::fallback::Fallback;
use crate::matcher::{Closed, Operators};
pub(crate) use report::NodeState;

/// Runs a device plan. The rows of its children, which run on the CPU, are uploaded. It has one output partition.
#[derive(Debug, Clone)]
pub struct WarpjoinExec {
    part: Arc<Part>,
    /// Rows that parts of the same query share.
    shared_rows: SharedRows,
    /// The optimized device plan, once it has run. Copies of the node share it.
    optimized: OptimizedPlan,
    children: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    state: Arc<NodeState>,
}

/// What stays the same when the node's children change.
#[derive(Debug, Clone)]
struct Part {
    plan: Plan,
    /// Computed when EXPLAIN needs it.
    explanation: OnceLock<Explanation>,
    /// The CPU nodes of the part, with placeholders for the children.
    template: Arc<dyn ExecutionPlan>,
    /// Order of the output rows.
    ordering: Option<LexOrdering>,
    operators: Operators,
    session: Arc<Session>,
    /// Execution options from the session's settings.
    settings: ExecOptions,
    /// Whether uploaded inputs lie on one device or on all.
    distribute: Distribute,
    /// GPUs that are not used, each with the reason.
    left_out: Vec<String>,
    strict: bool,
    on_fault: OnFault,
    /// The replaced nodes, for estimates.
    original: Arc<dyn ExecutionPlan>,
    /// Computed on demand: no node above asks for them if the part is the whole plan.
    statistics: OnceLock<Arc<Statistics>>,
}

impl Part {
    fn explanation(&self) -> &Explanation {
        self.explanation.get_or_init(|| warpjoin::exec::explain(&self.plan, &self.session, &self.settings))
    }

    fn statistics(&self) -> &Arc<Statistics> {
        self.statistics.get_or_init(|| {
            let estimate = StatisticsContext::new().compute(self.original.as_ref(), &StatisticsArgs::new());
            let estimate = estimate.map(|estimate| estimate.as_ref().clone().to_inexact());
            Arc::new(estimate.unwrap_or_else(|_| Statistics::new_unknown(&self.plan.schema)))
        })
    }
}

impl WarpjoinExec {
    /// The node for a part that the matcher found.
    ///
    /// # Errors
    /// Returns an error if the part's schema differs from that of the replaced nodes.
    pub(crate) fn try_new(
        closed: Closed,
        session: Arc<Session>,
        options: &WarpjoinOptions,
        left_out: &[String],
    ) -> Result<Self> {
        let Closed { plan, inputs, template, original, operators } = closed;
        if plan.schema != original.schema() {
            return Err(DataFusionError::Internal(format!(
                "the device plan has schema {:?} instead of {:?}",
                plan.schema,
                original.schema()
            )));
        }
        // Declare the order even if the nodes that required it change later.
        let ordering = original.output_ordering().filter(|_| plan.is_ordered()).cloned();
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&plan.schema), ordering.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative)
        .with_evaluation_type(EvaluationType::Eager);
        let settings = ExecOptions {
            probe_group_lanes: (options.group_size_lanes > 0).then_some(options.group_size_lanes),
            join_form: options.join_form,
            join_order: options.join_order,
            runtime_filters: options.runtime_filters,
            materialization: options.materialization,
            counts_rows: options.count_rows,
            remembers_results: options.remember,
            code_tier: options.code_tier,
            group_by_form: options.group_by_form,
            memory_budget_bytes: options.memory_budget().device_bytes,
            host_budget_bytes: options.memory_budget().host_bytes,
            spill_path: options.spill_path.as_deref().map(Into::into),
            ..ExecOptions::default()
        };
        let part = Part {
            explanation: OnceLock::new(),
            plan,
            template,
            ordering,
            operators,
            session,
            settings,
            distribute: options.distribute,
            left_out: left_out.to_vec(),
            strict: options.strict,
            on_fault: options.on_fault,
            original,
            statistics: OnceLock::new(),
        };
        Ok(Self {
            part: Arc::new(part),
            shared_rows: SharedRows::default(),
            optimized: OptimizedPlan::default(),
            children: inputs,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            state: Arc::default(),
        })
    }

    /// The device plan.
    pub fn plan(&self) -> &Plan {
        &self.part.plan
    }

    /// The CPU nodes of the part, with placeholders for its inputs.
    pub(crate) fn template(&self) -> &Arc<dyn ExecutionPlan> {
        &self.part.template
    }

    /// The session whose devices it runs on.
    pub fn session(&self) -> &Arc<Session> {
        &self.part.session
    }

    /// Number of joins.
    pub fn joins(&self) -> usize {
        self.part.operators.joins
    }

    /// Number of aggregates; a partial and its final one count once.
    pub fn aggregates(&self) -> usize {
        self.part.operators.aggregates
    }

    /// Metrics of the last run; `None` before the first run, and after a run that the devices did not finish.
    pub fn last_metrics(&self) -> Option<QueryMetrics> {
        self.state.metrics()
    }

    /// Why the last run fell back to the CPU; `None` if it did not.
    pub fn last_fallback(&self) -> Option<Fallback> {
        self.state.fallback()
    }

    /// Number of sorts, top-k operators and windows.
    pub fn sorts(&self) -> usize {
        self.part.operators.sorts
    }

    /// The same part with an equivalent device plan that shares rows with another part through `shared_rows`.
    pub(crate) fn with_plan(&self, plan: Plan, shared_rows: &SharedRows) -> Self {
        let part = Part { plan, explanation: OnceLock::new(), ..(*self.part).clone() };
        let optimized = OptimizedPlan::default();
        Self { part: Arc::new(part), optimized, ..self.with_shared_rows(shared_rows) }
    }

    /// The same part, which shares rows through `shared_rows`.
    pub(crate) fn with_shared_rows(&self, shared_rows: &SharedRows) -> Self {
        Self { shared_rows: shared_rows.clone(), ..self.clone() }
    }

    /// The same part with the values that its parameters have now.
    pub(crate) fn bound(&self) -> Self {
        self.with_plan(self.part.plan.bound(), &self.shared_rows)
    }

    /// Depth and last run, which EXPLAIN shows.
    pub(crate) fn state(&self) -> &Arc<NodeState> {
        &self.state
    }
}

impl DisplayAs for WarpjoinExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => explain::lines(self, f),
            DisplayFormatType::TreeRender => explain::tree_render(self, f),
        }
    }
}

impl ExecutionPlan for WarpjoinExec {
    fn name(&self) -> &str {
        "WarpjoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution; self.children.len()])
    }

    /// Partitions are merged before the upload, so repartitioning gains nothing.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children.len()]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.part.template.apply(|node| node.apply_expressions(f))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != self.children.len() {
            return Err(DataFusionError::Internal(format!(
                "WarpjoinExec has {} children, not {}",
                self.children.len(),
                children.len()
            )));
        }
        Ok(Arc::new(Self { children, ..(*self).clone() }))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            metrics: ExecutionPlanMetricsSet::new(),
            state: Arc::new(self.state.fresh()),
            ..(*self).clone()
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("WarpjoinExec has one partition, not {partition}")));
        }
        Ok(run::stream(self, context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(self.part.statistics()))
    }
}
