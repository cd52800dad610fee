//! Window functions: partitions, peers and frames of every kind, arguments of every stored form.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, TimeUnit};
use warpjoin::expr::{Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, Moment, Plan, PlanKind, SortKey};
use warpjoin::window::{Distance, Frame, FrameBound, WindowCall, WindowFunction};

use super::{Edge, column, equal, group, ints, numbers};
use crate::common::case::Outcome;
use crate::common::data::{any_value, batch};
use crate::common::random::{aggregate_call, input, node};
use crate::common::random_expr::cast;
use crate::common::value::V;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use FrameBound::{Groups, Partition, Range, Rows};

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
    edges.extend(distances());
    edges.extend(trees());
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

pub(super) fn place(function: WindowFunction) -> WindowCall {
    let data_type = match function {
        WindowFunction::PercentRank | WindowFunction::CumeDist => DataType::Float64,
        _ => DataType::UInt64,
    };
    WindowCall { function, argument: None, default: None, ignores_nulls: false, frame: Frame::PARTITION, data_type }
}

pub(super) fn value(function: WindowFunction, argument: Expr, frame: Frame) -> WindowCall {
    let data_type = argument.data_type.clone();
    WindowCall { function, argument: Some(argument), default: None, ignores_nulls: false, frame, data_type }
}

/// Every aggregate that takes the argument, of a frame.
pub(crate) fn aggregates(argument: &Expr, frame: Frame) -> Vec<WindowCall> {
    let calls = AggregateFunction::all().filter(|function| function.spec().over_frames).filter_map(|function| {
        let call = match function {
            AggregateFunction::Moment(moment) => moment_of(moment, argument)?,
            function => aggregate_call(function, argument.clone())?,
        };
        let function = WindowFunction::Aggregate(function);
        Some(WindowCall {
            function,
            argument: call.argument,
            default: None,
            ignores_nulls: false,
            frame,
            data_type: call.data_type,
        })
    });
    let rows = WindowCall {
        function: WindowFunction::Aggregate(AggregateFunction::Count),
        argument: None,
        default: None,
        ignores_nulls: false,
        frame,
        data_type: DataType::Int64,
    };
    calls.chain([rows]).collect()
}

/// A statistic of one argument: of doubles, where the oracle's exact sums could leave 128 bits.
fn moment_of(moment: Moment, argument: &Expr) -> Option<AggregateCall> {
    let is_small = match &argument.data_type {
        DataType::Int64 | DataType::UInt64 => false,
        DataType::Decimal128(precision, _) => *precision <= 15,
        of => of.is_integer() || of.is_decimal(),
    };
    let is_number =
        argument.data_type.is_integer() || argument.data_type.is_decimal() || argument.data_type.is_floating();
    let argument = match is_small || argument.data_type == DataType::Float64 {
        true => argument.clone(),
        false => cast(argument.clone(), DataType::Float64),
    };
    is_number.then(|| AggregateCall::new(AggregateFunction::Moment(moment), Some(argument), DataType::Float64))
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
        frame(Groups(2), Groups(-1)),
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
        frame(Groups(-2), Rows(1)),
        frame(Rows(-5), Groups(0)),
        frame(Rows(-100), Rows(100)),
        frame(Rows(i64::MIN), Rows(i64::MAX)),
    ] {
        calls.extend(aggregates(argument, frame));
        for function in [First, Last, Nth(2), Nth(-2), Nth(0), Nth(1000)] {
            let call = value(function, argument.clone(), frame);
            calls.push(WindowCall { ignores_nulls: true, ..call.clone() });
            calls.push(call);
        }
    }
    for rows in [-1, 1, 2, -5, 30, i64::MAX, i64::MIN] {
        let call = value(Shift(rows), argument.clone(), Frame::PARTITION);
        calls.push(WindowCall { ignores_nulls: true, ..call });
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
    let skipped = WindowCall { ignores_nulls: true, ..shifted.clone() };
    let calls = |function| vec![place(function), shifted.clone(), skipped.clone()];
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
        calls.extend(aggregates(&double, frame));
    }
    let order = vec![ascending(column(&source, NUMBER))];
    equal(name, inputs, window(source.clone(), vec![column(&source, PARTITION)], order, calls))
}

fn before(distance: Distance) -> FrameBound {
    Range { is_following: false, distance }
}

fn behind(distance: Distance) -> FrameBound {
    Range { is_following: true, distance }
}

/// Frames between two distances, the first one of which is the smaller one.
pub(crate) fn frames_of(near: Distance, far: Distance) -> Vec<Frame> {
    vec![
        frame(before(far), behind(near)),
        frame(before(far), before(near)),
        frame(behind(near), behind(far)),
        frame(before(near), Groups(0)),
        frame(Groups(0), behind(far)),
        frame(Partition, behind(near)),
        frame(before(far), Partition),
        frame(Partition, before(near)),
        frame(behind(near), Partition),
        frame(before(near), Groups(2)),
        // Empty, but at the type's ends.
        frame(behind(far), before(far)),
    ]
}

/// Bounds by the distance of keys of every type: at its ends, with nulls at either end, in both directions.
fn distances() -> Vec<Edge> {
    use Distance::{Double, Months, Units};
    let double = |value: f64| Double(value.to_bits());
    let mut edges = vec![];
    let mut rng = StdRng::seed_from_u64(8);
    let timestamp = |unit| DataType::Timestamp(unit, None);
    let types: Vec<(DataType, Vec<(Distance, Distance)>)> = vec![
        (DataType::Int8, vec![(Units(0), Units(3)), (Units(100), Units(127))]),
        (DataType::Int32, vec![(Units(1), Units(1 << 30)), (Units(0), Units(0))]),
        (DataType::Int64, vec![(Units(2), Units(1 << 62)), (Units(1 << 62), Units(i64::MAX.into()))]),
        (DataType::UInt8, vec![(Units(5), Units(200)), (Units(0), Units(255))]),
        (DataType::UInt64, vec![(Units(7), Units(u64::MAX.into()))]),
        (DataType::Decimal128(12, 2), vec![(Units(150), Units(10i128.pow(11)))]),
        (DataType::Decimal128(38, 4), vec![(Units(3), Units(10i128.pow(37) * 9)), (Units(0), Units(10i128.pow(38)))]),
        (DataType::Decimal64(18, 2), vec![(Units(150), Units(10i128.pow(18)))]),
        (
            DataType::Date32,
            vec![(Units(3), Units(4000)), (Months(1, 0), Months(13, 2)), (Months(0, 5), Units(99_000_000))],
        ),
        (timestamp(TimeUnit::Second), vec![(Units(60), Units(86_400))]),
        (
            timestamp(TimeUnit::Nanosecond),
            vec![(Units(1), Units(86_400_000_000_000)), (Units(0), Units(i64::MAX.into()))],
        ),
        (DataType::Float64, vec![(double(0.25), double(100.0)), (double(0.0), double(1e300))]),
        (DataType::Float32, vec![(double(0.25), double(5000.0))]),
    ];
    for (data_type, distances) in types {
        let is_of_days = matches!(data_type, DataType::Date32 | DataType::Timestamp(TimeUnit::Second, _));
        for (nulls, near_by) in [(0.0, false), (0.15, true), (0.15, false)] {
            let rows = 140;
            let keys: Vec<V> = (0..rows)
                .map(|_| match rng.random_bool(nulls) {
                    true => V::Null,
                    // Within the calendar, and months with fewer days.
                    false if is_of_days && !near_by => V::Int(rng.random_range(-80_000_000..80_000_000)),
                    false if near_by && !data_type.is_floating() => V::Int(rng.random_range(60..100)),
                    false => any_value(&mut rng, &data_type),
                })
                .collect();
            edges.extend(windows_by(&format!("{data_type}, {nulls} nulls"), keys, &data_type, &distances));
        }
    }
    let nulls = vec![V::Null; 33];
    edges.extend(windows_by("nulls", nulls, &DataType::Int32, &[(Units(1), Units(2))]));
    let equal = vec![V::Int(i32::MIN.into()); 40];
    edges.extend(windows_by("equal keys", equal, &DataType::Int32, &[(Units(1), Units(2))]));
    for rows in [0, 1, 31, 32, 33, 900] {
        let keys = ints(mixed(rows).map(|row| (row % 10 != 4).then_some(row * row / 40)));
        edges.extend(windows_by(&format!("{rows} keys"), keys, &DataType::Int64, &[(Units(2), Units(90))]));
    }
    edges
}

/// Windows in the order of the keys, whose frames are between the distances.
fn windows_by(name: &str, keys: Vec<V>, data_type: &DataType, distances: &[(Distance, Distance)]) -> Vec<Edge> {
    let rows = keys.len();
    let partitions = ints((0..rows as i128).map(|row| Some(row * row % 3)));
    let arguments = ints((0..rows as i128).map(|row| (row % 6 != 1).then_some(row * 37 % 100)));
    let types = [DataType::Int32, data_type.clone(), DataType::Int64];
    let inputs = vec![batch(&[partitions, keys, arguments], &types, true)];
    let source = input(&inputs, 0);
    let argument = column(&source, 2);
    let double =
        Expr { kind: ExprKind::Cast(Box::new(argument.clone())), data_type: DataType::Float64, nullable: true };
    let mut edges = vec![];
    for (&(near, far), (descending, nulls_first)) in
        distances.iter().cycle().zip([(false, false), (true, true), (false, true), (true, false)])
    {
        let mut calls = vec![];
        for frame in frames_of(near, far) {
            calls.extend(aggregates(&argument, frame));
            calls.extend(aggregates(&double, frame).into_iter().skip(1).take(1));
        }
        let order = vec![SortKey { expr: column(&source, 1), descending, nulls_first }];
        let by = if descending == nulls_first { vec![column(&source, 0)] } else { vec![] };
        let name = format!("frames by {near} and {far} of {name}, descending {descending}, nulls first {nulls_first}");
        let mut edge = equal(name, inputs.clone(), window(source.clone(), by, order, calls));
        if edge.case.verdict().rows.is_err() {
            edge.outcome = Outcome::Unsupported;
        }
        edges.push(edge);
    }
    edges
}

/// Frames of lengths that need every level of the tree, over arguments of every form.
fn trees() -> Vec<Edge> {
    let mut edges = vec![];
    let mut rng = StdRng::seed_from_u64(9);
    for (data_type, rows, peers) in [
        (DataType::Int64, 1100, 3),
        (DataType::Float64, 1100, 40),
        (DataType::Float32, 70, 5),
        (DataType::Decimal128(38, 2), 1100, 200),
        (DataType::Utf8, 300, 7),
        (DataType::Boolean, 64, 1),
        (DataType::UInt8, 33, 1),
    ] {
        let arguments: Vec<V> = (0..rows)
            .map(|row| match row % 5 {
                0 => V::Null,
                _ if data_type == DataType::Decimal128(38, 2) => V::Int(rng.random_range(-1 << 90..1 << 90)),
                _ => any_value(&mut rng, &data_type),
            })
            .collect();
        let partitions = ints((0..rows).map(|row| Some((row > 20).into())));
        let ties = ints((0..rows).map(|row| Some(row / peers)));
        let inputs = vec![table(partitions, ties, arguments, &data_type)];
        let source = input(&inputs, 0);
        let argument = column(&source, ARGUMENT);
        let mut calls = vec![];
        for (start, end) in [(-1, 1), (-9, -3), (0, 30), (-400, 400), (2, 1)] {
            calls.extend(aggregates(&argument, frame(Groups(start), Groups(end))));
        }
        let order = vec![ascending(column(&source, TIES))];
        let plan = window(source.clone(), vec![column(&source, PARTITION)], order, calls);
        edges.push(equal(format!("frames of {rows} rows of {data_type} in groups of {peers}"), inputs, plan));
    }
    edges
}
