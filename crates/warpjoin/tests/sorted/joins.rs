//! Joins of tables that lie in the order of their key: each of several devices needs the build rows of its own range only.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use warpjoin::exec::RuntimeFilters;
use warpjoin::plan::JoinKind;
use warpjoin::{DeviceThreads, ExecOptions, HashJoin, Session, Table, TableBuilder};

use super::{rows_of, session};

const KINDS: [JoinKind; 7] = [
    JoinKind::Inner,
    JoinKind::ProbeSemi,
    JoinKind::ProbeAnti,
    JoinKind::ProbeOuter,
    JoinKind::ProbeMark,
    JoinKind::NotIn,
    JoinKind::Full,
];

fn table(session: &Arc<Session>, columns: Vec<(&str, ArrayRef)>) -> Arc<Table> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut builder = TableBuilder::new(session.device_set(), batch.schema());
    builder.push(&batch).unwrap();
    Arc::new(builder.finish().unwrap())
}

/// Rows in the order of their key, several of each, so that a key lies on two devices.
fn lines(session: &Arc<Session>, rows: i64) -> Arc<Table> {
    let keys: ArrayRef = Arc::new((0..rows).map(|row| 1000 + row / 7 * 3).collect::<Int64Array>());
    let values: ArrayRef = Arc::new((0..rows).map(|row| (row * 31 % 1000) as i32).collect::<Int32Array>());
    table(session, vec![("l_key", keys), ("l_value", values)])
}

/// Rows of keys within, between and beyond those of the lines, in no order, `times` of each.
fn orders(session: &Arc<Session>, keys: std::ops::Range<i64>, times: i64) -> Arc<Table> {
    let count = keys.end - keys.start;
    let shuffled: Vec<i64> = (0..count * times).map(|row| keys.start + row * 7919 % count).collect();
    let values: ArrayRef = Arc::new((0..count * times).collect::<Int64Array>());
    table(session, vec![("o_key", Arc::new(Int64Array::from(shuffled))), ("o_value", values)])
}

#[test]
fn joins_in_the_order_of_the_key_equal_those_on_one_device() {
    let alone = session(1);
    for devices in [2, 3, 5, 8] {
        let session = session(devices);
        for (rows, keys, times) in [(3000, 900..2500, 1), (3000, 900..2500, 2), (200, 0..4000, 1), (700, 0..900, 1)] {
            let on = |session: &Arc<Session>| (orders(session, keys.clone(), times), lines(session, rows));
            let (whole, parts) = (on(&alone), on(&session));
            for (number, kind) in KINDS.into_iter().enumerate() {
                for filters in [RuntimeFilters::Off, RuntimeFilters::Always] {
                    let options = ExecOptions {
                        few_rows: Some(0),
                        runtime_filters: filters,
                        device_threads: [DeviceThreads::One(number as u64), DeviceThreads::Each][number % 2],
                        ..ExecOptions::default()
                    };
                    let run = |session: &Arc<Session>, (build, probe): &(Arc<Table>, Arc<Table>)| {
                        let join = HashJoin::new(build.clone(), probe.clone()).on("o_key", "l_key").unwrap().kind(kind);
                        join.options(options.clone()).run(session).unwrap()
                    };
                    let output = run(&session, &parts);
                    let what = format!(
                        "{kind:?} of {rows} lines with keys {keys:?} x {times}, {devices} devices, {filters:?}"
                    );
                    assert_eq!(rows_of(&output), rows_of(&run(&alone, &whole)), "{what}");
                }
            }
        }
    }
}

/// A build row goes to the device whose range it is in, or to two if its key is at their border; a copy would go to all.
#[test]
fn build_rows_are_sent_to_their_range_alone() {
    let session = session(4);
    let (build, probe) = (orders(&session, 1000..2280, 1), lines(&session, 3000));
    let options = ExecOptions { few_rows: Some(0), ..ExecOptions::default() };
    let join = HashJoin::new(build.clone(), probe).on("o_key", "l_key").unwrap().options(options);
    let metrics = join.run(&session).unwrap().metrics;
    let names: Vec<&str> = metrics.pipelines.iter().map(|pipeline| pipeline.name.as_str()).collect();
    let exchange = metrics.pipelines.iter().find(|pipeline| pipeline.name.ends_with("Exchange"));
    let exchange = exchange.unwrap_or_else(|| panic!("no exchange: {names:?}"));
    assert_eq!(exchange.rows_in, build.rows());
    assert!((build.rows()..=build.rows() + 3).contains(&exchange.rows_out), "{} rows out", exchange.rows_out);
}
