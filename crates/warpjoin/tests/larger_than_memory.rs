//! Queries whose tables, rows and groups exceed the memory of their devices.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use common::edges::{group_of, ints, join_of, keyed, sort_of, window_of};
use common::int_plans::{batch, join, scan, sums};
use common::settings::Settings;
use common::value::{Row, rows_of};
use warpjoin::exec::{JoinOrder, RuntimeFilters, run};
use warpjoin::plan::JoinKind;
use warpjoin::{ExecOptions, JoinForm, MemoryBudget, QueryMetrics, Session, Table, TableBuilder};
use warpjoin_device::{MemoryPlace, SimOptions, open_simulated};

const ROWS: i128 = 200_000;

fn session(memory_bytes: u64) -> Arc<Session> {
    session_of(1, memory_bytes)
}

fn session_of(devices: usize, memory_bytes: u64) -> Arc<Session> {
    Session::new(open_simulated(&SimOptions { devices, memory_bytes, ..SimOptions::default() }).unwrap()).unwrap()
}

/// Keys, each a few times, and numbers.
fn rows(count: i128, keys: i128) -> RecordBatch {
    keyed(&[ints((0..count).map(|row| Some(row * 7919 % keys * 1_000_003)))], &arrow::datatypes::DataType::Int64)
}

fn table(session: &Arc<Session>, batch: &RecordBatch) -> Arc<Table> {
    let mut builder = TableBuilder::new(session.device_set(), batch.schema());
    builder.push(batch).unwrap();
    Arc::new(builder.finish().unwrap())
}

fn sorted(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows = rows_of(batches);
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

fn assert_nothing_is_held(session: &Session) {
    for device in session.devices() {
        assert_eq!((device.memory().used_bytes(), device.host_memory().used_bytes()), (0, 0));
    }
}

/// Pipelines whose names have this text.
fn pipelines(metrics: &QueryMetrics, text: &str) -> usize {
    metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains(text)).count()
}

#[test]
fn columns_without_room_lie_on_the_host_and_are_brought_to_the_device() {
    let batch = rows(5 * ROWS, 1000);
    let case = group_of("", batch.clone(), 1, 1).case;
    let (large, small) = (session(1 << 30), session(4 << 20));
    let (resident, on_host) = (table(&large, &batch), table(&small, &batch));
    assert_eq!((resident.host_bytes(), on_host.host_bytes() > 1 << 20), (0, true), "{}", on_host.host_bytes());
    // An eighth is left to queries.
    assert!(on_host.resident_bytes() <= (4 << 20) / 8 * 7);
    let options = ExecOptions::default();
    let [expected, found] =
        [(&large, resident), (&small, on_host)].map(|(on, table)| run(on, &case.plan, &[table], &options).unwrap());
    assert_eq!(sorted(&expected.batches), sorted(&found.batches));
    assert_eq!(expected.metrics.host_read_bytes, 0);
    assert!(found.metrics.host_read_bytes > 1 << 20, "{:?}", found.metrics);
    // More chunks than one.
    assert!(found.metrics.launches > expected.metrics.launches, "{:?}", found.metrics);
    // Nowhere to go.
    let budget = MemoryBudget { host_bytes: 0, ..MemoryBudget::OF_DEVICES };
    let mut builder = TableBuilder::new(small.device_set(), batch.schema()).with_memory_budget(budget);
    builder.push(&batch).unwrap();
    assert!(builder.finish().unwrap_err().to_string().contains("out of device memory"));
}

/// Groups and tables of joins without room are made of some partitions at a time; nothing is made so where there is room.
#[test]
fn groups_and_tables_without_room_are_made_in_passes() {
    let keys = ROWS / 2;
    let groups = group_of("", rows(ROWS, keys), 1, 1).case;
    let join = join_of("", rows(ROWS, keys), rows(ROWS / 4, keys), 1).case;
    let runs =
        [(1, 256 << 20, false), (1, 6 << 20, true), (2, 256 << 20, false), (2, 3 << 20, true), (3, 2 << 20, true)];
    for (case, name) in [(groups, "Slice["), (join, "Slice[")] {
        let verdict = case.verdict();
        for (devices, memory_bytes, in_passes) in runs {
            let session = session_of(devices, memory_bytes);
            let settings = Settings { devices, join_form: Some(JoinForm::HashTable), ..Settings::default() };
            case.check_against(&verdict, &session, &settings).unwrap_or_else(|difference| panic!("{difference}"));
            let tables: Vec<_> = case.inputs.iter().map(|batch| table(&session, batch)).collect();
            let output = run(&session, &case.plan, &tables, &settings.options()).unwrap();
            assert_eq!(
                pipelines(&output.metrics, name) > 1,
                in_passes,
                "{devices} x {memory_bytes}: {:?}",
                output.metrics.pipelines
            );
            drop((tables, output));
            assert_nothing_is_held(&session);
        }
    }
}

/// A table that drops rows of other scans, and so lies there while others are made, is made again where it has no room.
#[test]
fn a_query_whose_tables_have_no_room_together_begins_again_with_the_least_memory() {
    const ROWS: i64 = 60_000;
    let key = |row: i64| row * 1_000_003;
    let numbers = |number: &dyn Fn(i64) -> i64| (0..ROWS).map(number).collect::<Vec<_>>();
    let facts = batch(vec![("key", numbers(&|row| key(row * 7 % ROWS))), ("number", numbers(&|row| row))]);
    let dimension = batch(vec![("key", numbers(&|row| key(row * 2))), ("value", numbers(&|row| row))]);
    let sum = |row: i64| (0..ROWS).filter(|fact| fact * 7 % ROWS == row).sum::<i64>();
    let few = (0..ROWS).step_by(5000).map(|row| vec![row / 2, sum(row)]).collect::<Vec<_>>();
    for (devices, memory_bytes, is_least) in [(1, 256 << 20, false), (1, 3 << 19, true), (2, 3 << 18, true)] {
        let session = session_of(devices, memory_bytes);
        let [facts, dimension] = [&facts, &dimension].map(|batch| table(&session, batch));
        let plan = join(scan(&dimension), sums(scan(&facts), 0, 1), (0, 0), JoinKind::Inner, vec![1, 3]);
        let options = ExecOptions {
            runtime_filters: RuntimeFilters::Always,
            join_order: JoinOrder::AsGiven,
            join_form: Some(JoinForm::HashTable),
            ..ExecOptions::default()
        };
        let output = run(&session, &plan, &[], &options).unwrap();
        let is_said = output.metrics.decisions.iter().any(|decision| decision.contains("one at a time"));
        assert_eq!(is_said, is_least, "{devices} x {memory_bytes}: {:?}", output.metrics.decisions);
        let mut rows: Vec<Vec<i64>> = vec![];
        for batch in &output.batches {
            let value = |column: usize, row| batch.column(column).as_primitive::<Int64Type>().value(row);
            rows.extend((0..batch.num_rows()).map(|row| vec![value(0, row), value(1, row)]));
        }
        rows.sort_unstable();
        assert_eq!(rows.len() as i64, ROWS / 2);
        assert_eq!(rows.into_iter().step_by(2500).collect::<Vec<_>>(), few);
        drop((plan, facts, dimension, output));
        assert_nothing_is_held(&session);
    }
}

/// Columns leave the device for a query that needs their memory, and come back.
#[test]
fn loaded_tables_make_room_and_come_back() {
    let session = session(6 << 20);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300_000).map(|row| row * 3_000_000_007)));
    let batch = RecordBatch::try_from_iter([("a", Arc::clone(&numbers)), ("b", numbers)]).unwrap();
    let idle = table(&session, &batch);
    assert_eq!(idle.host_bytes(), 0);
    // Of a table that nobody let go, they stay.
    let grouped = rows(ROWS / 2, ROWS / 20);
    let case = group_of("", grouped, 1, 1).case;
    let tables: Vec<_> = case.inputs.iter().map(|batch| table(&session, batch)).collect();
    let budget = ExecOptions { host_budget_bytes: 0, ..ExecOptions::default() };
    assert!(run(&session, &case.plan, &tables, &budget).is_err());
    idle.make_room_when_asked();
    let output = run(&session, &case.plan, &tables, &budget).unwrap();
    assert!(output.batches.iter().map(RecordBatch::num_rows).sum::<usize>() as i128 == ROWS / 20);
    assert!(idle.host_bytes() > 0, "{idle:?}");
    let download = idle.download(&[0, 1], 1 << 20).unwrap();
    assert_eq!(download[0].columns(), batch.columns());
    drop(output);
    let moved = idle.move_to(MemoryPlace::Device, MemoryBudget::OF_DEVICES).unwrap();
    assert_eq!((idle.host_bytes(), moved.in_use), (0, 0));
    assert_eq!(idle.download(&[1], 1 << 20).unwrap()[0].column(0), batch.column(1));
}

/// Sorts and windows without room are made range by range of their keys.
#[test]
fn sorts_and_windows_without_room_are_made_by_ranges() {
    const ROWS: i128 = 50_000;
    let spread = |row: i128| row * 7919 % ROWS * 1_000_003;
    // One key in half of the rows.
    let frequent = |row: i128| if row % 2 == 0 { 5_000_015 } else { spread(row) };
    let cases = [
        ("spread keys", sort_of("", ints((0..ROWS).map(|row| Some(spread(row)))), 0, None).case),
        (
            "a range",
            sort_of("", ints((0..ROWS).map(|row| (row % 9 > 0).then(|| spread(row)))), 1000, Some(20_000)).case,
        ),
        ("a frequent key", sort_of("", ints((0..ROWS).map(|row| Some(frequent(row)))), 0, None).case),
        ("one key", sort_of("", ints((0..ROWS).map(|_| Some(7))), 0, None).case),
        ("a window", window_of("", ROWS / 5, 100).case),
    ];
    for (name, case) in cases {
        let verdict = case.verdict();
        for (devices, memory_bytes, by_ranges) in [(1, 256 << 20, false), (1, 1 << 20, true), (3, 3 << 17, true)] {
            let session = session_of(devices, memory_bytes);
            let settings = Settings { devices, ..Settings::default() };
            case.check_against(&verdict, &session, &settings).unwrap_or_else(|difference| panic!("{difference}"));
            let tables: Vec<_> = case.inputs.iter().map(|batch| table(&session, batch)).collect();
            let output = run(&session, &case.plan, &tables, &settings.options()).unwrap();
            assert_eq!(
                pipelines(&output.metrics, "Ranges[") > 0,
                by_ranges && name != "one key",
                "{name}, {devices} x {memory_bytes}: {:?}",
                output.metrics.pipelines
            );
            drop((tables, output));
            assert_nothing_is_held(&session);
        }
    }
}

/// What the host has no room for either goes to files, which leave nothing behind.
#[test]
fn rows_without_room_on_the_host_go_to_files() {
    const ROWS: i128 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let keys = ROWS / 20;
    let wide = ints((0..ROWS).map(|row| Some(row * 7919 % ROWS * 1_000_003)));
    let cases = [
        ("group-by", group_of("", rows(ROWS, keys), 1, 1).case),
        ("join", join_of("", rows(ROWS / 4, ROWS / 4), rows(ROWS, ROWS / 4), 1).case),
        ("sort", sort_of("", wide, 0, None).case),
    ];
    for (name, case) in cases {
        for devices in [1, 2] {
            let host_memory_bytes = 256 << 10;
            let options = SimOptions { devices, host_memory_bytes, ..SimOptions::default() };
            let session = Session::new(open_simulated(&options).unwrap()).unwrap();
            let tables: Vec<_> = case.inputs.iter().map(|batch| table(&session, batch)).collect();
            let run_in = |folder: Option<&std::path::Path>| {
                let spill_path = folder.map(Into::into);
                run(
                    &session,
                    &case.plan,
                    &tables,
                    &ExecOptions { pass_rows: Some(5000), writes_to_host: true, spill_path, ..ExecOptions::default() },
                )
            };
            let output = run_in(Some(folder.path())).unwrap_or_else(|error| panic!("{name}, {devices}: {error}"));
            let resident = run(&session, &case.plan, &tables, &ExecOptions::default()).unwrap();
            assert_eq!(sorted(&output.batches), sorted(&resident.batches), "{name}, {devices}");
            assert!(output.metrics.spilled_bytes > host_memory_bytes, "{name}: {:?}", output.metrics.spilled_bytes);
            let error = run_in(None).unwrap_err().to_string();
            assert!(error.contains("out of host memory") && error.contains("spill_path"), "{name}: {error}");
            let missing = folder.path().join("missing");
            let error = run_in(Some(&missing)).unwrap_err().to_string();
            assert!(error.contains("missing") && error.contains("spill"), "{name}: {error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            drop((tables, output));
            assert_nothing_is_held(&session);
        }
    }
}
