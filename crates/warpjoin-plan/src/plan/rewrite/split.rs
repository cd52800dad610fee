//! Splits a group-by into several parts: for different DISTINCT arguments, moments of doubles, first and last values.
//!
//! Each part outputs the keys first, and has one row for each group; the parts are joined by the keys.

use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Result};

use super::distinct::{distinct_arguments, of_one_argument};
use super::first::ordered_parts;
use super::moments::moments_of_doubles;
use super::quantiles::quantiles;
use crate::plan::build::{aggregate, column, columns, join, project, result_of};
use crate::plan::{AggregateCall, AggregateFunction, InputTables, JoinKind, Plan, Way};

/// A part of a group-by.
#[derive(Debug)]
pub(super) struct Part {
    /// Keys, then other columns.
    pub plan: Plan,
    /// Positions of the calls that it computes, with their results as expressions over the plan's columns.
    pub results: Vec<(usize, Expr)>,
    /// Whether it has a row for every group.
    pub is_complete: bool,
}

/// Positions of calls by the way in which they are computed.
#[derive(Default)]
struct Ways {
    plain: Vec<usize>,
    distinct: Vec<usize>,
    /// Their sums can't be merged as DISTINCT requires: a separate part if there is a DISTINCT.
    moments: Vec<usize>,
    doubles: Vec<usize>,
    ordered: Vec<usize>,
    quantiles: Vec<usize>,
}

impl Ways {
    /// Whether a part is known to have a row for every group. If none has, the groups are read from the input once more.
    fn have_all_groups(&self, keys: &[Expr], calls: &[AggregateCall]) -> bool {
        let is_kept = |index: &usize| calls[*index].filter.is_none();
        let is_there = |index: &usize| calls[*index].argument.as_ref().is_some_and(|argument| !argument.nullable);
        let ways = [&self.plain, &self.distinct, &self.moments, &self.doubles];
        ways.into_iter().any(|way| !way.is_empty())
            || !keys.is_empty() && (self.ordered.iter().any(is_kept) || self.quantiles.iter().any(is_there))
    }

    fn of(calls: &[AggregateCall]) -> Self {
        let mut ways = Self::default();
        for (index, call) in calls.iter().enumerate() {
            let way = match call.function {
                _ if call.is_ordered() => &mut ways.ordered,
                _ if call.is_quantile() => &mut ways.quantiles,
                _ if call.is_distinct => &mut ways.distinct,
                _ if call.is_moment_of_doubles() => &mut ways.doubles,
                function if function.spec().way == Way::Moment => &mut ways.moments,
                _ => &mut ways.plain,
            };
            way.push(index);
        }
        if ways.distinct.is_empty() {
            ways.plain.append(&mut ways.moments);
        }
        ways
    }
}

/// A group-by with a call that needs several parts.
pub(super) fn split(input: &Plan, keys: &[Expr], calls: &[AggregateCall], inputs: InputTables<'_>) -> Result<Plan> {
    let ways = Ways::of(calls);
    let arguments = distinct_arguments(calls.iter().filter(|call| !call.is_quantile()));
    let is_some = |way: &Vec<usize>| usize::from(!way.is_empty());
    let readers = arguments.len().max(is_some(&ways.plain))
        + is_some(&ways.moments)
        + is_some(&ways.doubles)
        + is_some(&ways.ordered)
        + ways.quantiles.len()
        + usize::from(!ways.have_all_groups(keys, calls));
    let input = if readers < 2 { input.clone() } else { input.clone().into_shared() };

    let mut parts = plain_parts(&input, keys, calls, (&ways, &arguments))?;
    if !ways.doubles.is_empty() {
        parts.push(moments_of_doubles(&input, keys, calls, &ways.doubles));
    }
    if !ways.ordered.is_empty() {
        parts.extend(ordered_parts(&input, keys, calls, &ways.ordered, inputs)?);
    }
    parts.extend(quantiles(&input, keys, calls, &ways.quantiles));
    if !parts.iter().any(|part| part.is_complete) {
        let rows = AggregateCall::new(AggregateFunction::Count, None, arrow::datatypes::DataType::Int64);
        let plan = aggregate(input, keys.to_vec(), vec![rows]);
        parts.push(Part { plan, results: vec![], is_complete: true });
    }
    joined(parts, keys.len(), calls.len())
}

/// A part for each argument of DISTINCT, the first one with the plain calls; and moments.
fn plain_parts(
    input: &Plan,
    keys: &[Expr],
    calls: &[AggregateCall],
    (ways, arguments): (&Ways, &[&Expr]),
) -> Result<Vec<Part>> {
    let of_one_pass = |way: &Vec<usize>| {
        let own = way.iter().map(|&index| calls[index].clone()).collect();
        let result = |(column, &index): (usize, &usize)| (index, result_of(keys.len() + column, &calls[index]));
        let results = way.iter().enumerate().map(result).collect();
        Part { plan: aggregate(input.clone(), keys.to_vec(), own), results, is_complete: true }
    };
    let mut parts = vec![];
    if arguments.is_empty() && !ways.plain.is_empty() {
        parts.push(of_one_pass(&ways.plain));
    }
    for (number, argument) in arguments.iter().enumerate() {
        let is_of = |index: &usize| calls[*index].argument.as_ref().is_some_and(|own| own.is_same(argument));
        let mut own: Vec<usize> = ways.distinct.iter().copied().filter(is_of).collect();
        if number == 0 {
            own.extend(&ways.plain);
        }
        let own_calls: Vec<&AggregateCall> = own.iter().map(|&index| &calls[index]).collect();
        let (plan, exprs) = of_one_argument(input, keys, argument, &own_calls)?;
        parts.push(Part { plan, results: own.into_iter().zip(exprs).collect(), is_complete: true });
    }
    if !ways.moments.is_empty() {
        parts.push(of_one_pass(&ways.moments));
    }
    Ok(parts)
}

/// Keys, then the result of each call.
fn joined(mut parts: Vec<Part>, keys: usize, calls: usize) -> Result<Plan> {
    parts.sort_by_key(|part| !part.is_complete);
    let mut results: Vec<Option<Expr>> = vec![None; calls];
    let mut all: Option<Plan> = None;
    for Part { plan, results: own, is_complete } in parts {
        let before = all.as_ref().map_or(0, |all| all.schema.fields().len());
        for (index, result) in own {
            let result = result.remap(&|column| before + column);
            results[index] = Some(Expr { nullable: result.nullable || !is_complete, ..result });
        }
        all = Some(match all {
            None => plan,
            Some(others) if is_complete => {
                let on = columns(&others, keys).into_iter().zip(columns(&plan, keys)).collect();
                join(others, plan, on, JoinKind::Inner)
            }
            Some(others) => {
                let on = columns(&plan, keys).into_iter().zip(columns(&others, keys)).collect();
                let own_width = plan.schema.fields().len();
                let outer = join(plan, others, on, JoinKind::ProbeOuter);
                let width = outer.schema.fields().len();
                let order = (own_width..width).chain(0..own_width).map(|index| column(&outer, index)).collect();
                project(outer, order)
            }
        });
    }
    let all = all.ok_or_else(|| Error::internal("a group-by without parts"))?;
    let mut exprs = columns(&all, keys);
    exprs.extend(results.into_iter().flatten());
    Ok(project(all, exprs))
}
