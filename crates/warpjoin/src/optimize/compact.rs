//! Where few rows are left of a table behind its first tests, so that what follows is worth full warps of them.

use super::estimate::estimate;
use super::filters::marked;
use crate::plan::{InputTables, JoinKind, JoinPlan, Mark, Plan, PlanKind};

/// Rows of a device from which on each of its blocks has a turn of them.
const ROWS_MIN: f64 = (1u64 << 23) as f64;
/// Share of rows that are left, up to which it pays: reading them again takes less than going on with warps that are half empty.
const SHARE_MAX: f64 = 0.6;

/// The plan with such places marked. With `forced`, behind all tests of tables with `forced` rows or more.
pub(super) fn place(plan: Plan, inputs: InputTables<'_>, devices: usize, forced: Option<u64>) -> Plan {
    let pays = |chain: &Plan| {
        let rows = table_rows(chain, inputs).unwrap_or(0.0);
        match forced {
            Some(rows_min) => rows >= rows_min as f64,
            None => rows >= ROWS_MIN * devices as f64 && estimate(chain, inputs.0).rows <= SHARE_MAX * rows,
        }
    };
    let mark = |chain: Plan| {
        if drops_rows(&chain) && is_chain(&chain) && pays(&chain) { marked(chain, Mark::Compact) } else { chain }
    };
    let plan = plan.rewritten(&mut |plan| match plan.kind {
        // The chain goes on through the probe side.
        PlanKind::Join(mut join) if is_test(&join) && is_chain(&join.probe) => {
            join.build.replace(&mark);
            Plan { kind: PlanKind::Join(join), ..plan }
        }
        _ if is_chain(&plan) => plan,
        _ => plan.map_inputs(&mut |input| mark(input)),
    });
    mark(plan)
}

/// Whether a node is a table behind tests of single rows.
fn is_chain(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } => true,
        PlanKind::Filter { input, .. }
        | PlanKind::Project { input, .. }
        | PlanKind::Marked { input, mark: Mark::Reduced { .. } } => is_chain(input),
        PlanKind::Join(join) => is_test(join) && is_chain(&join.probe),
        _ => false,
    }
}

fn is_test(join: &JoinPlan) -> bool {
    join.kind == JoinKind::ProbeSemi && join.residual.is_none() && !join.is_nested()
}

/// Whether a chain has a test.
fn drops_rows(chain: &Plan) -> bool {
    match &chain.kind {
        PlanKind::Project { input, .. } => drops_rows(input),
        PlanKind::Filter { .. } | PlanKind::Marked { .. } | PlanKind::Join(_) => true,
        _ => false,
    }
}

/// Rows of the table at the end of a chain.
fn table_rows(chain: &Plan, inputs: InputTables<'_>) -> Option<f64> {
    let table = match &chain.kind {
        PlanKind::Scan { table, .. } => Some(table),
        PlanKind::Input { index } => inputs.get(*index),
        PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } | PlanKind::Marked { input, .. } => {
            return table_rows(input, inputs);
        }
        PlanKind::Join(join) => return table_rows(&join.probe, inputs),
        _ => None,
    };
    table.map(|table| table.rows() as f64)
}
