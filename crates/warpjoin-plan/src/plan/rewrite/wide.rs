//! Minima and maxima of decimals that span more than 64 bits, which do not fit an accumulator: computed as first
//! values.

use crate::plan::build::{is_null, not};
use crate::plan::{AggregateCall, AggregateFunction, InputTables, Plan, SortKey};

/// Whether the bounds of the argument decide how a call is computed.
pub(super) fn may_be_wide(call: &AggregateCall) -> bool {
    matches!(call.function, AggregateFunction::Min | AggregateFunction::Max)
        && call.argument.as_ref().is_some_and(|argument| argument.data_type.is_decimal())
}

/// The calls over `input`, with each minimum and maximum that may span more than 64 bits as a first value.
pub(super) fn as_first_values(input: &Plan, calls: Vec<AggregateCall>, inputs: InputTables<'_>) -> Vec<AggregateCall> {
    if !calls.iter().any(may_be_wide) {
        return calls;
    }
    let bounds = input.bounds(inputs);
    let is_wide = |call: &AggregateCall| {
        let known = call.argument.as_ref().and_then(|argument| bounds.of(argument).range);
        may_be_wide(call) && known.is_none_or(|range| range.span_bits() > u64::BITS)
    };
    calls.into_iter().map(|call| if is_wide(&call) { as_first(call) } else { call }).collect()
}

/// The first value that is not null: ascending for a minimum, descending for a maximum.
fn as_first(call: AggregateCall) -> AggregateCall {
    let Some(argument) = call.argument else { return call };
    let descending = call.function == AggregateFunction::Max;
    let key = SortKey { expr: argument.clone(), descending, nulls_first: false };
    let filter = argument.nullable.then(|| not(is_null(&argument)));
    let first = AggregateCall::new(AggregateFunction::First, Some(argument), call.data_type);
    AggregateCall { order_by: vec![key], filter, ..first }
}
