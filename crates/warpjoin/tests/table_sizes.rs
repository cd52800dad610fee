//! How large tables are: those that would have more slots of one word than kernels can count have slots of two, and group tables are as
//! large as their groups ask for, however few a sample of rows shows.

mod common;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::case::upload;
use common::edges::{ints, join_of, keyed};
use common::sessions::{Opener, simulated};
use common::value::{compare, rows_of};
use warpjoin::exec::{self, GroupByForm};
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, AggregateFunction, Plan, PlanKind};
use warpjoin::{ExecOptions, JoinForm};

#[test]
fn large_tables_have_slots_of_two_words() {
    let table = |rows: i128| keyed(&[ints((0..rows).map(|row| Some(row * 7919 % 4001)))], &DataType::Int64);
    let case = join_of("large", table(300), table(900), 1).case;
    let wanted = case.verdict().rows.expect("rows");
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("devices");
        let tables: Vec<_> = case.inputs.iter().map(|batch| upload(&session, batch)).collect();
        // A table that is guessed too small grows beyond the bound, or stays within it.
        for first_capacity in [None, Some(1)] {
            for (most, has_words) in [(None, true), (Some(10_000_000), true), (Some(100), false)] {
                let join_form = Some(JoinForm::HashTable);
                let options = ExecOptions { word_slots_max: most, first_capacity, join_form, ..ExecOptions::default() };
                let output = exec::run(&session, &case.plan, &tables, &options).expect("rows");
                compare(rows_of(&output.batches), wanted.clone()).expect("the oracle's rows");
                let names: Vec<&str> = output.metrics.pipelines.iter().map(|it| it.name.as_str()).collect();
                let build = names.iter().find(|name| name.starts_with("BuildRows")).expect("a table");
                assert_eq!(!build.contains("16 bytes"), has_words, "{most:?}: {names:?}");
            }
        }
    }
}

/// A third of the rows has a key of its own, the others share a hundred: the keys of a sample of rows look like a sixth of those that
/// there are.
#[test]
fn groups_that_hide_behind_frequent_ones_are_counted() {
    const ROWS: i64 = 300_000;
    let key = |row: i64| if row % 10 < 3 { row * 7919 + 1_000_000 } else { row * 31 % 97 };
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(key)));
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![keys]).expect("a batch");
    let column = Expr::column(0, DataType::Int64, false);
    let fields = ["key", "count"].map(|name| Field::new(name, DataType::Int64, false));
    let grouped = Arc::new(Schema::new(fields.to_vec()));
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("devices");
        let table = upload(&session, &batch);
        let scan = Plan { kind: PlanKind::Scan { table, projection: vec![0] }, schema: Arc::clone(&schema) };
        let aggregates = vec![AggregateCall::new(AggregateFunction::Count, None, DataType::Int64)];
        let kind = PlanKind::Aggregate { input: Box::new(scan), group_by: vec![column.clone()], aggregates };
        let plan = Plan { kind, schema: Arc::clone(&grouped) };
        let options = ExecOptions { group_by_form: Some(GroupByForm::Partitioned), ..ExecOptions::default() };
        let output = exec::run(&session, &plan, &[], &options).expect("rows");
        let rows = rows_of(&output.batches);
        assert_eq!(rows.len(), 97 + 90_000);
        let sketches: Vec<u64> =
            output.metrics.pipelines.iter().filter(|it| it.name.ends_with("Sketch")).map(|it| it.rows_out).collect();
        assert_eq!(sketches.len(), 2, "a sample, then all rows: {:?}", output.metrics.pipelines);
        assert!(output.metrics.pipelines.iter().all(|it| it.retries == 0), "{:?}", output.metrics.pipelines);
    }
}
