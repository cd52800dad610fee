//! The operators at their edges, on simulated devices: see `common::edges`.

mod common;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::edges;
use common::sessions::{Opener, simulated};
use common::settings::Settings;
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

/// Each way to find matches is taken, and says so in the metrics.
#[test]
fn every_way_to_a_match_is_taken() {
    let (unique, thrice, often): (Vec<i64>, Vec<i64>, Vec<i64>) =
        ((0..900).collect(), (0..900).map(|row| row / 3).collect(), vec![7; 900]);
    let partitioned = |partition_rows| ExecOptions {
        join_form: Some(JoinForm::Partitioned),
        partition_rows: Some(partition_rows),
        ..ExecOptions::default()
    };
    let form = |join_form| ExecOptions { join_form: Some(join_form), ..ExecOptions::default() };
    for (keys, options, kind, rows, line) in [
        (&unique, partitioned(100), JoinKind::Inner, 450, "Matches[Chains]"),
        (&thrice, partitioned(100), JoinKind::Inner, 450, "Matches[Chains]"),
        (&often, partitioned(100), JoinKind::Inner, 900, "Matches[Lists]"),
        (&unique, partitioned(100), JoinKind::ProbeSemi, 450, "Matches[Semi]"),
        (&unique, form(JoinForm::Direct), JoinKind::Inner, 450, "DirectTable[4 bytes]"),
        (&unique, form(JoinForm::HashTable), JoinKind::Inner, 450, "HashTable[unique, 1 lanes]"),
        (&thrice, form(JoinForm::HashTable), JoinKind::Inner, 450, "HashTable[lists, 1 lanes]"),
        (&thrice, form(JoinForm::HashTable), JoinKind::ProbeSemi, 150, "HashTable[unique, 1 lanes]"),
    ] {
        let session = simulated().open(1).expect("a session");
        let table = |keys: Vec<i64>| {
            let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false)]));
            let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(keys))]).expect("a batch");
            let mut builder = TableBuilder::new(&session, schema);
            builder.push(&batch).expect("rows");
            Arc::new(builder.finish().expect("a table"))
        };
        let probe = table((0..900).step_by(2).collect());
        let probe = if keys == &often { table(vec![7]) } else { probe };
        let join = HashJoin::new(table(keys.clone()), probe).on("key", "key").expect("columns").kind(kind);
        let output = join.options(options).run().expect("rows");
        assert_eq!(output.metrics.rows, rows, "{line}");
        let names: Vec<&String> = output.metrics.pipelines.iter().map(|pipeline| &pipeline.name).collect();
        assert!(names.iter().any(|name| name.contains(line)), "{line}: {names:?}");
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
