//! Device failures during SQL queries: fallback, errors and reports.
//!
//! A run looks at some calls of the query, at other ones each hour; `WARPJOIN_FAULTS=all` looks at all. A failure names its
//! call, which `WARPJOIN_FAULT='...'` looks at again.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::any::Any;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{physical, rows, shown, stock, turn, warp_on};
use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use warpjoin::Session;
use warpjoin_datafusion::{
    Cause, DeviceChoice, DeviceTableProvider, Devices, OnFault, Placement, WarpjoinOptions, WarpjoinRuntime, load_table,
};
use warpjoin_device::{Fault, FaultPlan, SimOptions, open_simulated, with_faults};

const SQL: &str =
    "select a.g, count(*), sum(b.v) from t a join u b on a.id = b.id where b.v > 3 group by a.g order by a.g";
const CREATE: [&str; 2] = [
    "create table t as select value as id, value % 7 as g from generate_series(1, 3000) as numbers(value)",
    "create table u as select value * 2 as id, value % 100 as v from generate_series(1, 2000) as numbers(value)",
];

/// Calls of the query that a run looks at, unless `WARPJOIN_FAULTS=all`.
const POINTS: u64 = 12;

/// The calls of the query that this run looks at.
fn points(what: &str, calls: u64) -> Vec<u64> {
    if let Some(name) = named_point() {
        return (0..calls).filter(|nth| format!("{what} at call {nth}") == name).collect();
    }
    let is_all = std::env::var("WARPJOIN_FAULTS").is_ok_and(|value| value == "all");
    let stride = if is_all { 1 } else { (calls / POINTS).max(1) };
    (turn(stride)..calls).step_by(stride as usize).collect()
}

/// The point that `WARPJOIN_FAULT` names.
fn named_point() -> Option<String> {
    std::env::var("WARPJOIN_FAULT").ok().filter(|name| !name.is_empty())
}

/// A context on two devices that fail according to `plan`.
async fn faulty(plan: &FaultPlan, on_fault: OnFault) -> SessionContext {
    let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap();
    let session = Session::new(with_faults(&devices, plan)).unwrap();
    let context = warp_on(WarpjoinRuntime::new(session), |options| options.on_fault = on_fault);
    create(&context).await;
    context
}

async fn create(context: &SessionContext) {
    for sql in CREATE {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
}

async fn expected() -> Vec<String> {
    let context = stock();
    create(&context).await;
    rows(&context.sql(SQL).await.unwrap().collect().await.unwrap(), true)
}

/// Runs the query, checks its answer, and returns the number of its device calls.
async fn calls_of_a_run(context: &SessionContext, plan: &FaultPlan, wanted: &[String]) -> u64 {
    let before = plan.all_calls();
    assert_eq!(rows(&context.sql(SQL).await.unwrap().collect().await.unwrap(), true), wanted);
    plan.all_calls() - before
}

/// Whichever call fails, the CPU gives the right answer, EXPLAIN ANALYZE shows the cause, and no device memory leaks. With
/// `on_fault = error`, faults are errors, but running out of memory is not.
#[tokio::test(flavor = "multi_thread")]
async fn faults_are_reported_and_expected_errors_fall_back() {
    let wanted = expected().await;
    for (fault, cause) in
        [(Fault::Driver, Cause::Driver), (Fault::Panic, Cause::Internal), (Fault::OutOfMemory, Cause::OutOfMemory)]
    {
        for on_fault in [OnFault::Fallback, OnFault::Error] {
            let plan = FaultPlan::default();
            let context = faulty(&plan, on_fault).await;
            calls_of_a_run(&context, &plan, &wanted).await;
            let calls = calls_of_a_run(&context, &plan, &wanted).await;
            let what = format!("{cause:?}, {on_fault:?}");
            let (mut fallbacks, mut errors, mut begun_again) = (0, 0, 0);
            for nth in points(&what, calls) {
                let point = format!("WARPJOIN_FAULT='{what} at call {nth}'");
                let query = physical(&context, SQL).await;
                plan.arm(None, nth, fault.clone());
                let outcome = collect(Arc::clone(&query), context.task_ctx()).await;
                let has_failed = !plan.disarm();
                match outcome {
                    Ok(batches) => {
                        assert_eq!(rows(&batches, true), wanted, "{point}");
                        // A query that finds no memory begins again on the devices, where this time there is some.
                        begun_again += usize::from(shown(&query).contains("one at a time"));
                        if let Some(fallback) = &Placement::of(&query).device[0].fallback {
                            assert_eq!(fallback.cause, cause, "{point}: {fallback}");
                            assert!(on_fault == OnFault::Fallback || !cause.is_fault(), "{point}: {fallback}");
                            let text = shown(&query);
                            let is_told = text.contains("ran on the CPU: ") && text.contains(&format!("{cause:?}"));
                            assert!(is_told, "{point}: {text}");
                            fallbacks += 1;
                        }
                    }
                    Err(error) => {
                        assert!(cause.is_fault() && on_fault == OnFault::Error, "{point}: {error}");
                        assert!(error.to_string().contains("warpjoin.on_fault"), "{point}: {error}");
                        errors += 1;
                    }
                }
                assert!(has_failed, "{point}: only {calls} calls were made");
                assert_eq!(plan.live_bytes(), 0, "{point}");
            }
            // Some failures have no effect, such as those of timing calls.
            assert!(begun_again == 0 || cause == Cause::OutOfMemory, "{what}");
            // Without memory on a device, the host's may do, or passes, at all calls that were looked at.
            let must_have = cause != Cause::OutOfMemory && named_point().is_none();
            let has_effect = fallbacks + errors + begun_again > 3 || !must_have;
            assert!(has_effect, "{what}: {fallbacks} fallbacks, {errors} errors, {begun_again} begun again");
            calls_of_a_run(&context, &plan, &wanted).await;
        }
    }
}

/// After a device is lost, later queries do not use it, and EXPLAIN shows why.
#[tokio::test(flavor = "multi_thread")]
async fn lost_devices_are_not_used_again() {
    let wanted = expected().await;
    let plan = FaultPlan::default();
    let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap();
    let runtime = WarpjoinRuntime::new(Session::new(with_faults(&devices, &plan)).unwrap());
    let context = warp_on(Arc::clone(&runtime), |options| options.on_fault = OnFault::Fallback);
    create(&context).await;
    calls_of_a_run(&context, &plan, &wanted).await;
    plan.arm(None, 9, Fault::DeviceLost);
    let query = physical(&context, SQL).await;
    let batches = collect(Arc::clone(&query), context.task_ctx()).await.unwrap();
    assert_eq!(rows(&batches, true), wanted);
    assert_eq!(Placement::of(&query).device[0].fallback.as_ref().unwrap().cause, Cause::DeviceLost);
    let calls = plan.all_calls();
    let query = physical(&context, SQL).await;
    let batches = collect(Arc::clone(&query), context.task_ctx()).await.unwrap();
    assert_eq!(rows(&batches, true), wanted);
    assert_eq!(plan.all_calls(), calls, "the lost devices were used again");
    let text = shown(&query);
    assert!(text.contains("no device is used") && text.contains("lost"), "{text}");
    let options = WarpjoinOptions { minimum_rows: 0, ..WarpjoinOptions::default() };
    assert!(matches!(runtime.devices(&options), Devices::None(_)));
    // If the settings name the devices, the query fails with an error that says what to do.
    context.sql("set warpjoin.device = sim").await.unwrap();
    let error = context.sql(SQL).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("loaded again"), "{error}");
}

/// Reading a table of a lost device is an error that says so. Other tables still work.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_lost_devices_are_errors() {
    let wanted = expected().await;
    let plan = FaultPlan::default();
    let context = faulty(&plan, OnFault::Fallback).await;
    load_table(&context, "t").await.unwrap();
    calls_of_a_run(&context, &plan, &wanted).await;
    plan.arm(None, 9, Fault::DeviceLost);
    let error = context.sql(SQL).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("lost"), "{error}");
    let count = context.sql("select count(*) from u").await.unwrap().collect().await.unwrap();
    assert_eq!(rows(&count, true), ["2000"]);
    context.deregister_table("t").unwrap();
    create(&SessionContext::new()).await;
    context.sql(CREATE[0]).await.unwrap().collect().await.unwrap();
    assert_eq!(rows(&context.sql(SQL).await.unwrap().collect().await.unwrap(), true), wanted);
}

/// Whichever call fails, the table in host memory stays, no device memory leaks, and loading again works.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_load_leaves_the_old_table() {
    for (fault, cause) in [(Fault::Driver, Cause::Driver), (Fault::OutOfMemory, Cause::OutOfMemory)] {
        let plan = FaultPlan::default();
        let context = faulty(&plan, OnFault::Error).await;
        let is_on_devices = async || {
            let provider = context.table_provider("t").await.unwrap();
            (provider as Arc<dyn Any + Send + Sync>).is::<DeviceTableProvider>()
        };
        let count = async || {
            let sql = "select count(*), sum(id) from t";
            rows(&context.sql(sql).await.unwrap().collect().await.unwrap(), true)
        };
        let mut failed = 0;
        for nth in 0.. {
            plan.arm(None, nth, fault.clone());
            let loaded = load_table(&context, "t").await;
            if plan.disarm() {
                loaded.unwrap();
                assert!(is_on_devices().await);
                break;
            }
            let point = format!("{cause:?} at call {nth}");
            // Some failures have no effect; then the device table takes the place of the other one.
            let Err(error) = loaded else {
                context.deregister_table("t").unwrap();
                context.sql(CREATE[0]).await.unwrap().collect().await.unwrap();
                continue;
            };
            assert!(error.to_string().contains("injected") || cause == Cause::OutOfMemory, "{point}: {error}");
            assert!(!is_on_devices().await, "{point}");
            assert_eq!(plan.live_bytes(), 0, "{point}");
            assert_eq!(count().await, ["3000|4501500"], "{point}");
            failed += 1;
        }
        assert!(failed > 5, "{cause:?}: {failed} loads failed");
        assert_eq!(count().await, ["3000|4501500"]);
    }
}

/// A schema that takes no device tables.
#[derive(Debug, Default)]
struct HostOnly(MemorySchemaProvider);

#[async_trait::async_trait]
impl SchemaProvider for HostOnly {
    fn table_names(&self) -> Vec<String> {
        self.0.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.0.table(name).await
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        if (Arc::clone(&table) as Arc<dyn Any + Send + Sync>).is::<DeviceTableProvider>() {
            return Err(DataFusionError::Plan(format!("{name} is refused")));
        }
        self.0.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.0.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.table_exist(name)
    }
}

/// If the catalog refuses the device table, the old one is registered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_table_leaves_the_old_one() {
    let plan = FaultPlan::default();
    let context = faulty(&plan, OnFault::Error).await;
    let schema = HostOnly::default();
    schema.register_table("t".into(), context.table_provider("t").await.unwrap()).unwrap();
    context.catalog("datafusion").unwrap().register_schema("host", Arc::new(schema)).unwrap();
    let error = load_table(&context, "host.t").await.unwrap_err().to_string();
    assert!(error.contains("t is refused"), "{error}");
    assert_eq!(plan.live_bytes(), 0, "the table that was refused is gone");
    let count = context.sql("select count(*) from host.t").await.unwrap().collect().await.unwrap();
    assert_eq!(rows(&count, true), ["3000"]);
    // The schema that takes all tables takes it.
    load_table(&context, "t").await.unwrap();
    assert!(plan.live_bytes() > 0);
}

/// A function of the host that waits once, until it is told to go on.
fn waiting(started: mpsc::Sender<()>, goes_on: mpsc::Receiver<()>) -> ScalarUDF {
    let once = Mutex::new(Some((started, goes_on)));
    let bytes = move |arguments: &[ColumnarValue]| {
        if let Some((started, goes_on)) = once.lock().unwrap().take() {
            started.send(()).unwrap();
            goes_on.recv().unwrap();
        }
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let values = arrays[0].as_string_view().iter().map(|string| string.map(|string| string.len() as i64));
        Ok(ColumnarValue::Array(Arc::new(values.collect::<Int64Array>())))
    };
    create_udf("waiting", vec![DataType::Utf8View], DataType::Int64, Volatility::Immutable, Arc::new(bytes))
}

/// The permit of a query that was dropped is released when its thread ends, not before: it still has its memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_held_until_the_thread_has_ended() {
    let context =
        warp_on(WarpjoinRuntime::lazy_with_queries_max(1), |options| options.device = DeviceChoice::Simulated);
    create(&context).await;
    let texts = "create table texts as select repeat('x', value % 50) as x from generate_series(1, 3000) as n(value)";
    context.sql(texts).await.unwrap().collect().await.unwrap();
    // The query's thread evaluates the function for each different string.
    load_table(&context, "texts").await.unwrap();
    let ((starts, started), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    context.register_udf(waiting(starts, goes_on));
    let query = physical(&context, "select waiting(x) as w, count(*) from texts group by w").await;
    assert!(Placement::of(&query).is_on_devices(), "{}", shown(&query));
    let task = tokio::spawn(collect(query, context.task_ctx()));
    tokio::task::spawn_blocking(move || started.recv().unwrap()).await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // Its thread still runs: the next query waits.
    let next = physical(&context, "select count(*) from t where g > 1").await;
    let mut next = tokio::spawn(collect(next, context.task_ctx()));
    let early = tokio::time::timeout(Duration::from_millis(700), &mut next).await;
    assert!(early.is_err(), "the permit of a running thread was given to another query");
    go_on.send(()).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(60), next).await.expect("no hang").unwrap().unwrap();
    assert_eq!(rows(&answer, true), ["2143"]);
}
