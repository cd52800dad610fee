//! What occurs several times in a plan is run once: parts of it, and the tables of equal build sides.

use std::collections::HashMap;
use std::sync::Arc;

use super::estimate::estimate;
use super::first_column;
use crate::Table;
use crate::exec::{HandOver, needed_columns, published};
use crate::expr::{Expr, ExprKind};
use crate::plan::{AggregateCall, JoinKind, JoinPlan, Mark, Plan, PlanKind, Share, SortKey};

/// Rows that a join goes over for each that it puts out, so that writing these down costs less than going over them again.
const SOURCE_ROWS_MIN: f64 = 2.0;
/// So many times fewer rows than the probe side has a build side whose table is kept, on every device.
const TABLE_RATIO_MIN: f64 = 4.0;

/// The plan with equal joins and group-bys marked, so that they are run once.
pub(super) fn share(plan: Plan, inputs: &[Arc<Table>], notes: &mut Vec<String>) -> Plan {
    if !reads_twice(&plan) {
        return plan;
    }
    let (mut seen, mut ids) = (HashMap::new(), PlanIds::default());
    count(&plan, &mut ids, &mut seen);
    seen.retain(|_, times| *times > 1);
    if seen.is_empty() {
        return plan;
    }
    let mut sharing = Sharing { seen, ids, inputs, numbers: HashMap::new(), notes };
    sharing.mark(plan)
}

/// The plan with equal build sides published under one number.
pub(super) fn share_tables(plan: Plan, inputs: &[Arc<Table>], notes: &mut Vec<String>) -> Plan {
    if !reads_twice(&plan) {
        return plan;
    }
    let (mut seen, mut ids) = (HashMap::new(), PlanIds::default());
    count_tables(&plan, &mut ids, &mut seen);
    seen.retain(|_, times| *times > 1);
    if seen.is_empty() {
        return plan;
    }
    let first = first_free(&plan);
    let mut sharing = TableSharing { seen, ids, inputs, first, numbers: HashMap::new(), notes };
    sharing.mark(plan)
}

/// Marks the group-bys of resident tables that both plans have, the first of which runs before the other one: it leaves
/// their groups on the devices. Whether there are any.
pub fn share_between(first: &mut Plan, later: &mut Plan) -> bool {
    let (mut ids, mut seen) = (PlanIds::default(), HashMap::new());
    groups(first, &mut ids, &mut |id, _| {
        seen.insert(id, HandOver::default());
    });
    let mut shared = HashMap::new();
    groups(later, &mut ids, &mut |id, plan| {
        if let Some(hand_over) = seen.get(&id) {
            let hand_over = shared.entry(id).or_insert(hand_over).clone();
            plan.replace(|plan| shared_by(plan, Share::Found(hand_over)));
        }
    });
    groups(first, &mut ids, &mut |id, plan| {
        if let Some(&hand_over) = shared.get(&id) {
            plan.replace(|plan| shared_by(plan, Share::Left(hand_over.clone())));
        }
    });
    !shared.is_empty()
}

fn shared_by(plan: Plan, share: Share) -> Plan {
    let schema = Arc::clone(&plan.schema);
    Plan { kind: PlanKind::Marked { input: Box::new(plan), mark: Mark::Shared(share) }, schema }
}

/// Shows group-bys that nothing but resident tables goes into, with their numbers, those on top first.
fn groups(plan: &mut Plan, ids: &mut PlanIds, see: &mut dyn FnMut(usize, &mut Plan)) {
    if matches!(plan.kind, PlanKind::Aggregate { .. }) && !reads_input(plan) && !holds_mark(plan) {
        let id = ids.of(plan);
        see(id, plan);
    }
    if !matches!(plan.kind, PlanKind::Marked { .. }) {
        plan.inputs_mut().into_iter().for_each(|input| groups(input, ids, see));
    }
}

fn reads_input(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Input { .. }) || plan.inputs().into_iter().any(reads_input)
}

struct Sharing<'a> {
    /// How often plans occur.
    seen: HashMap<usize, usize>,
    ids: PlanIds,
    inputs: &'a [Arc<Table>],
    numbers: HashMap<usize, usize>,
    notes: &'a mut Vec<String>,
}

impl Sharing<'_> {
    fn mark(&mut self, plan: Plan) -> Plan {
        if is_shareable(&plan) {
            let id = self.ids.of(&plan);
            if self.seen.contains_key(&id) && self.is_worth(&plan) {
                let number = match self.numbers.get(&id) {
                    Some(&number) => number,
                    None => {
                        self.notes.push(format!("run once: {} of {}", plan.describe(), first_column(&plan)));
                        self.numbers.insert(id, self.numbers.len());
                        self.numbers.len() - 1
                    }
                };
                return shared_by(plan, Share::Within(number));
            }
        }
        plan.map_inputs(&mut |input| self.mark(input))
    }

    /// Groups lie there anyway; rows of a join have to be written down.
    fn is_worth(&self, plan: &Plan) -> bool {
        match plan.kind {
            PlanKind::Aggregate { .. } => true,
            _ => {
                let of_plan = estimate(plan, self.inputs);
                of_plan.rows * SOURCE_ROWS_MIN < of_plan.source_rows
            }
        }
    }
}

struct TableSharing<'a> {
    seen: HashMap<String, usize>,
    ids: PlanIds,
    inputs: &'a [Arc<Table>],
    /// The first number that no table has.
    first: usize,
    numbers: HashMap<String, usize>,
    notes: &'a mut Vec<String>,
}

impl TableSharing<'_> {
    fn mark(&mut self, mut plan: Plan) -> Plan {
        if let PlanKind::Join(join) = &mut plan.kind
            && let Some(text) = table_fingerprint(join, &mut self.ids)
            && self.seen.contains_key(&text)
        {
            let (build, probe) = (estimate(&join.build, self.inputs), estimate(&join.probe, self.inputs));
            if build.rows * TABLE_RATIO_MIN <= probe.source_rows {
                let next = self.first + self.numbers.len();
                let number = *self.numbers.entry(text).or_insert(next);
                if number == next {
                    self.notes.push(format!("made once: table {number} of {}", first_column(&join.build)));
                }
                let schema = Arc::clone(&join.build.schema);
                let input = Box::new(join.build.clone());
                join.build = Plan { kind: PlanKind::Marked { input, mark: Mark::Published(number) }, schema };
            }
        }
        plan.map_inputs(&mut |input| self.mark(input))
    }
}

/// Whether a table is read in two places: else nothing occurs twice.
fn reads_twice(plan: &Plan) -> bool {
    fn sources(plan: &Plan, into: &mut Vec<(usize, usize)>) {
        match &plan.kind {
            PlanKind::Scan { table, .. } => into.push((0, Arc::as_ptr(table) as usize)),
            PlanKind::Input { index } => into.push((1, *index)),
            _ => plan.inputs().into_iter().for_each(|input| sources(input, into)),
        }
    }
    let mut read = vec![];
    sources(plan, &mut read);
    read.sort_unstable();
    read.windows(2).any(|pair| pair[0] == pair[1])
}

fn is_shareable(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Join(_) | PlanKind::Aggregate { .. })
}

/// Counts the shareable plans; returns the number of this one.
fn count(plan: &Plan, ids: &mut PlanIds, seen: &mut HashMap<usize, usize>) -> usize {
    let below = plan.inputs().into_iter().map(|input| count(input, ids, seen)).collect();
    let id = ids.over(plan, below);
    if is_shareable(plan) {
        *seen.entry(id).or_default() += 1;
    }
    id
}

fn count_tables(plan: &Plan, ids: &mut PlanIds, seen: &mut HashMap<String, usize>) {
    if let PlanKind::Join(join) = &plan.kind
        && let Some(text) = table_fingerprint(join, ids)
    {
        *seen.entry(text).or_default() += 1;
    }
    plan.inputs().into_iter().for_each(|input| count_tables(input, ids, seen));
}

fn first_free(plan: &Plan) -> usize {
    let own = published(plan).map_or(0, |number| number + 1);
    plan.inputs().into_iter().map(first_free).fold(own, usize::max)
}

/// Tells tables apart; `None`: of a build side that the optimiser has marked, which may miss rows.
fn table_fingerprint(join: &JoinPlan, ids: &mut PlanIds) -> Option<String> {
    let is_kind = join.kind == JoinKind::Inner || join.kind == JoinKind::ProbeSemi && join.residual.is_none();
    if !is_kind || join.null_equals_null || holds_mark(&join.build) {
        return None;
    }
    let build_width = join.build.schema.fields().len();
    let mut payload = needed_columns(join);
    payload.retain(|&column| column < build_width);
    let keys: Vec<String> = join.on.iter().map(|(build, _)| text_of(build)).collect();
    Some(format!("{} {keys:?} {payload:?} {}", ids.of(&join.build), join.kind.is_existence()))
}

fn holds_mark(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Marked { .. }) || plan.inputs().into_iter().any(holds_mark)
}

/// Numbers of plans: the same for plans with the same rows, whatever their columns are called.
#[derive(Default)]
struct PlanIds {
    /// By what a plan is itself, and the numbers of its inputs.
    known: HashMap<(String, Vec<usize>), usize>,
}

impl PlanIds {
    fn of(&mut self, plan: &Plan) -> usize {
        let below = plan.inputs().into_iter().map(|input| self.of(input)).collect();
        self.over(plan, below)
    }

    /// The number of a plan over inputs of these numbers.
    fn over(&mut self, plan: &Plan, below: Vec<usize>) -> usize {
        let next = self.known.len();
        *self.known.entry((text_of_node(plan), below)).or_insert(next)
    }
}

/// A node, without what is below it.
fn text_of_node(plan: &Plan) -> String {
    let list = |exprs: &[Expr]| exprs.iter().map(text_of).collect::<Vec<_>>().join(", ");
    match &plan.kind {
        PlanKind::Scan { table, projection } => format!("scan {:p} {projection:?}", Arc::as_ptr(table)),
        PlanKind::Input { index } => format!("input {index}"),
        PlanKind::Filter { predicate, .. } => format!("filter {}", text_of(predicate)),
        PlanKind::Project { exprs, .. } => format!("project {}", list(exprs)),
        PlanKind::Join(join) => {
            let on: Vec<String> = join.on.iter().map(|(b, p)| format!("{} = {}", text_of(b), text_of(p))).collect();
            let residual = join.residual.as_ref().map(text_of);
            format!("join {:?} {} {on:?} {residual:?} {:?}", join.kind, join.null_equals_null, join.output)
        }
        PlanKind::Aggregate { group_by, aggregates, .. } => {
            format!("groups {} {:?}", list(group_by), calls_of(aggregates))
        }
        PlanKind::Sort { keys, skip, fetch, .. } => {
            format!("sort {:?} {skip} {fetch:?}", keys_of(keys))
        }
        PlanKind::Limit { skip, fetch, .. } => format!("limit {skip} {fetch:?}"),
        PlanKind::GroupingSets { group_by, sets, aggregates, .. } => {
            format!("sets {} {sets:?} {:?}", list(group_by), calls_of(aggregates))
        }
        PlanKind::Window { partition_by, order_by, calls, .. } => {
            let calls: Vec<String> = calls
                .iter()
                .map(|call| {
                    let exprs = [&call.argument, &call.default].map(|expr| expr.as_ref().map(text_of));
                    format!("{:?} {exprs:?} {:?} {}", call.function, call.frame, call.data_type)
                })
                .collect();
            format!("window {} {:?} {calls:?}", list(partition_by), keys_of(order_by))
        }
        PlanKind::Union { .. } => "union".to_string(),
        PlanKind::Numbered { .. } => "numbered".to_string(),
        PlanKind::RowNumbers { .. } => "row numbers".to_string(),
        PlanKind::Fetch(fetch) => format!("fetch {:p} {} {:?}", Arc::as_ptr(&fetch.table), fetch.row, fetch.columns),
        PlanKind::Shared(plan) => format!("shared {:p}", Arc::as_ptr(plan)),
        PlanKind::Marked { mark, .. } => format!("{mark:?}"),
    }
}

fn keys_of(keys: &[SortKey]) -> Vec<String> {
    keys.iter().map(|key| format!("{} {} {}", text_of(&key.expr), key.descending, key.nulls_first)).collect()
}

fn calls_of(aggregates: &[AggregateCall]) -> Vec<String> {
    let text = |call: &AggregateCall| {
        // One that is not there is not the same as one that is the next's.
        let arguments = [&call.argument, &call.second, &call.filter].map(|expr| expr.as_ref().map(text_of));
        let order = keys_of(&call.order_by);
        format!("{:?} {} {arguments:?} {order:?} {}", call.function, call.is_distinct, call.data_type)
    };
    aggregates.iter().map(text).collect()
}

/// An expression in all its detail. What is known only when the plan runs is the same only if it is one object.
fn text_of(expr: &Expr) -> String {
    let mut text = format!("{expr:?}");
    expr.visit(&mut |part| {
        if let ExprKind::Deferred(value) = &part.kind {
            text += &format!(" {:p}", Arc::as_ptr(value));
        }
    });
    text
}
