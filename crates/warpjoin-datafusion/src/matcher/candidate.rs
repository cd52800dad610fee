//! A part of a plan that the devices can run, while it grows.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use warpjoin::plan::{Plan, PlanKind};

use super::relation::Relation;
use crate::table::scan::DeviceScanExec;
use crate::template::{TemplateInputExec, fill};

/// A part of a plan that the devices can run.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// What the devices compute.
    pub relation: Relation,
    inputs: Vec<Input>,
    /// The same on the CPU, with [`TemplateInputExec`] where the inputs stand.
    template: Arc<dyn ExecutionPlan>,
    /// The topmost node as it stood in the plan.
    original: Arc<dyn ExecutionPlan>,
    operators: Operators,
}

/// A CPU subtree whose rows are uploaded.
#[derive(Debug, Clone)]
struct Input {
    /// Unique within one walk; the device plan and the template name it so until the part is closed.
    id: usize,
    plan: Arc<dyn ExecutionPlan>,
}

/// The joins, group-bys and sorts of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Operators {
    /// Hash joins.
    pub joins: usize,
    /// Aggregates, a partial and its final one counted once.
    pub aggregates: usize,
    /// Sorts, windows, and first rows of an order.
    pub sorts: usize,
    /// Filters, computed columns, limits and unions.
    pub row_wise: usize,
}

/// A part that will not grow any more.
#[derive(Debug)]
pub(crate) struct Closed {
    /// What the devices compute; `Input` positions are those in `inputs`.
    pub plan: Plan,
    /// CPU subtrees.
    pub inputs: Vec<Arc<dyn ExecutionPlan>>,
    /// The same on the CPU; [`TemplateInputExec`] positions are those in `inputs`.
    pub template: Arc<dyn ExecutionPlan>,
    /// The topmost node as it stood in the plan.
    pub original: Arc<dyn ExecutionPlan>,
    /// How much is in it.
    pub operators: Operators,
}

impl Operators {
    /// One filter, computed column, limit or union.
    pub(crate) const ROW_WISE: Self = Self { joins: 0, aggregates: 0, sorts: 0, row_wise: 1 };

    /// All that rows are worth being uploaded for.
    pub(crate) fn count(self) -> usize {
        self.joins + self.aggregates + self.sorts
    }
}

impl Candidate {
    /// A resident table.
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

    /// The rows of a CPU subtree.
    pub(super) fn upload(plan: &Arc<dyn ExecutionPlan>, id: usize) -> Self {
        Self {
            relation: Relation::new(Plan { kind: PlanKind::Input { index: id }, schema: plan.schema() }),
            inputs: vec![Input { id, plan: Arc::clone(plan) }],
            template: Arc::new(TemplateInputExec::new(id, plan.properties())),
            original: Arc::clone(plan),
            operators: Operators::default(),
        }
    }

    /// The part grown to `node`, whose inputs were `parts`.
    ///
    /// # Errors
    /// When DataFusion refuses to rebuild the node.
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

    /// The part grown to `node`, which over the templates of `parts` is `template`.
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

    /// The same part, seen from a node above that does not change rows.
    pub(super) fn at(mut self, node: &Arc<dyn ExecutionPlan>) -> Self {
        self.original = Arc::clone(node);
        self
    }

    pub(super) fn operators(&self) -> Operators {
        self.operators
    }

    /// Whether there is something to do for the devices. Filters, computed columns, limits and unions are done there if all
    /// rows are there already: what they leave is less to fetch than the tables.
    pub(super) fn is_worth_a_node(&self, takes_all: bool) -> bool {
        self.operators.count() > 0 || self.operators.row_wise > 0 && (takes_all || self.inputs.is_empty())
    }

    pub(super) fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.original
    }

    /// Rows of the largest source; `None` when one is unknown, and may be large.
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

    /// The part as CPU nodes again, over what became of its inputs.
    pub(super) fn restore(self) -> Result<Arc<dyn ExecutionPlan>> {
        if self.inputs.is_empty() {
            return Ok(self.original);
        }
        let plans: HashMap<usize, _> = self.inputs.into_iter().map(|input| (input.id, input.plan)).collect();
        fill(&self.template, &plans)
    }

    /// The part under dense input positions.
    pub(super) fn close(self) -> Result<Closed> {
        let mut plan = Arc::unwrap_or_clone(self.relation.plan);
        let mut positions = HashMap::new();
        let mut placeholders: HashMap<usize, Arc<dyn ExecutionPlan>> = HashMap::new();
        for (position, input) in self.inputs.iter().enumerate() {
            positions.insert(input.id, position);
            placeholders.insert(input.id, Arc::new(TemplateInputExec::new(position, input.plan.properties())));
        }
        renumber(&mut plan, &positions);
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

fn renumber(plan: &mut Plan, positions: &HashMap<usize, usize>) {
    if let PlanKind::Input { index } = &mut plan.kind
        && let Some(&position) = positions.get(index)
    {
        *index = position;
    }
    plan.inputs_mut().into_iter().for_each(|input| renumber(input, positions));
}
