//! Second moments of doubles: each group's means first, then sums of the distances from them.
//!
//! A plain sum of squares would cancel catastrophically. Distances from a number near the mean are small, and the sums
//! are corrected for its error (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983).

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{ArithmeticOp, CompareOp, Expr, ExprKind};
use warpjoin_columns::identity::Identity;

use super::split::Part;
use crate::plan::build::{ExprList, aggregate, case, cast, column, columns, compare, join, project, where_not_null};
use crate::plan::{AggregateCall, AggregateFunction, JoinKind, Moment, Plan};

/// Aggregates of an argument in the first pass: count, sum, minimum, maximum.
const FIRST_PASS: usize = 4;

/// The part of the calls `own`: two passes over its rows.
pub(super) fn moments_of_doubles(input: &Plan, keys: &[Expr], calls: &[AggregateCall], own: &[usize]) -> Part {
    let mut list = ExprList { exprs: keys.to_vec() };
    let mut pairs = vec![];
    for &index in own {
        let double = |argument: &Option<Expr>| argument.as_ref().map(as_double);
        let (Some(x), y) = (double(&calls[index].argument), double(&calls[index].second)) else { continue };
        let pair = match y {
            None => (list.add(&x), None),
            Some(y) => (list.add(&where_not_null(&x, &y)), Some(list.add(&where_not_null(&y, &x)))),
        };
        pairs.push((index, pair));
    }
    let rows = project(input.clone(), list.exprs).into_shared();
    let distances = distances(&rows, keys.len());

    let mut sums = Sums { keys: keys.len(), calls: vec![] };
    let mut results = vec![];
    for (index, (x, y)) in pairs {
        let AggregateFunction::Moment(moment) = calls[index].function else { continue };
        // The distances stand where the arguments stood.
        let sums = sums.of(moment, &x, y.as_ref());
        let kind = ExprKind::Moment { moment, scale: 0, sums };
        results.push((index, Expr { kind, data_type: DataType::Float64, nullable: true }));
    }
    let plan = aggregate(distances.clone(), columns(&distances, keys.len()), sums.calls);
    Part { plan, results, is_complete: true }
}

fn as_double(expr: &Expr) -> Expr {
    if expr.data_type == DataType::Float64 {
        return expr.clone();
    }
    cast(expr.clone(), DataType::Float64)
}

fn double(kind: ExprKind) -> Expr {
    Expr { kind, data_type: DataType::Float64, nullable: true }
}

fn arithmetic(op: ArithmeticOp, left: &Expr, right: &Expr) -> Expr {
    double(ExprKind::Arithmetic(op, Box::new(left.clone()), Box::new(right.clone())))
}

/// Rows of keys, then each argument's distance from the mean of its group.
fn distances(rows: &Plan, keys: usize) -> Plan {
    use AggregateFunction::{Count, Max, Min, Sum};
    let width = rows.schema.fields().len();
    let mut calls = vec![];
    for index in keys..width {
        let call = |function| AggregateCall::new(function, Some(column(rows, index)), DataType::Float64);
        calls.push(AggregateCall { data_type: DataType::Int64, ..call(Count) });
        calls.extend([Sum, Min, Max].map(call));
    }
    let means = aggregate(rows.clone(), columns(rows, keys), calls);
    let on = columns(&means, keys).into_iter().zip(columns(rows, keys)).collect();
    let means_width = means.schema.fields().len();
    let joined = join(means, rows.clone(), on, JoinKind::Inner);
    let mut exprs: Vec<Expr> = (0..keys).map(|key| column(&joined, means_width + key)).collect();
    for index in keys..width {
        let of = |call: usize| column(&joined, keys + (index - keys) * FIRST_PASS + call);
        let (count, sum, least, most) = (of(0), of(1), of(2), of(3));
        let mean = double(ExprKind::Average(Box::new(sum), Box::new(count)));
        // Rounding or overflow may have led beyond; equal values have no distance.
        let branches =
            vec![(compare(CompareOp::Less, &mean, &least), least), (compare(CompareOp::Greater, &mean, &most), most)];
        let mean = case(branches, Some(mean), DataType::Float64, true);
        exprs.push(arithmetic(ArithmeticOp::Subtract, &column(&joined, means_width + index), &mean));
    }
    project(joined, exprs)
}

/// Aggregates of the second pass, each once.
struct Sums {
    keys: usize,
    calls: Vec<AggregateCall>,
}

impl Sums {
    fn add(&mut self, function: AggregateFunction, argument: Expr, data_type: DataType) -> Expr {
        let call = AggregateCall::new(function, Some(argument), data_type.clone());
        let identity = Identity::in_query(&call);
        let is_known = |known: &AggregateCall| Identity::in_query(known) == identity;
        let position = self.calls.iter().position(is_known).unwrap_or(self.calls.len());
        if position == self.calls.len() {
            self.calls.push(call);
        }
        Expr::column(self.keys + position, data_type, true)
    }

    /// The count and the sums of a statistic of distances, as [`ExprKind::Moment`] takes them.
    fn of(&mut self, moment: Moment, x: &Expr, y: Option<&Expr>) -> Vec<Expr> {
        let mut sum = |expr: Expr| self.add(AggregateFunction::Sum, expr, DataType::Float64);
        let product = |a: &Expr, b: &Expr| arithmetic(ArithmeticOp::Multiply, a, b);
        let mut sums = match y {
            None => vec![sum(x.clone()), sum(product(x, x))],
            Some(y) => vec![sum(x.clone()), sum(y.clone()), sum(product(x, y))],
        };
        if let (true, Some(y)) = (moment.takes_squares(), y) {
            sums.extend([sum(product(x, x)), sum(product(y, y))]);
        }
        sums.insert(0, self.add(AggregateFunction::Count, x.clone(), DataType::Int64));
        sums
    }
}
