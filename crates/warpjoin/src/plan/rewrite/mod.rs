//! Nodes that are made of others: aggregates that take several group-bys.
//!
//! Must not know how a node runs. What depends on the bits of order keys (first and last values, `exec/group/first.rs`) is
//! rewritten while the query runs.

mod distinct;
mod moments;
mod quantiles;
mod sets;
mod split;

use super::{AggregateCall, Plan, PlanKind};
use crate::Error;

pub(crate) use sets::{outputs, union_of, unique_keys};
pub(crate) use split::{Part, split};

/// The plan with group-bys of group-bys in place of aggregates that need several.
pub(crate) fn rewrite(plan: Plan) -> Plan {
    if !holds(&plan, &is_rewritten) {
        return plan;
    }
    let mut plan = plan.map_inputs(&mut rewrite);
    if !is_rewritten(&plan) {
        return plan;
    }
    let made = match &plan.kind {
        PlanKind::Aggregate { input, group_by, aggregates } => {
            let mut no_order = |_: &Plan, _: &[usize]| Err(Error::internal("an order where none was asked for"));
            split(input, group_by, aggregates, &mut no_order).ok()
        }
        PlanKind::GroupingSets { input, group_by, sets, aggregates } => {
            let id_type = plan.schema.field(group_by.len()).data_type();
            Some(rewrite(union_of(input, group_by, (sets, id_type), aggregates)))
        }
        _ => None,
    };
    if let Some(made) = made {
        plan.kind = made.kind;
    }
    plan
}

fn is_rewritten(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Aggregate { aggregates, .. } | PlanKind::GroupingSets { aggregates, .. } => {
            aggregates.iter().any(AggregateCall::needs_parts) && !aggregates.iter().any(AggregateCall::is_ordered)
        }
        _ => false,
    }
}

/// Whether a node is one. Plans in several places stay as they are, and are not looked into.
fn holds(plan: &Plan, is_it: &dyn Fn(&Plan) -> bool) -> bool {
    let is_shared = matches!(plan.kind, PlanKind::Shared(_));
    is_it(plan) || !is_shared && plan.inputs().into_iter().any(|input| holds(input, is_it))
}
