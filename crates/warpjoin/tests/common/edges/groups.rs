//! Group-bys: rows at the edges, every way to find a group's row, the shapes of the data.

use arrow::datatypes::DataType;
use warpjoin::expr::Expr;
use warpjoin::plan::AggregateFunction::{self, Avg, BitAnd, BitOr, BitXor, Count, Max, Min, Sum};
use warpjoin::plan::{Moment, PlanKind};

use super::super::case::{Case, Outcome};
use super::super::data::batch;
use super::super::random::{aggregate_call, input, moment_call};
use super::super::random_expr::compare;
use super::super::settings::Settings;
use super::super::value::{Row, V};
use super::{Edge, column, equal, every_aggregate, group, group_of, ints, join, join_node, keyed, numbers};
use warpjoin::expr::{CompareOp, Scalar};

/// A kind of key, and how the group table is addressed for it.
/// Name, type of the key, and the key of a row.
type ModeCase = (&'static str, DataType, fn(usize) -> Option<i128>);

/// Keys that are multiples of it take two words.
const LARGE: i128 = 1_000_000_007 << 60;

fn modes() -> Vec<ModeCase> {
    vec![
        ("private", DataType::Int32, |row| Some(row as i128 % 3)),
        ("private with nulls", DataType::Int8, |row| (row % 4 != 1).then_some(row as i128 % 3 - 1)),
        ("dense", DataType::Int32, |row| Some(row as i128 * 7919 % 900)),
        ("dense with nulls", DataType::Int32, |row| (row % 4 != 1).then_some(row as i128 * 7919 % 900 - 450)),
        ("narrow", DataType::Int64, |row| Some(row as i128 * 7919 % 400 * 1_000_003)),
        ("narrow, all different", DataType::Int64, |row| Some(row as i128 * 1_000_003)),
        ("word", DataType::Int64, |row| {
            Some(match row % 400 {
                0 => i64::MIN.into(),
                // The packed key of all ones has a row of its own.
                1 => i64::MAX.into(),
                key => (key as i128 - 200) * (i128::from(i64::MAX) / 200),
            })
        }),
        ("word, all different", DataType::Int64, |row| Some((row as i128 - 3000) * (i128::from(i64::MAX) / 3001))),
        ("wide", DataType::Decimal128(38, 0), |row| Some((row as i128 * 7919 % 400 - 200) * LARGE)),
        ("wide, all different", DataType::Decimal128(38, 0), |row| Some((row as i128 - 3000) * LARGE)),
    ]
}

fn rows() -> Vec<Edge> {
    let mut edges = vec![];
    for (mode, data_type, key) in modes() {
        for rows in [0, 1, 31, 32, 33, 257, 6000] {
            let keys = ints((0..rows).map(key));
            edges.push(group_of(format!("{mode} keys, {rows} rows"), keyed(&[keys], &data_type), 1, 1));
        }
    }
    for rows in [0, 1, 31, 32, 33, 257, 6000] {
        edges.push(group_of(format!("no keys, {rows} rows"), keyed(&[numbers(rows)], &DataType::Int64), 0, 0));
    }
    edges
}

fn shapes() -> Vec<Edge> {
    let int = DataType::Int64;
    let table = |keys: Vec<V>, values: Vec<V>| batch(&[keys, values], &[int.clone(), int.clone()], true);
    let some =
        |rows: usize| (0..rows).map(|r| if r % 3 == 0 { V::Null } else { V::Int(r as i128) }).collect::<Vec<_>>();
    let skewed = |rows: usize| {
        (0..rows).map(|r| V::Int(if r % 10 == 0 { r as i128 * 99_999_999 } else { 5 })).collect::<Vec<_>>()
    };
    // A partition of one frequent key, whose rows a warp adds up first, and whole partitions of others.
    let frequent = |rows: usize| {
        (0..rows).map(|r| V::Int(if r % 2 == 0 { 5 } else { r as i128 * 99_999_999 })).collect::<Vec<_>>()
    };
    vec![
        group_of("a frequent key among others", table(frequent(6000), some(6000)), 1, 1),
        group_of("all keys null", table(vec![V::Null; 50], some(50)), 1, 1),
        group_of("all values null", table(numbers(50), vec![V::Null; 50]), 1, 1),
        group_of("all values null, no keys", table(numbers(50), vec![V::Null; 50]), 0, 1),
        group_of("all keys equal", table(vec![V::Int(7); 300], some(300)), 1, 1),
        group_of("skewed keys", table(skewed(300), some(300)), 1, 1),
        group_of("values null in some groups", table(ints((0..90).map(|r| Some(r % 3))), some(90)), 1, 1),
        group_of("slices", table(skewed(300), some(300)).slice(37, 130), 1, 1),
        group_of("the same column as key and value", table(skewed(300), some(300)), 1, 0),
        group_of("rows without a column", batch(&[some(70)], std::slice::from_ref(&int), true), 1, 0),
    ]
}

/// A group-by of the columns `keys` with these aggregates of column `value`.
fn of(name: &str, types: &[DataType], columns: &[Vec<V>], keys: usize, calls: &[AggregateFunction]) -> Edge {
    let inputs = vec![batch(columns, types, true)];
    let source = input(&inputs, 0);
    let group_by = (0..keys).map(|key| column(&source, key)).collect();
    let value = columns.len() - 1;
    let aggregates = calls.iter().filter_map(|&call| aggregate_call(call, column(&source, value))).collect();
    equal(name, inputs, group(source, group_by, aggregates))
}

fn values() -> Vec<Edge> {
    let max = i128::from(i64::MAX);
    let mut edges = vec![];
    for (mode, key_type, key) in modes().into_iter().step_by(2) {
        let keys = ints((0..200).map(key));
        let mut add = |name: &str, data_type: DataType, value: &dyn Fn(usize) -> V, calls: &[AggregateFunction]| {
            let types = [key_type.clone(), data_type];
            let columns = [keys.clone(), (0..200).map(value).collect()];
            edges.push(of(&format!("{mode} keys, {name}"), &types, &columns, 1, calls));
        };
        let decimals = 10i128.pow(38) - 1;
        add("sums that wrap", DataType::Int64, &|r| V::Int(max - r as i128 % 2), &[Sum, Min, Max, Count]);
        add("sums of u64 that wrap", DataType::UInt64, &|r| V::Int((max + 1) * (r as i128 % 2) + max), &[Sum, Count]);
        add("extremes", DataType::Int64, &|r| V::Int(if r % 2 == 0 { max } else { -max - 1 }), &[Sum, Min, Max]);
        add(
            "sums of 128 bits",
            DataType::Decimal128(20, 2),
            &|r| V::Int((r as i128 - 50) * max / 100),
            &[Sum, Avg, Count],
        );
        add("sums of decimals that wrap", DataType::Decimal128(38, 0), &|_| V::Int(decimals), &[Sum, Count]);
        add(
            "averages of decimals",
            DataType::Decimal128(9, 2),
            &|r| V::Int(r as i128 * 37 - 999),
            &[Avg, Sum, Min, Max],
        );
        add("small decimals", DataType::Decimal32(5, 2), &|r| V::Int(r as i128 - 50), &[Avg, Sum, Min, Max]);
        add("decimals of a word", DataType::Decimal64(9, 2), &|r| V::Int(r as i128 * 7 - 50), &[Avg, Sum, Min, Max]);
        let unsigned = |r: usize| V::Int(i128::from(u64::MAX) - (r as i128 * 0x1234_5678_9abc_def1) % (max * 2 + 2));
        add("u64 beyond 63 bits", DataType::UInt64, &unsigned, &[Min, Max, BitAnd, BitOr, BitXor, Count]);
        add("all of u64", DataType::UInt64, &|r| V::Int((max * 2 + 1) * (r as i128 % 2)), &[Min, Max, BitXor]);
        let far = |r: usize| V::Int(decimals - (r as i128 * 7919) % 1000 * (max / 1000));
        add("decimals that span a word", DataType::Decimal128(38, 0), &far, &[Min, Max, Count]);
        let beyond = |r: usize| match r % 11 {
            0 => V::Null,
            place => V::Int((place as i128 - 5) * (decimals / 6) + r as i128 % 3),
        };
        add("decimals beyond a word", DataType::Decimal128(38, 0), &beyond, &[Min, Max, Count, Sum]);
        let small = |r: usize| if r.is_multiple_of(7) { V::Null } else { V::Int(r as i128 * 37 % 256 - 128) };
        add("bits of bytes", DataType::Int8, &small, &[BitAnd, BitOr, BitXor, Min]);
        let large = |r: usize| V::Int(-max - 1 + (r as i128 * 0x1234_5678_9abc_def1) % (max + 1));
        add("bits of negative numbers", DataType::Int64, &large, &[BitAnd, BitOr, BitXor]);
        add(
            "booleans",
            DataType::Boolean,
            &|r| [V::Bool(true), V::Null, V::Bool(false)][r % 3].clone(),
            &[Min, Max, Count],
        );
        add("dates", DataType::Date32, &|r| V::Int(r as i128 * 977 % 400 + 9000), &[Min, Max, Count]);
        let floats = [0.25, f64::NAN, -0.0, 0.0, f64::INFINITY, -1e300, f64::MIN_POSITIVE];
        add("minima of floats", DataType::Float64, &|r| V::Float(floats[r % 7]), &[Min, Max, Count]);
        add("sums of floats", DataType::Float64, &|r| V::Float(r as f64 / 4.0 - 20.0), &[Sum, Avg, Min, Max]);
        add("singles", DataType::Float32, &|r| V::Float(r as f64 / 4.0 - 20.0), &[Sum, Min, Max]);
    }
    let numbers_of_bits = (0..300).map(|r| V::Int(r * 0x12_3457 - 999)).collect();
    edges.push(of("bits, no keys", &[DataType::Int32], &[numbers_of_bits], 0, &[BitAnd, BitOr, BitXor]));
    let wide = (0..300).map(|r| V::Int((r % 7 - 3) * 10i128.pow(37))).collect();
    edges.push(of("decimals beyond a word, no keys", &[DataType::Decimal128(38, 0)], &[wide], 0, &[Min, Max, Count]));
    let nulls = vec![V::Null; 3];
    edges.push(of("nulls of many bits, no keys", &[DataType::Decimal128(38, 0)], &[nulls], 0, &[Min, Max]));
    edges.push(of("sums that wrap, no keys", &[DataType::Int64], &[vec![V::Int(max); 300]], 0, &[Sum, Min, Max]));
    let text = |r: usize| if r.is_multiple_of(5) { V::Null } else { V::Text(format!("t{}", r % 8)) };
    edges.push(of(
        "strings",
        &[DataType::Int64, DataType::Utf8],
        &[numbers(9), (0..9).map(text).collect()],
        1,
        &[Count, Min, Max],
    ));
    edges
}

/// A sum behind a join, by `keys` key columns of the probe side, in which every thread sees `rows`
/// values of 43 bits: 2^20 of them fill 63 bits. Too large for the oracle; and what it should be.
pub(crate) fn sum_behind_duplicates(rows: usize, keys: usize) -> (Case, Vec<Row>) {
    let value = (1 << 43) - 1;
    let types = [DataType::Int32, DataType::Decimal128(15, 0)];
    let build = batch(&[vec![V::Int(1); rows], vec![V::Int(value); rows]], &types, true);
    let inputs = vec![
        build,
        batch(&[vec![V::Int(1); 32], vec![V::Bool(true); 32]], &[DataType::Int32, DataType::Boolean], true),
    ];
    let joined = join_node(join(&inputs[0], &inputs[1], 1));
    let sum = aggregate_call(Sum, column(&joined, 1)).into_iter().collect();
    let group_by = (0..keys).map(|_| column(&joined, 3)).collect();
    let case = Case { inputs, plan: group(joined, group_by, sum), settings: Settings::default() };
    let mut row = vec![V::Bool(true); keys];
    row.push(V::Int(value * rows as i128 * 32));
    (case, vec![row])
}

/// DISTINCT of one argument and of several, beside other aggregates, for each way to a group.
fn distinct() -> Vec<Edge> {
    let mut edges = vec![];
    for (mode, key_type, key) in modes() {
        for (rows, keys) in [(0, 1), (1, 1), (33, 1), (600, 1), (0, 0), (600, 0)] {
            let value = |r: usize| if r.is_multiple_of(5) { V::Null } else { V::Int(r as i128 * 7 % 40) };
            let text = |r: usize| V::Text(format!("t{}", r * r % 11));
            let columns = [
                ints((0..rows).map(key)),
                (0..rows).map(value).collect(),
                (0..rows).map(text).collect(),
                (0..rows).map(|r| V::Int(r as i128 * r as i128 % 13)).collect(),
            ];
            let types = [key_type.clone(), DataType::Int64, DataType::Utf8, DataType::Decimal128(9, 2)];
            let inputs = vec![batch(&columns, &types, true)];
            let source = input(&inputs, 0);
            let call = |function, index| aggregate_call(function, column(&source, index)).expect("a function");
            let all = |function, index| call(function, index).distinct();
            let one = vec![
                all(Count, 1),
                call(Sum, 3),
                call(Avg, 3),
                call(Count, 2),
                call(Min, 2),
                all(Sum, 1),
                call(BitXor, 1),
            ];
            let several = vec![all(Count, 2), all(Avg, 3), call(Count, 1), all(Count, 1), all(Max, 2), call(Avg, 3)];
            let group_by: Vec<Expr> = (0..keys).map(|key| column(&source, key)).collect();
            for (name, calls) in [("one", one), ("several", several)] {
                let name = format!("distinct of {name}, {mode} keys, {rows} rows, {keys} keys");
                edges.push(equal(name, inputs.clone(), group(source.clone(), group_by.clone(), calls)));
            }
        }
        if edges.len() >= 48 {
            break;
        }
    }
    edges
}

/// Statistics of second moments: near and far from 0, with nulls in one of a pair, without enough values.
fn moments() -> Vec<Edge> {
    let mut edges = vec![];
    let far = (1i128 << 53) - 5000;
    for (mode, key_type, key) in modes() {
        for (rows, keys) in [(0, 1), (1, 1), (33, 1), (600, 1), (0, 0), (1, 0), (600, 0)] {
            let value = |r: usize| if r.is_multiple_of(5) { V::Null } else { V::Int(r as i128 * 7 % 40 - 3) };
            let pair = |r: usize| if r.is_multiple_of(7) { V::Null } else { V::Int(far + r as i128 * 31 % 4999) };
            let columns = [
                ints((0..rows).map(key)),
                (0..rows).map(value).collect(),
                (0..rows).map(pair).collect(),
                (0..rows).map(|r| V::Int(r as i128 * r as i128 % 977 - 400)).collect(),
                vec![V::Int(5); rows],
            ];
            let types =
                [key_type.clone(), DataType::Int32, DataType::Int64, DataType::Decimal128(9, 2), DataType::Int8];
            let inputs = vec![batch(&columns, &types, true)];
            let source = input(&inputs, 0);
            let mut calls = vec![];
            for &moment in Moment::ALL {
                for (x, y) in [(1, 3), (2, 1), (3, 2), (4, 3)] {
                    let second = (moment.arguments() == 2).then(|| column(&source, y));
                    calls.extend(moment_call(moment, column(&source, x), second));
                }
            }
            let group_by: Vec<Expr> = (0..keys).map(|key| column(&source, key)).collect();
            let name = format!("moments, {mode} keys, {rows} rows, {keys} keys");
            edges.push(equal(name, inputs, group(source, group_by, calls)));
        }
    }
    let beyond = vec![ints([Some(1 << 53), Some((1 << 53) + 1), Some(7)])];
    let inputs = vec![batch(&beyond, &[DataType::Int64], true)];
    let source = input(&inputs, 0);
    let calls = moment_call(Moment::ALL[0], column(&source, 0), None).into_iter().collect();
    let wide = equal("moments beyond 53 bits", inputs, group(source, vec![], calls));
    edges.push(Edge { outcome: Outcome::Unsupported, ..wide });
    edges
}

/// A group-by over a join, filtered, and joined with its own input; and a group-by of that.
fn nested() -> Vec<Edge> {
    let table = |rows: usize, distinct: i128| {
        keyed(&[ints((0..rows as i128).map(|r| Some(r * 31 % distinct)))], &DataType::Int32)
    };
    let inputs = vec![table(60, 20), table(200, 25)];
    let joined = join_node(join(&inputs[0], &inputs[1], 1));
    let grouped = group(joined.clone(), vec![column(&joined, 2)], every_aggregate(&joined, 3));
    let predicate = compare(CompareOp::Greater, column(&grouped, 1), Expr::literal(Scalar::Int(5), DataType::Int64));
    let schema = grouped.schema.clone();
    let kept = super::Plan { kind: PlanKind::Filter { input: Box::new(grouped.clone()), predicate }, schema };
    let probe = input(&inputs, 1);
    let mut again = join(&inputs[0], &inputs[1], 1);
    again.on = vec![(column(&kept, 0), column(&probe, 0))];
    again.output = vec![0, 1, 2, 3, 7];
    again.build = kept;
    let rejoined = join_node(again);
    let twice = group(rejoined.clone(), vec![column(&rejoined, 1)], every_aggregate(&rejoined, 2));
    let total = group(grouped.clone(), vec![], every_aggregate(&grouped, 2));
    vec![
        equal("a group-by over a join", inputs.clone(), grouped),
        equal("a join over a group-by", inputs.clone(), rejoined),
        equal("a group-by over a join over a group-by", inputs.clone(), twice),
        equal("one row of a group-by", inputs, total),
    ]
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = rows();
    edges.extend(shapes());
    edges.extend(values());
    edges.extend(distinct());
    edges.extend(moments());
    edges.extend(nested());
    edges
}
