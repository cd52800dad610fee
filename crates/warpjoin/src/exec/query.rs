//! One query under way: turns the device plan into relations, running pipelines at breakers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use warpjoin_device::{Abort, Buffer, ModuleSource, Stream};

use super::Inputs;
use super::compile::{Fact, Mode};
use super::execution::Execution;
use super::launch::UploadedColumn;
use super::metrics::QueryMetrics;
use super::partition::Deferred;
use super::relation::{Relation, Source};
use super::runtime_filter::{FilterFlights, Published};
use super::shared::SharedRelations;
use super::sort::SortFlights;
use super::string_tests::TestResults;
use super::times::Times;
use crate::codegen::Step;
use crate::column::EncodedColumn;
use crate::compiler::Customer;
use crate::options::ExecOptions;
use crate::plan::ordered::{Ordered, OutputRange, WindowNode};
use crate::plan::rewrite::union_of;
use crate::plan::{AggregateCall, Plan, PlanKind};
use crate::waits::Waits;
use crate::{Error, Result, Session, Table};

/// One query under way. Owns one stream a device; a single thread drives it.
///
/// Architecture invariant: everything that a stream still uses is kept until the query has waited
/// for all its streams, so that no buffer is freed under a running kernel of another device.
pub(crate) struct Query<'a> {
    /// The first field, so that the wait comes before any buffer goes.
    pub last_wait: Waits,
    pub session: &'a Arc<Session>,
    pub streams: Vec<Stream>,
    /// Ends kernels that run, when the query is cancelled.
    pub abort: Abort,
    pub plan: &'a Plan,
    pub execution: &'a Execution<'a>,
    pub inputs: &'a Inputs,
    pub options: &'a ExecOptions,
    pub metrics: QueryMetrics,
    pub times: Times,
    pub mode: Mode,
    /// What the last dry run took for facts, so that it can be said what was wrong.
    pub guessed: Vec<Fact>,
    /// Modules that are compiled or will be.
    pub asked: HashSet<ModuleSource>,
    /// Modules whose quick forms have run.
    pub quick: Vec<ModuleSource>,
    pub customer: Customer,
    /// Rows and groups that a dry run expects of the next group-by.
    pub expected_groups: Option<(f64, f64)>,
    /// Rows that are wanted of the join that comes next, if not all of them are.
    pub wanted_rows: Option<u64>,
    /// A build side is being reduced.
    pub is_reducing: bool,
    /// Tables that several joins probe, by number.
    pub published: HashMap<usize, Published>,
    /// Filters of them that nobody has looked at yet.
    pub filters: Vec<FilterFlights>,
    /// Partitions that nobody has looked at yet.
    pub deferred: Vec<Deferred>,
    /// Host-made columns on the devices, by device and address; each is kept, so that no other gets its address.
    pub uploads: HashMap<(usize, usize), (Arc<EncodedColumn>, Arc<UploadedColumn>)>,
    /// What was tested of dictionaries.
    pub tests: TestResults,
    /// Sorts that nobody has looked at yet.
    pub sorts: Vec<SortFlights>,
    /// Buffers that nobody needs any more.
    pub kept: Vec<Buffer>,
    /// Plans with several readers that have run.
    pub shared: SharedRelations,
}

impl<'a> Query<'a> {
    pub(crate) fn new(
        session: &'a Arc<Session>,
        inputs: &'a Inputs,
        options: &'a ExecOptions,
        plan: &'a Plan,
        execution: &'a Execution<'a>,
    ) -> Result<Self> {
        let streams = session.query_streams(options.memory_budget_bytes)?;
        Ok(Self {
            last_wait: Waits::of(&streams),
            session,
            streams,
            abort: Abort::new(&options.cancel),
            plan,
            execution,
            inputs,
            options,
            metrics: QueryMetrics::default(),
            times: Times::default(),
            mode: Mode::Run(vec![]),
            guessed: vec![],
            asked: HashSet::new(),
            quick: vec![],
            customer: Customer::new(),
            expected_groups: None,
            wanted_rows: None,
            is_reducing: false,
            published: HashMap::new(),
            filters: vec![],
            deferred: vec![],
            uploads: HashMap::new(),
            tests: TestResults::default(),
            sorts: vec![],
            kept: vec![],
            shared: SharedRelations::default(),
        })
    }

    pub(crate) fn devices(&self) -> usize {
        self.streams.len()
    }

    /// Waits for everything that was enqueued on any device, whatever fails; the first error.
    pub(crate) fn synchronize(&self) -> Result<()> {
        Waits::of(&self.streams).end()
    }

    /// Waits for all devices when it goes. Declared behind buffers that other devices use, it goes
    /// before them on every path.
    pub(crate) fn waits(&self) -> Waits {
        Waits::of(&self.streams)
    }

    /// The relation of a plan node, in no order: runs its pipeline breakers, leaves the rest as steps.
    pub(crate) fn relation(&mut self, plan: &Plan) -> Result<Relation> {
        match &plan.kind {
            PlanKind::Scan { table, projection } => {
                self.check_table(table)?;
                Ok(Relation::new(Source::Table(table.clone(), projection.clone())))
            }
            PlanKind::Input { index } => {
                let table =
                    self.inputs.tables.get(*index).ok_or_else(|| Error::internal(format!("no input {index}")))?;
                self.check_table(table)?;
                let projection = (0..table.column_types().len()).collect();
                Ok(Relation::new(Source::Table(table.clone(), projection)))
            }
            PlanKind::Filter { input, predicate } => {
                let mut relation = self.relation(input)?;
                relation.steps.push(Step::Filter(predicate.clone()));
                Ok(relation)
            }
            PlanKind::Project { input, exprs } => {
                let mut relation = self.relation(input)?;
                relation.width = exprs.len();
                relation.steps.push(Step::Project(exprs.clone()));
                Ok(relation)
            }
            PlanKind::Join(join) => self.join(join),
            PlanKind::Aggregate { input, group_by, aggregates } => self.aggregate(input, group_by, aggregates),
            PlanKind::Sort { input, .. } | PlanKind::Limit { input, .. } => match Ordered::of(plan) {
                // Nobody sees the order of rows that go on.
                Some(Ordered { range: OutputRange { skip: 0, fetch: None }, .. }) => self.relation(input),
                Some(ordered) => self.sorted(&ordered),
                None => {
                    let PlanKind::Limit { skip, fetch, .. } = plan.kind else {
                        return Err(Error::internal("a sort without an order"));
                    };
                    let wanted = fetch.map(|fetch| fetch.saturating_add(skip));
                    let relation = self.wanted_relation(input, wanted)?;
                    self.limited(&relation, skip, fetch)
                }
            },
            PlanKind::GroupingSets { input, group_by, sets, aggregates } => {
                let sets = (sets.as_slice(), plan.schema.field(group_by.len()).data_type());
                if aggregates.iter().any(AggregateCall::needs_parts) {
                    return self.relation(&union_of(input, group_by, sets, aggregates));
                }
                let relation = self.relation(input)?;
                self.grouping_sets(relation, Some(input), group_by, sets, aggregates)
            }
            PlanKind::Window { input, partition_by, order_by, calls } => {
                let relation = self.relation(input)?;
                self.window(relation, WindowNode { schema: &input.schema, partition_by, order_by, calls })
            }
            PlanKind::Union { inputs } => {
                let relations = inputs.iter().map(|input| self.relation(input)).collect::<Result<Vec<_>>>()?;
                self.union(relations)
            }
            PlanKind::Numbered { input } => self.numbered(input),
            PlanKind::RowNumbers { input } => {
                let mut relation = self.relation(input)?;
                relation.append_row_number()?;
                Ok(relation)
            }
            PlanKind::Fetch(fetch) => {
                let mut relation = self.relation(&fetch.input)?;
                self.append_fetch(&mut relation, &fetch.table, fetch.row, &fetch.columns)?;
                Ok(relation)
            }
            PlanKind::Shared(plan) => self.shared(plan),
            PlanKind::Marked { input, mark } => self.marked(input, mark),
        }
    }

    pub(super) fn check_table(&self, table: &Table) -> Result<()> {
        if Arc::ptr_eq(table.session(), self.session) {
            Ok(())
        } else {
            Err(Error::InvalidArgument("the table belongs to another session: upload it to this one".into()))
        }
    }
}
