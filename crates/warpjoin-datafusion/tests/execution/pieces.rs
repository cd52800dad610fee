//! Rows come to the host in pieces, as somebody reads them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Int64Array, RecordBatch};
use futures::StreamExt;
use warpjoin::Session;
use warpjoin_datafusion::{WarpjoinRuntime, load_table};
use warpjoin_device::{CallKind, FaultPlan, SimOptions, open_simulated, with_faults};

use crate::common::{physical, shown, warp_on};

/// A CPU plan above resident columns takes no more of them than it wants.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_nobody_wants_stay_on_the_devices() {
    let plan = FaultPlan::default();
    let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap();
    let session = Session::new(with_faults(&devices, &plan)).unwrap();
    let context = warp_on(WarpjoinRuntime::new(session), |_| {});
    for sql in [
        "CREATE TABLE t AS SELECT value AS id, value % 7 AS g FROM generate_series(1, 300000) AS numbers(value)",
        "SET datafusion.execution.batch_size = 100",
    ] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    load_table(&context, "t").await.unwrap();
    let reads = || plan.calls(CallKind::Read);
    let mut before = reads();
    let mut read = |what: &str| {
        let calls = reads() - before;
        before = reads();
        assert!(calls > 0, "{what} reads nothing");
        calls
    };
    let all = context.sql("SELECT * FROM t").await.unwrap().collect().await.unwrap();
    assert_eq!(all.iter().map(RecordBatch::num_rows).sum::<usize>(), 300_000);
    let of_all = read("everything");
    let mut first = context.sql("SELECT * FROM t").await.unwrap().execute_stream().await.unwrap();
    assert_eq!(first.next().await.unwrap().unwrap().num_rows(), 100);
    drop(first);
    // The thread ends with the piece that it is at.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let of_first = read("the first batch");
    assert!(of_first * 2 <= of_all, "{of_first} of {of_all} reads");
}

/// A result of several pieces comes as a stream. Who stops early gets no more, and all memory is given back.
#[tokio::test(flavor = "multi_thread")]
async fn large_results_come_in_pieces() {
    const ROWS: usize = 2_300_000;
    let devices = open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }).unwrap();
    let session = Session::new(devices).unwrap();
    let context = warp_on(WarpjoinRuntime::new(Arc::clone(&session)), |_| {});
    let create = format!("CREATE TABLE t AS SELECT value AS id FROM generate_series(1, {ROWS}) AS numbers(value)");
    context.sql(&create).await.unwrap().collect().await.unwrap();
    let table = load_table(&context, "t").await.unwrap();
    let held = session.devices()[0].memory().used_bytes();
    const SQL: &str = "SELECT id + 1 AS next FROM t WHERE id > 10";
    assert!(shown(&physical(&context, SQL).await).contains("WarpjoinExec"));
    let mut all: Vec<i64> = vec![];
    for batch in context.sql(SQL).await.unwrap().collect().await.unwrap() {
        all.extend(batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values());
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(12..=ROWS as i64 + 1));
    let mut some = context.sql(SQL).await.unwrap().execute_stream().await.unwrap();
    assert!(some.next().await.unwrap().unwrap().num_rows() > 0);
    assert!(session.devices()[0].memory().used_bytes() > held, "the other rows wait there");
    drop(some);
    let started = Instant::now();
    while session.devices()[0].memory().used_bytes() > held {
        assert!(started.elapsed() < Duration::from_secs(10), "memory that is not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(table);
}
