//! Reduced build sides: build rows that match nothing are dropped before a table is made of them, where the probe side is
//! much smaller. The probe side's keys become a set, which the build side probes.
//!
//! DataFusion's preserved side always probes, so that without this a table is made of the other side however large that is.
//! The sides of an inner join can be chosen instead.

use warpjoin_columns::expr::Expr;

use super::estimate::{Estimate, estimate};
use super::safety::is_plain;
use crate::plan::build::{column, join_node, project, written};
use crate::plan::{InputTables, JoinKind, JoinPlan, Plan, PlanKind};

/// Build rows from which on it is worth a launch or two to drop those that match nothing before a table is made of them.
const REDUCED_ROWS_MIN: u64 = 1 << 22;
/// Build rows for each probe row from which on that pays: an insert costs about as much as this number of probes of a small set.
const REDUCED_RATIO_MIN: u64 = 4;
/// Rows of a probe side's source for each that is left of them, from which on these are written down rather than found twice.
const SOURCE_ROWS_MIN: f64 = 2.0;

/// The plan with build sides reduced where that pays. With `forced`, those of `forced` rows or more are reduced, and no others.
pub(super) fn place(plan: Plan, inputs: InputTables<'_>, forced: Option<u64>, notes: &mut Vec<String>) -> Plan {
    // Estimates take longer than this.
    let may_pay = |join: &JoinPlan| {
        drops_unmatched_rows(join)
            && (forced.is_some() || join.build.holds(&|plan| table_rows(plan, inputs) >= REDUCED_ROWS_MIN as f64))
    };
    if !plan.holds(&|plan| matches!(&plan.kind, PlanKind::Join(join) if may_pay(join))) {
        return plan;
    }
    plan.rewritten(&mut |plan| match plan.kind {
        PlanKind::Join(join) if may_pay(&join) => {
            let (build, probe) = (estimate(&join.build, inputs.0), estimate(&join.probe, inputs.0));
            let is_wanted = match forced {
                Some(rows_min) => build.rows >= rows_min as f64,
                None => pays(&join, &build, &probe),
            };
            if !is_wanted || !is_safe(&join) {
                return Plan { kind: PlanKind::Join(join), ..plan };
            }
            notes.push(format!(
                "reduced build side: keys of {}:{} drop rows of {}:{}",
                join.probe.first_column(),
                probe.rows.round(),
                join.build.first_column(),
                build.rows.round(),
            ));
            let is_written = probe.rows * SOURCE_ROWS_MIN <= probe.source_rows;
            Plan { kind: PlanKind::Join(Box::new(reduced(*join, is_written))), ..plan }
        }
        kind => Plan { kind, ..plan },
    })
}

/// Rows of the table that a node reads.
fn table_rows(plan: &Plan, inputs: InputTables<'_>) -> f64 {
    let table = match &plan.kind {
        PlanKind::Scan { table, .. } => Some(table),
        PlanKind::Input { index } => inputs.get(*index),
        _ => None,
    };
    table.map_or(0.0, |table| table.rows() as f64)
}

/// Whether a join's build side is reduced, unless another join needs it.
pub(super) fn is_reduced(join: &JoinPlan, build: &Estimate, probe: &Estimate) -> bool {
    pays(join, build, probe) && may_drop(join)
}

/// Whether a join's build side is worth that.
fn pays(join: &JoinPlan, build: &Estimate, probe: &Estimate) -> bool {
    drops_unmatched_rows(join)
        && build.rows >= REDUCED_ROWS_MIN as f64
        && probe.rows * REDUCED_RATIO_MIN as f64 <= build.rows
}

/// Whether build rows without a match change nothing, and the sides are given.
fn drops_unmatched_rows(join: &JoinPlan) -> bool {
    match join.kind {
        JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark | JoinKind::ProbeOuter => true,
        // With null keys it matters whether there is any build row, and whether one has a null key.
        JoinKind::NotIn => join.on.iter().all(|(build, probe)| !build.nullable && !probe.nullable),
        // The sides of an inner join can be chosen, and FULL puts all build rows out.
        JoinKind::Inner | JoinKind::Full => false,
    }
}

/// Whether build rows may be dropped, and no other join needs them.
fn is_safe(join: &JoinPlan) -> bool {
    join.build.shared_build().is_none() && may_drop(join)
}

/// Whether build rows may be dropped: nothing that may fail is evaluated for them but keys.
fn may_drop(join: &JoinPlan) -> bool {
    let build_width = join.build.schema.fields().len();
    !join.is_nested()
        && join.needed_columns().iter().all(|&column| column >= build_width || is_plain(&join.build, column))
}

/// The join of a build side that has only rows with a key of the probe side.
fn reduced(join: JoinPlan, is_written: bool) -> JoinPlan {
    let widths = [&join.build, &join.probe].map(|side| side.schema.fields().len());
    let needed = join.needed_columns();
    let of_build = read_columns(
        needed.iter().copied().filter(|&column| column < widths[0]),
        join.on.iter().map(|(build, _)| build),
    );
    let JoinPlan { build, mut probe, on, kind, null_equals_null, residual, output } = join;
    let of_probe = if is_written {
        let needed = needed.into_iter().filter_map(|column| column.checked_sub(widths[0]));
        let read = read_columns(needed, on.iter().map(|(_, probe)| probe));
        let exprs = read.iter().map(|&index| column(&probe, index)).collect();
        probe = written(project(probe, exprs));
        read
    } else {
        (0..widths[1]).collect()
    };
    let probe = probe.into_shared();
    let at = |columns: &[usize], column: usize| columns.iter().position(|&own| own == column).unwrap_or(usize::MAX);
    let moved = |column: usize| match column.checked_sub(widths[0]) {
        None => at(&of_build, column),
        Some(column) if column < widths[1] => of_build.len() + at(&of_probe, column),
        Some(mark) => of_build.len() + of_probe.len() + (mark - widths[1]),
    };
    let probe_key = |key: &Expr| key.remap(&|column| at(&of_probe, column));
    let build = join_node(JoinPlan {
        build: probe.clone(),
        on: on.iter().map(|(build, key)| (probe_key(key), build.clone())).collect(),
        probe: build,
        kind: JoinKind::ProbeSemi,
        null_equals_null,
        residual: None,
        output: of_build.iter().map(|column| of_probe.len() + column).collect(),
    });
    let on = on.iter().map(|(build, key)| (build.remap(&|column| at(&of_build, column)), probe_key(key))).collect();
    let residual = residual.map(|residual| residual.remap(&moved));
    let output = output.into_iter().map(moved).collect();
    JoinPlan { build, probe, on, kind, null_equals_null, residual, output }
}

/// These columns of a side, and those that its keys read.
fn read_columns<'e>(needed: impl Iterator<Item = usize>, keys: impl Iterator<Item = &'e Expr>) -> Vec<usize> {
    let mut columns: Vec<usize> = needed.collect();
    keys.for_each(|key| key.visit_columns(&mut |column| columns.push(column)));
    columns.sort_unstable();
    columns.dedup();
    columns
}
