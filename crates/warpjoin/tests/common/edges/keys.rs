//! Keys of every width: one to sixteen columns, 63 and 64 bits, strings, decimals, floats.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;

use super::super::data::batch;
use super::super::value::V;
use super::{Edge, equal, group_of, ints, join, join_node, join_of, keyed};

fn texts(rows: usize, of: impl Fn(usize) -> Option<String>) -> Vec<V> {
    (0..rows).map(|row| of(row).map_or(V::Null, V::Text)).collect()
}

/// Both a join of two tables on all keys, and a group-by of the first by all keys.
fn both(name: &str, build: Vec<Vec<V>>, probe: Vec<Vec<V>>, data_type: &DataType) -> Vec<Edge> {
    let keys = build.len();
    let (build, probe) = (keyed(&build, data_type), keyed(&probe, data_type));
    vec![
        group_of(format!("groups of {name}"), build.clone(), keys, keys),
        join_of(format!("join on {name}"), build, probe, keys),
    ]
}

fn counts() -> Vec<Edge> {
    let mut edges = vec![];
    for (count, spread) in [(2, 3), (4, 2), (8, 2), (16, 2), (3, 1 << 30), (16, 1 << 30)] {
        let side = |rows: usize, shift: usize| {
            let value = |row: usize, key: usize| ((row + shift) * (key + 3) / 4 % 5) as i128 * spread;
            (0..count).map(|key| ints((0..rows).map(|row| Some(value(row, key))))).collect::<Vec<_>>()
        };
        edges.extend(both(&format!("{count} columns, step {spread}"), side(90, 0), side(110, 13), &DataType::Int32));
    }
    edges
}

fn widths() -> Vec<Edge> {
    let max = i128::from(i64::MAX);
    let spread = |min: i128, max: i128| {
        let steps = (0..30).map(move |i| Some(min / 29 * (29 - i) + max / 29 * i)).chain([Some(max), Some(min), None]);
        vec![ints(steps)]
    };
    let mut edges = vec![];
    for (name, data_type, min, max) in [
        ("62 bits", DataType::Int64, 0, max >> 1),
        ("63 bits", DataType::Int64, 0, max),
        ("63 bits below 0", DataType::Int64, -max - 1, -1),
        ("63 bits and one value", DataType::Int64, -1, max),
        ("all of i64", DataType::Int64, -max - 1, max),
        ("all of u64", DataType::UInt64, 0, i128::from(u64::MAX)),
        ("the upper half of u64", DataType::UInt64, max + 1, i128::from(u64::MAX)),
        ("decimals of 128 bits", DataType::Decimal128(38, 5), -10i128.pow(38) + 1, 10i128.pow(38) - 1),
        ("decimals of 65 bits", DataType::Decimal128(20, 0), 0, 1 << 64),
        ("all of i8", DataType::Int8, -128, 127),
    ] {
        edges.extend(both(name, spread(min, max), spread(min, max), &data_type));
        // The other side reaches beyond these bounds, or only over a part of them.
        edges.push(join_of(
            format!("{name}, narrow build"),
            keyed(&spread(min / 7, max / 7), &data_type),
            keyed(&spread(min, max), &data_type),
            1,
        ));
        edges.push(join_of(
            format!("{name}, narrow probe"),
            keyed(&spread(min, max), &data_type),
            keyed(&spread(min / 7, max / 7), &data_type),
            1,
        ));
    }
    edges
}

fn floats() -> Vec<Edge> {
    let values = [0.0, -0.0, f64::NAN, -f64::NAN, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, 1.5];
    let side = |rows: usize| {
        (0..rows).map(|r| if r % 11 == 10 { V::Null } else { V::Float(values[r % 10]) }).collect::<Vec<_>>()
    };
    let mut edges = both("doubles", vec![side(30)], vec![side(40)], &DataType::Float64);
    edges.extend(both("singles", vec![side(20), side(20)], vec![side(20), side(20)], &DataType::Float32));
    edges
}

fn strings() -> Vec<Edge> {
    let a = |rows: usize| texts(rows, |r| (r % 5 != 0).then(|| format!("text number {}", r % 9)));
    let b = |rows: usize| texts(rows, |r| (r % 4 != 0).then(|| format!("text number {}", r % 13 + 4)));
    let mut edges = both("strings", vec![a(60)], vec![b(70)], &DataType::Utf8);
    edges.extend(both("two strings", vec![a(60), b(60)], vec![b(70), a(70)], &DataType::Utf8View));
    edges.extend(both("strings that are null", vec![texts(30, |_| None)], vec![b(40)], &DataType::LargeUtf8));
    edges.extend(both("one empty string", vec![texts(33, |_| Some(String::new()))], vec![a(3)], &DataType::Utf8));
    // A string that the build side lacks is not null.
    let sides = [keyed(&[a(30)], &DataType::Utf8), keyed(&[b(40)], &DataType::Utf8)];
    let mut plan = join(&sides[0], &sides[1], 1);
    plan.null_equals_null = true;
    edges.push(equal("strings, null equals null", sides.to_vec(), join_node(plan)));
    let views = keyed(&[b(40)], &DataType::Utf8View);
    edges.push(join_of("strings of two types", sides[0].clone(), views, 1));
    edges
}

/// Keys of several types at once, with and without nulls that equal each other.
fn mixed() -> Vec<Edge> {
    let types = [
        DataType::Boolean,
        DataType::Utf8,
        DataType::Float32,
        DataType::Date32,
        DataType::Decimal64(12, 2),
        DataType::Int64,
    ];
    let side = |rows: usize| -> RecordBatch {
        let null_at = |row: usize, every: usize, value: V| if row % every == 1 { V::Null } else { value };
        let columns = [
            (0..rows).map(|r| null_at(r, 5, V::Bool(r % 2 == 0))).collect(),
            (0..rows).map(|r| null_at(r, 7, V::Text(format!("s{}", r % 3)))).collect(),
            (0..rows).map(|r| null_at(r, 11, V::Float(r as f64 % 4.0 / 2.0))).collect(),
            (0..rows).map(|r| null_at(r, 3, V::Int(r as i128 % 6 + 9000))).collect(),
            (0..rows).map(|r| null_at(r, 13, V::Int(r as i128 % 12 * 1_000_000_007))).collect(),
            (0..rows).map(|r| V::Int(r as i128)).collect(),
        ];
        batch(&columns, &types, true)
    };
    let sides = [side(120), side(170)];
    let mut edges = vec![
        group_of("groups of keys of five types", sides[0].clone(), 5, 5),
        join_of("join on keys of five types", sides[0].clone(), sides[1].clone(), 5),
    ];
    let mut plan = join(&sides[0], &sides[1], 5);
    plan.null_equals_null = true;
    edges.push(equal("join on keys of five types, null equals null", sides.to_vec(), join_node(plan)));
    edges
}

pub(super) fn edges() -> Vec<Edge> {
    [counts(), widths(), floats(), strings(), mixed()].into_iter().flatten().collect()
}
