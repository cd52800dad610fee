//! Rewrites nodes as others: aggregates that take several group-bys, FULL joins and NOT IN.
//!
//! Must not know how a node runs.

mod distinct;
mod first;
mod joins;
mod moments;
mod order_words;
mod quantiles;
mod sets;
mod split;
mod wide;

use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;

use super::build::aggregate;
use super::{AggregateCall, InputTables, Plan, PlanKind};

pub(crate) use joins::{rewrite_full_joins, rewrite_not_in, swapped_outer};
pub(crate) use order_words::words_of;
pub use sets::{outputs, unique_keys};

/// The plan with group-bys of group-bys in place of aggregates that need several. `inputs` are the tables of the plan's
/// inputs that are there.
///
/// # Errors
/// Internal ones, for calls that no check of a plan lets through.
pub(crate) fn rewrite_aggregates(plan: Plan, inputs: InputTables<'_>) -> Result<Plan> {
    let may_need_parts = |plan: &Plan| match &plan.kind {
        PlanKind::Aggregate { aggregates, .. } | PlanKind::GroupingSets { aggregates, .. } => {
            aggregates.iter().any(|call| call.needs_parts() || wide::may_be_wide(call))
        }
        _ => false,
    };
    if !plan.holds(&may_need_parts) {
        return Ok(plan);
    }
    plan.try_rewritten(&mut |plan| {
        if !may_need_parts(&plan) {
            return Ok(plan);
        }
        Ok(match plan.kind {
            PlanKind::Aggregate { input, group_by, aggregates } => {
                let calls = wide::as_first_values(&input, aggregates, inputs);
                Plan { kind: groups(*input, group_by, calls, inputs)?.kind, ..plan }
            }
            PlanKind::GroupingSets { input, group_by, sets, aggregates } => {
                let aggregates = wide::as_first_values(&input, aggregates, inputs);
                if !aggregates.iter().any(AggregateCall::needs_parts) {
                    return Ok(Plan { kind: PlanKind::GroupingSets { input, group_by, sets, aggregates }, ..plan });
                }
                let id_type = plan.schema.field(group_by.len()).data_type();
                let of_keys = |input: Plan, keys: Vec<Expr>| groups(input, keys, aggregates.clone(), inputs);
                let union = sets::union_of(*input, &group_by, (&sets, id_type), &aggregates, &of_keys)?;
                Plan { kind: union.kind, ..plan }
            }
            kind => Plan { kind, ..plan },
        })
    })
}

/// A group-by, made of several where a call needs that.
fn groups(input: Plan, keys: Vec<Expr>, calls: Vec<AggregateCall>, inputs: InputTables<'_>) -> Result<Plan> {
    if calls.iter().any(AggregateCall::needs_parts) {
        split::split(&input, &keys, &calls, inputs)
    } else {
        Ok(aggregate(input, keys, calls))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::plan::AggregateFunction;

    #[test]
    fn a_call_that_can_not_be_made_is_an_error() {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let input = || Plan { kind: PlanKind::Input { index: 0 }, schema: Arc::clone(&schema) };
        let first = |argument| AggregateCall::new(AggregateFunction::First, argument, DataType::Int64);
        let rewritten = |argument| {
            let plan = aggregate(input(), vec![], vec![first(argument)]);
            rewrite_aggregates(plan, InputTables(&[]))
        };
        assert!(rewritten(Some(Expr::column(0, DataType::Int64, true))).is_ok());
        let error = rewritten(None).expect_err("a first value without an argument").to_string();
        assert!(error.contains("a first value of nothing"), "{error}");
    }
}
