//! A part of a plan that the devices can run, as it grows during the traversal.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use warpjoin::Table;
use warpjoin::plan::{Plan, PlanKind};

use super::relation::Relation;
use crate::table::scan::DeviceScanExec;
use crate::template::{TemplateInputExec, fill};

/// A part of a plan that the devices can run.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// The device plan.
    pub relation: Relation,
    inputs: Vec<Input>,
    /// The CPU nodes of the part, with [`TemplateInputExec`] in place of the inputs.
    template: Arc<dyn ExecutionPlan>,
    /// The topmost node of the part in the original plan.
    original: Arc<dyn ExecutionPlan>,
    operators: Operators,
}

/// A CPU subtree whose rows are uploaded.
#[derive(Debug, Clone)]
struct Input {
    /// Unique within a traversal. Device plan and template use it until the part is closed.
    id: usize,
    plan: Arc<dyn ExecutionPlan>,
}

/// Counts of the operators of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Operators {
    /// Joins.
    pub joins: usize,
    /// Aggregates; a partial and its final one count once.
    pub aggregates: usize,
    /// Sorts, top-k operators and windows.
    pub sorts: usize,
    /// Filters, computed columns, limits and unions.
    pub row_wise: usize,
}

/// A part that is complete.
#[derive(Debug)]
pub(crate) struct Closed {
    /// The device plan. Its `Input` positions refer to `inputs`.
    pub plan: Plan,
    /// The CPU subtrees whose rows are uploaded.
    pub inputs: Vec<Arc<dyn ExecutionPlan>>,
    /// The CPU nodes of the part. Its [`TemplateInputExec`] positions refer to `inputs`.
    pub template: Arc<dyn ExecutionPlan>,
    /// The topmost node of the part in the original plan.
    pub original: Arc<dyn ExecutionPlan>,
    /// Counts of its operators.
    pub operators: Operators,
}

impl Operators {
    /// One filter, computed column, limit or union.
    pub(crate) const ROW_WISE: Self = Self { joins: 0, aggregates: 0, sorts: 0, row_wise: 1 };

    /// Number of operators that justify an upload.
    pub(crate) fn count(self) -> usize {
        self.joins + self.aggregates + self.sorts
    }
}

impl Candidate {
    /// A scan of a resident table.
    pub(super) fn scan(node: &Arc<dyn ExecutionPlan>, scan: &DeviceScanExec) -> Self {
        let kind = PlanKind::Scan { table: Arc::clone(scan.table()), projection: scan.projection().to_vec() };
        Self {
            relation: Relation::new(Plan { kind, schema: node.schema() }),
            inputs: vec![],
            template: Arc::clone(node),
            original: Arc::clone(node),
            operators: Operators::default(),
        }
    }

    /// A scan of files whose columns are on the devices, as `table`.
    pub(super) fn resident(node: &Arc<dyn ExecutionPlan>, table: Arc<Table>) -> Self {
        let projection = (0..table.schema().fields().len()).collect();
        Self {
            relation: Relation::new(Plan { kind: PlanKind::Scan { table, projection }, schema: node.schema() }),
            inputs: vec![],
            template: Arc::clone(node),
            original: Arc::clone(node),
            operators: Operators::default(),
        }
    }

    /// An upload of the rows of a CPU subtree.
    pub(super) fn upload(plan: &Arc<dyn ExecutionPlan>, id: usize) -> Self {
        Self {
            relation: Relation::new(Plan { kind: PlanKind::Input { index: id }, schema: plan.schema() }),
            inputs: vec![Input { id, plan: Arc::clone(plan) }],
            template: Arc::new(TemplateInputExec::new(id, plan.properties())),
            original: Arc::clone(plan),
            operators: Operators::default(),
        }
    }

    /// The part that `node` and its inputs `parts` form.
    ///
    /// # Errors
    /// Returns an error if DataFusion cannot rebuild the node.
    pub(super) fn grown(
        node: &Arc<dyn ExecutionPlan>,
        relation: Relation,
        parts: Vec<Candidate>,
        added: Operators,
    ) -> Result<Self> {
        let templates = parts.iter().map(|part| Arc::clone(&part.template)).collect();
        let template = replace_children_if_necessary(Arc::clone(node), templates)?;
        Ok(Self::grown_to(node, template, relation, parts, added))
    }

    /// As [`Self::grown`], with the template given.
    pub(super) fn grown_to(
        node: &Arc<dyn ExecutionPlan>,
        template: Arc<dyn ExecutionPlan>,
        relation: Relation,
        parts: Vec<Candidate>,
        added: Operators,
    ) -> Self {
        let mut operators = added;
        let mut inputs = vec![];
        for part in parts {
            operators.joins += part.operators.joins;
            operators.aggregates += part.operators.aggregates;
            operators.sorts += part.operators.sorts;
            operators.row_wise += part.operators.row_wise;
            inputs.extend(part.inputs);
        }
        Self { relation, inputs, template, original: Arc::clone(node), operators }
    }

    pub(super) fn template(&self) -> &Arc<dyn ExecutionPlan> {
        &self.template
    }

    /// Adds a node that does not change rows.
    pub(super) fn at(mut self, node: &Arc<dyn ExecutionPlan>) -> Self {
        self.original = Arc::clone(node);
        self
    }

    pub(super) fn operators(&self) -> Operators {
        self.operators
    }

    /// Whether the part is worth a device node. Filters, computed columns, limits and unions alone are, if all rows are
    /// resident: fetching their output is cheaper than fetching the tables.
    pub(super) fn is_worth_a_node(&self, offloads_all: bool) -> bool {
        self.operators.count() > 0 || self.operators.row_wise > 0 && (offloads_all || self.inputs.is_empty())
    }

    pub(super) fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.original
    }

    /// Estimated rows of the largest source; `None` if a source has no estimate.
    pub(super) fn estimated_rows_max(&self) -> Result<Option<u64>> {
        let mut rows_max = scan_rows_max(&self.relation.plan);
        let statistics = StatisticsContext::new();
        for input in &self.inputs {
            let estimate = statistics.compute(input.plan.as_ref(), &StatisticsArgs::new())?;
            let Some(&rows) = estimate.num_rows.get_value() else { return Ok(None) };
            rows_max = rows_max.max(rows as u64);
        }
        Ok(Some(rows_max))
    }

    /// The CPU nodes of the part, above its inputs.
    pub(super) fn restore(self) -> Result<Arc<dyn ExecutionPlan>> {
        if self.inputs.is_empty() {
            return Ok(self.original);
        }
        let plans: HashMap<usize, _> = self.inputs.into_iter().map(|input| (input.id, input.plan)).collect();
        fill(&self.template, &plans)
    }

    /// Finishes the part, and numbers its inputs densely.
    pub(super) fn close(self) -> Result<Closed> {
        let mut plan = Arc::unwrap_or_clone(self.relation.plan);
        let mut positions = HashMap::new();
        let mut placeholders: HashMap<usize, Arc<dyn ExecutionPlan>> = HashMap::new();
        for (position, input) in self.inputs.iter().enumerate() {
            positions.insert(input.id, position);
            placeholders.insert(input.id, Arc::new(TemplateInputExec::new(position, input.plan.properties())));
        }
        plan.replace_inputs(&|id| positions.get(&id).map(|&index| PlanKind::Input { index }));
        Ok(Closed {
            plan,
            template: fill(&self.template, &placeholders)?,
            inputs: self.inputs.into_iter().map(|input| input.plan).collect(),
            original: self.original,
            operators: self.operators,
        })
    }
}

fn scan_rows_max(plan: &Plan) -> u64 {
    let own = if let PlanKind::Scan { table, .. } = &plan.kind { table.rows() } else { 0 };
    plan.inputs().into_iter().map(scan_rows_max).fold(own, u64::max)
}
