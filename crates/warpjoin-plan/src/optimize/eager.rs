//! Group-bys below joins: where aggregates read the build side only, and its keys repeat, the build side is aggregated by
//! the join's keys first. Then a key is there once, no list of its rows is made, and the join puts out a row for each
//! probe row instead of one for each match.

use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_columns::expr::{Expr, ExprKind, Scalar};

use super::estimate::{estimate, values_of};
use super::safety::never_fails;
use crate::plan::build::{aggregate, case, column, is_null, or_zero, project};
use crate::plan::{AggregateCall, AggregateFunction, Fold, JoinKind, JoinPlan, Plan, PlanKind};

/// Build rows of a key from which on it pays, and build rows.
const ROWS_OF_KEY_MIN: f64 = 2.0;
const ROWS_MIN: f64 = 1e5;
/// Keys for each probe row up to which it pays: others are aggregated for nobody.
const KEYS_OF_PROBE_MAX: f64 = 16.0;

/// The plan with such group-bys below their joins; all that may be with `always`.
pub(super) fn place(plan: Plan, inputs: &[Arc<Table>], always: bool, notes: &mut Vec<String>) -> Plan {
    let plan = plan.map_inputs(&mut |input| place(input, inputs, always, notes));
    let Some(found) = Found::of(&plan) else { return plan };
    let rows = found.gain(inputs);
    if rows.is_none() && !always {
        return plan;
    }
    let placed = found.placed(&plan);
    if let Some((rows, groups)) = rows {
        notes.push(format!("group-by below the join: {rows:.0} build rows become about {groups:.0}"));
    }
    placed
}

/// A group-by of a join, its expressions over all build columns, then all probe columns.
struct Found<'a> {
    join: &'a JoinPlan,
    group_by: Vec<Expr>,
    calls: Vec<AggregateCall>,
}

impl<'a> Found<'a> {
    fn of(plan: &'a Plan) -> Option<Self> {
        let PlanKind::Aggregate { input, group_by, aggregates } = &plan.kind else { return None };
        let is_plain = |call: &AggregateCall| {
            use Fold::{Count, Max, Min, Sum};
            matches!(call.function.fold(), Some(Count | Sum | Min | Max))
                && !call.is_distinct
                && call.filter.is_none()
                && call.order_by.is_empty()
        };
        if aggregates.is_empty() || !aggregates.iter().all(is_plain) {
            return None;
        }
        let mut exprs: Vec<Expr> = group_by.clone();
        exprs.extend(aggregates.iter().filter_map(|call| call.argument.clone()));
        let mut below: &Plan = input;
        while let PlanKind::Project { input, exprs: projected } = &below.kind {
            exprs = exprs.iter().map(|expr| over(expr, projected)).collect::<Option<_>>()?;
            below = input;
        }
        let PlanKind::Join(join) = &below.kind else { return None };
        let is_known = matches!(join.kind, JoinKind::Inner | JoinKind::ProbeOuter) && join.residual.is_none();
        // What is a group of floats is not what is equal among them.
        if !is_known || join.on.iter().any(|(build, _)| build.data_type.is_floating()) {
            return None;
        }
        let exprs: Vec<Expr> = exprs.iter().map(|expr| expr.remap(&|column| join.output[column])).collect();
        let mut exprs = exprs.into_iter();
        let group_by: Vec<Expr> = exprs.by_ref().take(group_by.len()).collect();
        let mut with_argument = |call: &AggregateCall| {
            let argument = call.argument.as_ref().and_then(|_| exprs.next());
            AggregateCall { argument, ..call.clone() }
        };
        let calls = aggregates.iter().map(&mut with_argument).collect();
        let found = Self { join, group_by, calls };
        found.is_legal().then_some(found)
    }

    fn build_width(&self) -> usize {
        self.join.build.schema.fields().len()
    }

    /// Groups are told by the probe side, and what is aggregated by the build side, for rows without a match too.
    fn is_legal(&self) -> bool {
        let width = self.build_width();
        let is_outer = self.join.kind == JoinKind::ProbeOuter;
        let reads_build = |argument: &Expr| {
            let mut all = true;
            argument.visit_columns(&mut |column| all = all && column < width);
            // Of a row without a match a column is null; who knows of other expressions.
            all && never_fails(argument) && (!is_outer || matches!(argument.kind, ExprKind::Column(_)))
        };
        let reads_probe = |key: &Expr| {
            let mut all = true;
            key.visit_columns(&mut |column| all = all && column >= width);
            all
        };
        self.group_by.iter().all(reads_probe)
            && self.calls.iter().filter_map(|call| call.argument.as_ref()).all(reads_build)
    }

    /// Build rows, and groups that they become; `None`: it does not pay.
    fn gain(&self, inputs: &[Arc<Table>]) -> Option<(f64, f64)> {
        let (build, probe) = (estimate(&self.join.build, inputs), estimate(&self.join.probe, inputs));
        let keys: Vec<Expr> = self.join.on.iter().map(|(key, _)| key.clone()).collect();
        let groups = values_of(&build, &keys).into_iter().product::<f64>().min(build.rows).max(1.0);
        let pays = build.rows >= ROWS_MIN
            && build.rows >= groups * ROWS_OF_KEY_MIN
            && groups <= probe.rows * KEYS_OF_PROBE_MAX;
        pays.then_some((build.rows, groups))
    }

    fn placed(&self, plan: &Plan) -> Plan {
        let join = self.join;
        let keys: Vec<Expr> = join.on.iter().map(|(key, _)| key.clone()).collect();
        let partial = aggregate(join.build.clone(), keys.clone(), self.calls.clone());
        let on = join.on.iter().enumerate().map(|(index, (_, probe))| (column(&partial, index), probe.clone()));
        let on = on.collect();
        // The partial results, then all of the probe side.
        let partial_width = partial.schema.fields().len();
        let probe_width = join.probe.schema.fields().len();
        let output: Vec<usize> = (keys.len()..partial_width + probe_width).collect();
        let is_outer = join.kind == JoinKind::ProbeOuter;
        let results = partial.schema.fields()[keys.len()..].iter().map(|field| {
            let field = field.as_ref().clone();
            let is_nullable = is_outer || field.is_nullable();
            field.with_nullable(is_nullable)
        });
        let probe = join.probe.schema.fields().iter().map(|field| field.as_ref().clone());
        let schema = Arc::new(arrow::datatypes::Schema::new(results.chain(probe).collect::<Vec<_>>()));
        let joined = JoinPlan { build: partial, on, output, ..join.clone() };
        let joined = Plan { kind: PlanKind::Join(Box::new(joined)), schema };

        let (width, calls) = (self.build_width(), self.calls.len());
        let group_by: Vec<Expr> = self.group_by.iter().map(|key| key.remap(&|column| column - width + calls)).collect();
        let merged = self.calls.iter().enumerate().map(|(index, call)| merging(call, column(&joined, index), is_outer));
        let merged = aggregate(joined.clone(), group_by, merged.collect());
        let keys = self.group_by.len();
        let exprs = (0..keys + calls).map(|index| {
            let value = column(&merged, index);
            match index.checked_sub(keys).map(|call| self.calls[call].function) {
                Some(AggregateFunction::Count) => or_zero(value),
                _ => value,
            }
        });
        let exprs = exprs.collect();
        Plan { schema: plan.schema.clone(), ..project(merged, exprs) }
    }
}

/// What brings the partial results of a call together.
fn merging(call: &AggregateCall, partial: Expr, is_outer: bool) -> AggregateCall {
    let (function, argument) = match (call.function, &call.argument) {
        // A row without a match is a row.
        (AggregateFunction::Count, None) if is_outer => {
            let one = Expr::literal(Scalar::Int(1), partial.data_type.clone());
            let data_type = partial.data_type.clone();
            (AggregateFunction::Sum, case(vec![(is_null(&partial), one)], Some(partial), data_type, false))
        }
        (function, _) => (function.fold().map_or(function, |fold| fold.merging().function()), partial),
    };
    AggregateCall::new(function, Some(argument), call.data_type.clone())
}

/// An expression over a projection's output as one over its input.
fn over(expr: &Expr, projected: &[Expr]) -> Option<Expr> {
    if let ExprKind::Column(column) = expr.kind {
        return projected.get(column).cloned();
    }
    let mut all = true;
    expr.visit_columns(&mut |column| {
        all = all && projected.get(column).is_some_and(|expr| matches!(expr.kind, ExprKind::Column(_)));
    });
    all.then(|| {
        expr.remap(&|column| match projected[column].kind {
            ExprKind::Column(below) => below,
            _ => column,
        })
    })
}
