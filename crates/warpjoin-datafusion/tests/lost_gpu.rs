//! One of several GPUs is lost while SQL queries use all of them. The only test of this binary, since a GPU that a kernel broke
//! does not recover in its process.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::io::Write;
use std::sync::Arc;

use common::{physical, rows, shown, stock, warp_on};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use warpjoin_datafusion::{
    Cause, DeviceChoice, Devices, OnFault, Placement, WarpjoinOptions, WarpjoinRuntime, load_table,
};
use warpjoin_device::{CudaOptions, Device, DeviceError, Launch, ModuleSource, open_cuda};

const CREATE: [&str; 2] = [
    "create table t as select value as id, value % 7 as g from generate_series(1, 300000) as numbers(value)",
    "create table u as select value * 2 as id, value % 100 as v from generate_series(1, 200000) as numbers(value)",
];
const SQL: &str =
    "select a.g, count(*), sum(b.v) from t a join u b on a.id = b.id where b.v > 3 group by a.g order by a.g";

/// Breaks the context of a GPU without accessing memory.
fn trap(device: &Device) {
    let source = ModuleSource {
        name: "lost_gpu".into(),
        text: "#include \"common/simt.cuh\"\nstruct Nothing {};\nWJ_ENTRY(trap, Nothing, 32) { asm volatile(\"trap;\"); }\n".into(),
        entries: vec!["trap".into()],
        defines: vec![],
    };
    let kernel = device.compile(&source).unwrap().kernel("trap").unwrap();
    let stream = device.create_stream().unwrap();
    stream.launch(&kernel, Launch { blocks: 1, block_threads: 32, shared_bytes: 0 }, &[]).unwrap();
    assert!(matches!(stream.synchronize(), Err(DeviceError::DeviceLost { .. })));
}

/// Prints a line that the test harness does not capture.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

async fn create(context: &SessionContext) {
    for sql in CREATE {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
}

async fn answer(context: &SessionContext) -> (Vec<String>, Arc<dyn ExecutionPlan>) {
    let query = physical(context, SQL).await;
    let batches = collect(Arc::clone(&query), context.task_ctx()).await.unwrap();
    (rows(&batches, true), query)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_gpus_go_on() {
    let gpus = match open_cuda(&CudaOptions::default()) {
        Ok(gpus) if gpus.len() > 1 => gpus,
        other => {
            return say(&format!(
                "SKIP the_other_gpus_go_on: two GPUs are needed, found {:?}",
                other.map(|it| it.len())
            ));
        }
    };
    let context_stock = stock();
    create(&context_stock).await;
    let wanted = answer(&context_stock).await.0;

    let runtime = WarpjoinRuntime::lazy();
    let context = warp_on(Arc::clone(&runtime), |options| options.on_fault = OnFault::Fallback);
    create(&context).await;
    load_table(&context, "u").await.unwrap();
    let (rows_of_all, query) = answer(&context).await;
    assert_eq!(rows_of_all, wanted);
    assert!(
        Placement::of(&query).is_on_devices() && Placement::of(&query).device[0].fallback.is_none(),
        "{}",
        shown(&query)
    );

    trap(&gpus[1]);
    // The table on the lost GPU is gone, and the error says so.
    let query = physical(&context, SQL).await;
    let error = collect(query, context.task_ctx()).await.unwrap_err().to_string();
    assert!(error.contains("is lost"), "{error}");
    context.deregister_table("u").unwrap();
    context.sql(CREATE[1]).await.unwrap().collect().await.unwrap();

    // Queries over other tables go on.
    for round in 0..3 {
        let (rows_of_rest, query) = answer(&context).await;
        assert_eq!(rows_of_rest, wanted, "round {round}");
        let fallback = Placement::of(&query).device.first().and_then(|part| part.fallback.clone());
        assert!(fallback.as_ref().is_none_or(|it| it.cause == Cause::DeviceLost), "round {round}: {}", shown(&query));
        assert!(round == 0 || fallback.is_none(), "round {round}: a lost GPU is tried again: {}", shown(&query));
    }
    let options = WarpjoinOptions { minimum_rows: 0, ..WarpjoinOptions::default() };
    match runtime.devices(&options) {
        Devices::Open(session) => {
            let left_out = runtime.left_out(&session);
            assert!(left_out.iter().any(|why| why.contains("cuda:1") && why.contains("lost")), "{left_out:?}");
            say(&format!(
                "after the loss of cuda:1: {} of {} GPUs go on; {left_out:?}",
                session.devices().len(),
                gpus.len()
            ));
            load_table(&context, "u").await.unwrap();
            let (rows_of_rest, query) = answer(&context).await;
            assert_eq!(rows_of_rest, wanted);
            assert!(Placement::of(&query).is_on_devices(), "{}", shown(&query));
        }
        Devices::None(why) => say(&format!("after the loss of cuda:1 the CPU goes on: {why}")),
        Devices::Refused(why) => panic!("auto never refuses: {why}"),
    }
    // A session that asks for both GPUs is told.
    context.sql(&format!("set warpjoin.devices = {}", gpus.len())).await.unwrap();
    let refused = WarpjoinOptions { device: DeviceChoice::Cuda, devices: gpus.len(), ..options };
    let Devices::Refused(why) = runtime.devices(&refused) else { panic!("a lost GPU is used") };
    assert!(why.contains("lost"), "{why}");
}
