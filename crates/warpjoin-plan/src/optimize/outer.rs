//! Outer joins whose few probe rows have many matches each: the other side probes, and rows without a match are found apart.
//!
//! DataFusion's preserved side always probes. A lane goes over the matches of its row one by one, so that a few rows with many
//! matches leave a device idle, however many there are in all.

use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_columns::expr::Expr;

use super::estimate::estimate;
use crate::plan::rewrite::swapped_outer;
use crate::plan::{JoinKind, Plan, PlanKind};

/// Matches of a probe row from which on the other side probes.
const MATCHES_MIN: f64 = 64.0;
/// All matches from which on that pays for another pass over the other side.
const ALL_MATCHES_MIN: f64 = 32_768.0;
/// Probe rows of which there are enough for a device.
const PROBE_ROWS_MAX: f64 = 131_072.0;

/// The plan with the sides of such joins swapped; `forced` is another [`MATCHES_MIN`], whatever the number of rows.
pub(super) fn place(plan: Plan, inputs: &[Arc<Table>], forced: Option<u64>, notes: &mut Vec<String>) -> Plan {
    let may_pay = |plan: &Plan| match &plan.kind {
        PlanKind::Join(join) => join.kind == JoinKind::ProbeOuter && !join.is_nested(),
        _ => false,
    };
    if !plan.holds(&may_pay) {
        return plan;
    }
    plan.rewritten(&mut |mut plan| {
        if !may_pay(&plan) {
            return plan;
        }
        // A lane goes over all matches of a key.
        let residual = set_residual(&mut plan, None);
        let matches = estimate(&plan, inputs).rows;
        set_residual(&mut plan, residual);
        match plan.kind {
            PlanKind::Join(join) => {
                let probe_rows = estimate(&join.probe, inputs).rows.max(1.0);
                let are_many = |of_row: f64| matches >= probe_rows * of_row;
                let pays = match forced {
                    Some(matches_min) => are_many(matches_min as f64),
                    None => are_many(MATCHES_MIN) && matches >= ALL_MATCHES_MIN && probe_rows <= PROBE_ROWS_MAX,
                };
                if !pays {
                    return Plan { kind: PlanKind::Join(join), ..plan };
                }
                notes.push(format!(
                    "outer join: {} probes {}:{}, which has {} matches",
                    join.build.first_column(),
                    join.probe.first_column(),
                    probe_rows.round(),
                    matches.round(),
                ));
                Plan { kind: swapped_outer(*join), ..plan }
            }
            kind => Plan { kind, ..plan },
        }
    })
}

/// Sets the residual of a join, and returns the one before.
fn set_residual(plan: &mut Plan, residual: Option<Expr>) -> Option<Expr> {
    match &mut plan.kind {
        PlanKind::Join(join) => std::mem::replace(&mut join.residual, residual),
        _ => None,
    }
}
