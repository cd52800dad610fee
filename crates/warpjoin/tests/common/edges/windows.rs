//! Window functions: partitions, peers and frames of every kind, arguments of every stored form.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, TimeUnit};
use warpjoin::expr::{Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateFunction, Plan, PlanKind, SortKey};
use warpjoin::window::{Frame, FrameBound, WindowCall, WindowFunction};

use super::{Edge, column, equal, group, ints, numbers};
use crate::common::data::{any_value, batch};
use crate::common::random::{aggregate_call, input, node};
use crate::common::value::V;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use FrameBound::{Groups, Partition, Rows};

/// Columns of the tables here.
const PARTITION: usize = 0;
const TIES: usize = 1;
const NUMBER: usize = 2;
const ARGUMENT: usize = 3;

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = shapes();
    edges.extend(arguments());
    edges.extend(keys());
    edges.extend(orders());
    edges.extend(tiles());
    edges
}

fn ascending(expr: Expr) -> SortKey {
    SortKey { expr, descending: false, nulls_first: false }
}

fn descending(expr: Expr) -> SortKey {
    SortKey { expr, descending: true, nulls_first: true }
}

/// A window over any plan.
pub(crate) fn window(input: Plan, partition_by: Vec<Expr>, order_by: Vec<SortKey>, calls: Vec<WindowCall>) -> Plan {
    let mut types: Vec<(DataType, bool)> =
        input.schema.fields().iter().map(|field| (field.data_type().clone(), field.is_nullable())).collect();
    types.extend(calls.iter().map(|call| (call.data_type.clone(), is_nullable(call))));
    let kind = PlanKind::Window { input: Box::new(input), partition_by, order_by, calls };
    node(kind, types.iter().map(|(t, n)| (t, *n)))
}

fn is_nullable(call: &WindowCall) -> bool {
    matches!(call.function, WindowFunction::Aggregate(function) if function != AggregateFunction::Count)
        || matches!(
            call.function,
            WindowFunction::Shift(_) | WindowFunction::First | WindowFunction::Last | WindowFunction::Nth(_)
        )
}

fn frame(start: FrameBound, end: FrameBound) -> Frame {
    Frame { start, end }
}

fn place(function: WindowFunction) -> WindowCall {
    let data_type = match function {
        WindowFunction::PercentRank | WindowFunction::CumeDist => DataType::Float64,
        _ => DataType::UInt64,
    };
    WindowCall { function, argument: None, default: None, frame: Frame::PARTITION, data_type }
}

fn value(function: WindowFunction, argument: Expr, frame: Frame) -> WindowCall {
    let data_type = argument.data_type.clone();
    WindowCall { function, argument: Some(argument), default: None, frame, data_type }
}

/// Every aggregate that takes the argument, of a frame.
pub(crate) fn aggregates(argument: &Expr, frame: Frame) -> Vec<WindowCall> {
    use AggregateFunction::{Avg, Count, Max, Min, Sum};
    let is_between_peers = !matches!(frame.start, Partition)
        && !matches!(frame.end, Partition)
        && [frame.start, frame.end].iter().any(|bound| matches!(bound, Groups(_)))
        && frame != Frame { start: Groups(0), end: Groups(0) };
    let calls = [Count, Sum, Avg, Min, Max].into_iter().filter_map(|function| {
        let is_declined = is_between_peers
            && (matches!(function, Min | Max) || function != Count && argument.data_type.is_floating());
        let call = aggregate_call(function, argument.clone()).filter(|_| !is_declined)?;
        let function = WindowFunction::Aggregate(function);
        Some(WindowCall { function, argument: call.argument, default: None, frame, data_type: call.data_type })
    });
    let rows = WindowCall {
        function: WindowFunction::Aggregate(Count),
        argument: None,
        default: None,
        frame,
        data_type: DataType::Int64,
    };
    calls.chain([rows]).collect()
}

/// What may be asked of rows some of which are peers.
fn calls_among_peers(argument: &Expr) -> Vec<WindowCall> {
    use WindowFunction::{CumeDist, DenseRank, PercentRank, Rank};
    let mut calls: Vec<WindowCall> = [Rank, DenseRank, PercentRank, CumeDist].map(place).to_vec();
    for frame in [
        Frame::PARTITION,
        frame(Partition, Groups(0)),
        frame(Groups(0), Partition),
        frame(Groups(0), Groups(0)),
        frame(Groups(-1), Groups(1)),
        frame(Groups(1), Groups(2)),
        frame(Partition, Groups(-1)),
    ] {
        calls.extend(aggregates(argument, frame));
    }
    calls
}

/// What depends on the place of each row.
fn calls_by_place(argument: &Expr) -> Vec<WindowCall> {
    use WindowFunction::{First, Last, Nth, Ntile, RowNumber, Shift};
    let mut calls: Vec<WindowCall> = [RowNumber, Ntile(1), Ntile(4), Ntile(1 << 40)].map(place).to_vec();
    for rows in [0, -1, 1, 3, -40, i64::MAX, i64::MIN] {
        calls.push(value(Shift(rows), argument.clone(), Frame::PARTITION));
    }
    for frame in [
        frame(Partition, Rows(0)),
        frame(Rows(0), Partition),
        frame(Rows(-3), Rows(2)),
        frame(Rows(-1), Rows(-1)),
        frame(Rows(2), Rows(5)),
        frame(Rows(-7), Rows(-2)),
        frame(Rows(1), Rows(-1)),
        frame(Rows(-100), Rows(100)),
        frame(Rows(i64::MIN), Rows(i64::MAX)),
    ] {
        calls.extend(aggregates(argument, frame));
        for function in [First, Last, Nth(2), Nth(-2), Nth(0), Nth(1000)] {
            calls.push(value(function, argument.clone(), frame));
        }
    }
    calls
}

/// Partitions, an order with peers, row numbers, and an argument.
fn table(partitions: Vec<V>, ties: Vec<V>, argument: Vec<V>, data_type: &DataType) -> RecordBatch {
    let rows = argument.len();
    let types = [DataType::Int32, DataType::Int64, DataType::Int64, data_type.clone()];
    batch(&[partitions, ties, numbers(rows), argument], &types, true)
}

/// Both kinds of calls over a table.
fn of_table(name: &str, table: RecordBatch) -> Vec<Edge> {
    let inputs = vec![table];
    let source = input(&inputs, 0);
    let argument = column(&source, ARGUMENT);
    let partition = || vec![column(&source, PARTITION)];
    let ties = || ascending(column(&source, TIES));
    let unique = vec![descending(column(&source, TIES)), ascending(column(&source, NUMBER))];
    let among_peers = window(source.clone(), partition(), vec![ties()], calls_among_peers(&argument));
    let by_place = window(source.clone(), partition(), unique, calls_by_place(&argument));
    vec![
        equal(format!("{name}, among peers"), inputs.clone(), among_peers),
        equal(format!("{name}, by place"), inputs, by_place),
    ]
}

/// Numbers from 0 to `rows` - 1, mixed up.
fn mixed(rows: i128) -> impl Iterator<Item = i128> {
    (0..rows).map(move |row| row * 7919 % rows.max(1))
}

fn shapes() -> Vec<Edge> {
    let mut edges = vec![];
    for rows in [0, 1, 31, 32, 33, 700] {
        let argument = || ints(mixed(rows).map(|row| (row % 5 != 0).then_some(row % 100 - 50)));
        let ties = || ints(mixed(rows).map(|row| (row % 11 != 3).then_some(row % 9)));
        for (name, partitions) in [
            ("one partition", ints((0..rows).map(|_| Some(7)))),
            ("partitions of one row", ints(mixed(rows).map(Some))),
            ("some partitions", ints(mixed(rows).map(|row| (row % 7 != 2).then_some(row % 7)))),
        ] {
            let table = table(partitions, ties(), argument(), &DataType::Int64);
            edges.extend(of_table(&format!("{name} of {rows} rows"), table));
        }
    }
    edges
}

fn arguments() -> Vec<Edge> {
    let mut edges = vec![];
    let mut rng = StdRng::seed_from_u64(5);
    for data_type in [
        DataType::Int8,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt16,
        DataType::UInt64,
        DataType::Boolean,
        DataType::Float32,
        DataType::Float64,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Utf8View,
        DataType::Decimal128(12, 2),
        DataType::Decimal128(28, 0),
    ] {
        let rows = 150;
        for nulls in [0.0, 0.3] {
            let argument: Vec<V> = (0..rows)
                .map(|_| if rng.random_bool(nulls) { V::Null } else { any_value(&mut rng, &data_type) })
                .collect();
            let partitions = ints((0..rows).map(|row| Some(row % 3)));
            let ties = ints(mixed(rows).map(|row| Some(row / 4)));
            let table = table(partitions, ties, argument, &data_type);
            edges.extend(of_table(&format!("a window of {data_type}, {nulls} nulls"), table));
        }
    }
    // Nothing is stored of a constant.
    let constant = |value: V| vec![value; 40];
    for (name, value) in [("nulls", V::Null), ("one number", V::Int(5))] {
        let partitions = ints((0..40).map(|row| Some(row % 3)));
        let ties = ints((0..40).map(|row| Some(row / 4)));
        edges.extend(of_table(
            &format!("a window of {name}"),
            table(partitions, ties, constant(value), &DataType::Int64),
        ));
    }
    edges
}

/// Partitions and orders by nothing, by several keys, by strings, floats and extremes.
fn keys() -> Vec<Edge> {
    let mut edges = vec![];
    let mut rng = StdRng::seed_from_u64(6);
    let types = [
        DataType::Float64,
        DataType::Utf8,
        DataType::Int64,
        DataType::Decimal128(38, 0),
        DataType::UInt8,
        DataType::Boolean,
    ];
    let rows = 200;
    let mut columns: Vec<Vec<V>> = types
        .iter()
        .map(|data_type| {
            let values: Vec<V> = (0..6).map(|_| any_value(&mut rng, data_type)).chain([V::Null]).collect();
            (0..rows).map(|_| values[rng.random_range(0..values.len())].clone()).collect()
        })
        .collect();
    columns.push(numbers(rows));
    let types: Vec<DataType> = types.into_iter().chain([DataType::Int64]).collect();
    let inputs = vec![batch(&columns, &types, true)];
    let source = input(&inputs, 0);
    let at = |index: usize| column(&source, index);
    let number = at(6);
    for partitions in [vec![], vec![0], vec![1], vec![2], vec![3], vec![4, 5], vec![0, 1, 2, 3], vec![3, 2, 1, 4]] {
        for order in [vec![], vec![0], vec![1], vec![3, 5], vec![2, 4, 0, 1]] {
            let mut calls = vec![place(WindowFunction::Rank), place(WindowFunction::CumeDist)];
            calls.extend(aggregates(&number, frame(Partition, Groups(0))));
            let by: Vec<Expr> = partitions.iter().map(|&index| at(index)).collect();
            let directed = |(place, &index): (usize, &usize)| match place % 2 {
                0 => descending(at(index)),
                _ => ascending(at(index)),
            };
            let keys: Vec<SortKey> = order.iter().enumerate().map(directed).collect();
            let plan = window(source.clone(), by, keys, calls);
            edges.push(equal(format!("a window by {partitions:?}, in the order of {order:?}"), inputs.clone(), plan));
        }
    }
    edges
}

/// Orders and first rows of windows, and what else stands on them.
fn orders() -> Vec<Edge> {
    let partitions = ints(mixed(900).map(|row| Some(row % 40)));
    let ties = ints(mixed(900).map(|row| Some(row % 9)));
    let argument = ints(mixed(900).map(|row| (row % 5 != 0).then_some(row)));
    let inputs = vec![table(partitions, ties, argument, &DataType::Int64)];
    let source = input(&inputs, 0);
    let argument = column(&source, ARGUMENT);
    let mut shifted = value(WindowFunction::Shift(-2), argument.clone(), Frame::PARTITION);
    shifted.default = Some(Expr::literal(Scalar::Int(-1), DataType::Int64));
    let calls = |function| vec![place(function), shifted.clone()];
    let unique = || vec![descending(column(&source, TIES)), ascending(column(&source, NUMBER))];
    let by = || vec![column(&source, PARTITION)];
    let numbered = window(source.clone(), by(), unique(), calls(WindowFunction::RowNumber));
    let mut edges = vec![];
    let mut add = |name: &str, plan: Plan| edges.push(equal(name, inputs.clone(), plan));
    let own = |plan: &Plan| {
        vec![ascending(column(plan, PARTITION)), descending(column(plan, TIES)), ascending(column(plan, NUMBER))]
    };
    let sort = super::sorts::sort;
    for (name, skip, fetch) in [("all", 0, None), ("first", 0, Some(17)), ("next", 301, Some(300)), ("no", 900, None)] {
        add(&format!("{name} rows of a window in its order"), sort(numbered.clone(), own(&numbered), skip, fetch));
        add(&format!("{name} rows of a window"), super::sorts::limit(numbered.clone(), skip, fetch));
    }
    let moved = super::sorts::project(
        numbered.clone(),
        [4, 2, 1, 0, 5].iter().map(|&index| column(&numbered, index)).collect(),
    );
    let keys = vec![ascending(column(&moved, 3)), descending(column(&moved, 2)), ascending(column(&moved, 1))];
    add("columns of a window in its order", sort(moved.clone(), keys.clone(), 0, None));
    add("first columns of a window in its order", sort(moved.clone(), keys, 5, Some(70)));
    let other = vec![descending(column(&moved, 3)), ascending(column(&moved, 1))];
    add("a window in another order", sort(moved, other, 0, Some(100)));
    let counted = window(
        numbered.clone(),
        vec![column(&numbered, 4)],
        vec![ascending(column(&numbered, NUMBER))],
        vec![place(WindowFunction::RowNumber), place(WindowFunction::Ntile(3))],
    );
    add("a window of a window", counted);
    let sums = aggregate_call(AggregateFunction::Sum, column(&numbered, ARGUMENT)).into_iter().collect();
    add("groups of a window", group(numbered.clone(), vec![column(&numbered, 4)], sums));
    let first = super::sorts::sort(source.clone(), vec![descending(column(&source, NUMBER))], 3, Some(200));
    add("a window of first rows", window(first, by(), unique(), calls(WindowFunction::DenseRank)));
    edges
}

/// Partitions that end where tiles do, and that go over several of them.
fn tiles() -> Vec<Edge> {
    let lengths = [("long", 1300), ("whole", 512), ("half", 256), ("uneven", 97)];
    lengths.map(|(name, length)| window_of(&format!("{name} partitions and tiles"), 1300, length)).into()
}

/// Rows in partitions of a length, with frames of every way through the kernels.
pub(crate) fn window_of(name: &str, rows: i128, length: i128) -> Edge {
    let partitions = ints((0..rows).map(|row| Some(row / length)));
    let argument = ints((0..rows).map(|row| (row % 17 != 4).then_some(row * row % 1009)));
    let inputs = vec![table(partitions, numbers(rows as usize), argument, &DataType::Int64)];
    let source = input(&inputs, 0);
    let argument = column(&source, ARGUMENT);
    let double =
        Expr { kind: ExprKind::Cast(Box::new(argument.clone())), data_type: DataType::Float64, nullable: true };
    let mut calls = vec![place(WindowFunction::RowNumber), place(WindowFunction::DenseRank)];
    for frame in [frame(Partition, Rows(0)), frame(Rows(-40), Rows(25)), frame(Rows(-600), Rows(0))] {
        calls.extend(aggregates(&argument, frame));
        calls.extend(aggregates(&double, frame).into_iter().take(3));
    }
    let order = vec![ascending(column(&source, NUMBER))];
    equal(name, inputs, window(source.clone(), vec![column(&source, PARTITION)], order, calls))
}
