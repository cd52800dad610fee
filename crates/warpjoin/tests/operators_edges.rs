//! The operators at their edges, on simulated devices: see `common::edges`.

mod common;

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::edges;
use common::sessions::{Opener, simulated};
use common::settings::Settings;
use warpjoin::exec::{self, GroupByForm};
use warpjoin::plan::JoinKind;
use warpjoin::{ExecOptions, HashJoin, JoinForm, Session, TableBuilder};
use warpjoin_device::{SimOptions, open_simulated};

#[test]
fn edges_equal_the_oracle() {
    edges::check(&simulated(), &edges::all(false), &edges::settings());
}

/// Those of expressions alone: for whoever changes one of them.
#[test]
fn functions_equal_the_oracle() {
    edges::check(&simulated(), &edges::of_functions(), &edges::settings());
}

/// Orders and limits.
#[test]
fn sorts_equal_the_oracle() {
    edges::check(&simulated(), &edges::of_sorts(), &edges::sort_settings());
}

/// Window functions.
#[test]
fn windows_equal_the_oracle() {
    edges::check(&simulated(), &edges::of_windows(), &edges::sort_settings());
}

/// The edges of group-bys are there for its four ways to a group: each must be taken.
#[test]
fn every_way_to_a_group_is_taken() {
    let opener = simulated();
    for (mode, code) in [
        ("private", "block_slot_keyed("),
        ("dense", "group_row_dense("),
        ("narrow", "group_row_narrow("),
        ("narrow", "block_slot("),
        ("word", "group_row_narrow("),
        ("wide", "group_row_wide("),
    ] {
        for edge in edges::all(false).iter().filter(|e| e.name.starts_with(&format!("{mode} keys, 6000"))) {
            let session = opener.open(1).expect("a session");
            edge.case.run(&session, &Settings::default()).expect("rows");
            let sources = session.devices()[0].compiled_sources();
            assert!(sources.iter().any(|source| source.text.contains(code)), "{}", edge.name);
        }
    }
}

/// Groups of a partition are finished by its block; where a key is frequent, the rows of a warp are added up first.
#[test]
fn every_way_through_a_partition_is_taken() {
    let settings = Settings { group_by_form: Some(GroupByForm::Partitioned), ..Settings::default() };
    for (edge, code) in [
        ("word, all different keys, 6000 rows", "finish"),
        ("wide keys, 6000 rows", "group_row_wide("),
        ("a frequent key among others", "frequent"),
    ] {
        for edge in edges::all(false).iter().filter(|e| e.name == edge) {
            let session = simulated().open(1).expect("a session");
            edge.case.run(&session, &settings).expect("rows");
            let sources = session.devices()[0].compiled_sources();
            let is_taken = |text: &str| text.contains("open_walk(") && text.contains(code);
            assert!(sources.iter().any(|source| is_taken(&source.text)), "{}", edge.name);
        }
    }
}

/// Each way to find matches is taken, and says so in the metrics.
#[test]
fn every_way_to_a_match_is_taken() {
    let (unique, thrice, often): (Vec<i64>, Vec<i64>, Vec<i64>) =
        ((0..900).collect(), (0..900).map(|row| row / 3).collect(), vec![7; 900]);
    let some_twice: Vec<i64> = (0..900).map(|row| if row % 10 == 0 { row - row % 20 } else { row }).collect();
    let partitioned = |partition_rows| ExecOptions {
        join_form: Some(JoinForm::Partitioned),
        partition_rows: Some(partition_rows),
        ..ExecOptions::default()
    };
    let form = |join_form| ExecOptions { join_form: Some(join_form), ..ExecOptions::default() };
    let lanes = |lanes| ExecOptions { probe_group_lanes: Some(lanes), ..form(JoinForm::HashTable) };
    let reduced = ExecOptions { reduced_rows_min: Some(0), ..form(JoinForm::HashTable) };
    // Key words of 33 bits: no room for a value in four bytes.
    let wide: Vec<i64> = (0..900).map(|row| row * 4_776_000).collect();
    for (keys, options, kind, rows, line) in [
        (&unique, partitioned(100), JoinKind::Inner, 450, "Matches[Chains]"),
        (&some_twice, partitioned(100), JoinKind::Inner, 450, "Matches[Chains]"),
        (&thrice, partitioned(100), JoinKind::Inner, 450, "Matches[Lists]"),
        (&often, partitioned(100), JoinKind::Inner, 900, "Matches[Lists]"),
        (&unique, partitioned(100), JoinKind::ProbeSemi, 450, "Matches[Semi]"),
        (&unique, form(JoinForm::Direct), JoinKind::Inner, 450, "DirectTable[4 bytes]"),
        (&unique, form(JoinForm::HashTable), JoinKind::Inner, 450, "HashTable[unique, 1 lanes, 4 bytes]"),
        (&wide, form(JoinForm::HashTable), JoinKind::Inner, 1, "HashTable[unique, 1 lanes, 8 bytes]"),
        (&unique, lanes(4), JoinKind::Inner, 450, "HashTable[unique, 4 lanes, 16 bytes]"),
        (&thrice, form(JoinForm::HashTable), JoinKind::Inner, 450, "HashTable[lists, 1 lanes]"),
        (&thrice, form(JoinForm::HashTable), JoinKind::ProbeSemi, 150, "HashTable[unique, 1 lanes, 4 bytes]"),
        (&thrice, form(JoinForm::HashTable), JoinKind::ProbeAnti, 300, "HashTable[unique, 1 lanes, 4 bytes]"),
        (&thrice, form(JoinForm::Direct), JoinKind::ProbeMark, 450, "DirectTable[4 bytes]"),
        (&thrice, form(JoinForm::HashTable), JoinKind::ProbeOuter, 750, "HashTable[lists, 1 lanes]"),
        (&thrice, reduced, JoinKind::ProbeOuter, 750, "Probe -> BuildRows"),
        (&unique, form(JoinForm::HashTable), JoinKind::Full, 900, "-> Union"),
    ] {
        let session = simulated().open(1).expect("a session");
        let table = |keys: Vec<i64>| {
            let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false)]));
            let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(keys))]).expect("a batch");
            let mut builder = TableBuilder::new(session.device_set(), schema);
            builder.push(&batch).expect("rows");
            Arc::new(builder.finish().expect("a table"))
        };
        let probe = table((0..900).step_by(2).collect());
        let probe = if keys == &often { table(vec![7]) } else { probe };
        let join = HashJoin::new(table(keys.clone()), probe).on("key", "key").expect("columns").kind(kind);
        let output = join.options(options).run(&session).expect("rows");
        assert_eq!(output.metrics.rows, rows, "{line}");
        let names: Vec<&String> = output.metrics.pipelines.iter().map(|pipeline| &pipeline.name).collect();
        assert!(names.iter().any(|name| name.contains(line)), "{line}: {names:?}");
    }
}

/// What tables and settings tell about a join is in its pipelines before it runs.
#[test]
fn pipelines_say_how_a_join_will_run() {
    let session = simulated().open(1).expect("a session");
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(vec![1, 2, 3]))]).expect("a batch");
    let mut builder = TableBuilder::new(session.device_set(), schema);
    builder.push(&batch).expect("rows");
    let table = Arc::new(builder.finish().expect("a table"));
    let plan = HashJoin::new(table.clone(), table).on("key", "key").expect("columns").plan().expect("a plan");
    for (join_form, wanted) in [
        (None, ["Scan[1 columns] -> BuildHashTable", "Probe[pipeline 1]"]),
        (Some(JoinForm::Direct), ["Scan[1 columns] -> BuildDirectTable", "Probe[pipeline 1]"]),
        (Some(JoinForm::Partitioned), ["Scan[1 columns] -> Partition", "Matches[pipelines 1 and 2]"]),
    ] {
        let lines = exec::explain(&plan, &session, &ExecOptions { join_form, ..ExecOptions::default() }).pipelines;
        assert!(lines[0] == wanted[0] && lines.last().expect("a line").contains(wanted[1]), "{lines:?}");
    }
}

/// A thread, and a warp even more, adds up more than the 2^20 rows of a source that it is bound to.
#[test]
fn sums_behind_duplicate_keys_do_not_overflow() {
    for keys in [0, 1] {
        let (case, wanted) = edges::sum_behind_duplicates(1 << 16, keys);
        let session = simulated().open(1).expect("a session");
        assert_eq!(case.run(&session, &Settings::default()).expect("rows"), wanted, "{keys} keys");
    }
}

/// Work must not depend on more than the eight devices that kernels are made for.
#[test]
fn sessions_of_too_many_devices_are_refused() {
    let devices = |count| open_simulated(&SimOptions { devices: count, ..SimOptions::default() }).expect("devices");
    assert!(Session::new(devices(8)).is_ok());
    assert!(Session::new(devices(9)).is_err());
    assert!(Session::new(vec![]).is_err());
}

/// Keys in order, with more values than a table by key has elsewhere: one goes through it in order.
#[test]
fn groups_in_the_order_of_their_keys_are_found_by_key() {
    use warpjoin::plan::AggregateFunction::{Count, Max, Sum};
    // 8 values for a row, and just more than 22 bits of them.
    let groups = 600_000i64;
    let value = |row: i64| (row % 3 != 0).then_some(row * 31 % 1_000);
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..groups).map(|row| row * 7 - 5_000))),
        Arc::new((0..groups).map(value).collect::<Int64Array>()),
    ];
    let fields = vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Int64, true)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch");
    let session = simulated().open(1).expect("a device");
    let mut builder = TableBuilder::new(session.device_set(), batch.schema());
    builder.push(&batch).expect("rows");
    let table = Arc::new(builder.finish().expect("a table"));
    let plan = warpjoin::GroupBy::new(table)
        .key("k")
        .and_then(|it| it.aggregate(Sum, Some("v"))?.aggregate(Max, Some("v"))?.aggregate(Count, None)?.plan())
        .expect("a plan");
    let options = ExecOptions { ordered_span_min: Some(0), ..ExecOptions::default() };
    let output = exec::run(&session, &plan, &[], &options).expect("rows");
    let mut found: Vec<[Option<i64>; 4]> = vec![];
    for batch in &output.batches {
        let columns: Vec<&Int64Array> = batch.columns().iter().map(|it| it.as_primitive()).collect();
        let cell = |column: &Int64Array, row: usize| column.is_valid(row).then(|| column.value(row));
        found.extend((0..batch.num_rows()).map(|row| [0, 1, 2, 3].map(|column| cell(columns[column], row))));
    }
    found.sort_unstable();
    assert_eq!(found.len() as i64, groups);
    for (row, found) in (0..).zip(&found) {
        assert_eq!(*found, [Some(row * 7 - 5_000), value(row), value(row), Some(1)]);
    }
    let pipelines = &output.metrics.pipelines;
    assert!(pipelines[0].name.contains("GroupBy[shared, by piece]"), "{pipelines:?}");
}
