//! Medians and percentiles: rows are sorted by keys and argument and numbered; each group's result is read at a
//! computed distance from its first row.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin_columns::function::Function;

use super::split::Part;
use crate::plan::build::{
    aggregate, arithmetic, case, cast, column, columns, compare, filter, is_null, join, not, numbered, project, sort,
};
use crate::plan::{AggregateCall, AggregateFunction, JoinKind, Plan, SortKey};

/// Steps of DataFusion's interpolation between two values.
const WEIGHTS: f64 = 1e6;

/// A part for each different argument of the calls `own`.
pub(super) fn quantiles(input: &Plan, keys: &[Expr], calls: &[AggregateCall], own: &[usize]) -> Vec<Part> {
    let mut left = own.to_vec();
    let mut parts = vec![];
    while let Some(&first) = left.first() {
        let Some(argument) = &calls[first].argument else { break };
        let is_alike = |index: &usize| {
            let is_distinct = calls[*index].is_distinct == calls[first].is_distinct;
            is_distinct && calls[*index].argument.as_ref().is_some_and(|other| other.is_same(argument))
        };
        let alike: Vec<usize> = left.extract_if(.., |index| is_alike(index)).collect();
        parts.push(of_argument(input, keys, argument, calls[first].is_distinct, (calls, &alike)));
    }
    parts
}

fn of_argument(
    input: &Plan,
    keys: &[Expr],
    argument: &Expr,
    is_distinct: bool,
    (calls, own): (&[AggregateCall], &[usize]),
) -> Part {
    let count = keys.len();
    let mut rows = project(input.clone(), keys.iter().map(with_one_zero).chain([argument.clone()]).collect());
    if argument.nullable {
        let value = column(&rows, count);
        rows = filter(rows, not(is_null(&value)));
    }
    if is_distinct {
        rows = aggregate(rows.clone(), columns(&rows, count + 1), vec![]);
    }
    let key = |expr| SortKey { expr, descending: false, nulls_first: false };
    let order = columns(&rows, count + 1).into_iter().map(key).collect();
    let rows = numbered(sort(rows, order)).into_shared();
    let number = column(&rows, count + 1);
    let first = AggregateCall::new(AggregateFunction::Min, Some(number.clone()), DataType::UInt64);
    let values = AggregateCall::new(AggregateFunction::Count, None, DataType::Int64);
    let groups = aggregate(rows.clone(), columns(&rows, count), vec![first, values]);
    // Without rows a global group-by has a row all the same.
    let groups = filter(groups.clone(), not(is_null(&column(&groups, count)))).into_shared();

    let mut plan: Option<Plan> = None;
    let mut results = vec![];
    for &index in own {
        let places = Places::of(calls[index].function, &column(&groups, count), &column(&groups, count + 1));
        let mut exprs = columns(&groups, count);
        exprs.extend([places.lower, places.upper, places.weight]);
        let placed = project(groups.clone(), exprs);
        // Keys, places and weight, then keys, value and number of the row there.
        let on_lower = vec![(column(&placed, count), number.clone())];
        let with_lower = join(placed, rows.clone(), on_lower, JoinKind::Inner);
        let on_upper = vec![(column(&with_lower, count + 1), number.clone())];
        let both = join(with_lower.clone(), rows.clone(), on_upper, JoinKind::Inner);
        let [is_one, lower, upper, weight] = [
            compare(CompareOp::Equal, &column(&both, count), &column(&both, count + 1)),
            column(&both, 2 * count + 3),
            column(&both, with_lower.schema.fields().len() + count),
            column(&both, count + 2),
        ];
        let value = between(calls[index].function, &lower, &upper, &weight);
        let value = case(vec![(is_one, lower)], Some(value), calls[index].data_type.clone(), true);
        let mut exprs = columns(&both, count);
        exprs.push(value);
        let found = project(both, exprs);
        let before = plan.as_ref().map_or(0, |plan| plan.schema.fields().len());
        results.push((index, Expr::column(before + count, calls[index].data_type.clone(), true)));
        plan = Some(match plan {
            None => found,
            Some(others) => {
                let on = columns(&others, count).into_iter().zip(columns(&found, count)).collect();
                join(others, found, on, JoinKind::Inner)
            }
        });
    }
    let is_complete = count > 0 && !argument.nullable;
    Part { plan: plan.unwrap_or(groups), results, is_complete }
}

/// Numbers of the rows whose values a result lies between, and how far it is from the first one.
struct Places {
    lower: Expr,
    upper: Expr,
    weight: Expr,
}

impl Places {
    fn of(function: AggregateFunction, first: &Expr, rows: &Expr) -> Self {
        let place = |distance: Expr| arithmetic(ArithmeticOp::Add, first.clone(), cast(distance, DataType::UInt64));
        let before_last = arithmetic(ArithmeticOp::Subtract, rows.clone(), int(1));
        let AggregateFunction::Percentile { share_bits } = function else {
            let half = |rows: Expr| place(arithmetic(ArithmeticOp::Divide, rows, int(2)));
            return Self { lower: half(before_last), upper: half(rows.clone()), weight: double(0.5) };
        };
        let share = double(f64::from_bits(share_bits));
        let distance = arithmetic(ArithmeticOp::Multiply, share, cast(before_last, DataType::Float64));
        let rounded = |function, expr: &Expr| {
            let nullable = expr.nullable;
            Expr { kind: ExprKind::Function(function, vec![expr.clone()]), data_type: DataType::Float64, nullable }
        };
        let lower = rounded(Function::Floor, &distance);
        let rest = arithmetic(ArithmeticOp::Subtract, distance.clone(), lower.clone());
        let weights = rounded(Function::Floor, &arithmetic(ArithmeticOp::Multiply, rest, double(WEIGHTS)));
        Self {
            upper: place(rounded(Function::Ceil, &distance)),
            lower: place(lower),
            weight: arithmetic(ArithmeticOp::Divide, weights, double(WEIGHTS)),
        }
    }
}

/// What lies between two different rows' values.
fn between(function: AggregateFunction, lower: &Expr, upper: &Expr, weight: &Expr) -> Expr {
    let data_type = &lower.data_type;
    match function {
        AggregateFunction::Percentile { .. } => {
            let distance = arithmetic(ArithmeticOp::Subtract, upper.clone(), lower.clone());
            let part = arithmetic(ArithmeticOp::Multiply, distance, weight.clone());
            arithmetic(ArithmeticOp::Add, lower.clone(), part)
        }
        _ if data_type.is_floating() => {
            let sum = arithmetic(ArithmeticOp::Add, lower.clone(), upper.clone());
            let two = Expr::literal(Scalar::Float(2.0), data_type.clone());
            arithmetic(ArithmeticOp::Divide, sum, two)
        }
        _ => {
            let (DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale)) =
                data_type
            else {
                return lower.clone();
            };
            let sum = arithmetic(ArithmeticOp::Add, lower.clone(), upper.clone());
            let sum = Expr { data_type: DataType::Decimal128(38, *scale), ..sum };
            let kind = ExprKind::Average(Box::new(sum), Box::new(int(2)));
            Expr { kind, data_type: data_type.clone(), nullable: true }
        }
    }
}

/// A group key with one zero: -0.0 and 0.0 are one group but differ in an order, and adding 0 never gives -0.0.
fn with_one_zero(key: &Expr) -> Expr {
    match key.data_type.is_floating() {
        true => arithmetic(ArithmeticOp::Add, key.clone(), Expr::literal(Scalar::Float(0.0), key.data_type.clone())),
        false => key.clone(),
    }
}

fn int(value: i128) -> Expr {
    Expr::literal(Scalar::Int(value), DataType::Int64)
}

fn double(value: f64) -> Expr {
    Expr::literal(Scalar::Float(value), DataType::Float64)
}
