//! A join or group-by in SQL does the same work as the operator of the Arrow-native API: the same pipelines, rows, bytes and
//! launches.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::io::Write;
use std::sync::Arc;

use common::{TABLES, physical, register_tpch, warp, warp_on};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use warpjoin::exec::{self, ExecOptions};
use warpjoin::plan::{AggregateFunction, JoinKind, Plan};
use warpjoin::{GroupBy, HashJoin, QueryMetrics, Session, Table};
use warpjoin_datafusion::{DevicePart, Placement, WarpjoinRuntime, load_table, session_of};
use warpjoin_device::{CudaOptions, open_cuda};

struct Resident {
    context: SessionContext,
    tables: Vec<(&'static str, Arc<Table>)>,
}

impl Resident {
    async fn new(context: SessionContext, scale: f64) -> Self {
        register_tpch(&context, scale);
        let mut tables = vec![];
        for name in TABLES {
            tables.push((name, Arc::clone(load_table(&context, name).await.unwrap().table())));
        }
        Self { context, tables }
    }

    fn table(&self, name: &str) -> Arc<Table> {
        Arc::clone(&self.tables.iter().find(|(own, _)| *own == name).unwrap().1)
    }

    fn column(&self, table: &str, column: &str) -> usize {
        self.table(table).schema().index_of(column).unwrap()
    }

    /// Queries with the equivalent plan of the Arrow-native API.
    fn pairs(&self) -> Vec<(&'static str, Plan)> {
        let join = |kind: JoinKind| {
            let (orders, lines) = (self.table("orders"), self.table("lineitem"));
            let width = orders.schema().fields().len();
            let build = ["o_orderkey", "o_custkey"].map(|name| self.column("orders", name));
            let probe = ["l_partkey", "l_suppkey"].map(|name| width + self.column("lineitem", name));
            let output = if kind == JoinKind::Inner { [build, probe].concat() } else { probe.to_vec() };
            let join = HashJoin::new(orders, lines).kind(kind).on("o_orderkey", "l_orderkey").unwrap();
            join.output(output).plan().unwrap()
        };
        let group_by = |key: &str| GroupBy::new(self.table("lineitem")).key(key).unwrap();
        let sums = |key: &str| {
            let sums = group_by(key).aggregate(AggregateFunction::Sum, Some("l_quantity")).unwrap();
            let sums = sums.aggregate(AggregateFunction::Max, Some("l_shipdate")).unwrap();
            sums.aggregate(AggregateFunction::Count, None).unwrap().plan().unwrap()
        };
        vec![
            (
                "select o_orderkey, o_custkey, l_partkey, l_suppkey from orders join lineitem on o_orderkey = l_orderkey",
                join(JoinKind::Inner),
            ),
            (
                "select l_partkey, l_suppkey from lineitem where l_orderkey in (select o_orderkey from orders)",
                join(JoinKind::ProbeSemi),
            ),
            (
                "select l_returnflag, sum(l_quantity), max(l_shipdate), count(*) from lineitem group by l_returnflag",
                sums("l_returnflag"),
            ),
            (
                "select l_suppkey, sum(l_quantity), max(l_shipdate), count(*) from lineitem group by l_suppkey",
                sums("l_suppkey"),
            ),
            (
                "select l_orderkey, sum(l_quantity), max(l_shipdate), count(*) from lineitem group by l_orderkey",
                sums("l_orderkey"),
            ),
        ]
    }

    /// Lines of `EXPLAIN ANALYZE`.
    async fn analyzed(&self, sql: &str) -> Vec<String> {
        let batches = self.context.sql(&format!("explain analyze {sql}")).await.unwrap().collect().await.unwrap();
        let text = pretty_format_batches(&batches).unwrap().to_string();
        text.lines().map(|line| line.trim_matches(['|', ' ']).to_string()).collect()
    }

    fn operator(&self, plan: &Plan) -> QueryMetrics {
        let session = session_of(&self.context).unwrap();
        exec::run(&session, plan, &[], &ExecOptions::default()).unwrap().metrics
    }
}

/// Lines such as `pipeline 1: Scan[2] -> BuildRows, rows_in=..., rows_out=..., read_bytes=...`, without number and time.
fn pipelines(lines: &[String]) -> Vec<String> {
    let pipeline = |line: &String| {
        let (_, text) = line.strip_prefix("pipeline ")?.split_once(": ")?;
        Some(shape_of(text.split_once(", kernel_time")?.0))
    };
    lines.iter().filter_map(pipeline).collect()
}

/// Removes what may differ: the number of a scan's columns, and projections.
fn shape_of(name: &str) -> String {
    let name = match name.strip_prefix("Scan[").and_then(|rest| rest.split_once(']')) {
        Some((_, rest)) => format!("Scan{rest}"),
        None => name.to_string(),
    };
    name.replace(" -> Project", "")
}

fn metric(lines: &[String], name: &str) -> String {
    let metrics = lines.iter().find(|line| line.contains("ran on the devices")).unwrap();
    let (_, rest) = metrics.split_once(&format!("{name}=")).unwrap();
    rest.split([',', ']']).next().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_does_what_the_operators_do() {
    let resident = Resident::new(warp(1, |_| {}), 0.02).await;
    for (sql, plan) in resident.pairs() {
        let wanted = resident.operator(&plan);
        let lines = resident.analyzed(sql).await;
        let operator: Vec<String> = wanted
            .pipelines
            .iter()
            .map(|it| {
                let (rows_in, rows_out, read_bytes) = (it.rows_in, it.rows_out, it.read_bytes);
                let sizes = format!("rows_in={rows_in}, rows_out={rows_out}, read_bytes={read_bytes}");
                format!("{}, {sizes}", shape_of(&it.name))
            })
            .collect();
        assert_eq!(pipelines(&lines), operator, "{sql}");
        assert_eq!(metric(&lines, "launches"), wanted.launches.to_string(), "{sql}");
    }
}

/// Device time that SQL may take in addition to the operator's, as a share of it, plus a constant for one host wait.
const MORE_MAX: f64 = 0.1;
const WAIT_NS: u64 = 50_000;

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_takes_no_more_device_time_on_a_gpu() {
    let devices = match open_cuda(&CudaOptions { devices: Some(1), ..CudaOptions::default() }) {
        Ok(devices) => devices,
        Err(error) if std::env::var("WARPJOIN_REQUIRE_GPU").is_ok_and(|value| value == "1") => panic!("{error}"),
        Err(error) => {
            // Bypasses the output capture of the test harness.
            let _ = writeln!(std::io::stderr(), "SKIP sql_takes_no_more_device_time_on_a_gpu: {error}");
            return;
        }
    };
    let runtime = WarpjoinRuntime::new(Session::new(devices).unwrap());
    let resident = Resident::new(warp_on(runtime, |_| {}), 1.0).await;
    for (sql, plan) in resident.pairs() {
        let (mut of_sql, mut of_operator) = (vec![], vec![]);
        for run in 0..12 {
            // Device time ends with the result on the device: fetching it is not the operator's work.
            let operator_ns = resident.operator(&plan).device_ns;
            let physical = physical(&resident.context, sql).await;
            collect(Arc::clone(&physical), resident.context.task_ctx()).await.unwrap();
            let parts = Placement::of(&physical).device;
            let [DevicePart { metrics: Some(metrics), .. }] = parts.as_slice() else { panic!("{sql}: {parts:?}") };
            session_of(&resident.context).unwrap().finish_compiling();
            // The first runs compile kernels.
            if run >= 3 {
                of_sql.push(metrics.device_ns);
                of_operator.push(operator_ns);
            }
        }
        let (of_sql, of_operator) = (median(of_sql), median(of_operator));
        println!("{:8.3} ms by SQL, {:8.3} ms by the operator: {sql}", of_sql as f64 / 1e6, of_operator as f64 / 1e6);
        let most = (of_operator as f64 * (1.0 + MORE_MAX)) as u64 + WAIT_NS;
        assert!(of_sql <= most, "{sql}: {of_sql} ns, {of_operator} ns by the operator");
    }
}
