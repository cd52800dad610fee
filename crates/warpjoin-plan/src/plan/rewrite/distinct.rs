//! DISTINCT aggregates of one argument: a group-by of a group-by.
//!
//! A group-by of the keys and the argument has each distinct argument once, with partial results of the other
//! aggregates; a group-by of that by the keys aggregates the arguments and merges the partial results.

use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Result};

use crate::plan::build::{aggregate, column_of, or_zero, result_of};
use crate::plan::{AggregateCall, Fold, Plan};

/// The different arguments of DISTINCT.
pub(super) fn distinct_arguments<'a>(calls: impl Iterator<Item = &'a AggregateCall>) -> Vec<&'a Expr> {
    let mut arguments: Vec<&Expr> = vec![];
    for argument in calls.filter(|call| call.is_distinct).filter_map(|call| call.argument.as_ref()) {
        if !arguments.iter().any(|known| known.is_same(argument)) {
            arguments.push(argument);
        }
    }
    arguments
}

/// Two group-bys. They output the keys, then columns from which the returned expressions compute each call's result.
/// All DISTINCT calls have the argument `argument`.
pub(super) fn of_one_argument(
    input: &Plan,
    keys: &[Expr],
    argument: &Expr,
    calls: &[&AggregateCall],
) -> Result<(Plan, Vec<Expr>)> {
    let mut inner_keys = keys.to_vec();
    inner_keys.push(argument.clone());
    let (mut inner, mut outer, mut outputs) = (vec![], vec![], vec![]);
    for call in calls {
        if call.is_distinct {
            let argument = Some(column_of(keys.len(), argument));
            outer.push(AggregateCall { argument, is_distinct: false, ..(*call).clone() });
            outputs.push(result_of(keys.len() + outer.len() - 1, call));
            continue;
        }
        let accumulated = call.accumulate(&mut |state| {
            let part = AggregateCall::new(state.fold.function(), state.argument, state.data_type);
            inner.push(part.clone());
            let partial = result_of(inner_keys.len() + inner.len() - 1, &part);
            outer.push(AggregateCall::new(state.fold.merging().function(), Some(partial), part.data_type.clone()));
            let total = Expr::column(keys.len() + outer.len() - 1, part.data_type, true);
            if state.fold == Fold::Count { or_zero(total) } else { total }
        });
        outputs.push(accumulated.ok_or_else(|| Error::internal(format!("{} beside DISTINCT", call.function)))?);
    }
    let inner = aggregate(input.clone(), inner_keys, inner);
    let outer_keys = keys.iter().enumerate().map(|(index, key)| column_of(index, key)).collect();
    Ok((aggregate(inner, outer_keys, outer), outputs))
}
