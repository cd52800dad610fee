//! Orders, first rows, and limits.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, TimeUnit};
use warpjoin::column::StringEncoding;
use warpjoin::exec::{Distribution, Materialization};
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, Plan, PlanKind, SortKey};

use super::{Edge, column, equal, group, ints, join, join_node, numbers};
use crate::common::data::batch;
use crate::common::random::{input, node};
use crate::common::settings::Settings;
use crate::common::value::V;

/// Settings that orders are tried with.
pub(crate) fn settings() -> Vec<Settings> {
    let usual = Settings::default();
    vec![
        Settings {
            keeps: true,
            strings: StringEncoding::UnorderedDictionary,
            ranked_rows_min: Some(0),
            ..usual.clone()
        },
        Settings {
            sort_few_rows: Some(0),
            ranked_rows_min: Some(0),
            batch_rows: 100,
            first_capacity: Some(1),
            ..usual.clone()
        },
        Settings { sort_few_rows: Some(20), devices: 2, ..usual.clone() },
        Settings { sort_few_rows: Some(0), devices: 4, keeps: true, ..usual.clone() },
        Settings { materialization: Materialization::Late, first_capacity: Some(1), ..usual.clone() },
        Settings {
            materialization: Materialization::Late,
            ranked_rows_min: Some(0),
            devices: 2,
            sort_few_rows: Some(0),
            ..usual.clone()
        },
        Settings { devices: 3, distribution: Distribution::Exchange, first_capacity: Some(0), ..usual },
    ]
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = rows();
    edges.extend(types());
    edges.extend(several_keys());
    edges.extend(thin_rows());
    edges.extend(windows());
    edges.extend(ties());
    edges.extend(between_operators());
    edges
}

/// Ascending, nulls last.
fn ascending(expr: Expr) -> SortKey {
    SortKey { expr, descending: false, nulls_first: false }
}

fn descending(expr: Expr) -> SortKey {
    SortKey { expr, descending: true, nulls_first: true }
}

pub(super) fn sort(input: Plan, keys: Vec<SortKey>, skip: u64, fetch: Option<u64>) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Sort { input: Box::new(input), keys, skip, fetch }, schema }
}

pub(super) fn limit(input: Plan, skip: u64, fetch: Option<u64>) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Limit { input: Box::new(input), skip, fetch }, schema }
}

pub(super) fn project(input: Plan, exprs: Vec<Expr>) -> Plan {
    let types: Vec<_> = exprs.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
    node(PlanKind::Project { input: Box::new(input), exprs }, types.iter().map(|(t, n)| (t, *n)))
}

fn number(value: i64) -> Expr {
    Expr { kind: ExprKind::Literal(Scalar::Int(value.into())), data_type: DataType::Int64, nullable: false }
}

/// The table of one key column and row numbers, in the order of the key.
fn sorted_by(name: impl Into<String>, keys: Vec<V>, data_type: &DataType, key: fn(Expr) -> SortKey) -> Edge {
    windowed(name, keys, data_type, key, 0, None)
}

fn windowed(
    name: impl Into<String>,
    keys: Vec<V>,
    data_type: &DataType,
    key: fn(Expr) -> SortKey,
    skip: u64,
    fetch: Option<u64>,
) -> Edge {
    let rows = keys.len();
    let table = batch(&[keys, numbers(rows)], &[data_type.clone(), DataType::Int64], true);
    let inputs = vec![table];
    let source = input(&inputs, 0);
    let keys = vec![key(column(&source, 0))];
    equal(name, inputs, sort(source, keys, skip, fetch))
}

/// Rows of one key column and row numbers, the largest keys first.
pub(crate) fn sort_of(name: &str, keys: Vec<V>, skip: u64, fetch: Option<u64>) -> Edge {
    windowed(name, keys, &DataType::Int64, descending, skip, fetch)
}

/// Numbers from 0 to `rows` - 1, mixed up.
fn mixed(rows: i128) -> impl Iterator<Item = i128> {
    (0..rows).map(move |row| row * 7919 % rows.max(1))
}

fn rows() -> Vec<Edge> {
    let mut edges = vec![];
    for rows in [0, 1, 31, 32, 33, 255, 256, 257, 1024, 1025, 6000] {
        let unique = ints(mixed(rows).map(Some));
        edges.push(sorted_by(format!("order of {rows} rows"), unique.clone(), &DataType::Int32, ascending));
        edges.push(sorted_by(format!("order of {rows} rows, falling"), unique, &DataType::Int64, descending));
        let wide = ints(mixed(rows).map(|row| Some((row - rows / 2) * 3_000_000_000_000_000 / rows.max(1))));
        edges.push(sorted_by(format!("order of {rows} rows of long keys"), wide, &DataType::Int64, ascending));
        let nulls = ints(mixed(rows).map(|row| (row % 3 != 0).then_some(row % 50)));
        edges.push(sorted_by(format!("order of {rows} rows with nulls"), nulls.clone(), &DataType::UInt16, ascending));
        let nulls_first = |expr| SortKey { expr, descending: false, nulls_first: true };
        edges.push(sorted_by(
            format!("order of {rows} rows, nulls first"),
            nulls.clone(),
            &DataType::Int8,
            nulls_first,
        ));
        let nulls_last = |expr| SortKey { expr, descending: true, nulls_first: false };
        edges.push(sorted_by(
            format!("order of {rows} rows, falling, nulls last"),
            nulls,
            &DataType::Int64,
            nulls_last,
        ));
    }
    for rows in [33, 5000] {
        let all_null = vec![V::Null; rows];
        edges.push(sorted_by(format!("order of {rows} nulls"), all_null, &DataType::Int64, ascending));
        let same = ints((0..rows).map(|_| Some(7)));
        edges.push(sorted_by(format!("order of {rows} equal rows"), same, &DataType::Int64, ascending));
        let skewed = ints((0..rows).map(|row| Some(if row % 100 == 0 { row as i128 * 1_000_003 } else { 5 })));
        edges.push(sorted_by(format!("order of {rows} skewed rows"), skewed, &DataType::Int64, descending));
    }
    edges
}

fn types() -> Vec<Edge> {
    let mut edges = vec![];
    let mut add = |name: &str, values: &[V], data_type: DataType| {
        // Each value often, and nulls among them.
        let column: Vec<V> =
            (0..400).map(|row| if row % 13 == 0 { V::Null } else { values[row * 31 % values.len()].clone() }).collect();
        edges.push(sorted_by(format!("order of {name}"), column.clone(), &data_type, ascending));
        edges.push(sorted_by(format!("order of {name}, falling"), column.clone(), &data_type, descending));
        edges.push(windowed(format!("first of {name}"), column, &data_type, descending, 3, Some(40)));
    };
    let extremes = |min: i128, max: i128| ints([Some(min), Some(max), Some(0), Some(1), Some(max / 3), Some(min + 1)]);
    add("bytes", &extremes(-128, 127), DataType::Int8);
    add("long numbers", &extremes(i64::MIN.into(), i64::MAX.into()), DataType::Int64);
    add("long unsigned numbers", &extremes(0, u64::MAX.into()), DataType::UInt64);
    let decimal = 10i128.pow(38) - 1;
    add("long decimals", &extremes(-decimal, decimal), DataType::Decimal128(38, 3));
    add("decimals of 70 bits", &extremes(-(1 << 69), 1 << 69), DataType::Decimal128(30, 0));
    add("short decimals", &extremes(-9_999_999, 9_999_999), DataType::Decimal32(7, 2));
    add("days", &extremes(-30_000, 90_000), DataType::Date32);
    add("times", &extremes(i64::MIN.into(), i64::MAX.into()), DataType::Timestamp(TimeUnit::Nanosecond, None));
    add("truths", &[V::Bool(true), V::Bool(false)], DataType::Boolean);
    let floats =
        [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-310, -2e30, 3.0e30].map(V::Float);
    add("doubles", &floats, DataType::Float64);
    let floats =
        [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::from(1e-40f32), f64::from(-2e30f32)];
    add("floats", &floats.map(V::Float), DataType::Float32);
    let texts = ["", "a", "ab", "b", "ä", "Z", "zz", "\u{1F600}", "a longer text than twelve bytes"];
    for data_type in [DataType::Utf8, DataType::Utf8View, DataType::LargeUtf8] {
        let name = format!("{data_type}");
        add(&name, &texts.map(|text| V::Text(text.into())), data_type);
    }
    // A dictionary of more values than are sorted when it is made.
    let many: Vec<V> = mixed(66_000).map(|row| V::Text(format!("{row:x}"))).collect();
    edges.push(windowed("first of many strings", many, &DataType::Utf8, ascending, 10, Some(500)));
    edges
}

fn several_keys() -> Vec<Edge> {
    let mut edges = vec![];
    for rows in [40, 3000] {
        let columns = [
            ints((0..rows).map(|row| (row % 5 != 4).then_some(row % 3))),
            ints((0..rows).map(|row| Some(row * 7919 % 97 * 1_000_000_007 * 1_000_003))),
            (0..rows).map(|row| V::Text(format!("{}", row * 31 % 41))).collect(),
            (0..rows).map(|row| V::Float((row * 17 % 23) as f64 - 11.5)).collect(),
            ints((0..rows).map(|row| Some((row % 2 * 2 - 1) * (i128::MAX >> 3)))),
            numbers(rows as usize),
        ];
        let types = [
            DataType::Int16,
            DataType::Int64,
            DataType::Utf8View,
            DataType::Float64,
            DataType::Decimal128(38, 0),
            DataType::Int64,
        ];
        let inputs = vec![batch(&columns, &types, true)];
        let source = input(&inputs, 0);
        let key = |index| column(&source, index);
        let orders: Vec<(&str, Vec<SortKey>)> = vec![
            ("two keys", vec![descending(key(0)), ascending(key(2))]),
            ("three keys", vec![ascending(key(0)), descending(key(1)), descending(key(2))]),
            (
                "keys of many words",
                (0..6)
                    .map(|index| if index % 2 == 0 { ascending(key(index)) } else { descending(key(index)) })
                    .collect(),
            ),
            (
                "more words than a block compares",
                (0..12).map(|index| ascending(key([0, 1, 3, 4][index % 4]))).collect(),
            ),
            ("a key of a sum", vec![ascending(sum(key(5), key(1))), ascending(key(5))]),
        ];
        for (name, keys) in orders {
            for (skip, fetch) in [(0, None), (5, Some(20)), (0, Some(rows as u64 - 3))] {
                let plan = sort(source.clone(), keys.clone(), skip, fetch);
                edges.push(equal(format!("{name}, {rows} rows, {skip} {fetch:?}"), inputs.clone(), plan));
            }
        }
        // Constants, and nothing at all.
        for keys in [vec![ascending(number(5))], vec![]] {
            let plan = sort(source.clone(), keys, 2, Some(10));
            edges.push(equal(format!("an order by nothing, {rows} rows"), inputs.clone(), plan));
        }
    }
    // More columns than one launch brings into an order.
    let columns: Vec<Vec<V>> = (0..20).map(|shift| ints(mixed(300).map(|row| Some((row + shift) % 300)))).collect();
    let inputs = vec![batch(&columns, &vec![DataType::Int32; 20], true)];
    let source = input(&inputs, 0);
    let keys = vec![descending(column(&source, 13))];
    edges.push(equal("an order of many columns", inputs.clone(), sort(source.clone(), keys.clone(), 1, Some(250))));
    edges.push(equal("an order without columns", inputs, project(sort(source, keys, 1, Some(250)), vec![])));
    edges
}

/// Rows of few words, which move with their keys.
fn thin_rows() -> Vec<Edge> {
    let mut edges = vec![];
    for (bits, data_type) in [(30, DataType::Int64), (60, DataType::Int64), (31, DataType::UInt32)] {
        let key = || ints(mixed(3000).map(|row| Some((row << bits) / 3000)));
        let wide = ints((0..3000).map(|row| Some(row * 600_011)));
        let some_null = ints((0..3000).map(|row| (row % 7 != 0).then_some(row * 600_011)));
        let int = DataType::Int32;
        for (name, columns, types) in [
            ("a key", vec![key()], vec![data_type.clone()]),
            ("a key and a number", vec![key(), wide.clone()], vec![data_type.clone(), int.clone()]),
            ("a number and a key", vec![wide.clone(), key()], vec![int.clone(), data_type.clone()]),
            ("a key and a null", vec![key(), some_null], vec![data_type.clone(), int.clone()]),
        ] {
            let inputs = vec![batch(&columns, &types, true)];
            let source = input(&inputs, 0);
            let at = types.iter().position(|t| *t == data_type).unwrap_or(0);
            for (direction, order) in [("rising", ascending as fn(Expr) -> SortKey), ("falling", descending)] {
                for skip in [0, 4] {
                    let plan = sort(source.clone(), vec![order(column(&source, at))], skip, None);
                    edges.push(equal(format!("{name} of {bits} bits, {direction}, {skip}"), inputs.clone(), plan));
                }
            }
            let twice = project(source.clone(), vec![column(&source, at), column(&source, at)]);
            let plan = sort(twice.clone(), vec![ascending(column(&twice, 1))], 0, None);
            edges.push(equal(format!("{name} of {bits} bits, twice"), inputs, plan));
        }
    }
    edges
}

fn sum(a: Expr, b: Expr) -> Expr {
    let nullable = a.nullable || b.nullable;
    let kind = ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(a), Box::new(b));
    Expr { kind, data_type: DataType::Int64, nullable }
}

fn windows() -> Vec<Edge> {
    let mut edges = vec![];
    for rows in [0, 33, 6000] {
        for (skip, fetch) in [
            (0, Some(0)),
            (0, Some(1)),
            (0, Some(rows / 4)),
            (0, Some(rows / 4 + 1)),
            (3, Some(rows / 8)),
            (0, Some(rows)),
            (0, Some(rows + 1)),
            (1, None),
            (rows, Some(5)),
            (rows + 1, None),
            (rows / 2, Some(u64::MAX)),
            (u64::MAX, Some(u64::MAX)),
        ] {
            let keys = ints(mixed(rows.into()).map(Some));
            let name = format!("rows {skip} {fetch:?} of {rows}");
            edges.push(windowed(name.clone(), keys.clone(), &DataType::Int64, descending, skip, fetch));
            let inputs = vec![batch(&[keys], &[DataType::Int64], true)];
            edges.push(equal(format!("any {name}"), inputs.clone(), limit(input(&inputs, 0), skip, fetch)));
        }
    }
    edges
}

/// First rows among many with the same key.
fn ties() -> Vec<Edge> {
    let mut edges = vec![];
    for fetch in [1, 10, 700, 1499, 1500, 5000] {
        let first = |name: &str, keys: Vec<V>, data_type: &DataType| {
            windowed(format!("{fetch} of {name}"), keys, data_type, ascending, 0, Some(fetch))
        };
        edges.push(first("equal rows", ints((0..6000).map(|_| Some(3))), &DataType::Int64));
        edges.push(first("two values", ints((0..6000).map(|row| Some(row % 2 * (1 << 40)))), &DataType::Int64));
        edges.push(first("few values", ints((0..6000).map(|row| Some(row * row % 11 * 1_000_003))), &DataType::Int32));
        let ends = (0..6000).map(|row| Some(if row % 700 == 3 { -row } else { i128::from(i64::MAX) - row % 2 }));
        edges.push(first("values at the ends", ints(ends), &DataType::Int64));
        // The second word decides.
        let columns = [ints((0..6000).map(|row| Some((row % 2) << 62))), ints(mixed(6000).map(|row| Some(row << 50)))];
        let inputs = vec![batch(&columns, &[DataType::Int64, DataType::Int64], true)];
        let source = input(&inputs, 0);
        let keys = vec![ascending(column(&source, 0)), descending(column(&source, 1))];
        edges.push(equal(format!("{fetch} of equal first words"), inputs, sort(source, keys, 2, Some(fetch))));
    }
    edges
}

/// A table of keys that occur several times, and row numbers.
fn repeated(rows: i128, keys: i128) -> RecordBatch {
    let columns = [ints(mixed(rows).map(|row| Some(row % keys))), numbers(rows as usize)];
    batch(&columns, &[DataType::Int64, DataType::Int64], true)
}

fn between_operators() -> Vec<Edge> {
    let mut edges = vec![];
    let inputs = vec![repeated(900, 50), repeated(60, 60)];
    let mut add = |name: &str, plan: Plan| edges.push(equal(name, inputs.clone(), plan));
    let (many, few) = (input(&inputs, 0), input(&inputs, 1));
    let by_number = |plan: &Plan| vec![descending(column(plan, 1))];
    let rows = || vec![AggregateCall::new(AggregateFunction::Count, None, DataType::Int64)];

    let mut joined = join(&inputs[1], &inputs[0], 1);
    let all = join_node(joined.clone());
    add("an order of a join", sort(all.clone(), vec![ascending(column(&all, 3))], 0, None));
    add(
        "first rows of a join",
        sort(all.clone(), vec![ascending(column(&all, 0)), descending(column(&all, 3))], 7, Some(90)),
    );
    let groups = group(many.clone(), vec![column(&many, 0)], rows());
    let keys = vec![descending(column(&groups, 1)), ascending(column(&groups, 0))];
    add("an order of groups", sort(groups.clone(), keys.clone(), 0, None));
    add("first groups", sort(groups.clone(), keys, 0, Some(10)));
    let one = group(many.clone(), vec![], rows());
    add("an order of one row", sort(one.clone(), vec![ascending(column(&one, 0))], 0, None));

    let first = sort(many.clone(), by_number(&many), 10, Some(300));
    add("a limit of an order", limit(first.clone(), 5, Some(200)));
    add("a limit of a limit", limit(limit(first.clone(), 5, None), 3, Some(1000)));
    add("columns of an order", project(first.clone(), vec![column(&first, 0)]));
    let sums = project(first.clone(), vec![sum(column(&first, 0), column(&first, 1)), column(&first, 1)]);
    let names = project(limit(sums.clone(), 1, Some(100)), vec![column(&sums, 1), column(&sums, 0), column(&sums, 1)]);
    add("columns of columns of an order", names);
    let least = Expr {
        kind: ExprKind::Compare(CompareOp::Less, Box::new(column(&first, 0)), Box::new(number(20))),
        data_type: DataType::Boolean,
        nullable: false,
    };
    let kind = PlanKind::Filter { input: Box::new(first.clone()), predicate: least };
    let filtered = Plan { kind, schema: first.schema.clone() };
    add("a filter of first rows", filtered.clone());
    add("an order of a filter of first rows", sort(filtered.clone(), vec![ascending(column(&filtered, 0))], 0, None));
    add("groups of first rows", group(first.clone(), vec![column(&first, 0)], rows()));
    add("groups of an order", group(sort(many.clone(), by_number(&many), 0, None), vec![column(&many, 0)], rows()));
    add("how many rows a limit leaves", group(limit(many.clone(), 100, Some(150)), vec![], rows()));
    add("an order of an order", sort(first.clone(), vec![ascending(column(&first, 1))], 0, None));
    joined.build = sort(few.clone(), by_number(&few), 0, Some(20));
    joined.probe = first.clone();
    add("a join of first rows", join_node(joined));
    edges
}
