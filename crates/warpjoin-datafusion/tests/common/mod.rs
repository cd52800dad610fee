//! TPC-H tables, sessions and comparisons for the tests.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, unreachable_pub, missing_docs)]

pub mod queries;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};
use warpjoin::Session;
use warpjoin_datafusion::{
    OnFault, Placement, WarpjoinOptions, WarpjoinRuntime, WarpjoinSessionStateBuilder, load_table,
};
use warpjoin_device::{SimOptions, open_simulated};

pub const TABLES: [&str; 8] = ["nation", "region", "part", "supplier", "partsupp", "customer", "orders", "lineitem"];

/// A number below `runs` that changes each hour. A slow test divides its cases among `runs` runs.
pub fn turn(runs: u64) -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3600 % runs
}

/// Stock DataFusion.
pub fn stock() -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(3)
        .with_information_schema(true)
        .set_bool("datafusion.optimizer.enable_dynamic_filter_pushdown", false);
    SessionContext::new_with_config(config)
}

/// A session on `devices` simulated devices with the settings that `change` makes. By default inputs of any size go to the
/// devices.
pub fn warp(devices: usize, change: impl FnOnce(&mut WarpjoinOptions)) -> SessionContext {
    let options = SimOptions { devices, ..SimOptions::default() };
    let session = Session::new(open_simulated(&options).unwrap()).unwrap();
    warp_on(WarpjoinRuntime::new(session), change)
}

pub fn warp_on(runtime: Arc<WarpjoinRuntime>, change: impl FnOnce(&mut WarpjoinOptions)) -> SessionContext {
    let mut options = WarpjoinOptions { minimum_rows: 0, on_fault: OnFault::Error, ..WarpjoinOptions::default() };
    change(&mut options);
    let config =
        SessionConfig::new().with_target_partitions(3).with_information_schema(true).with_option_extension(options);
    let state = SessionStateBuilder::new_with_default_features().with_config(config).with_warpjoin(runtime).build();
    SessionContext::new_with_state(state)
}

fn batches(reader: impl RecordBatchReader) -> Vec<RecordBatch> {
    reader.map(Result::unwrap).collect()
}

/// Registers TPC-H at `scale` as tables in host memory, in two partitions each.
pub fn register_tpch(context: &SessionContext, scale: f64) {
    for name in TABLES {
        let batches = match name {
            "nation" => batches(NationArrow::new(NationGenerator::new(scale, 1, 1))),
            "region" => batches(RegionArrow::new(RegionGenerator::new(scale, 1, 1))),
            "part" => batches(PartArrow::new(PartGenerator::new(scale, 1, 1))),
            "supplier" => batches(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
            "partsupp" => batches(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
            "customer" => batches(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
            "orders" => batches(OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
            _ => batches(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        };
        let schema = batches[0].schema();
        let (even, odd): (Vec<_>, Vec<_>) = batches.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
        let partitions = [even, odd].map(|part| part.into_iter().map(|(_, batch)| batch).collect()).to_vec();
        context.register_table(name, Arc::new(MemTable::try_new(schema, partitions).unwrap())).unwrap();
    }
}

/// Loads the registered TPC-H tables onto the devices.
pub async fn load_tpch(context: &SessionContext) {
    for name in TABLES {
        load_table(context, name).await.unwrap();
    }
}

pub async fn physical(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

pub async fn placement(context: &SessionContext, sql: &str) -> Placement {
    Placement::of(&physical(context, sql).await)
}

pub fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

/// The rows as text, sorted unless `ordered`.
pub fn rows(batches: &[RecordBatch], ordered: bool) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = vec![];
    for batch in batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            rows.push(columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|"));
        }
    }
    if !ordered {
        rows.sort();
    }
    rows
}

/// Runs a query. Returns its rows and its placement.
pub async fn run(context: &SessionContext, sql: &str) -> (Vec<RecordBatch>, Placement) {
    let plan = physical(context, sql).await;
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    for batch in &batches {
        assert_eq!(batch.schema(), plan.schema());
    }
    (batches, Placement::of(&plan))
}

/// Asserts that both sessions give the same answer.
pub async fn assert_same(expected: &SessionContext, actual: &SessionContext, sql: &str) -> Placement {
    let ordered = sql.to_lowercase().contains("order by");
    let (expected, _) = run(expected, sql).await;
    let (actual, placement) = run(actual, sql).await;
    assert_eq!(rows(&actual, ordered), rows(&expected, ordered), "{sql}");
    placement
}
