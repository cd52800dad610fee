//! Joins that put out rows by whether they match: semi, anti, NOT IN, mark, outer.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr};
use warpjoin::plan::{JoinKind, JoinPlan, PlanKind};

use super::super::random::{input, node};
use super::super::random_expr::{arithmetic, compare};
use super::super::value::V;
use super::{Edge, column, equal, every_aggregate, group, ints, join, join_node, keyed};

const INT: DataType = DataType::Int32;
const KINDS: [JoinKind; 6] = [
    JoinKind::ProbeSemi,
    JoinKind::ProbeAnti,
    JoinKind::NotIn,
    JoinKind::ProbeMark,
    JoinKind::ProbeOuter,
    JoinKind::Full,
];

/// Columns that a kind puts out of two tables of `width` columns each, all of them.
fn all_columns(kind: JoinKind, width: usize) -> Vec<usize> {
    let first = if kind.is_existence() { width } else { 0 };
    (first..2 * width + usize::from(kind == JoinKind::ProbeMark)).collect()
}

/// The join of two tables of key columns and a number.
fn of_kind(kind: JoinKind, build: &RecordBatch, probe: &RecordBatch) -> JoinPlan {
    let width = build.num_columns();
    JoinPlan { kind, output: all_columns(kind, width), ..join(build, probe, width - 1) }
}

/// The case of a join of any kind.
pub(crate) fn join_of_kind(name: &str, kind: JoinKind, build: RecordBatch, probe: RecordBatch) -> Edge {
    let plan = join_node(of_kind(kind, &build, &probe));
    equal(name, vec![build, probe], plan)
}

/// Keys of both sides: what each of them has, and how.
fn sides() -> Vec<(&'static str, Vec<V>, Vec<V>)> {
    let range = |from: i128, to: i128| ints((from..to).map(Some));
    let some = |rows: usize, step: usize| -> Vec<V> {
        (0..rows).map(|r| if r % 7 == 0 { V::Null } else { V::Int((r / step) as i128) }).collect()
    };
    let wide = |rows: i128| ints((0..rows).map(|r| Some((r - 20) * 40_000_000)));
    vec![
        ("no rows", vec![], vec![]),
        ("no build rows", vec![], some(70, 2)),
        ("no probe rows", some(70, 2), vec![]),
        ("unique keys", range(0, 90), range(-40, 300)),
        ("duplicate build keys", ints((0..90).map(|r| Some(r / 3))), range(-5, 70)),
        ("duplicate keys on both sides, nulls", some(90, 3), some(120, 2)),
        ("nulls on the probe side", range(0, 20), some(120, 3)),
        ("one key on the build side, many times", vec![V::Int(7); 300], ints((0..80).map(|r| Some(r % 9)))),
        ("all build keys null", vec![V::Null; 40], some(50, 2)),
        ("all probe keys null", range(0, 40), vec![V::Null; 50]),
        ("all keys null", vec![V::Null; 40], vec![V::Null; 50]),
        ("keys of other ranges", wide(60), range(-30, 300)),
        ("no key in common", range(0, 40), range(100, 300)),
        ("no key in common, nulls", range(0, 40), ints((0..200).map(|r| (r % 7 != 0).then_some(r + 100)))),
        ("many rows", range(0, 1000), ints((0..2500).map(|r| Some(r * 7 % 2000)))),
    ]
}

fn by_sides() -> Vec<Edge> {
    let mut edges = vec![];
    for (name, build, probe) in sides() {
        let inputs = vec![keyed(&[build], &INT), keyed(&[probe], &INT)];
        // These are rows only, not code of their own.
        let is_plain = name.starts_with("no ") || name == "keys of other ranges";
        for kind in KINDS {
            let plan = of_kind(kind, &inputs[0], &inputs[1]);
            edges.push(equal(format!("{kind:?}: {name}"), inputs.clone(), join_node(plan.clone())));
            if is_plain {
                continue;
            }
            if kind != JoinKind::NotIn {
                let null_keys = JoinPlan { null_equals_null: true, ..plan.clone() };
                edges.push(equal(format!("{kind:?}, null equals null: {name}"), inputs.clone(), join_node(null_keys)));
            }
            let residual = Some(compare(
                CompareOp::Less,
                arithmetic(
                    ArithmeticOp::Modulo,
                    arithmetic(ArithmeticOp::Add, number(1), number(3), DataType::Int64),
                    Expr::literal(warpjoin::expr::Scalar::Int(3), DataType::Int64),
                    DataType::Int64,
                ),
                Expr::literal(warpjoin::expr::Scalar::Int(1), DataType::Int64),
            ));
            let filtered = JoinPlan { residual, ..plan };
            edges.push(equal(format!("{kind:?}, residual: {name}"), inputs.clone(), join_node(filtered)));
        }
    }
    edges
}

fn number(column: usize) -> Expr {
    Expr::column(column, DataType::Int64, false)
}

/// Keys of several columns that do not fit a word, so that slots hold hashes.
fn wide_keys() -> Vec<Edge> {
    let key = |rows: i128, step: i128| ints((0..rows).map(|r| Some((r / step - 20) * 900_000_000_000_000_000)));
    let table = |rows: i128, step: i128| {
        keyed(&[key(rows, step), ints((0..rows).map(|r| (r % 5 != 0).then_some(r / step)))], &DataType::Int64)
    };
    let inputs = vec![table(40, 2), table(40, 1)];
    let kinds = KINDS.into_iter().filter(|kind| *kind != JoinKind::NotIn);
    kinds
        .flat_map(|kind| {
            let plan = of_kind(kind, &inputs[0], &inputs[1]);
            let unequal = compare(CompareOp::NotEqual, number(2), number(5));
            let filtered = JoinPlan { residual: Some(unequal), ..plan.clone() };
            [(plan, ""), (filtered, ", residual")]
                .map(|(plan, name)| equal(format!("{kind:?} of wide keys{name}"), inputs.clone(), join_node(plan)))
        })
        .collect()
}

/// Several joins in one pipeline, computed columns before them, and a group-by behind.
fn chains() -> Vec<Edge> {
    let some = |rows: usize, step: usize| -> Vec<V> {
        (0..rows).map(|r| if r % 5 == 0 { V::Null } else { V::Int((r / step) as i128) }).collect()
    };
    let inputs = vec![keyed(&[some(60, 1)], &INT), keyed(&[some(80, 4)], &INT), keyed(&[some(300, 3)], &INT)];
    let seven = || Expr::literal(warpjoin::expr::Scalar::Int(7), DataType::Int64);
    let mut edges = vec![];
    for (number, first) in KINDS.into_iter().enumerate() {
        for second in [number, number + 1, number + 3].map(|number| KINDS[number % KINDS.len()]) {
            let probe = input(&inputs, 2);
            let computed = arithmetic(ArithmeticOp::Modulo, column(&probe, 1), seven(), DataType::Int64);
            let types = [(INT, true), (DataType::Int64, false)];
            let exprs = vec![column(&probe, 0), computed];
            let kind = PlanKind::Project { input: Box::new(probe), exprs };
            let probe = node(kind, types.iter().map(|(t, n)| (t, *n)));
            let mut joined = probe;
            for (build, kind) in [(0, first), (1, second)] {
                let build = input(&inputs, build);
                let width = joined.schema.fields().len();
                // The probe's own columns come before the mark of the first join.
                let key = joined.schema.fields().len() - 2 - usize::from(build.schema.fields().len() + 1 == width);
                let residual = compare(
                    CompareOp::Less,
                    Expr::column(1, DataType::Int64, false),
                    arithmetic(
                        ArithmeticOp::Multiply,
                        seven(),
                        Expr::column(2 + key + 1, DataType::Int64, false),
                        DataType::Int64,
                    ),
                );
                let first_column = if kind.is_existence() { 2 } else { 0 };
                let mark = usize::from(kind == JoinKind::ProbeMark);
                joined = join_node(JoinPlan {
                    on: vec![(column(&build, 0), column(&joined, key))],
                    kind,
                    null_equals_null: false,
                    residual: (kind != JoinKind::NotIn).then_some(residual),
                    output: (first_column..2 + width + mark).collect(),
                    build,
                    probe: joined,
                });
            }
            let name = format!("{first:?}, then {second:?}");
            let keys = vec![column(&joined, joined.schema.fields().len() - 1)];
            let calls = every_aggregate(&joined, 0);
            // Most of them only as the input of a group-by, which sees every row too.
            if first == second {
                edges.push(equal(name.clone(), inputs.clone(), joined.clone()));
            }
            edges.push(equal(format!("{name}, grouped"), inputs.clone(), group(joined, keys, calls)));
        }
    }
    edges
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = by_sides();
    edges.extend(wide_keys());
    edges.extend(chains());
    edges
}
