//! Every scalar function over every type that its spec takes: over all values if it can't fail, otherwise over the values for
//! which the oracle has a result.

use arrow::datatypes::{DataType, TimeUnit};
use warpjoin::expr::Expr;
use warpjoin::function::Function;

use super::super::functions::call;
use super::super::random_expr::{arguments_of, call_of};
use super::super::value::{V, int_bounds};
use super::Edge;
use super::functions::{ODD, floats, ints, moments};
use super::numbers::{INTEGERS, pairs, project};

fn types() -> Vec<DataType> {
    let mut types = INTEGERS.to_vec();
    types.extend([
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal32(7, 2),
        DataType::Decimal64(16, 3),
        DataType::Decimal128(20, 3),
        DataType::Boolean,
        DataType::Utf8View,
        DataType::Date32,
        DataType::Date64,
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+05:30".into())),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
    ]);
    types
}

fn values(data_type: &DataType) -> Vec<V> {
    match data_type {
        DataType::Boolean => vec![V::Bool(false), V::Bool(true)],
        DataType::Utf8View => ["", "a", "b", "aa"].map(|text| V::Text(text.to_string())).to_vec(),
        DataType::Float32 => floats(&ODD.map(|x| f64::from(x as f32))),
        DataType::Float64 => floats(&ODD),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            moments(data_type).into_iter().step_by(11).collect()
        }
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => {
            ints(&[0, 1, -1, 49, 50, -50, 150, -150, 1499, 1500, -1501, 99_999, -99_999])
        }
        _ => {
            let (min, max) = int_bounds(data_type).unwrap_or_default();
            ints(&[min, min + 1, -77, -1, 0, 1, 2, 5, 15, 44, 45, max / 3, max - 1, max].map(|i| i.clamp(min, max)))
        }
    }
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = vec![];
    for data_type in types() {
        let all = pairs(&values(&data_type));
        for may_fail in [false, true] {
            let of_columns = |a: &Expr, b: &Expr| {
                let functions =
                    Function::samples().filter(|function| (function.spec().may_fail)(&data_type) == may_fail);
                let calls = functions.filter_map(|function| {
                    Some((function, call_of(function, arguments_of(function, &[a.clone(), b.clone()]))?))
                });
                calls.collect::<Vec<_>>()
            };
            let column = |index| Expr::column(index, data_type.clone(), true);
            let calls = of_columns(&column(0), &column(1));
            if calls.is_empty() {
                continue;
            }
            let name = if may_fail { "functions that may fail" } else { "functions" };
            let is_kept = |values: &[V]| calls.iter().all(|(function, expr)| has_result(*function, expr, values));
            let columns = if may_fail { kept(&all, is_kept) } else { all.clone() };
            edges.push(project(format!("{name} of {data_type}, by their specs"), &data_type, columns, |a, b| {
                of_columns(&a, &b).into_iter().map(|(_, expr)| expr).collect()
            }));
        }
    }
    edges
}

fn has_result(function: Function, expr: &Expr, values: &[V]) -> bool {
    let types: Vec<DataType> = expr.children().iter().map(|argument| argument.data_type.clone()).collect();
    call(function, &arguments_of(function, values), &types, &expr.data_type).is_ok()
}

/// The pairs for which something holds.
fn kept([left, right]: &[Vec<V>; 2], is_kept: impl Fn(&[V]) -> bool) -> [Vec<V>; 2] {
    let pairs = left.iter().zip(right).map(|(a, b)| (a.clone(), b.clone()));
    pairs.filter(|(a, b)| is_kept(&[a.clone(), b.clone()])).unzip().into()
}
