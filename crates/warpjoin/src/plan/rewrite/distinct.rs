//! DISTINCT aggregates of one argument: a group-by of a group-by.
//!
//! A group-by of the keys and the argument has each distinct argument once, with what the other aggregates make of its
//! rows; a group-by of that by the keys aggregates the arguments and brings the rest together.

use arrow::datatypes::DataType;

use crate::expr::{Expr, ExprKind};
use crate::plan::build::{aggregate, column_of, or_zero, result_of};
use crate::plan::{AggregateCall, AggregateFunction, Plan, sum_type};

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

/// Two group-bys: keys, then columns of which the expressions make each call's result. DISTINCT calls are those of
/// `argument`.
pub(super) fn of_one_argument(
    input: &Plan,
    keys: &[Expr],
    argument: &Expr,
    calls: &[&AggregateCall],
) -> (Plan, Vec<Expr>) {
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
        let parts: Vec<Expr> = (parts_of(call).into_iter())
            .map(|part| {
                inner.push(part.clone());
                let partial = result_of(inner_keys.len() + inner.len() - 1, &part);
                let function =
                    if part.function == AggregateFunction::Count { AggregateFunction::Sum } else { part.function };
                outer.push(AggregateCall::new(function, Some(partial), part.data_type.clone()));
                let total = Expr::column(keys.len() + outer.len() - 1, part.data_type.clone(), true);
                if part.function == AggregateFunction::Count { or_zero(total) } else { total }
            })
            .collect();
        outputs.push(match <[Expr; 2]>::try_from(parts) {
            Ok([sum, count]) => {
                let kind = ExprKind::Average(Box::new(sum), Box::new(count));
                Expr { kind, data_type: call.data_type.clone(), nullable: true }
            }
            Err(mut parts) => parts.remove(0),
        });
    }
    let inner = aggregate(input.clone(), inner_keys, inner);
    let outer_keys = keys.iter().enumerate().map(|(index, key)| column_of(index, key)).collect();
    (aggregate(inner, outer_keys, outer), outputs)
}

/// Aggregates whose results over parts of the rows can be brought together.
fn parts_of(call: &AggregateCall) -> Vec<AggregateCall> {
    match (call.function, &call.argument) {
        (AggregateFunction::Avg, Some(argument)) => vec![
            AggregateCall::new(AggregateFunction::Sum, call.argument.clone(), sum_type(&argument.data_type)),
            AggregateCall::new(AggregateFunction::Count, call.argument.clone(), DataType::Int64),
        ],
        _ => vec![call.clone()],
    }
}
