//! Group-bys of tables that lie in the order of a key: groups are complete on their device, but for keys that two devices share.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch};
use warpjoin::plan::AggregateFunction;
use warpjoin::{CodeTier, DeviceThreads, ExecOptions, GroupBy, QueryOutput, Session, Table, TableBuilder};

use super::{rows_of, session};

const ROWS: i64 = 3000;

/// How keys come: name, key of a row, whether no key lies on two devices.
type Keys = (&'static str, fn(i64) -> i64, bool);

const KEYS: [Keys; 5] = [
    ("seven rows each", |row| 1000 + row / 7 * 3, false),
    ("one row each", |row| row * 2 - 500, true),
    // Devices have multiples of 64 rows.
    ("64 rows each", |row| row / 64, true),
    ("one has half of the rows", |row| if row < 1400 { row } else { 1400 + (row - 1400) / 1500 }, false),
    ("all the same", |_| 7, false),
];

fn table(session: &Arc<Session>, key: fn(i64) -> i64) -> Arc<Table> {
    let rows = 0..ROWS;
    let keys: ArrayRef = Arc::new(rows.clone().map(key).collect::<Int64Array>());
    let few: ArrayRef = Arc::new(rows.clone().map(|row| (row * 13 % 5) as i32).collect::<Int32Array>());
    let number = |row: i64| (row % 11 != 0).then_some((row * 31 % 1000) as i32 - 500);
    let numbers: ArrayRef = Arc::new(rows.clone().map(number).collect::<Int32Array>());
    let wide = rows.clone().map(|row| i128::from(i64::MAX) * i128::from(row % 17 - 8));
    let wide: ArrayRef = Arc::new(wide.collect::<Decimal128Array>().with_precision_and_scale(30, 2).unwrap());
    let floats: ArrayRef = Arc::new(rows.map(|row| (row * 7 % 64) as f64 / 4.0).collect::<Float64Array>());
    let columns = [("key", keys), ("few", few), ("number", numbers), ("wide", wide), ("float", floats)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut builder = TableBuilder::new(session.device_set(), batch.schema());
    builder.push(&batch).unwrap();
    Arc::new(builder.finish().unwrap())
}

fn grouped(session: &Arc<Session>, keys: &[&str], key: fn(i64) -> i64, options: &ExecOptions) -> QueryOutput {
    let mut groups = GroupBy::new(table(session, key)).options(options.clone());
    for key in keys {
        groups = groups.key(key).unwrap();
    }
    groups = groups.aggregate(AggregateFunction::Count, None).unwrap();
    for (function, column) in [
        (AggregateFunction::Count, "number"),
        (AggregateFunction::Sum, "number"),
        (AggregateFunction::Min, "number"),
        (AggregateFunction::Max, "float"),
        (AggregateFunction::Sum, "wide"),
        (AggregateFunction::Min, "few"),
        (AggregateFunction::Sum, "float"),
        (AggregateFunction::Avg, "float"),
        (AggregateFunction::BitAnd, "number"),
        (AggregateFunction::BitXor, "number"),
    ] {
        groups = groups.aggregate(function, Some(column)).unwrap();
    }
    groups.run(session).unwrap()
}

fn is_exchanged(output: &QueryOutput) -> bool {
    output.metrics.pipelines.iter().any(|pipeline| pipeline.name.ends_with("Exchange"))
}

#[test]
fn groups_in_the_order_of_the_key_equal_those_on_one_device() {
    let alone = session(1);
    for devices in [2, 3, 5, 8] {
        let session = session(devices);
        for (number, (name, key, is_apart)) in KEYS.into_iter().enumerate() {
            for (keys, span_min, code_tier) in [
                (&["key"][..], Some(1), CodeTier::Compiled),
                (&["key"], Some(1), CodeTier::Interpreted),
                (&["key"], None, CodeTier::Compiled),
                (&["few", "key"], None, CodeTier::Compiled),
            ] {
                let options = ExecOptions {
                    few_rows: Some(0),
                    ordered_span_min: span_min,
                    code_tier,
                    device_threads: [DeviceThreads::One(number as u64), DeviceThreads::Each][number % 2],
                    ..ExecOptions::default()
                };
                let output = grouped(&session, keys, key, &options);
                let what = format!("{keys:?}, {name}, {devices} devices, spans from {span_min:?}, {code_tier:?}");
                assert_eq!(rows_of(&output), rows_of(&grouped(&alone, keys, key, &options)), "{what}");
                // Keys of few bits have a row each in any case.
                if is_apart || keys.len() == 1 {
                    let names: Vec<_> = output.metrics.pipelines.iter().map(|pipeline| &pipeline.name).collect();
                    assert!(!is_exchanged(&output), "{what}: {names:?}");
                }
            }
        }
    }
}

/// Without a table by key, groups of keys that two devices share are brought together.
#[test]
fn groups_of_shared_keys_in_hash_tables_are_exchanged() {
    let session = session(3);
    let spread = |row: i64| row / 7 * 1_000_003;
    let options = ExecOptions { few_rows: Some(0), ..ExecOptions::default() };
    let output = grouped(&session, &["key"], spread, &options);
    assert!(is_exchanged(&output));
    assert_eq!(rows_of(&output), rows_of(&grouped(&super::session(1), &["key"], spread, &options)));
}

/// Rows are cut between keys, and blocks finish the groups of a piece, but for those of keys that two devices share.
#[test]
fn groups_of_pieces_equal_those_of_one_table() {
    type Spread = (&'static str, fn(i64) -> i64);
    const SPREAD: i64 = 1_000_003;
    let keys: [Spread; 5] = [
        ("seven rows each", |row| row / 7 * SPREAD),
        ("one row each", |row| (row - 1500) * SPREAD),
        ("64 rows each", |row| row / 64 * SPREAD),
        ("one has half of the rows", |row| if row < 1400 { row } else { 1400 + (row - 1400) / 1500 } * SPREAD),
        ("two", |row| row / 1700 * SPREAD * SPREAD),
    ];
    let alone = session(1);
    let is_cut = |output: &QueryOutput| {
        let names = output.metrics.pipelines.iter().map(|pipeline| &pipeline.name);
        names.clone().any(|name| name.ends_with("GroupBy[shared, by piece]"))
    };
    for devices in [1, 2, 3, 5] {
        let session = session(devices);
        for (name, key) in keys {
            for keys in [&["key"][..], &["few", "key"], &["key", "few"]] {
                let whole = grouped(&alone, keys, key, &ExecOptions::default());
                assert!(!is_cut(&whole), "{name}: so few rows are not cut");
                for (what, options) in [
                    ("plain", ExecOptions::default()),
                    ("interpreted", ExecOptions { code_tier: CodeTier::Interpreted, ..ExecOptions::default() }),
                    ("few slots", ExecOptions { block_table_slots: Some(64), ..ExecOptions::default() }),
                    ("chunks", ExecOptions { chunk_rows: Some(256), ..ExecOptions::default() }),
                    ("no room", ExecOptions { first_capacity: Some(1), ..ExecOptions::default() }),
                ] {
                    if devices > 1 && !matches!(what, "plain" | "interpreted" | "no room") {
                        continue;
                    }
                    let options = ExecOptions { ordered_span_min: Some(1), few_rows: Some(0), ..options };
                    let output = grouped(&session, keys, key, &options);
                    let what = format!("{name} by {keys:?} on {devices}, {what}: {:?}", output.metrics.pipelines);
                    assert_eq!(is_cut(&output), devices == 1 || keys.len() == 1, "{what}");
                    assert_eq!(rows_of(&output), rows_of(&whole), "{what}");
                    assert!(!is_cut(&output) || !is_exchanged(&output), "{what}");
                }
            }
        }
    }
}

/// The last key has no slot in a group table: its groups are brought together. Slots of 4 bits of a hash are taken by others.
#[test]
fn extreme_keys_that_devices_share_are_one_group() {
    let ends = |row: i64| match row {
        ..400 => i64::MIN,
        400..1100 => (row - 700) / 3,
        _ => i64::MAX,
    };
    let options = ExecOptions { ordered_span_min: Some(1), few_rows: Some(0), hash_bits: 4, ..ExecOptions::default() };
    let whole = grouped(&session(1), &["key"], ends, &ExecOptions::default());
    for devices in [2, 3, 5] {
        assert_eq!(
            rows_of(&grouped(&session(devices), &["key"], ends, &options)),
            rows_of(&whole),
            "{devices} devices"
        );
    }
}

#[test]
fn booleans_in_order_are_grouped() {
    for devices in [1, 2, 3] {
        let session = session(devices);
        let keys: ArrayRef = Arc::new((0..ROWS).map(|row| Some(row >= 400)).collect::<BooleanArray>());
        let batch = RecordBatch::try_from_iter([("key", keys)]).unwrap();
        let mut builder = TableBuilder::new(session.device_set(), batch.schema());
        builder.push(&batch).unwrap();
        let groups = GroupBy::new(Arc::new(builder.finish().unwrap())).options(ExecOptions {
            ordered_span_min: Some(1),
            few_rows: Some(0),
            ..ExecOptions::default()
        });
        let output =
            groups.key("key").unwrap().aggregate(AggregateFunction::Count, None).unwrap().run(&session).unwrap();
        assert_eq!(rows_of(&output), ["false,400", "true,2600"], "{devices} devices");
    }
}

/// A key that may be null, or that some rows come before, is not cut by.
#[test]
fn keys_that_are_not_in_order_are_not_cut_by() {
    let session = session(1);
    let options = ExecOptions { ordered_span_min: Some(1), ..ExecOptions::default() };
    let output = grouped(&session, &["key"], |row| if row == 7 { 0 } else { row * 1_000_003 }, &options);
    assert!(output.metrics.pipelines.iter().all(|pipeline| !pipeline.name.contains("by piece")));
}
