//! Binds the values of a plan's parameters.

use warpjoin_columns::expr::Expr;

use super::{AggregateCall, JoinPlan, Mark, Plan, PlanKind, SortKey};

impl Plan {
    /// The plan with the values that its parameters have now, as if it had been planned with literals.
    #[must_use]
    pub fn bound(&self) -> Self {
        self.clone().rewritten(&mut |mut node| {
            node.exprs_mut().into_iter().for_each(|expr| *expr = expr.bound());
            node
        })
    }

    /// Expressions of this node, to be changed.
    fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.kind {
            PlanKind::Scan { .. }
            | PlanKind::Input { .. }
            | PlanKind::Limit { .. }
            | PlanKind::Union { .. }
            | PlanKind::Numbered { .. }
            | PlanKind::RowNumbers { .. }
            | PlanKind::Fetch(_)
            | PlanKind::HasRows { .. }
            | PlanKind::Shared(_) => vec![],
            PlanKind::Filter { predicate, .. } => vec![predicate],
            PlanKind::Project { exprs, .. } => exprs.iter_mut().collect(),
            PlanKind::Join(join) => {
                let JoinPlan { on, residual, .. } = &mut **join;
                on.iter_mut().flat_map(|(build, probe)| [build, probe]).chain(residual).collect()
            }
            PlanKind::Aggregate { group_by, aggregates, .. } | PlanKind::GroupingSets { group_by, aggregates, .. } => {
                group_by.iter_mut().chain(aggregates.iter_mut().flat_map(of_call)).collect()
            }
            PlanKind::Sort { keys, .. } => keys.iter_mut().map(of_key).collect(),
            PlanKind::Window { partition_by, order_by, calls, .. } => {
                let of_calls = calls.iter_mut().flat_map(|call| call.argument.iter_mut().chain(&mut call.default));
                partition_by.iter_mut().chain(order_by.iter_mut().map(of_key)).chain(of_calls).collect()
            }
            PlanKind::Marked { mark, .. } => match mark {
                Mark::Reduced { keys, .. } => keys.iter_mut().collect(),
                Mark::SharedBuild(_) | Mark::Shared(_) | Mark::Written | Mark::Compact => vec![],
            },
        }
    }
}

fn of_call(call: &mut AggregateCall) -> Vec<&mut Expr> {
    let AggregateCall { argument, second, order_by, filter, .. } = call;
    argument.iter_mut().chain(second).chain(order_by.iter_mut().map(of_key)).chain(filter).collect()
}

fn of_key(key: &mut SortKey) -> &mut Expr {
    &mut key.expr
}
