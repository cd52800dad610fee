//! What occurs several times in a plan is run once: parts of it, and the tables of equal build sides.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_columns::expr::Expr;
use warpjoin_columns::identity::{Identity, Scope};

use super::estimate::estimate;
use crate::plan::identity::Node;
use crate::plan::{JoinKind, JoinPlan, Mark, Plan, PlanKind, Share, SharedRowsId};

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

/// The plan with equal build sides shared under one number.
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
        seen.insert(id, SharedRowsId::new());
    });
    let mut shared = HashMap::new();
    groups(later, &mut ids, &mut |id, plan| {
        if let Some(&shared_rows_id) = seen.get(&id) {
            shared.insert(id, shared_rows_id);
            plan.replace(|plan| plan.shared_by(Share::Found(shared_rows_id)));
        }
    });
    groups(first, &mut ids, &mut |id, plan| {
        if let Some(&shared_rows_id) = shared.get(&id) {
            plan.replace(|plan| plan.shared_by(Share::Left(shared_rows_id)));
        }
    });
    !shared.is_empty()
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
                        self.notes.push(format!("run once: {} of {}", plan.describe(), plan.first_column()));
                        self.numbers.insert(id, self.numbers.len());
                        self.numbers.len() - 1
                    }
                };
                return plan.shared_by(Share::Within(number));
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
    seen: HashMap<Identity, usize>,
    ids: PlanIds,
    inputs: &'a [Arc<Table>],
    /// The first number that no table has.
    first: usize,
    numbers: HashMap<Identity, usize>,
    notes: &'a mut Vec<String>,
}

impl TableSharing<'_> {
    fn mark(&mut self, mut plan: Plan) -> Plan {
        if let PlanKind::Join(join) = &mut plan.kind
            && let Some(table) = table_identity(join, &mut self.ids)
            && self.seen.contains_key(&table)
        {
            let (build, probe) = (estimate(&join.build, self.inputs), estimate(&join.probe, self.inputs));
            if build.rows * TABLE_RATIO_MIN <= probe.source_rows {
                let next = self.first + self.numbers.len();
                let number = *self.numbers.entry(table).or_insert(next);
                if number == next {
                    self.notes.push(format!("made once: table {number} of {}", join.build.first_column()));
                }
                let schema = Arc::clone(&join.build.schema);
                let input = Box::new(join.build.clone());
                join.build = Plan { kind: PlanKind::Marked { input, mark: Mark::SharedBuild(number) }, schema };
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

fn count_tables(plan: &Plan, ids: &mut PlanIds, seen: &mut HashMap<Identity, usize>) {
    if let PlanKind::Join(join) = &plan.kind
        && let Some(table) = table_identity(join, ids)
    {
        *seen.entry(table).or_default() += 1;
    }
    plan.inputs().into_iter().for_each(|input| count_tables(input, ids, seen));
}

fn first_free(plan: &Plan) -> usize {
    let own = plan.shared_build().map_or(0, |number| number + 1);
    plan.inputs().into_iter().map(first_free).fold(own, usize::max)
}

/// Tells tables apart; `None`: of a build side that the optimizer has marked, which may miss rows.
fn table_identity(join: &JoinPlan, ids: &mut PlanIds) -> Option<Identity> {
    let JoinPlan { build, probe: _, on, kind, null_equals_null, residual, output: _ } = join;
    let is_kind = *kind == JoinKind::Inner || *kind == JoinKind::ProbeSemi && residual.is_none();
    if !is_kind || *null_equals_null || holds_mark(build) {
        return None;
    }
    let build_width = build.schema.fields().len();
    let mut payload = join.needed_columns();
    payload.retain(|&column| column < build_width);
    let keys: Vec<&Expr> = on.iter().map(|(build, _)| build).collect();
    let is_set = kind.is_existence();
    Some(Identity::new(Scope::Query).with(&ids.of(build)).with(&keys).with(&payload).with(&is_set))
}

fn holds_mark(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Marked { .. }) || plan.inputs().into_iter().any(holds_mark)
}

/// Numbers of plans: the same for plans with the same rows, whatever their columns are called.
#[derive(Default)]
struct PlanIds {
    /// By what a plan is itself, and the numbers of its inputs.
    known: HashMap<(Identity, Vec<usize>), usize>,
}

impl PlanIds {
    fn of(&mut self, plan: &Plan) -> usize {
        let below = plan.inputs().into_iter().map(|input| self.of(input)).collect();
        self.over(plan, below)
    }

    /// The number of a plan over inputs of these numbers.
    fn over(&mut self, plan: &Plan, below: Vec<usize>) -> usize {
        let next = self.known.len();
        *self.known.entry((Identity::in_query(&Node(plan)), below)).or_insert(next)
    }
}
