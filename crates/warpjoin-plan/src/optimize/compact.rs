//! Places where few rows of a table are left behind its first tests, so that compacting them pays.
//!
//! A chain is a table behind tests of single rows: filters, runtime filters, sets of keys, and joins that few rows pass.

use std::sync::Arc;

use warpjoin_columns::Table;

use super::estimate::estimate;
use super::filters::marked;
use crate::plan::{InputTables, JoinKind, JoinPlan, Mark, Plan, PlanKind};

/// Minimum rows of a device: fewer do not give each of its blocks a turn.
pub const COMPACTED_ROWS_MIN: u64 = 1 << 23;
/// Maximum share of rows that are left: reading those again takes less time than half empty warps.
const SHARE_MAX: f64 = 0.6;
/// Share of rows up to which a chain ends where it is compacted: further tests are faster with full warps.
const FEW_SHARE: f64 = 0.25;
/// Maximum share of rows with a match in a join's table: these rows look it up twice.
const MATCHED_MAX: f64 = 0.3;

/// Marks such places. With `forced`, all chains over tables with at least `forced` rows are marked.
pub(super) fn place(plan: Plan, inputs: &[Arc<Table>], devices: usize, forced: Option<u64>) -> Plan {
    let compacting = Compacting { inputs, rows_min: (COMPACTED_ROWS_MIN * devices as u64) as f64, forced };
    let mark = |plan| if compacting.pays(&plan) { marked(plan, Mark::Compact) } else { plan };
    let marked = plan.rewritten(&mut |mut plan| {
        let is_chain = compacting.is_chain(&plan);
        match &mut plan.kind {
            PlanKind::Join(join) if is_chain => {
                join.build.replace(mark);
                // If the table turns out to have several rows of a key, the chain ends in front of it.
                if join.kind == JoinKind::Inner {
                    join.probe.replace(mark);
                }
                plan
            }
            // It stops early.
            PlanKind::Limit { .. } => plan,
            _ if is_chain => plan,
            _ => plan.map_inputs(&mut |input| mark(input)),
        }
    });
    mark(marked)
}

struct Compacting<'a> {
    inputs: &'a [Arc<Table>],
    rows_min: f64,
    forced: Option<u64>,
}

impl Compacting<'_> {
    fn pays(&self, plan: &Plan) -> bool {
        let is_few = || self.left(plan) <= SHARE_MAX * self.table_rows(plan);
        has_test(plan) && self.is_chain(plan) && (self.forced.is_some() || is_few())
    }

    fn is_chain(&self, plan: &Plan) -> bool {
        match &plan.kind {
            PlanKind::Scan { .. } | PlanKind::Input { .. } => {
                self.table_rows(plan) >= self.forced.map_or(self.rows_min, |rows| rows as f64)
            }
            PlanKind::Filter { input, .. }
            | PlanKind::Project { input, .. }
            | PlanKind::Marked { input, mark: Mark::Reduced { .. } } => self.is_chain(input),
            PlanKind::Marked { input, mark: Mark::Compact } => {
                let are_many = || self.left(input) > FEW_SHARE * self.table_rows(input);
                self.is_chain(input) && (self.forced.is_some() || are_many())
            }
            PlanKind::Join(join) => self.is_chain(&join.probe) && self.is_test(plan, join),
            _ => false,
        }
    }

    /// Whether a join keeps few rows, and a row looks one table up.
    fn is_test(&self, plan: &Plan, join: &JoinPlan) -> bool {
        let is_plain = join.residual.is_none() && !join.is_nested();
        let matched = || self.rows(plan) / self.rows(&join.probe).max(1.0);
        match join.kind {
            JoinKind::ProbeSemi => is_plain,
            JoinKind::Inner => is_plain && (self.forced.is_some() || matched() <= MATCHED_MAX),
            _ => false,
        }
    }

    /// Rows behind a chain.
    fn left(&self, chain: &Plan) -> f64 {
        match &chain.kind {
            PlanKind::Project { input, .. } | PlanKind::Marked { input, mark: Mark::Compact } => self.left(input),
            // Estimates do not know what these filters drop.
            PlanKind::Marked { input, mark: Mark::Reduced { test, .. } } => {
                self.left(input) * test.left as f64 / (test.rows as f64).max(1.0)
            }
            PlanKind::Filter { input, .. } => self.left(input) * self.rows(chain) / self.rows(input).max(1.0),
            PlanKind::Join(join) => self.left(&join.probe) * self.rows(chain) / self.rows(&join.probe).max(1.0),
            _ => self.rows(chain),
        }
    }

    fn rows(&self, plan: &Plan) -> f64 {
        estimate(plan, self.inputs).rows
    }

    /// Rows of the table at the end of a chain.
    fn table_rows(&self, chain: &Plan) -> f64 {
        let table = match &chain.kind {
            PlanKind::Scan { table, .. } => Some(table),
            PlanKind::Input { index } => InputTables(self.inputs).get(*index),
            PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } | PlanKind::Marked { input, .. } => {
                return self.table_rows(input);
            }
            PlanKind::Join(join) => return self.table_rows(&join.probe),
            _ => None,
        };
        table.map_or(0.0, |table| table.rows() as f64)
    }
}

/// Whether a chain has a test.
fn has_test(chain: &Plan) -> bool {
    match &chain.kind {
        PlanKind::Project { input, .. } => has_test(input),
        PlanKind::Filter { .. } | PlanKind::Marked { .. } | PlanKind::Join(_) => true,
        _ => false,
    }
}
