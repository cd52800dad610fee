//! The plan node that runs a part of a plan on the devices.
//!
//! Architecture invariant: no batch leaves the node before the device work has ended, so that
//! whatever the devices report, the CPU template can still run from the start.

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
use warpjoin::exec::{Explanation, HandedOver};
use warpjoin::plan::Plan;
use warpjoin::{ExecOptions, QueryMetrics, Session};

use crate::config::{OnFault, WarpjoinOptions};
use crate::fallback::Fallback;
use crate::matcher::{Closed, Operators};
pub(crate) use report::NodeState;

/// Runs joins and group-bys on devices. Its children are what stays on the CPU below them; their
/// rows are uploaded. It has one output partition.
#[derive(Debug, Clone)]
pub struct WarpjoinExec {
    part: Arc<Part>,
    children: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    state: Arc<NodeState>,
}

/// What does not change when the node's children do.
#[derive(Debug, Clone)]
struct Part {
    plan: Plan,
    /// Rows that parts of the same query leave for each other.
    handed_over: HandedOver,
    /// How it would run, once somebody asked.
    explanation: OnceLock<Explanation>,
    /// The same on the CPU, with holes where the children belong.
    template: Arc<dyn ExecutionPlan>,
    /// The order in which rows come out.
    ordering: Option<LexOrdering>,
    operators: Operators,
    session: Arc<Session>,
    /// What the session's settings say of how it runs.
    settings: ExecOptions,
    /// GPUs that are not used, each with the reason.
    left_out: Vec<String>,
    strict: bool,
    on_fault: OnFault,
    /// What the part stands for, as it stood in the plan: for estimates.
    original: Arc<dyn ExecutionPlan>,
    /// Estimate for the rows that come out, once somebody asked. Most parts are the whole plan, and nobody does.
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
    /// The node for a part found by the matcher.
    ///
    /// # Errors
    /// When the part's schema is not the one of the nodes that it replaces.
    pub(crate) fn try_new(
        closed: Closed,
        session: Arc<Session>,
        options: &WarpjoinOptions,
        left_out: &[String],
    ) -> Result<Self> {
        let Closed { plan, inputs, template, original, operators } = closed;
        if plan.schema != original.schema() {
            return Err(DataFusionError::Internal(format!(
                "the device plan gives {:?} in place of {:?}",
                plan.schema,
                original.schema()
            )));
        }
        // What the devices sort comes out in that order, whatever becomes of the nodes that asked for it.
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
            quick_kernels: options.quick_kernels,
            group_by_form: options.group_by_form,
            memory_budget_bytes: options.memory_budget(),
            ..ExecOptions::default()
        };
        let part = Part {
            explanation: OnceLock::new(),
            plan,
            handed_over: HandedOver::default(),
            template,
            ordering,
            operators,
            session,
            settings,
            left_out: left_out.to_vec(),
            strict: options.strict,
            on_fault: options.on_fault,
            original,
            statistics: OnceLock::new(),
        };
        Ok(Self {
            part: Arc::new(part),
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

    /// The devices that it runs on.
    pub fn session(&self) -> &Arc<Session> {
        &self.part.session
    }

    /// Hash joins in it.
    pub fn joins(&self) -> usize {
        self.part.operators.joins
    }

    /// Aggregates in it, a partial and its final one counted once.
    pub fn aggregates(&self) -> usize {
        self.part.operators.aggregates
    }

    /// What the last run of this node cost; `None` before the first, and after one that the
    /// devices did not finish.
    pub fn last_metrics(&self) -> Option<QueryMetrics> {
        self.state.metrics()
    }

    /// Why the last run fell back to the CPU; `None` if it did not.
    pub fn last_fallback(&self) -> Option<Fallback> {
        self.state.fallback()
    }

    /// Sorts in it, windows, and first rows of an order.
    pub fn sorts(&self) -> usize {
        self.part.operators.sorts
    }

    /// The same part with another device plan, which has the same rows, and may take over some of another part, or leave it
    /// some.
    pub(crate) fn with_plan(&self, plan: Plan, handed_over: &HandedOver) -> Self {
        let handed_over = handed_over.clone();
        let part = Part { plan, handed_over, explanation: OnceLock::new(), ..(*self.part).clone() };
        Self { part: Arc::new(part), ..self.clone() }
    }

    /// State that EXPLAIN shows.
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

    /// Partitions are merged before the upload: more of them than a source has gain nothing.
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
