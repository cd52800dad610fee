//! Filters on the ranks of a window: the first rows of each partition.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, TimeUnit};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateFunction, Plan, PlanKind, SortKey};
use warpjoin::window::{Frame, FrameBound, WindowCall, WindowFunction};

use super::windows::{place, value, window};
use super::{Edge, column, equal, ints, numbers};
use crate::common::data::{any_value, batch};
use crate::common::int_plans::compare;
use crate::common::random::{input, node};
use crate::common::value::V;

/// Columns of the tables here.
const PARTITION: usize = 0;
const KEY: usize = 1;
const NUMBER: usize = 2;
const WIDTH: usize = 3;

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = orders();
    edges.extend(predicates());
    edges.extend(calls());
    edges.extend(partitions());
    edges
}

/// Partitions of very different sizes, a key of any type, and row numbers.
fn table(rows: usize, key: Vec<V>, data_type: &DataType) -> RecordBatch {
    let partition = |row: usize| match row % 16 {
        0..9 => Some(1),
        9..14 => Some(2),
        14 => None,
        // Partitions of few rows.
        _ => Some(100 + row as i128 / 48),
    };
    let partitions = ints((0..rows).map(partition));
    batch(&[partitions, key, numbers(rows)], &[DataType::Int32, data_type.clone(), DataType::Int64], true)
}

fn ints_table(rows: usize) -> RecordBatch {
    let key = ints((0..rows as i128).map(|row| (row % 13 != 5).then_some(row * 7919 % 101 - 50)));
    table(rows, key, &DataType::Int64)
}

fn rank(rank: i128) -> Expr {
    Expr::literal(Scalar::Int(rank), DataType::UInt64)
}

/// Rows of a window, by an order without peers, of which a condition on the first call holds.
fn first_rows(
    source: &Plan,
    partition_by: Vec<Expr>,
    keys: Vec<SortKey>,
    calls: Vec<WindowCall>,
    condition: impl FnOnce(Expr) -> Expr,
) -> Plan {
    let ranked = window(source.clone(), partition_by, keys, calls);
    let predicate = condition(column(&ranked, WIDTH));
    let schema = ranked.schema.clone();
    Plan { kind: PlanKind::Filter { input: Box::new(ranked), predicate }, schema }
}

fn key_of(source: &Plan, index: usize, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { expr: column(source, index), descending, nulls_first }
}

fn at_most(most: i128) -> impl FnOnce(Expr) -> Expr {
    move |rank_of| compare(CompareOp::LessOrEqual, rank_of, rank(most))
}

/// Keys of every kind in each direction.
fn orders() -> Vec<Edge> {
    let mut edges = vec![];
    let mut rng = StdRng::seed_from_u64(11);
    for data_type in [
        DataType::Int8,
        DataType::Int64,
        DataType::UInt64,
        DataType::Boolean,
        DataType::Float32,
        DataType::Float64,
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Utf8View,
        DataType::Decimal128(28, 0),
    ] {
        for (at, nulls) in [0.0, 0.4].into_iter().enumerate() {
            let mut any = || if rng.random_bool(nulls) { V::Null } else { any_value(&mut rng, &data_type) };
            let inputs = vec![table(300, (0..300).map(|_| any()).collect(), &data_type)];
            let source = input(&inputs, 0);
            for (descending, nulls_first) in [(false, false), (false, true), (true, false), (true, true)] {
                if at == 0 && descending != nulls_first {
                    continue;
                }
                let keys =
                    vec![key_of(&source, KEY, descending, nulls_first), key_of(&source, NUMBER, !descending, false)];
                let partition_by = vec![column(&source, PARTITION)];
                let calls = vec![place(WindowFunction::RowNumber), place(WindowFunction::Rank)];
                let plan = first_rows(&source, partition_by, keys, calls, at_most(4));
                let name = format!("first rows by {data_type}, {nulls} nulls, {descending} {nulls_first}");
                edges.push(equal(name, inputs.clone(), plan));
            }
        }
    }
    edges
}

/// Makes a condition on a rank.
type Condition = fn(Expr) -> Expr;

/// Everything that bounds a rank, and what does not.
fn predicates() -> Vec<Edge> {
    let inputs = vec![ints_table(300)];
    let source = input(&inputs, 0);
    let conditions: [(&str, Condition); 10] = [
        ("<= 1", |it| at_most(1)(it)),
        ("<= 0", |it| at_most(0)(it)),
        ("<= 1000", |it| at_most(1000)(it)),
        ("< 3", |it| compare(CompareOp::Less, it, rank(3))),
        ("= 2", |it| compare(CompareOp::Equal, it, rank(2))),
        ("5 >=", |it| compare(CompareOp::GreaterOrEqual, rank(5), it)),
        ("5 >", |it| compare(CompareOp::Greater, rank(5), it)),
        (">= 5", |it| compare(CompareOp::GreaterOrEqual, it, rank(5))),
        ("<> 1", |it| compare(CompareOp::NotEqual, it, rank(1))),
        ("from 2 to 4", |it| and(compare(CompareOp::Greater, it.clone(), rank(1)), at_most(4)(it))),
    ];
    let of = |(name, condition): (&str, Condition)| {
        let keys = vec![key_of(&source, KEY, false, false), key_of(&source, NUMBER, false, false)];
        let calls = vec![place(WindowFunction::RowNumber)];
        let plan = first_rows(&source, vec![column(&source, PARTITION)], keys, calls, condition);
        equal(format!("first rows, {name}"), inputs.clone(), plan)
    };
    conditions.into_iter().map(of).collect()
}

fn and(left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    Expr { kind: ExprKind::And(Box::new(left), Box::new(right)), data_type: DataType::Boolean, nullable }
}

/// Calls beside the rank that look back, and some that look ahead; peers of the rank.
fn calls() -> Vec<Edge> {
    let inputs = vec![ints_table(400)];
    let source = input(&inputs, 0);
    let argument = column(&source, NUMBER);
    let frame = |start, end| Frame { start, end };
    use FrameBound::{Groups, Partition, Rows};
    let lists = [
        ("ranks", vec![place(WindowFunction::DenseRank)]),
        (
            "the rows before",
            vec![
                value(WindowFunction::Shift(-1), argument.clone(), Frame::PARTITION),
                value(WindowFunction::First, argument.clone(), frame(Partition, Rows(0))),
                value(WindowFunction::Aggregate(AggregateFunction::Sum), argument.clone(), frame(Rows(-3), Rows(-1))),
            ],
        ),
        (
            "peers",
            vec![value(
                WindowFunction::Aggregate(AggregateFunction::Sum),
                argument.clone(),
                frame(Partition, Groups(0)),
            )],
        ),
        ("the next row", vec![value(WindowFunction::Shift(1), argument.clone(), Frame::PARTITION)]),
        (
            "all rows",
            vec![
                place(WindowFunction::Ntile(3)),
                value(WindowFunction::Aggregate(AggregateFunction::Max), argument.clone(), Frame::PARTITION),
            ],
        ),
        ("a row ahead", vec![value(WindowFunction::Last, argument.clone(), frame(Rows(0), Rows(2)))]),
    ];
    let mut edges = vec![];
    for (name, others) in lists {
        let calls = [place(WindowFunction::RowNumber)].into_iter().chain(others).collect();
        let keys = vec![key_of(&source, KEY, true, true), key_of(&source, NUMBER, false, false)];
        let plan = first_rows(&source, vec![column(&source, PARTITION)], keys, calls, at_most(3));
        edges.push(equal(format!("first rows beside {name}"), inputs.clone(), plan));
    }
    // Rows of an equal rank are all there.
    let calls = vec![place(WindowFunction::Rank)];
    let keys = vec![key_of(&source, KEY, false, false)];
    let plan = first_rows(&source, vec![column(&source, PARTITION)], keys, calls, at_most(3));
    edges.push(equal("first rows with peers", inputs, plan));
    edges
}

/// Partitions by no key, by several, by an expression; rows behind a filter, and behind a group-by; a projection above.
fn partitions() -> Vec<Edge> {
    let inputs = vec![ints_table(500)];
    let source = input(&inputs, 0);
    let ranked = |source: &Plan, partition_by: Vec<Expr>| {
        let keys = vec![key_of(source, KEY, false, true), key_of(source, NUMBER, true, true)];
        first_rows(source, partition_by, keys, vec![place(WindowFunction::RowNumber)], at_most(2))
    };
    let predicate =
        compare(CompareOp::Greater, column(&source, NUMBER), Expr::literal(Scalar::Int(37), DataType::Int64));
    let filtered =
        Plan { kind: PlanKind::Filter { input: Box::new(source.clone()), predicate }, schema: source.schema.clone() };
    let sum = WindowFunction::Aggregate(AggregateFunction::Sum);
    let windowed = window(
        source.clone(),
        vec![column(&source, PARTITION)],
        vec![key_of(&source, NUMBER, false, false)],
        vec![value(sum, column(&source, NUMBER), Frame { start: FrameBound::Partition, end: FrameBound::Rows(0) })],
    );
    let exprs: Vec<Expr> = [PARTITION, NUMBER + 1, NUMBER].map(|index| column(&windowed, index)).to_vec();
    let types: Vec<_> = exprs.iter().map(|expr| (expr.data_type.clone(), expr.nullable)).collect();
    let of_window = node(
        PlanKind::Project { input: Box::new(windowed), exprs },
        types.iter().map(|(data_type, nullable)| (data_type, *nullable)),
    );
    let key = || column(&source, PARTITION);
    vec![
        equal("first rows of all", inputs.clone(), ranked(&source, vec![])),
        equal("first rows by two keys", inputs.clone(), ranked(&source, vec![key(), column(&source, KEY)])),
        equal("first rows behind a filter", inputs.clone(), ranked(&filtered, vec![key()])),
        equal("first rows of a window", inputs, ranked(&of_window, vec![column(&of_window, PARTITION)])),
    ]
}
