//! DISTINCT aggregates: a group-by of group-bys.
//!
//! A group-by of the keys and the argument has each distinct argument once, with what the other aggregates make of its
//! rows; a group-by of that by the keys aggregates the arguments and brings the rest together. Each further argument has
//! group-bys of its own over the same input, joined by the keys.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use super::group::sum_type;
use crate::expr::{Expr, ExprKind, Scalar};
use crate::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind};

/// The plan without DISTINCT that puts out the same columns; `None`: there is none in `calls`.
pub(super) fn distinct_plan(input: &Plan, keys: &[Expr], calls: &[AggregateCall]) -> Option<Plan> {
    let arguments = distinct_arguments(calls);
    let first = arguments.first()?;
    // Columns of the joined group-bys so far, and the one of each call among them.
    let mut outputs: Vec<Option<Expr>> = vec![None; calls.len()];
    let mut joined: Option<Plan> = None;
    for argument in &arguments {
        let is_first = std::ptr::eq(argument, first);
        let own: Vec<usize> = (0..calls.len())
            .filter(|&index| if calls[index].is_distinct { is(&calls[index], argument) } else { is_first })
            .collect();
        let own_calls: Vec<&AggregateCall> = own.iter().map(|&index| &calls[index]).collect();
        let (plan, exprs) = of_one_argument(input, keys, argument, &own_calls);
        let before = joined.as_ref().map_or(0, |joined| joined.schema.fields().len());
        for (index, expr) in own.into_iter().zip(exprs) {
            outputs[index] = Some(expr.remap(&|column| before + column));
        }
        joined = Some(match joined {
            None => plan,
            Some(others) => join(others, plan, keys.len()),
        });
    }
    let mut exprs: Vec<Expr> = keys.iter().enumerate().map(|(index, key)| column_of(index, key)).collect();
    exprs.extend(outputs.into_iter().flatten());
    joined.map(|joined| project(joined, exprs))
}

/// The different arguments of DISTINCT.
pub(super) fn distinct_arguments(calls: &[AggregateCall]) -> Vec<&Expr> {
    let mut arguments: Vec<&Expr> = vec![];
    for argument in calls.iter().filter(|call| call.is_distinct).filter_map(|call| call.argument.as_ref()) {
        if !arguments.iter().any(|known| is_same(known, argument)) {
            arguments.push(argument);
        }
    }
    arguments
}

fn is_same(a: &Expr, b: &Expr) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

fn is(call: &AggregateCall, argument: &Expr) -> bool {
    call.argument.as_ref().is_some_and(|own| is_same(own, argument))
}

/// Two group-bys: keys, then columns of which the expressions make each call's result.
fn of_one_argument(input: &Plan, keys: &[Expr], argument: &Expr, calls: &[&AggregateCall]) -> (Plan, Vec<Expr>) {
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

/// A sum of counts over no rows is null, a count is 0.
pub(super) fn or_zero(count: Expr) -> Expr {
    let data_type = count.data_type.clone();
    let is_null =
        Expr { kind: ExprKind::IsNull(Box::new(count.clone())), data_type: DataType::Boolean, nullable: false };
    let zero = Expr::literal(Scalar::Int(0), data_type.clone());
    let kind = ExprKind::Case { branches: vec![(is_null, zero)], otherwise: Some(Box::new(count)) };
    Expr { kind, data_type, nullable: false }
}

/// Rows of both group-bys with equal keys: each has every group once. Without keys, the one row of each.
fn join(build: Plan, probe: Plan, keys: usize) -> Plan {
    let fields: Vec<_> = build.schema.fields().iter().chain(probe.schema.fields()).cloned().collect();
    let key = |plan: &Plan, index: usize| {
        let field = plan.schema.field(index);
        Expr::column(index, field.data_type().clone(), field.is_nullable())
    };
    let mut on: Vec<(Expr, Expr)> = (0..keys).map(|index| (key(&build, index), key(&probe, index))).collect();
    if on.is_empty() {
        let zero = Expr::literal(Scalar::Int(0), DataType::Int32);
        on.push((zero.clone(), zero));
    }
    let join = JoinPlan {
        build,
        probe,
        on,
        kind: JoinKind::Inner,
        null_equals_null: true,
        residual: None,
        output: (0..fields.len()).collect(),
    };
    Plan { kind: PlanKind::Join(Box::new(join)), schema: Arc::new(Schema::new(fields)) }
}

fn column_of(index: usize, expr: &Expr) -> Expr {
    Expr::column(index, expr.data_type.clone(), expr.nullable)
}

fn result_of(index: usize, call: &AggregateCall) -> Expr {
    Expr::column(index, call.data_type.clone(), call.function != AggregateFunction::Count)
}

fn aggregate(input: Plan, group_by: Vec<Expr>, aggregates: Vec<AggregateCall>) -> Plan {
    let mut columns = group_by.clone();
    columns.extend(aggregates.iter().enumerate().map(|(index, call)| result_of(index, call)));
    let schema = schema_of(&columns);
    Plan { kind: PlanKind::Aggregate { input: Box::new(input), group_by, aggregates }, schema }
}

fn project(input: Plan, exprs: Vec<Expr>) -> Plan {
    let schema = schema_of(&exprs);
    Plan { kind: PlanKind::Project { input: Box::new(input), exprs }, schema }
}

fn schema_of(columns: &[Expr]) -> Arc<Schema> {
    let field =
        |(index, column): (usize, &Expr)| Field::new(format!("c{index}"), column.data_type.clone(), column.nullable);
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}
