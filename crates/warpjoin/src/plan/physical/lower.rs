//! Cuts an optimized plan into pipelines.

use super::constants::Constants;
use super::{
    Bindings, Edge, NodeSlot, Partitioning, PhysicalPlan, Pipeline, PipelineId, Sink, Source, Step, TableNode,
    TableSlot,
};
use crate::expr::Expr;
use crate::plan::ordered::{Ordered, OutputRange, RowWise};
use crate::plan::{AggregateCall, FetchPlan, Plan, PlanKind, SortKey};

/// The pipelines of a plan, and what an execution of this very plan binds.
pub(crate) fn lower(plan: &Plan) -> (PhysicalPlan, Bindings<'_>) {
    let mut lowering = Lowering::default();
    let result = lowering.in_order(plan);
    lowering.close(result, Sink::Result);
    let Lowering { pipelines, constants, tables, nodes } = lowering;
    let bindings = Bindings { constants: constants.into_vec(), tables, nodes };
    (PhysicalPlan { pipelines }, bindings)
}

#[derive(Default)]
struct Lowering<'p> {
    pipelines: Vec<Pipeline>,
    constants: Constants,
    tables: Vec<TableNode<'p>>,
    nodes: Vec<&'p Plan>,
}

/// A pipeline without a sink yet.
struct Open {
    source: Source,
    steps: Vec<Step>,
}

impl Open {
    fn new(source: Source) -> Self {
        Self { source, steps: vec![] }
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl<'p> Lowering<'p> {
    /// The pipeline that is open above a plan, with rows in the plan's order if it has one.
    fn in_order(&mut self, plan: &'p Plan) -> Open {
        match Ordered::of(plan) {
            Some(ordered) => self.ordered(plan, &ordered),
            None => self.open(plan, None),
        }
    }

    /// The pipeline that is open above a plan, with rows in any order; `wanted` of them, if not all are.
    fn open(&mut self, plan: &'p Plan, wanted: Option<u64>) -> Open {
        match &plan.kind {
            PlanKind::Scan { projection, .. } => self.table(plan, projection.clone()),
            PlanKind::Input { .. } => self.table(plan, (0..plan.schema.fields().len()).collect()),
            PlanKind::Filter { input, predicate } => {
                let open = self.open(input, wanted);
                open.then(Step::Filter(self.constants.take_from(predicate)))
            }
            PlanKind::Project { input, exprs } => {
                let open = self.open(input, wanted);
                open.then(self.project(exprs))
            }
            PlanKind::RowNumbers { input } => self.open(input, None).then(Step::RowNumber),
            PlanKind::Fetch(fetch) => {
                let open = self.open(&fetch.input, None);
                open.then(self.fetch(fetch))
            }
            PlanKind::Aggregate { input, group_by, aggregates }
                if !aggregates.iter().any(AggregateCall::needs_parts) =>
            {
                let open = self.open(input, None);
                let group_by = self.taken(group_by);
                let calls =
                    aggregates.iter().map(|call| call.map(&mut |expr| self.constants.take_from(expr))).collect();
                let input = self.node(input);
                self.closed(open, Sink::Aggregate { group_by, calls, input })
            }
            PlanKind::Sort { input, .. } | PlanKind::Limit { input, .. } => match Ordered::of(plan) {
                // Nobody sees the order of rows that go on.
                Some(Ordered { range: OutputRange { skip: 0, fetch: None }, .. }) => self.open(input, None),
                Some(ordered) => self.ordered(plan, &ordered),
                None => match plan.kind {
                    PlanKind::Limit { skip, fetch, .. } => {
                        let open = self.open(input, fetch.map(|fetch| fetch.saturating_add(skip)));
                        self.closed(open, Sink::Limit { skip, fetch })
                    }
                    _ => self.subtree(plan, false, wanted),
                },
            },
            PlanKind::Aggregate { .. }
            | PlanKind::Join(_)
            | PlanKind::GroupingSets { .. }
            | PlanKind::Window { .. }
            | PlanKind::Union { .. }
            | PlanKind::Numbered { .. }
            | PlanKind::Shared(_)
            | PlanKind::Marked { .. } => self.subtree(plan, false, wanted),
        }
    }

    /// A sort with what stands on it.
    fn ordered(&mut self, plan: &'p Plan, ordered: &Ordered<'p>) -> Open {
        let Some(keys) = ordered.keys else { return self.subtree(plan, true, None) };
        let mut open = self.open(ordered.input, None);
        let mut keys: Vec<SortKey> =
            keys.iter().map(|key| SortKey { expr: self.constants.take_from(&key.expr), ..*key }).collect();
        let mut width = ordered.input.schema.fields().len();
        // Projections run before the sort, with the keys behind what they put out.
        for exprs in &ordered.projections {
            width = exprs.len();
            let mut exprs = self.taken(exprs);
            for (index, key) in keys.iter_mut().enumerate() {
                let column = Expr::column(width + index, key.expr.data_type.clone(), key.expr.nullable);
                exprs.push(std::mem::replace(&mut key.expr, column));
            }
            open = open.then(Step::Project(exprs));
        }
        let input = self.node(ordered.input);
        let mut open = self.closed(open, Sink::Sort { keys, width, range: ordered.range, input });
        if ordered.behind.is_empty() {
            return open;
        }
        for step in &ordered.behind {
            let step = match step {
                RowWise::Project(exprs) => self.project(exprs),
                RowWise::Fetch(fetch) => self.fetch(fetch),
            };
            open = open.then(step);
        }
        self.closed(open, Sink::InPlace)
    }

    fn table(&mut self, plan: &'p Plan, columns: Vec<usize>) -> Open {
        let table = self.slot(TableNode::Source(plan));
        Open::new(Source::Table { table, columns })
    }

    fn subtree(&mut self, plan: &'p Plan, is_ordered: bool, wanted: Option<u64>) -> Open {
        let node = self.node(plan);
        Open::new(Source::Subtree { node, is_ordered, wanted })
    }

    fn project(&self, exprs: &[Expr]) -> Step {
        Step::Project(self.taken(exprs))
    }

    fn fetch(&mut self, fetch: &'p FetchPlan) -> Step {
        let table = self.slot(TableNode::Fetch(fetch));
        Step::Fetch { table, row: fetch.row, columns: fetch.columns.clone() }
    }

    fn taken(&self, exprs: &[Expr]) -> Vec<Expr> {
        exprs.iter().map(|expr| self.constants.take_from(expr)).collect()
    }

    fn slot(&mut self, table: TableNode<'p>) -> TableSlot {
        self.tables.push(table);
        TableSlot(self.tables.len() - 1)
    }

    fn node(&mut self, plan: &'p Plan) -> NodeSlot {
        self.nodes.push(plan);
        NodeSlot(self.nodes.len() - 1)
    }

    fn close(&mut self, open: Open, sink: Sink) -> PipelineId {
        let source = match &open.source {
            Source::Table { .. } => Edge { partitioning: Partitioning::Any, is_ordered: false },
            Source::Pipeline(id) => self.pipelines[id.0].output,
            Source::Subtree { is_ordered, .. } => Edge { partitioning: Partitioning::Any, is_ordered: *is_ordered },
        };
        let output = match &sink {
            Sink::Result | Sink::InPlace => source,
            Sink::Limit { .. } => Edge { partitioning: source.partitioning, is_ordered: false },
            Sink::Sort { .. } => Edge { partitioning: Partitioning::Any, is_ordered: true },
            Sink::Aggregate { .. } => Edge { partitioning: Partitioning::ByGroup, is_ordered: false },
        };
        self.pipelines.push(Pipeline { source: open.source, steps: open.steps, sink, output });
        PipelineId(self.pipelines.len() - 1)
    }

    /// A pipeline that reads what the closed one puts out.
    fn closed(&mut self, open: Open, sink: Sink) -> Open {
        let id = self.close(open, sink);
        Open::new(Source::Pipeline(id))
    }
}
