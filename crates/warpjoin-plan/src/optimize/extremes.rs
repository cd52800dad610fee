//! Existence joins with an inequality: whether a build row of the key has another value than the probe row (a smaller one, a
//! larger one) is told by the least and the largest value of the key's rows. So the build side becomes a row for each key, rather
//! than lists of rows.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{CompareOp, Expr, ExprKind};

use super::estimate::estimate;
use super::order::Graph;
use super::safety::never_fails;
use crate::plan::build::{aggregate, column, compare, join_node};
use crate::plan::{AggregateCall, AggregateFunction, InputTables, JoinKind, JoinPlan, Plan, PlanKind};

/// Minimum build rows. Estimates of joins below are often too low.
const ROWS_MIN: f64 = (1u64 << 17) as f64;
/// Minimum rows of a key that is not sorted: a table of groups takes one insert per key, lists take several per row.
const ROWS_A_KEY_MIN: f64 = 1.5;

/// Maximum precision of decimals that fit 64 bits.
const NARROW_PRECISION_MAX: u8 = 18;

/// The plan with extremes for such joins where that pays. With `forced`, of build sides with `forced` rows or more, and no
/// others.
pub(super) fn place(plan: Plan, inputs: InputTables<'_>, forced: Option<u64>, notes: &mut Vec<String>) -> Plan {
    if !plan.holds(&|plan| matches!(&plan.kind, PlanKind::Join(join) if Inequality::of(join).is_some())) {
        return plan;
    }
    plan.rewritten(&mut |plan| {
        let PlanKind::Join(join) = plan.kind else { return plan };
        let Some(inequality) = Inequality::of(&join) else { return Plan { kind: PlanKind::Join(join), ..plan } };
        let build = estimate(&join.build, inputs.0);
        let is_wanted = match forced {
            Some(rows_min) => build.rows >= rows_min as f64,
            None => build.rows >= ROWS_MIN && has_lists(&join, inputs),
        };
        if !is_wanted {
            return Plan { kind: PlanKind::Join(join), ..plan };
        }
        notes.push(format!(
            "extremes: rows of {}:{} become a row for each key with the least and the largest value",
            join.build.first_column(),
            build.rows.round(),
        ));
        inequality.replaced(*join)
    })
}

/// Whether a table of the build side would have lists that take longer than a group-by. The rows of sorted keys are grouped in
/// less time than it takes to insert them; of others, keys must repeat.
fn has_lists(join: &JoinPlan, inputs: InputTables<'_>) -> bool {
    let [(Expr { kind: ExprKind::Column(key), .. }, _)] = join.on.as_slice() else { return false };
    let (mut rows, mut column) = (&join.build, *key);
    // A set of keys keeps all rows of a key, or none.
    loop {
        let (below, moved) = match &rows.kind {
            PlanKind::Project { input, exprs } => (&**input, &exprs[column]),
            PlanKind::Join(set) if set.kind == JoinKind::ProbeSemi && set.residual.is_none() => {
                let build_width = set.build.schema.fields().len();
                let probe_column = set.output[column].checked_sub(build_width);
                match set.on.as_slice() {
                    [(_, key)] if matches!(key.kind, ExprKind::Column(key) if Some(key) == probe_column) => {
                        (&set.probe, key)
                    }
                    _ => break,
                }
            }
            _ => break,
        };
        let ExprKind::Column(moved) = moved.kind else { break };
        (rows, column) = (below, moved);
    }
    let rows = estimate(rows, inputs.0);
    let key = &rows.columns[column];
    !key.unique && (key.sorted || rows.rows >= key.distinct_among(rows.rows) * ROWS_A_KEY_MIN)
}

/// The condition of such a join: `value op other`, of a build row's value and one of the probe row's.
struct Inequality {
    value: Expr,
    op: CompareOp,
    /// Over the columns of both sides.
    other: Expr,
}

impl Inequality {
    fn of(join: &JoinPlan) -> Option<Self> {
        // Of NOT IN null keys matter, too.
        let is_kind = matches!(join.kind, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark);
        let is_single = is_kind && !join.is_nested() && join.build.shared_build().is_none();
        let ExprKind::Compare(op, left, right) = &join.residual.as_ref().filter(|_| is_single)?.kind else {
            return None;
        };
        let build_width = join.build.schema.fields().len();
        let of_build = |expr: &Expr| reads_only(expr, |column| column < build_width);
        let of_probe = |expr: &Expr| reads_only(expr, |column| column >= build_width);
        let (value, op, other) = if of_build(left) && of_probe(right) {
            (left, *op, right)
        } else if of_probe(left) && of_build(right) {
            (right, mirrored(*op), left)
        } else {
            return None;
        };
        // All build rows are grouped, also those that no probe row asks for.
        let never_fails = |expr: &Expr| never_fails(expr) && is_grouped_plainly(expr);
        let is_safe = never_fails(value) && join.on.iter().all(|(key, _)| never_fails(key));
        // Minima beyond 64 bits are made of other aggregates, which are planned before this.
        let is_narrow = match value.data_type {
            DataType::Decimal128(precision, _) => precision <= NARROW_PRECISION_MAX,
            ref other => !other.is_decimal(),
        };
        let is_inequality = !matches!(op, CompareOp::Equal | CompareOp::Identical);
        (is_safe && is_narrow && is_inequality && value.data_type == other.data_type).then(|| Self {
            value: value.as_ref().clone(),
            op,
            other: other.as_ref().clone(),
        })
    }

    /// The extremes that the condition asks for.
    fn extremes(&self) -> &'static [AggregateFunction] {
        match self.op {
            CompareOp::Less | CompareOp::LessOrEqual => &[AggregateFunction::Min],
            CompareOp::Greater | CompareOp::GreaterOrEqual => &[AggregateFunction::Max],
            // A value that differs from both is not there unless these do.
            _ => &[AggregateFunction::Min, AggregateFunction::Max],
        }
    }

    /// The join with a row for each key.
    fn replaced(self, join: JoinPlan) -> Plan {
        let JoinPlan { build, probe, on, kind, null_equals_null, residual: _, output } = join;
        let (build_width, keys) = (build.schema.fields().len(), on.len());
        let of = |&function: &AggregateFunction| {
            AggregateCall::new(function, Some(self.value.clone()), self.value.data_type.clone())
        };
        let calls: Vec<AggregateCall> = self.extremes().iter().map(of).collect();
        let width = keys + calls.len();
        let build = aggregate(build, on.iter().map(|(key, _)| key.clone()).collect(), calls);
        let moved = |column: usize| width + column - build_width;
        let other = self.other.remap(&moved);
        let residual =
            (keys..width).map(|extreme| compare(self.op, &column(&build, extreme), &other)).reduce(|one, another| {
                let nullable = one.nullable || another.nullable;
                let data_type = one.data_type.clone();
                Expr { kind: ExprKind::Or(Box::new(one), Box::new(another)), data_type, nullable }
            });
        let on = on.into_iter().enumerate().map(|(index, (_, key))| (column(&build, index), key)).collect();
        let output = output.into_iter().map(moved).collect();
        join_node(JoinPlan { build, probe, on, kind, null_equals_null, residual, output })
    }
}

/// `b op a`, as `a op b` says it.
fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Less => CompareOp::Greater,
        CompareOp::LessOrEqual => CompareOp::GreaterOrEqual,
        CompareOp::Greater => CompareOp::Less,
        CompareOp::GreaterOrEqual => CompareOp::LessOrEqual,
        CompareOp::Equal | CompareOp::NotEqual | CompareOp::Identical => op,
    }
}

/// Whether an expression reads columns, and only such.
fn reads_only(expr: &Expr, is_such: impl Fn(usize) -> bool) -> bool {
    let (mut reads, mut only) = (false, true);
    expr.visit_columns(&mut |column| {
        reads = true;
        only &= is_such(column);
    });
    reads && only
}

/// Whether groups and extremes of the values compare as the values do: not so for floats.
fn is_grouped_plainly(expr: &Expr) -> bool {
    Graph::is_exchangeable(&expr.data_type)
}
