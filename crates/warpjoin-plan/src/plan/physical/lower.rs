//! Cuts an optimized plan into pipelines.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use warpjoin_columns::expr::Expr;

use super::constants::Constants;
use super::{
    Bindings, Choices, Edge, Found, Join, NodeSlot, Partitioning, PhysicalPlan, Pipeline, PipelineId, Sink, Source,
    Step, TableNode, TableSlot,
};
use crate::plan::join::JoinNode;
use crate::plan::ordered::{Ordered, OutputRange, RowWise};
use crate::plan::{AggregateCall, FetchPlan, JoinPlan, Mark, Plan, PlanKind, RowsOf, Share, SortKey};

/// The pipelines of a plan, and the bindings for an execution of this plan.
pub fn lower<'p>(plan: &'p Plan, choices: &Choices<'_>) -> (PhysicalPlan, Bindings<'p>) {
    let mut lowering = Lowering::of(plan, choices);
    let result = lowering.in_order(plan);
    lowering.close(result, Sink::Result);
    let Lowering { pipelines, constants, tables, nodes, found, .. } = lowering;
    let bindings = Bindings { constants: constants.into_vec(), tables, nodes };
    let mut readers = vec![0; pipelines.len()];
    pipelines.iter().flat_map(Pipeline::reads).for_each(|id| readers[id.0] += 1);
    (PhysicalPlan { devices: choices.devices, pipelines, readers, found }, bindings)
}

struct Lowering<'p, 'c> {
    choices: &'c Choices<'c>,
    pipelines: Vec<Pipeline>,
    constants: Constants,
    tables: Vec<TableNode<'p>>,
    nodes: Vec<&'p Plan>,
    /// The whole plan.
    root: &'p Plan,
    /// Shared build tables that have a pipeline.
    shared_build: HashSet<usize>,
    /// Pipelines that several others read.
    shared: HashMap<Share, PipelineId>,
    /// The same for plans that occur in several places, by address.
    kept: HashMap<usize, PipelineId>,
    found: Vec<Found>,
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

impl<'p, 'c> Lowering<'p, 'c> {
    fn of(root: &'p Plan, choices: &'c Choices<'c>) -> Self {
        Self {
            choices,
            pipelines: vec![],
            constants: Constants::default(),
            tables: vec![],
            nodes: vec![],
            root,
            shared_build: HashSet::new(),
            shared: HashMap::new(),
            kept: HashMap::new(),
            found: vec![],
        }
    }

    /// The pipeline that is open above a plan, with rows in the plan's order if it has one.
    fn in_order(&mut self, plan: &'p Plan) -> Open {
        match Ordered::of(plan) {
            Some(ordered) => self.ordered(&ordered),
            None => self.open(plan, None),
        }
    }

    /// The pipeline that is open above a plan, with rows in any order; `wanted`: rows that are needed, if not all.
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
            PlanKind::Aggregate { input, group_by, aggregates } => {
                let open = self.open(input, None);
                let group_by = self.taken(group_by);
                let calls = self.calls(aggregates);
                self.closed(open, Sink::Aggregate { group_by, calls })
            }
            PlanKind::Sort { input, skip, fetch, .. } | PlanKind::Limit { input, skip, fetch } => {
                match Ordered::of(plan) {
                    // Nobody sees the order of rows that go on.
                    Some(Ordered { range: OutputRange { skip: 0, fetch: None }, .. }) => self.open(input, None),
                    Some(ordered) => self.ordered(&ordered),
                    None => {
                        let open = self.open(input, fetch.map(|fetch| fetch.saturating_add(*skip)));
                        self.closed(open, Sink::Limit { skip: *skip, fetch: *fetch })
                    }
                }
            }
            PlanKind::Join(join) => self.join(plan, join, wanted),
            PlanKind::Marked { input, mark: Mark::SharedBuild(_) } => self.open(input, None),
            PlanKind::Marked { input, mark: Mark::Written } => {
                let open = self.open(input, None);
                self.closed(open, Sink::Write)
            }
            PlanKind::Marked { input, mark: Mark::Reduced { table, keys, test } } => {
                let open = self.open(input, None);
                let keys = self.taken(keys);
                open.then(Step::Reduce { table: *table, keys, test: *test })
            }
            PlanKind::Marked { input, mark: Mark::Compact } => self.open(input, wanted).then(Step::Compact),
            PlanKind::Marked { input, mark: Mark::Shared(share) } => {
                let id = match self.shared.get(share) {
                    Some(&id) => id,
                    None => self.share(input, *share),
                };
                Open::new(Source::Pipeline(id))
            }
            PlanKind::Shared(shared) => {
                let address = Arc::as_ptr(shared).addr();
                let id = match self.kept.get(&address) {
                    Some(&id) => id,
                    None => {
                        let open = self.open(shared, None);
                        let id = self.close(open, Sink::Keep);
                        self.kept.insert(address, id);
                        id
                    }
                };
                Open::new(Source::Pipeline(id))
            }
            PlanKind::HasRows { input, of: RowsOf::Plan(of) } => {
                let open = self.open(of, None);
                let counted = self.close(open, Sink::Count);
                self.open(input, wanted).then(Step::HasRows { of: counted, schema: input.schema.clone() })
            }
            PlanKind::HasRows { input, of: RowsOf::Build } => {
                let open = self.open(input, wanted);
                let Some(&Step::Join { build, .. }) = open.steps.last() else {
                    unreachable!("the build side of an anti join is shared");
                };
                open.then(Step::HasRows { of: build, schema: input.schema.clone() })
            }
            PlanKind::Numbered { input } => {
                // The numbers of a sort tell its order, and the same row has the same number whenever it is read.
                let open = self.in_order(input);
                self.closed(open, Sink::Keep).then(Step::Number { schema: input.schema.clone() })
            }
            PlanKind::GroupingSets { input, group_by, sets, aggregates } => {
                let open = self.open(input, None);
                let id_type = plan.schema.field(group_by.len()).data_type().clone();
                let group_by = self.taken(group_by);
                let calls = self.calls(aggregates);
                self.closed(open, Sink::GroupingSets { group_by, sets: sets.clone(), id_type, calls })
            }
            PlanKind::Union { inputs } => {
                let mut parts = vec![];
                for input in inputs {
                    let open = self.open(input, None);
                    parts.push(self.close(open, Sink::UnionInput));
                }
                Open::new(Source::Union(parts))
            }
            PlanKind::Window { input, partition_by, order_by, calls } => {
                let open = self.open(input, None);
                let (partition_by, order_by) = (self.taken(partition_by), self.keys(order_by));
                let calls = calls.iter().map(|call| call.map(&mut |expr| self.constants.take_from(expr))).collect();
                let schema = input.schema.clone();
                self.closed(open, Sink::Window { partition_by, order_by, calls, schema })
            }
        }
    }

    /// A pipeline whose output several others read.
    fn share(&mut self, input: &'p Plan, share: Share) -> PipelineId {
        let first = PipelineId(self.pipelines.len());
        let outside = (self.shared.clone(), self.shared_build.clone(), self.kept.clone());
        let open = self.open(input, None);
        let last = self.close(open, Sink::Share(share));
        if let Share::Found(name) = share {
            // The region may be skipped, so pipelines outside it must not read what it makes.
            (self.shared, self.shared_build, self.kept) = outside;
            self.found.push(Found { name, first, last });
        }
        self.shared.insert(share, last);
        last
    }

    fn calls(&self, calls: &[AggregateCall]) -> Vec<AggregateCall> {
        calls.iter().map(|call| call.map(&mut |expr| self.constants.take_from(expr))).collect()
    }

    fn join(&mut self, plan: &'p Plan, join: &'p JoinPlan, wanted: Option<u64>) -> Open {
        // What the build side reads may be made by the probe side.
        let first = join.build.reads_tables_of(&join.probe).then(|| self.open(&join.probe, wanted));
        let (spec, schemas) = (JoinNode::of(join).spec, [&join.build, &join.probe].map(|side| side.schema.clone()));
        let node = self.node(plan);
        let Ok(spec) = spec.try_map(&mut |expr| Ok::<_, Infallible>(self.constants.take_from(expr)));
        let lowered = Join { spec, schemas, node };
        if let Some(number) = join.build.shared_build() {
            if self.shared_build.insert(number) {
                let has_filters = self.root.has_filters_of(number);
                let sink = Sink::ShareBuild { number, join: lowered.clone(), has_filters };
                let open = self.open(&join.build, None);
                self.close(open, sink);
            }
            let open = first.unwrap_or_else(|| self.open(&join.probe, wanted));
            return open.then(Step::Probe { table: number, join: lowered });
        }
        let open = self.open(&join.build, None);
        let method = (self.choices.join_method)(join, wanted);
        let build = self.close(open, Sink::Build(method));
        let open = first.unwrap_or_else(|| self.open(&join.probe, wanted));
        open.then(Step::Join { build, join: lowered, method, wanted })
    }

    fn keys(&self, keys: &[SortKey]) -> Vec<SortKey> {
        keys.iter().map(|key| SortKey { expr: self.constants.take_from(&key.expr), ..*key }).collect()
    }

    /// A sort with the steps above it.
    fn ordered(&mut self, ordered: &Ordered<'p>) -> Open {
        let Some(keys) = ordered.keys else { return self.window_in_order(ordered) };
        let mut open = self.open(ordered.input, None);
        let mut keys = self.keys(keys);
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
        let open = self.closed(open, Sink::Sort { keys, width, range: ordered.range });
        if ordered.behind.is_empty() {
            return open;
        }
        let open = self.then_behind(open, ordered);
        self.closed(open, Sink::InPlace)
    }

    /// A window with the steps above it, cut to a range of the rows, in its order.
    fn window_in_order(&mut self, ordered: &Ordered<'p>) -> Open {
        let mut open = self.open(ordered.input, None);
        for exprs in &ordered.projections {
            open = open.then(self.project(exprs));
        }
        let open = self.then_behind(open, ordered);
        self.closed(open, Sink::Slice(ordered.range))
    }

    /// Adds the steps that follow once the rows are in order.
    fn then_behind(&mut self, open: Open, ordered: &Ordered<'p>) -> Open {
        ordered.behind.iter().fold(open, |open, step| match step {
            RowWise::Project(exprs) => open.then(self.project(exprs)),
            RowWise::Fetch(fetch) => open.then(self.fetch(fetch)),
        })
    }

    fn table(&mut self, plan: &'p Plan, columns: Vec<usize>) -> Open {
        let table = self.slot(TableNode::Source(plan));
        Open::new(Source::Table { table, columns })
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
            // A join may move rows.
            Source::Pipeline(id) if !open.steps.iter().any(Step::looks_up) => self.pipelines[id.0].output,
            Source::Pipeline(_) | Source::Table { .. } | Source::Union(_) => Edge::ANY,
        };
        let output = match &sink {
            Sink::Result | Sink::InPlace | Sink::Slice(_) | Sink::Keep | Sink::Share(_) => source,
            Sink::Write | Sink::Limit { .. } => Edge { is_ordered: false, ..source },
            Sink::Build(_) | Sink::Count | Sink::UnionInput | Sink::ShareBuild { .. } | Sink::GroupingSets { .. } => {
                Edge::ANY
            }
            Sink::Sort { .. } | Sink::Window { .. } => Edge { is_ordered: true, ..Edge::ANY },
            Sink::Aggregate { .. } => Edge { partitioning: Partitioning::ByGroup, ..Edge::ANY },
        };
        self.pipelines.push(Pipeline { source: open.source, steps: open.steps, sink, output });
        PipelineId(self.pipelines.len() - 1)
    }

    /// Closes a pipeline with a sink, and opens one that reads its output.
    fn closed(&mut self, open: Open, sink: Sink) -> Open {
        let id = self.close(open, sink);
        Open::new(Source::Pipeline(id))
    }
}
