//! Minima and maxima of integers and decimals that span more than 64 bits, which no accumulator holds: the first
//! value in their order.

use crate::Result;
use crate::codegen::{Sink, SinkShape};
use crate::exec::query::Query;
use crate::exec::relation::Relation;
use crate::plan::build::{is_null, not};
use crate::plan::{AggregateCall, AggregateFunction, SortKey};

impl Query<'_> {
    /// The calls with each minimum and maximum that spans more than 64 bits as a first value; `None` where none does.
    pub(super) fn wide_extremes_as_first(
        &mut self,
        relation: &Relation,
        calls: &[AggregateCall],
    ) -> Result<Option<Vec<AggregateCall>>> {
        let mut found = vec![];
        for call in calls {
            found.push(if self.is_wide_extreme(relation, call)? { as_first(call) } else { None });
        }
        if found.iter().all(Option::is_none) {
            return Ok(None);
        }
        Ok(Some(found.into_iter().zip(calls).map(|(wide, call)| wide.unwrap_or_else(|| call.clone())).collect()))
    }

    /// Whether the words that order the argument are several.
    fn is_wide_extreme(&mut self, relation: &Relation, call: &AggregateCall) -> Result<bool> {
        let Some(argument) = &call.argument else { return Ok(false) };
        if !matches!(call.function, AggregateFunction::Min | AggregateFunction::Max) || !argument.data_type.is_decimal()
        {
            return Ok(false);
        }
        let key = SortKey { expr: argument.clone(), descending: false, nulls_first: false };
        let sink = Sink::Sort { keys: vec![key], columns: vec![], window: None };
        match &self.bind(relation, &sink)?.sink {
            SinkShape::Sort(shape) => Ok(shape.word_bits.len() > 1),
            _ => Ok(false),
        }
    }
}

/// The first value that is not null, in the order that begins with what is asked for.
fn as_first(call: &AggregateCall) -> Option<AggregateCall> {
    let argument = call.argument.clone()?;
    let key =
        SortKey { expr: argument.clone(), descending: call.function == AggregateFunction::Max, nulls_first: false };
    let filter = argument.nullable.then(|| not(is_null(&argument)));
    let first = AggregateCall::new(AggregateFunction::First, Some(argument), call.data_type.clone());
    Some(AggregateCall { order_by: vec![key], filter, ..first })
}
