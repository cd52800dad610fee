//! First and last values, and second moments of doubles: what takes several passes over the rows.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::AggregateFunction::{self, Avg, Count, First, Last, Max, Sum};
use warpjoin::plan::{AggregateCall, Moment, Plan, SortKey};

use super::super::data::batch;
use super::super::random::{aggregate_call, input};
use super::super::random_expr::compare;
use super::super::value::V;
use super::{Edge, column, equal, group, ints, join, join_node, keyed};

fn order(expr: Expr, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { expr, descending, nulls_first }
}

fn call(function: AggregateFunction, argument: Expr, order_by: Vec<SortKey>) -> AggregateCall {
    let data_type = argument.data_type.clone();
    AggregateCall { order_by, ..AggregateCall::new(function, Some(argument), data_type) }
}

fn is_some(expr: Expr) -> Expr {
    let boolean = |kind| Expr { kind, data_type: DataType::Boolean, nullable: false };
    boolean(ExprKind::Not(Box::new(boolean(ExprKind::IsNull(Box::new(expr))))))
}

const TYPES: [DataType; 9] = [
    DataType::Int32,
    DataType::Int64,
    DataType::Utf8,
    DataType::Float64,
    DataType::Decimal128(38, 0),
    DataType::Boolean,
    DataType::Decimal128(20, 2),
    DataType::UInt64,
    DataType::Float32,
];

/// A key, values of several types with nulls, numbers that fill a word, and ties everywhere.
fn table(rows: usize) -> RecordBatch {
    let some = |row: usize, every: usize, v: V| if row.is_multiple_of(every) { V::Null } else { v };
    let floats = [0.25, -3.5, f64::INFINITY, 7.0, -1e300, f64::NAN, 0.0];
    let row = |row: usize| {
        let mixed = row as i128 * 7919 % 1009;
        [
            some(row, 13, V::Int(row as i128 % 4)),
            V::Int(mixed % 17),
            some(row, 5, V::Text(format!("t{}", mixed % 29))),
            some(row, 7, V::Float(floats[(mixed % 7) as usize])),
            some(row, 3, V::Int((mixed - 500) * (1_000_000_007 << 60))),
            some(row, 4, V::Bool(mixed % 3 == 0)),
            some(row, 6, V::Int(mixed * 1_000_003 - 400_000_000)),
            V::Int((i128::from(u64::MAX) - mixed) * (mixed % 2)),
            some(row, 9, V::Float((mixed % 23) as f64 / 4.0)),
        ]
    };
    let rows: Vec<_> = (0..rows).map(row).collect();
    let columns: Vec<Vec<V>> = (0..TYPES.len()).map(|c| rows.iter().map(|row| row[c].clone()).collect()).collect();
    batch(&columns, &TYPES, true)
}

fn firsts() -> Vec<Edge> {
    let mut edges = vec![];
    for rows in [0, 33, 300] {
        for keys in [0, 1] {
            let inputs = vec![table(rows)];
            let source = input(&inputs, 0);
            let at = |index: usize| column(&source, index);
            let group_by: Vec<Expr> = (0..keys).map(&at).collect();
            let mut add = |what: &str, calls: Vec<AggregateCall>| {
                let name = format!("first and last, {what}, {rows} rows, {keys} keys");
                edges.push(equal(name, inputs.clone(), group(source.clone(), group_by.clone(), calls)));
            };
            let of_all = |function, order_by: Vec<SortKey>| -> Vec<AggregateCall> {
                (1..TYPES.len()).map(|index| call(function, at(index), order_by.clone())).collect()
            };
            add("in no order", [of_all(First, vec![]), of_all(Last, vec![])].concat());
            for (what, descending, nulls_first) in [
                ("up", false, false),
                ("down", true, true),
                ("up, nulls first", false, true),
                ("down, nulls last", true, false),
            ] {
                if rows != 300 && (descending || nulls_first) {
                    continue;
                }
                let key = |index| order(at(index), descending, nulls_first);
                let of_strings = [1, 4].map(|index| call(Last, at(index), vec![key(2)]));
                add(&format!("a number, a string {what}"), [of_all(First, vec![key(1)]), of_strings.into()].concat());
                let words = [4, 1].map(|index| call(First, at(index), vec![key(8), key(5), key(7), key(6)]));
                let several = [key(3), key(2), key(1)];
                let of_several: Vec<_> = (0..3).map(|n| call(Last, at(4), several[n..].to_vec())).collect();
                add(&format!("several words {what}"), [words.into(), of_several].concat());
            }
            let filtered = |function, index: usize, order_by: Vec<SortKey>, filter: Expr| AggregateCall {
                filter: Some(filter),
                ..call(function, at(index), order_by)
            };
            let nothing = compare(CompareOp::Less, at(1), Expr::literal(Scalar::Int(-5), DataType::Int64));
            let most = compare(CompareOp::Greater, at(1), Expr::literal(Scalar::Int(3), DataType::Int64));
            let up = || vec![order(at(1), false, false)];
            add(
                "filtered",
                vec![
                    filtered(First, 2, up(), is_some(at(2))),
                    filtered(First, 6, up(), most),
                    filtered(Last, 6, up(), nothing),
                    call(First, at(2), up()),
                ],
            );
            let plain = |function, index| aggregate_call(function, at(index)).expect("one");
            add(
                "beside others",
                vec![
                    plain(Sum, 1),
                    call(First, at(2), up()),
                    plain(Count, 2).distinct(),
                    plain(Avg, 6),
                    call(Last, at(2), up()),
                    plain(Max, 2).distinct(),
                ],
            );
        }
    }
    edges
}

/// Over a join, whose rows are written down to be numbered; and an order that no words hold.
fn of_other_rows() -> Vec<Edge> {
    let side = |rows: usize, distinct: i128| {
        keyed(&[ints((0..rows as i128).map(|row| Some(row * 31 % distinct)))], &DataType::Int32)
    };
    let inputs = vec![side(60, 20), side(200, 25)];
    let joined = join_node(join(&inputs[0], &inputs[1], 1));
    let orders = vec![order(column(&joined, 3), true, false), order(column(&joined, 1), false, false)];
    let calls = vec![call(First, column(&joined, 1), orders.clone()), call(Last, column(&joined, 3), orders)];
    let over_join = group(joined.clone(), vec![column(&joined, 2)], calls);
    let groups = group(joined.clone(), vec![column(&joined, 1), column(&joined, 0)], vec![]);
    let orders = vec![order(column(&groups, 0), true, false)];
    let of_groups = group(groups.clone(), vec![column(&groups, 1)], vec![call(First, column(&groups, 0), orders)]);
    let wide = vec![table(33)];
    let source = input(&wide, 0);
    let calls = vec![call(First, column(&source, 1), vec![order(column(&source, 4), true, false)])];
    let wide_order = equal("first in an order beyond 64 bits", wide, group(source, vec![], calls));
    vec![equal("first over a join", inputs.clone(), over_join), equal("first of groups", inputs, of_groups), wide_order]
}

/// Statistics of columns `x` and, of pairs, `y`.
fn statistics(source: &Plan, x: usize, y: usize) -> Vec<AggregateCall> {
    let moment = |moment: &Moment| {
        let second = (moment.arguments() == 2).then(|| column(source, y));
        let call = AggregateCall::new(AggregateFunction::Moment(*moment), Some(column(source, x)), DataType::Float64);
        AggregateCall { second, ..call }
    };
    Moment::ALL.iter().map(moment).collect()
}

/// Doubles around 0 and far from it, groups far from each other, one value only, and nulls.
fn doubles() -> Vec<Edge> {
    let types = [DataType::Int32, DataType::Float64, DataType::Float64, DataType::Float64, DataType::Decimal128(9, 2)];
    let mut edges = vec![];
    for rows in [0, 1, 2, 33, 2000] {
        let some = |row: usize, every: usize, v: V| if row.is_multiple_of(every) { V::Null } else { v };
        let near = |row: usize| (row * 7919 % 1009) as f64 / 16.0;
        let columns = [
            ints((0..rows).map(|row| Some(row as i128 % 5))),
            (0..rows).map(|row| some(row, 5, V::Float(near(row) - 20.0))).collect(),
            (0..rows).map(|row| some(row, 7, V::Float(near(row * 31) + (row % 5) as f64 * 1e9))).collect(),
            (0..rows).map(|row| V::Float([0.1, 3e300, -7.7, 1e-300, 0.3][row % 5])).collect(),
            (0..rows).map(|row| some(row, 3, V::Int(row as i128 * row as i128 % 977 - 400))).collect(),
        ];
        let inputs = vec![batch(&columns, &types, true)];
        let source = input(&inputs, 0);
        for keys in [0, 1] {
            let group_by: Vec<Expr> = (0..keys).map(|key| column(&source, key)).collect();
            let mut add = |what: &str, calls: Vec<AggregateCall>| {
                let name = format!("moments of doubles, {what}, {rows} rows, {keys} keys");
                edges.push(equal(name, inputs.clone(), group(source.clone(), group_by.clone(), calls)));
            };
            add("near", statistics(&source, 1, 4));
            add("far", statistics(&source, 2, 1));
            if [1, 2].contains(&rows) {
                continue;
            }
            add("pairs with decimals", statistics(&source, 4, 1));
            if keys == 1 {
                add("one value a group", statistics(&source, 3, 1));
            }
            let plain = |function, index| aggregate_call(function, column(&source, index)).expect("one");
            let beside = vec![plain(Count, 4).distinct(), statistics(&source, 1, 2)[1].clone(), plain(Sum, 1)];
            add("beside others", [beside, statistics(&source, 4, 4)].concat());
        }
    }
    edges
}

/// Medians and percentiles, of even and odd numbers of rows, of one value, of nulls only.
fn quantiles() -> Vec<Edge> {
    use AggregateFunction::{Median, Percentile};
    let types = [DataType::Int32, DataType::Float64, DataType::Decimal128(9, 2), DataType::Float32, DataType::Int64];
    let mut edges = vec![];
    for rows in [0, 2, 33, 300] {
        let some = |row: usize, every: usize, v: V| if row.is_multiple_of(every) { V::Null } else { v };
        let columns = [
            ints((0..rows).map(|row| (row % 9 != 4).then_some(row as i128 * row as i128 % 7))),
            (0..rows).map(|row| some(row, 5, V::Float((row * 7919 % 1009) as f64 / 16.0 - 20.0))).collect(),
            (0..rows).map(|row| some(row % 2, 2, V::Int(row as i128 * 31 % 97 - 40))).collect(),
            (0..rows).map(|row| V::Float([0.25, -3.5, f64::INFINITY, 7.0][row % 4])).collect(),
            ints((0..rows).map(|row| Some(row as i128 % 3))),
        ];
        let inputs = vec![batch(&columns, &types, true)];
        let source = input(&inputs, 0);
        for keys in [0, 1] {
            let group_by: Vec<Expr> = (0..keys).map(|key| column(&source, key)).collect();
            let of = |function, index| {
                let argument = column(&source, index);
                let data_type = argument.data_type.clone();
                AggregateCall::new(function, Some(argument), data_type)
            };
            let share = |share: f64, index| of(Percentile { share_bits: share.to_bits() }, index);
            let medians = vec![of(Median, 1), of(Median, 2), of(Median, 3), of(Median, 2).distinct()];
            let shares = vec![share(0.0, 1), share(0.3, 1), share(1.0, 1), of(Median, 1)];
            let plain = |function, index| aggregate_call(function, column(&source, index)).expect("one");
            let beside =
                vec![plain(Count, 4).distinct(), of(Median, 1), plain(Sum, 4), call(First, column(&source, 4), vec![])];
            let beside = if rows == 300 { beside[..3].to_vec() } else { beside };
            for (what, calls) in [("medians", medians), ("shares", shares), ("a median beside others", beside)] {
                let name = format!("quantiles, {what}, {rows} rows, {keys} keys");
                edges.push(equal(name, inputs.clone(), group(source.clone(), group_by.clone(), calls)));
            }
        }
    }
    edges
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = firsts();
    edges.extend(of_other_rows());
    edges.extend(doubles());
    edges.extend(quantiles());
    edges
}
