//! Runtime filters: the table of a join drops rows of other scans that could only make rows which the join drops later.
//!
//! A row that reaches the result has keys in the tables of all joins on its way. What equals such a key in another build
//! side or below a group-by has to be in the same table; rows for which it is not need not be read any further. Tables
//! that others probe are *shared*: made before what reads them.
//!
//! Architecture invariant: of a join either the probe side reads the build side's table, which is then made first, or the
//! build side reads tables of the probe side, which is then read first; never both.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::costs::{Costs, SAVED_BUILD_PS, SAVED_GROUP_PS, SAVED_PROBE_PS};
use super::estimate::{ColumnEstimate, Estimate, estimate, estimate_node};
use super::filter_tables::{Gain, TableFacts};
use super::order::{Graph, is_plain_residual};
use super::reduce;
use super::safety::{is_plain, is_plain_expr};
use crate::options::RuntimeFilters;
use crate::plan::{AggregateCall, JoinKind, JoinPlan, Mark, Plan, PlanKind};

/// The plan with runtime filters.
pub(super) fn place(
    plan: Plan,
    inputs: &[Arc<Table>],
    costs: Costs,
    filters: RuntimeFilters,
    notes: &mut Vec<String>,
) -> Plan {
    if !has_join(&plan) {
        return plan;
    }
    let mut placing = Placing { inputs, costs, filters, tables: vec![], used: BTreeSet::new(), notes };
    let (numbered, _) = placing.number(plan);
    let placed = placing.push(numbered, &[]);
    let used = placing.used;
    unshare(placed, &|number| !used.contains(&number))
}

fn has_join(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Join(_)) || plan.inputs().into_iter().any(has_join)
}

/// Rows whose columns have no match in a table are not needed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FilterCandidate {
    pub table: usize,
    /// Columns of the node, in the order of the table's keys.
    pub columns: Vec<usize>,
    /// What a row costs where it goes; `None`: to the probe of that very table.
    pub row_ps: Option<f64>,
}

pub(super) struct Placing<'a> {
    pub inputs: &'a [Arc<Table>],
    pub costs: Costs,
    pub filters: RuntimeFilters,
    pub tables: Vec<TableFacts>,
    pub used: BTreeSet<usize>,
    pub notes: &'a mut Vec<String>,
}

impl Placing<'_> {
    /// Shares every build table that could be.
    fn number(&mut self, mut plan: Plan) -> (Plan, Estimate) {
        let mut below = vec![];
        for input in plan.inputs_mut() {
            input.replace(|input| {
                let (numbered, estimate) = self.number(input);
                below.push(estimate);
                numbered
            });
        }
        let (build, probe) = (below.first().cloned(), below.get(1).cloned());
        let of_plan = estimate_node(&plan, below, self.inputs);
        if let (PlanKind::Join(join), Some(build), Some(probe)) = (&mut plan.kind, build, probe)
            && let Some(keys) = column_keys(join)
        {
            let number = self.tables.len();
            self.tables.push(TableFacts::of(join, &keys, &build, of_plan.rows / probe.rows.max(1.0)));
            join.build.replace(|build| marked(build, Mark::SharedBuild(number)));
        }
        (plan, of_plan)
    }

    /// Brings candidates to the scans below, and those of joins on the way.
    fn push(&mut self, mut plan: Plan, candidates: &[FilterCandidate]) -> Plan {
        if is_chain(&plan) {
            return self.apply(plan, candidates);
        }
        match &mut plan.kind {
            PlanKind::Scan { .. } | PlanKind::Input { .. } => {}
            PlanKind::Filter { input, predicate } => {
                let candidates = if is_plain_expr(input, predicate) { candidates } else { &[] };
                input.replace(|input| self.push(input, candidates));
            }
            PlanKind::Project { input, exprs } => {
                let candidates = through(candidates, |column| column_of(exprs.get(column)?));
                input.replace(|input| self.push(input, &candidates));
            }
            PlanKind::Aggregate { input, group_by, aggregates } => {
                let read = aggregates.iter().flat_map(AggregateCall::read);
                let is_safe = group_by.iter().chain(read).all(|expr| is_plain_expr(input, expr));
                let candidates = if is_safe { candidates } else { &[] };
                let candidates = through(candidates, |column| column_of(group_by.get(column)?));
                let candidates: Vec<FilterCandidate> = candidates
                    .into_iter()
                    .map(|candidate| FilterCandidate { row_ps: Some(SAVED_GROUP_PS), ..candidate })
                    .collect();
                input.replace(|input| self.push(input, &candidates));
            }
            // Which rows are the first ones depends on all rows; the others could pass candidates on, and do not yet.
            PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::Window { input, .. }
            | PlanKind::GroupingSets { input, .. } => {
                input.replace(|input| self.push(input, &[]));
            }
            PlanKind::Union { inputs } => {
                inputs.iter_mut().for_each(|input| input.replace(|input| self.push(input, &[])));
            }
            // What is fetched late, and what is made of others, is chosen after this.
            PlanKind::Shared(_)
            | PlanKind::Numbered { .. }
            | PlanKind::RowNumbers { .. }
            | PlanKind::HasRows { .. }
            | PlanKind::Fetch(_) => {}
            // Others read these rows as well, and may need all of them.
            PlanKind::Marked { input, mark: Mark::Shared(_) } => input.replace(|input| self.push(input, &[])),
            PlanKind::Marked { input, .. } => input.replace(|input| self.push(input, candidates)),
            PlanKind::Join(join) => self.push_join(join, candidates),
        }
        plan
    }

    fn push_join(&mut self, join: &mut JoinPlan, candidates: &[FilterCandidate]) {
        let (mut to_build, mut to_probe) = split(join, candidates);
        let own = join.build.shared_build();
        // What the join drops anyway saves its probe only.
        let kept = own.map_or(1.0, |table| self.tables[table].kept);
        let far = own.map(|table| self.tables[table].side()).filter(|side| !self.costs.is_near(side));
        let probe_ps = far.map_or(SAVED_PROBE_PS, |side| self.costs.lookup_ps(&side, false));
        for row_ps in to_probe.iter_mut().filter_map(|candidate| candidate.row_ps.as_mut()) {
            *row_ps = *row_ps * kept + probe_ps;
        }
        to_build.iter_mut().for_each(|candidate| candidate.row_ps = Some(SAVED_BUILD_PS));
        let mut is_offered = false;
        if let Some(build) = self.push_to_build(join, &to_build) {
            join.build = build;
            is_offered = true;
        } else {
            if let (Some(table), Some(keys)) = (own, key_columns(join)) {
                let columns = keys.iter().map(|&(_, probe)| probe).collect();
                to_probe.push(FilterCandidate { table, columns, row_ps: None });
            }
            to_probe.extend(offered_by_build(join, probe_ps));
            join.build.replace(|build| self.push(build, &to_build));
        }
        join.probe.replace(|probe| self.push(probe, &to_probe));
        if let Some(own) = own.filter(|&own| !is_offered && !reads(&join.probe, own)) {
            self.screen(join, own);
        }
    }

    /// The build side with what the probe side's tables know of its keys; `None` where that is of no use. The build side
    /// then waits for the probe side, which so can't read this join's table.
    fn push_to_build(&mut self, join: &JoinPlan, to_build: &[FilterCandidate]) -> Option<Plan> {
        let is_kind = !matches!(join.kind, JoinKind::NotIn | JoinKind::Full);
        let mut offered = through(&candidates_of(&join.probe), |column| build_key_of(join, column));
        // Pairs that match are the same ones, so that only keys are evaluated on fewer rows.
        let is_safe = join.on.iter().all(|(build, _)| is_plain_expr(&join.build, build));
        if !is_kind || !is_safe || offered.is_empty() || self.is_reduced_later(join) {
            return None;
        }
        offered.iter_mut().for_each(|candidate| candidate.row_ps = Some(SAVED_BUILD_PS));
        let (used, notes) = (self.used.clone(), self.notes.len());
        let tried: Vec<FilterCandidate> = offered.iter().chain(to_build).cloned().collect();
        let build = self.push(join.build.clone(), &tried);
        if offered.iter().any(|candidate| reads(&build, candidate.table)) {
            return Some(build);
        }
        self.used = used;
        self.notes.truncate(notes);
        None
    }

    /// Whether the keys of the probe side themselves will drop build rows, which is better; but they do not go below a group-by.
    fn is_reduced_later(&self, join: &JoinPlan) -> bool {
        let of = |side: &Plan| estimate(side, self.inputs);
        !self.filters.is_always()
            && !is_grouped(&join.build)
            && reduce::is_reduced(join, &of(&join.build), &of(&join.probe))
    }

    /// Puts the filters that pay over a scan and what drops its rows already.
    fn apply(&mut self, plan: Plan, candidates: &[FilterCandidate]) -> Plan {
        let is_always = self.filters.is_always();
        let mut worth: Vec<(Gain, &FilterCandidate)> = vec![];
        let mut rows = None;
        for candidate in candidates.iter().filter(|candidate| candidate.row_ps.is_some()) {
            if !candidate.columns.iter().all(|&column| is_plain(&plan, column)) {
                continue;
            }
            let estimate = rows.get_or_insert_with(|| estimate(&plan, self.inputs));
            let columns: Vec<ColumnEstimate> =
                candidate.columns.iter().map(|&column| estimate.columns[column]).collect();
            let gain = self.gain(candidate, estimate.rows, &columns);
            if is_always || gain.gain_ps > self.costs.gain_ps_min() {
                worth.push((gain, candidate));
            }
        }
        worth.sort_by(|a, b| a.0.share.total_cmp(&b.0.share));
        let mut plan = plan;
        let mut applied: Vec<&FilterCandidate> = vec![];
        for (Gain { share, test, .. }, candidate) in worth {
            // Two tables of one key mostly have the same rows in them.
            if applied
                .iter()
                .any(|known| known.columns == candidate.columns && (!is_always || known.table == candidate.table))
            {
                continue;
            }
            applied.push(candidate);
            self.used.insert(candidate.table);
            let rows = rows.as_ref().map_or(0.0, |estimate| estimate.rows);
            self.notes.push(format!(
                "runtime filter: table {} of {}:{} drops rows of {}:{}, about {} are left, by {test}",
                candidate.table,
                self.tables[candidate.table].name,
                self.tables[candidate.table].rows.round(),
                plan.first_column(),
                rows.round(),
                (rows * share).round(),
            ));
            let keys = candidate.columns.iter().map(|&column| column_expr(&plan, column)).collect();
            plan = marked(plan, Mark::Reduced { table: candidate.table, keys, test });
        }
        plan
    }
}

/// Whether rows are groups.
fn is_grouped(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Aggregate { .. } => true,
        PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } | PlanKind::Marked { input, .. } => {
            is_grouped(input)
        }
        _ => false,
    }
}

/// Tables that every row of a plan has a match in, and the columns that do.
fn candidates_of(plan: &Plan) -> Vec<FilterCandidate> {
    match &plan.kind {
        PlanKind::Scan { .. }
        | PlanKind::Input { .. }
        | PlanKind::Union { .. }
        | PlanKind::GroupingSets { .. }
        | PlanKind::Window { .. }
        | PlanKind::Numbered { .. }
        | PlanKind::RowNumbers { .. }
        | PlanKind::HasRows { .. }
        | PlanKind::Fetch(_)
        | PlanKind::Shared(_) => vec![],
        PlanKind::Filter { input, .. } | PlanKind::Sort { input, .. } | PlanKind::Limit { input, .. } => {
            candidates_of(input)
        }
        PlanKind::Marked { mark: Mark::Shared(_), .. } => vec![],
        PlanKind::Marked { input, .. } => candidates_of(input),
        PlanKind::Project { input, exprs } => {
            let position = |column| exprs.iter().position(|expr| column_of(expr) == Some(column));
            through(&candidates_of(input), position)
        }
        PlanKind::Aggregate { input, group_by, .. } => {
            let position = |column| group_by.iter().position(|expr| column_of(expr) == Some(column));
            through(&candidates_of(input), position)
        }
        PlanKind::Join(join) => {
            let build_width = join.build.schema.fields().len();
            let at = |position: usize| join.output.iter().position(|&column| column == position);
            let is_inner = join.kind == JoinKind::Inner;
            let equal = |position: usize| at(position).or_else(|| at(counterpart(join, position)?));
            let mut offered = match join.kind {
                JoinKind::Full => vec![],
                _ => through(&candidates_of(&join.probe), |column| {
                    if is_inner { equal(build_width + column) } else { at(build_width + column) }
                }),
            };
            if is_inner {
                offered.extend(through(&candidates_of(&join.build), equal));
            }
            if let (Some(table), Some(keys)) = (join.build.shared_build(), key_columns(join)) {
                let columns = keys.iter().map(|&(_, probe)| probe).collect();
                let own = FilterCandidate { table, columns, row_ps: None };
                offered.extend(through(&[own], |column| {
                    if is_inner { equal(build_width + column) } else { at(build_width + column) }
                }));
            }
            offered
        }
    }
}

/// What the tables of a join's build side know of the probe side's keys: a row without a match there has none here. A row that
/// goes saves its probe of this join's table.
fn offered_by_build(join: &JoinPlan, probe_ps: f64) -> Vec<FilterCandidate> {
    if !matches!(join.kind, JoinKind::Inner | JoinKind::ProbeSemi) || !is_safe(join) {
        return vec![];
    }
    let build_width = join.build.schema.fields().len();
    let probe_key = |column| counterpart(join, column)?.checked_sub(build_width);
    let mut offered = through(&candidates_of(&join.build), probe_key);
    offered.iter_mut().for_each(|candidate| candidate.row_ps = Some(probe_ps));
    offered
}

/// Filter candidates of a join's output as candidates of its sides.
fn split(join: &JoinPlan, candidates: &[FilterCandidate]) -> (Vec<FilterCandidate>, Vec<FilterCandidate>) {
    if !is_safe(join) || join.kind == JoinKind::Full {
        return (vec![], vec![]);
    }
    let build_width = join.build.schema.fields().len();
    let probe_end = build_width + join.probe.schema.fields().len();
    let is_inner = join.kind == JoinKind::Inner;
    let in_probe = |position: usize| (build_width..probe_end).contains(&position).then(|| position - build_width);
    let in_build = |position: usize| (position < build_width).then_some(position);
    let to_probe = through(candidates, |column| {
        let position = *join.output.get(column)?;
        in_probe(position).or_else(|| in_probe(counterpart(join, position).filter(|_| is_inner)?))
    });
    // Only build rows that match a wanted probe row count; but a NOT IN knows of all null keys.
    let to_build = match join.kind {
        JoinKind::NotIn => vec![],
        _ => through(candidates, |column| {
            let position = *join.output.get(column)?;
            in_build(position).filter(|_| is_inner).or_else(|| in_build(counterpart(join, position)?))
        }),
    };
    (to_build, to_probe)
}

/// Whether rows may be dropped on either side before the join looks at them: none of its conditions may fail.
fn is_safe(join: &JoinPlan) -> bool {
    join.on.iter().all(|(build, probe)| is_plain_expr(&join.build, build) && is_plain_expr(&join.probe, probe))
        && is_plain_residual(join)
}

/// The other column of a pair of keys, both among build columns, then probe columns.
fn counterpart(join: &JoinPlan, position: usize) -> Option<usize> {
    let build_width = join.build.schema.fields().len();
    join.on.iter().find_map(|(build, probe)| {
        let (build, probe) = (column_of(build)?, build_width + column_of(probe)?);
        match position {
            it if it == build => Some(probe),
            it if it == probe => Some(build),
            _ => None,
        }
    })
}

/// The build column that a probe column equals.
fn build_key_of(join: &JoinPlan, probe_column: usize) -> Option<usize> {
    let is_it = |key: &Expr| column_of(key) == Some(probe_column);
    join.on.iter().find(|(_, probe)| is_it(probe)).and_then(|(build, _)| column_of(build))
}

/// The keys of a table that may be shared: pairs of columns of build and probe side.
pub(super) fn column_keys(join: &JoinPlan) -> Option<Vec<(usize, usize)>> {
    let is_kind = matches!(join.kind, JoinKind::Inner | JoinKind::ProbeSemi) && !join.null_equals_null;
    let pair = |(build, probe): &(Expr, Expr)| Some((column_of(build)?, column_of(probe)?));
    if is_kind { join.on.iter().map(pair).collect() } else { None }
}

/// The same, where other columns that equal the keys may be looked for in the table.
fn key_columns(join: &JoinPlan) -> Option<Vec<(usize, usize)>> {
    let is_kept =
        |(build, probe): &(Expr, Expr)| Graph::is_exchangeable(&build.data_type) && build.data_type == probe.data_type;
    column_keys(join).filter(|_| join.on.iter().all(is_kept))
}

/// Filter candidates with their columns somewhere else; those that lose one are gone.
fn through(candidates: &[FilterCandidate], to: impl Fn(usize) -> Option<usize>) -> Vec<FilterCandidate> {
    let moved = |candidate: &FilterCandidate| {
        let columns = candidate.columns.iter().map(|&column| to(column)).collect::<Option<_>>()?;
        Some(FilterCandidate { columns, ..candidate.clone() })
    };
    candidates.iter().filter_map(moved).collect()
}

/// Filters and projections of columns over a scan: a filter at its end reads what they leave.
fn is_chain(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } => true,
        PlanKind::Filter { input, .. } => is_chain(input),
        PlanKind::Project { input, exprs } => exprs.iter().all(|expr| column_of(expr).is_some()) && is_chain(input),
        _ => false,
    }
}

/// Whether a plan reads a table.
fn reads(plan: &Plan, number: usize) -> bool {
    matches!(&plan.kind, PlanKind::Marked { mark: Mark::Reduced { table, .. }, .. } if *table == number)
        || plan.inputs().into_iter().any(|input| reads(input, number))
}

/// Takes back publications.
fn unshare(plan: Plan, is_unused: &impl Fn(usize) -> bool) -> Plan {
    let plan = plan.map_inputs(&mut |input| unshare(input, is_unused));
    match plan.kind {
        PlanKind::Marked { input, mark: Mark::SharedBuild(number) } if is_unused(number) => *input,
        kind => Plan { kind, ..plan },
    }
}

pub(super) fn marked(plan: Plan, mark: Mark) -> Plan {
    let schema = Arc::clone(&plan.schema);
    Plan { kind: PlanKind::Marked { input: Box::new(plan), mark }, schema }
}

fn column_of(expr: &Expr) -> Option<usize> {
    match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    }
}

pub(super) fn column_expr(plan: &Plan, column: usize) -> Expr {
    let field = plan.schema.field(column);
    Expr::column(column, field.data_type().clone(), field.is_nullable())
}
