//! Joins rewritten as others: FULL as an outer and an anti join, an outer join as an inner and an anti join, NOT IN as an anti
//! join and tests of nulls.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{CompareOp, Expr, ExprKind, Scalar};

use crate::plan::build::{column, columns, compare, filter, has_rows, is_null, join_node, not, project};
use crate::plan::{JoinKind, JoinPlan, Plan, PlanKind, RowsOf};

/// The plan without FULL joins.
pub(crate) fn rewrite_full_joins(plan: Plan) -> Plan {
    rewritten(plan, JoinKind::Full, full)
}

/// The plan without NOT IN.
pub(crate) fn rewrite_not_in(plan: Plan) -> Plan {
    rewritten(plan, JoinKind::NotIn, not_in)
}

/// The plan with each join of a kind replaced by what `with` makes of it.
fn rewritten(plan: Plan, kind: JoinKind, with: fn(JoinPlan) -> PlanKind) -> Plan {
    if !plan.holds(&|plan| matches!(&plan.kind, PlanKind::Join(join) if join.kind == kind)) {
        return plan;
    }
    plan.rewritten(&mut |plan| match plan.kind {
        PlanKind::Join(join) if join.kind == kind => Plan { kind: with(*join), ..plan },
        kind => Plan { kind, ..plan },
    })
}

/// Pairs and unmatched probe rows, then unmatched build rows.
fn full(join: JoinPlan) -> PlanKind {
    let join = with_shared_sides(join);
    let outer = join_node(JoinPlan { kind: JoinKind::ProbeOuter, ..join.clone() });
    PlanKind::Union { inputs: vec![outer, unmatched(swap_sides(join))] }
}

/// Pairs, which the build side probes for, then unmatched probe rows.
pub(crate) fn swapped_outer(join: JoinPlan) -> PlanKind {
    let join = with_shared_sides(join);
    let pairs = join_node(JoinPlan { kind: JoinKind::Inner, ..swap_sides(join.clone()) });
    PlanKind::Union { inputs: vec![pairs, unmatched(join)] }
}

/// Two joins of these sides read the same rows.
fn with_shared_sides(join: JoinPlan) -> JoinPlan {
    JoinPlan { build: join.build.into_shared(), probe: join.probe.into_shared(), ..join }
}

/// The join of the same columns whose build side probes.
fn swap_sides(join: JoinPlan) -> JoinPlan {
    let JoinPlan { build, probe, on, kind, null_equals_null, residual, output } = join;
    let (build_width, probe_width) = (build.schema.fields().len(), probe.schema.fields().len());
    let moved = |column: usize| if column < build_width { probe_width + column } else { column - build_width };
    JoinPlan {
        build: probe,
        probe: build,
        on: on.into_iter().map(|(build, probe)| (probe, build)).collect(),
        kind,
        null_equals_null,
        residual: residual.map(|residual| residual.remap(&moved)),
        output: output.into_iter().map(moved).collect(),
    }
}

/// The probe rows without a match, with the columns of the join; those of the build side are null.
fn unmatched(join: JoinPlan) -> Plan {
    let build_width = join.build.schema.fields().len();
    let fields: Vec<_> = join.build.schema.fields().iter().chain(join.probe.schema.fields()).cloned().collect();
    let mut of_probe: Vec<usize> = join.output.iter().copied().filter(|&column| column >= build_width).collect();
    of_probe.sort_unstable();
    of_probe.dedup();
    let exprs = join.output.iter().map(|column| {
        let data_type = fields[*column].data_type().clone();
        match of_probe.iter().position(|own| own == column) {
            Some(position) => Expr::column(position, data_type, fields[*column].is_nullable()),
            None => Expr::literal(Scalar::Null, data_type),
        }
    });
    let exprs = exprs.collect();
    project(join_node(JoinPlan { kind: JoinKind::ProbeAnti, output: of_probe, ..join }), exprs)
}

/// Probe rows without a match. No row is kept if any build key is null; a row with a null key is kept only if there are
/// no build rows.
fn not_in(mut join: JoinPlan) -> PlanKind {
    join.kind = JoinKind::ProbeAnti;
    // Checked: there is one key.
    let (build_key, probe_key) = join.on[0].clone();
    if build_key.nullable {
        join.build.replace(Plan::into_shared);
        let nulls = filter(join.build.clone(), is_null(&build_key));
        join.probe.replace(|probe| {
            let probe = has_rows(probe, RowsOf::Plan(Box::new(nulls)));
            let has_null = last_column(&probe);
            filter(probe, is_zero(&has_null))
        });
    }
    if !probe_key.nullable {
        return PlanKind::Join(Box::new(join));
    }
    // Whether there are build rows is known behind the join.
    let (width, build_width) = (join.output.len(), join.build.schema.fields().len());
    let mut read = vec![];
    probe_key.visit_columns(&mut |column| read.push(column));
    join.output.extend(read.iter().map(|column| build_width + column));
    let key = probe_key.remap(&|column| width + read.iter().position(|own| *own == column).unwrap_or(0));
    let joined = has_rows(join_node(join), RowsOf::Build);
    let has_no_rows = is_zero(&last_column(&joined));
    let kind = ExprKind::Or(Box::new(has_no_rows), Box::new(not(is_null(&key))));
    let left = filter(joined, Expr { kind, data_type: DataType::Boolean, nullable: false });
    let exprs = columns(&left, width);
    project(left, exprs).kind
}

fn last_column(plan: &Plan) -> Expr {
    column(plan, plan.schema.fields().len() - 1)
}

fn is_zero(number: &Expr) -> Expr {
    compare(CompareOp::Equal, number, &Expr::literal(Scalar::Int(0), number.data_type.clone()))
}
