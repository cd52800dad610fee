//! Joins: rows at the edges of warps and blocks, shapes of the data, what is put out.

use arrow::datatypes::DataType;
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, Scalar};
use warpjoin::plan::{JoinKind, JoinPlan, PlanKind};

use super::super::data::batch;
use super::super::random::{input, node};
use super::super::random_expr::{arithmetic, compare};
use super::super::value::V;
use super::{Edge, column, equal, ints, join, join_node, join_of, keyed, numbers};

const INT: DataType = DataType::Int32;

/// A key column of `rows` values, `distinct` of them different.
fn keys(rows: usize, distinct: usize) -> Vec<V> {
    ints((0..rows).map(|row| Some((row * 7919 % distinct.max(1)) as i128 * 3 - 50)))
}

fn rows() -> Vec<Edge> {
    let mut edges = vec![];
    for (build, probe) in
        [(0, 0), (0, 33), (33, 0), (1, 1), (1, 300), (31, 32), (32, 33), (33, 31), (257, 256), (5000, 300), (40, 5000)]
    {
        for (name, distinct) in [("unique", build), ("duplicate", build / 3 + 1)] {
            let (b, p) = (keyed(&[keys(build, distinct)], &INT), keyed(&[keys(probe, build * 2)], &INT));
            edges.push(join_of(format!("{name} keys, {build} build rows, {probe} probe rows"), b, p, 1));
        }
    }
    edges
}

fn shapes() -> Vec<Edge> {
    let nulls = |rows: usize| vec![V::Null; rows];
    let same = |rows: usize| keys(rows, 1);
    let skewed = |rows: usize| (0..rows).map(|r| V::Int(if r % 10 == 0 { r as i128 } else { 5 })).collect::<Vec<_>>();
    let some =
        |rows: usize| (0..rows).map(|r| if r % 3 == 0 { V::Null } else { V::Int(r as i128 / 2) }).collect::<Vec<_>>();
    let table = |keys: Vec<V>| keyed(&[keys], &INT);
    vec![
        join_of("all build keys null", table(nulls(40)), table(some(50)), 1),
        join_of("all probe keys null", table(some(50)), table(nulls(40)), 1),
        join_of("all keys equal", table(same(70)), table(same(90)), 1),
        join_of("skewed build keys", table(skewed(200)), table(some(100)), 1),
        join_of("skewed probe keys", table(keys(150, 150)), table(skewed(300)), 1),
        join_of("nulls on both sides", table(some(100)), table(some(120)), 1),
        join_of("slices", table(keys(200, 100)).slice(33, 100), table(some(200)).slice(7, 150), 1),
        join_of(
            "keys of other ranges",
            table(ints((0..100).map(Some))),
            table(ints((0..100).map(|i| Some((i - 50) * 40_000_000)))),
            1,
        ),
        join_of(
            "keys of other ranges, swapped",
            table(ints((0..100).map(|i| Some((i - 50) * 40_000_000)))),
            table(ints((0..100).map(Some))),
            1,
        ),
        join_of("no key in common", table(ints((0..100).map(Some))), table(ints((0..100).map(|i| Some(i + 100)))), 1),
    ]
}

/// The case of a join whose plan is changed.
fn changed(name: &str, change: impl FnOnce(&mut JoinPlan)) -> Edge {
    let some = |step: usize| {
        (0..90).map(|r| if r % 7 == 0 { V::Null } else { V::Int((r / step) as i128) }).collect::<Vec<_>>()
    };
    let inputs = vec![keyed(&[some(2), some(5)], &INT), keyed(&[some(1), some(4)], &INT)];
    let mut plan = join(&inputs[0], &inputs[1], 1);
    change(&mut plan);
    equal(name, inputs, join_node(plan))
}

fn outputs() -> Vec<Edge> {
    let at = |index: usize| Expr::column(index, INT, true);
    let number = |index: usize| Expr::column(index, DataType::Int64, false);
    vec![
        changed("no column put out", |join| join.output = vec![]),
        changed("columns put out repeatedly", |join| join.output = vec![5, 0, 5, 2, 2, 0]),
        changed("build columns only", |join| join.output = vec![2]),
        changed("probe columns only", |join| join.output = vec![4, 5]),
        changed("null equals null", |join| join.null_equals_null = true),
        changed("residual over both sides", |join| {
            join.residual = Some(compare(CompareOp::Less, number(2), number(5)))
        }),
        changed("residual over columns not put out", |join| {
            join.output = vec![0];
            join.residual = Some(compare(CompareOp::NotEqual, at(1), at(4)));
        }),
        changed("residual that is never true", |join| join.residual = Some(compare(CompareOp::Less, at(0), at(3)))),
        changed("residual that is null", |join| join.residual = Some(Expr::literal(Scalar::Null, DataType::Boolean))),
        changed("computed keys", |join| {
            let seven = || Expr::literal(Scalar::Int(7), INT);
            join.on = vec![(
                arithmetic(ArithmeticOp::Modulo, at(1), seven(), INT),
                arithmetic(ArithmeticOp::Modulo, at(0), seven(), INT),
            )];
        }),
        changed("a key that is a constant", |join| {
            join.on.push((Expr::literal(Scalar::Int(1), INT), Expr::literal(Scalar::Int(1), INT)));
        }),
    ]
}

/// Three joins in a row, all of duplicate keys, with a filter between.
fn chain() -> Edge {
    let table = |rows: usize, distinct: usize| keyed(&[keys(rows, distinct)], &INT);
    let inputs = vec![table(40, 20), table(60, 30), table(50, 50), table(100, 60)];
    let on_first = |build: usize, probe: super::Plan, key: usize| {
        let build = input(&inputs, build);
        let on = vec![(column(&build, 0), column(&probe, key))];
        let mut join = join(&inputs[0], &inputs[0], 0);
        join.output = (0..build.schema.fields().len() + probe.schema.fields().len()).collect();
        (join.build, join.probe, join.on) = (build, probe, on);
        join_node(join)
    };
    let first = on_first(0, input(&inputs, 3), 0);
    let second = on_first(1, first, 2);
    let schema = second.schema.clone();
    let predicate = compare(CompareOp::Greater, column(&second, 1), Expr::literal(Scalar::Int(9), DataType::Int64));
    let filtered = super::Plan { kind: PlanKind::Filter { input: Box::new(second), predicate }, schema };
    let plan = on_first(2, filtered, 4);
    equal("three joins in a row", inputs.clone(), plan)
}

/// Only the presence of keys counts; they may be any of 2^32, in slots of as many bits.
fn semi() -> Vec<Edge> {
    let semi = |name: &str, build: Vec<V>, probe: Vec<V>, data_type: &DataType| {
        let inputs = vec![keyed(&[build], data_type), keyed(&[probe], data_type)];
        let plan = JoinPlan { kind: JoinKind::ProbeSemi, output: vec![2, 3], ..join(&inputs[0], &inputs[1], 1) };
        equal(name, inputs, join_node(plan))
    };
    let spread = |min: i128, max: i128| {
        move |step: i128| {
            ints((0..60).map(move |i| Some(min + (max - min) / 59 * (i / step * step))).chain([
                Some(max),
                Some(min),
                None,
            ]))
        }
    };
    let (ints32, uints32) = (spread(i32::MIN.into(), i32::MAX.into()), spread(0, u32::MAX.into()));
    vec![
        semi("semi join over all of i32", ints32(2), ints32(1), &INT),
        semi("semi join over all of u32", uints32(3), uints32(1), &DataType::UInt32),
        semi("semi join without the largest key", uints32(1)[..59].to_vec(), uints32(1), &DataType::UInt32),
        semi("semi join of one key", vec![V::Int(7); 300], ints((0..40).map(|row| Some(row % 9))), &INT),
    ]
}

/// A join whose build rows are matches of another one, with null keys among them, and so many of a key
/// that partitions do not do for it.
fn nulls_behind_a_join() -> Edge {
    let some =
        |rows: usize| (0..rows).map(|r| if r % 3 == 0 { V::Null } else { V::Int((r % 4) as i128) }).collect::<Vec<_>>();
    let inputs = vec![
        batch(&[ints((0..60).map(Some)), some(60)], &[INT, INT], true),
        keyed(&[ints((0..80).map(Some))], &INT),
        keyed(&[some(90)], &INT),
    ];
    let mut inner = join(&inputs[0], &inputs[1], 1);
    inner.output = vec![1, 3];
    let inner = join_node(inner);
    let probe = input(&inputs, 2);
    let on = vec![(column(&inner, 0), column(&probe, 0))];
    let outer = JoinPlan {
        build: inner,
        probe,
        on,
        kind: JoinKind::ProbeSemi,
        null_equals_null: false,
        residual: None,
        output: vec![2, 3],
    };
    equal("null keys behind a join", inputs, join_node(outer))
}

/// Tables without columns that matter: the join only counts pairs.
fn narrow() -> Edge {
    let inputs = vec![
        batch(&[vec![V::Int(3); 20]], &[INT], true),
        batch(&[vec![V::Int(3); 30], numbers(30)], &[INT, DataType::Int64], true),
    ];
    let pairs = join_node(JoinPlan { output: vec![], ..join(&inputs[0], &inputs[1], 1) });
    let one = Expr::literal(Scalar::Int(1), INT);
    let plan = node(PlanKind::Project { input: Box::new(pairs), exprs: vec![one] }, [(&INT, false)].into_iter());
    equal("constant keys, constants put out", inputs, plan)
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = rows();
    edges.extend(shapes());
    edges.extend(outputs());
    edges.extend(semi());
    edges.extend([chain(), narrow(), nulls_behind_a_join()]);
    edges
}
