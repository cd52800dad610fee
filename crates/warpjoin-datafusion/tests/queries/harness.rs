//! Queries that never end by themselves, and queries that wait at a gate.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use tokio::task::JoinHandle;
use warpjoin_datafusion::{
    DeviceChoice, QueryEnded, QueryInfo, WarpjoinOptions, WarpjoinRuntime, WarpjoinSessionContext, load_table,
    session_of,
};

use crate::common::warp_on;

/// 10^12 pairs of rows, which take hours.
pub(crate) const ENDLESS: &str =
    "select count(*) from rows join few a on rows.v < a.v * 3000 join few b on rows.v < b.v * 2000 + a.v";

/// Has an answer at once.
pub(crate) const SHORT: &str = "select v % 5 as k, count(*) from few group by k order by k";

/// Waits at the gate of this number.
pub(crate) fn held_by(gate: &str) -> String {
    format!("select {gate}(x) as w, count(*) from texts group by w order by w")
}

/// A runtime on two simulated devices with at most `queries_max` queries at once.
pub(crate) fn runtime(queries_max: usize) -> Arc<WarpjoinRuntime> {
    WarpjoinRuntime::lazy_with_queries_max(queries_max)
}

/// A session with resident tables, and with settings that `change` makes.
pub(crate) async fn session(
    runtime: &Arc<WarpjoinRuntime>,
    change: impl FnOnce(&mut WarpjoinOptions),
) -> SessionContext {
    let context = warp_on(Arc::clone(runtime), |options| {
        options.device = DeviceChoice::Simulated;
        change(options);
    });
    for (name, sql) in [
        ("rows", "create table rows as select value as v from generate_series(1, 1000000) as t(value)"),
        ("few", "create table few as select value as v from generate_series(1, 1000) as t(value)"),
        (
            "texts",
            "create table texts as select repeat('x', value % 50) as x from generate_series(1, 3000) as t(value)",
        ),
    ] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
        load_table(&context, name).await.unwrap();
    }
    context
}

/// As [`session`], whose queries end after `limit`.
pub(crate) async fn limited(runtime: &Arc<WarpjoinRuntime>, limit: Duration) -> SessionContext {
    session(runtime, |options| options.query_timeout = Some(limit)).await
}

/// Bytes in use on all devices.
pub(crate) fn used_bytes(context: &SessionContext) -> u64 {
    session_of(context).unwrap().devices().iter().map(|device| device.memory().used_bytes()).sum()
}

pub(crate) fn spawn(context: &SessionContext, sql: &str) -> JoinHandle<Result<Vec<RecordBatch>>> {
    let (context, sql) = (context.clone(), sql.to_string());
    tokio::spawn(async move { context.query(&sql).await?.collect().await })
}

/// Waits for the end of a spawned query.
pub(crate) async fn end_of(task: JoinHandle<Result<Vec<RecordBatch>>>) -> Result<Vec<RecordBatch>> {
    tokio::time::timeout(LIMIT, task).await.expect("the query hangs").expect("no panic")
}

/// Why a query was ended; the error says nothing else.
#[track_caller]
pub(crate) fn why_ended<T: std::fmt::Debug>(outcome: Result<T>) -> QueryEnded {
    let error = outcome.expect_err("the query was not ended");
    let DataFusionError::External(root) = error.find_root() else { panic!("{error}") };
    root.downcast_ref::<QueryEnded>().unwrap_or_else(|| panic!("{error}")).clone()
}

/// Far more than anything takes, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) async fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The only query under way, once `is_it` holds for it.
pub(crate) async fn listed(runtime: &WarpjoinRuntime, is_it: impl Fn(&QueryInfo) -> bool) -> QueryInfo {
    wait_until("the query is listed", || matches!(&runtime.queries()[..], [query] if is_it(query))).await;
    runtime.queries().pop().expect("it waits for the test")
}

/// Waits until no query is listed and the memory is what it was before.
pub(crate) async fn wait_for_idle(runtime: &WarpjoinRuntime, context: &SessionContext, before: u64) {
    wait_until("queries stay in the list", || runtime.queries().is_empty()).await;
    wait_until("memory stays in use", || used_bytes(context) == before).await;
}

/// A function of the host at which queries wait.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Passage>, Condvar)>);

#[derive(Default)]
struct Passage {
    is_open: bool,
    waiting: usize,
}

impl Gate {
    /// A closed gate, as a function of sessions.
    pub(crate) fn at(contexts: &[&SessionContext], name: &str) -> Self {
        let gate = Self::default();
        contexts.iter().for_each(|context| context.register_udf(gate.function(name)));
        gate
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }

    /// Until a query waits.
    pub(crate) async fn reached(&self) {
        wait_until("no query reaches the gate", || self.0.0.lock().unwrap().waiting > 0).await;
    }

    fn pass(&self) {
        let mut passage = self.0.0.lock().unwrap();
        passage.waiting += 1;
        let mut passage = self.0.1.wait_while(passage, |passage| !passage.is_open).unwrap();
        passage.waiting -= 1;
    }

    /// Lengths of strings, behind the gate. The thread of a query calls it for the different strings of a table.
    fn function(&self, name: &str) -> ScalarUDF {
        let gate = self.clone();
        let lengths = move |arguments: &[ColumnarValue]| {
            gate.pass();
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let lengths = arrays[0].as_string_view().iter().map(|string| string.map(|string| string.len() as i64));
            Ok(ColumnarValue::Array(Arc::new(lengths.collect::<Int64Array>())))
        };
        create_udf(name, vec![DataType::Utf8View], DataType::Int64, Volatility::Immutable, Arc::new(lengths))
    }
}
