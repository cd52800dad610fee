//! What a run of TPC-H found, as data: the JSON file is this.

mod markdown;
mod plot;
pub(super) mod save;
mod show;
pub(super) mod table;

use serde::{Deserialize, Serialize};
use warpjoin::QueryMetrics;
use warpjoin_datafusion::Placement;
use warpjoin_device::DeviceInfo;

use super::clients::ClientsReport;
use super::data::LoadReport;

pub use show::{TpchReportArgs, run_tpch_report};

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of warpjoin.
    pub warpjoin_version: String,
    /// Version of DataFusion.
    pub datafusion_version: String,
    /// When it ended, UTC.
    pub date: String,
    /// The command line.
    pub command: Vec<String>,
    /// Scale factor.
    pub scale: f64,
    /// Hot runs of each query.
    pub hot_runs: usize,
    /// CPU cores of the host.
    pub cores: usize,
    /// Devices, in shard order.
    pub devices: Vec<DeviceReport>,
    /// One entry a table.
    pub tables: Vec<LoadReport>,
    /// One entry a query.
    pub queries: Vec<QueryReport>,
    /// Many clients at once, if asked for.
    #[serde(default)]
    pub clients: Vec<ClientsReport>,
}

/// A device that took part.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Such as `cuda:0`.
    pub label: String,
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// All its memory.
    pub memory_bytes: u64,
    /// What its memory's clock and bus allow; 0: not known.
    pub memory_bytes_per_s: u64,
    /// Version of driver or compiler.
    pub driver: String,
    /// Version of the run-time compiler.
    pub compiler: String,
}

/// One query.
#[derive(Debug, Serialize, Deserialize)]
pub struct QueryReport {
    /// Number of the query.
    pub query: u32,
    /// Its text.
    pub sql: String,
    /// Rows of the answer.
    pub rows: usize,
    /// What the comparison found.
    pub outcome: Outcome,
    /// What the difference or the error was.
    pub difference: Option<String>,
    /// Whether it is the answer that the TPC publishes; `None` unless run at scale factor 1.
    pub is_published: Option<bool>,
    /// Operators on devices and on the CPU.
    pub placement: PlacementReport,
    /// Bytes of the resident columns that it scans, each column once: what it must read.
    pub scanned_bytes: u64,
    /// Stock DataFusion, planning included, median of its hot runs.
    pub datafusion_ms: Option<f64>,
    /// First run.
    pub first: Option<RunReport>,
    /// The median hot run, by its total.
    pub hot: Option<RunReport>,
    /// Totals of all hot runs.
    pub hot_total_ms: Vec<f64>,
    /// Runs with other parameters, if asked for.
    pub variants: Option<VariantsReport>,
}

/// What the comparison of a query found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The same answer.
    Equal,
    /// Another answer.
    Different,
    /// There was nothing to compare with.
    NotCompared,
    /// It could not be run.
    Failed,
}

/// What ran where.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Device nodes in the plan.
    pub device_nodes: usize,
    /// Joins in them.
    pub device_joins: usize,
    /// Aggregates in them.
    pub device_aggregates: usize,
    /// Joins that stayed on the CPU.
    pub cpu_joins: usize,
    /// Aggregates that stayed on the CPU.
    pub cpu_aggregates: usize,
    /// All that the CPU did besides reading and moving rows, in words.
    pub host_work: Vec<String>,
    /// Why something stayed on the CPU, or went back to it.
    pub reasons: Vec<String>,
}

/// One run of a query through warpjoin.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// From SQL text to the last batch.
    pub total_ms: f64,
    /// From SQL text to the physical plan.
    pub sql_planning_ms: f64,
    /// From the physical plan to the last batch.
    pub execution_ms: f64,
    /// Ordering joins again for the devices.
    pub optimizer_ms: f64,
    /// The engine's own planning apart from that.
    pub engine_planning_ms: f64,
    /// Compiling kernels, or loading them from disk.
    pub compile_ms: f64,
    /// Kernel modules that were not in memory.
    pub compiled_modules: u64,
    /// From the first launch to the result on the devices.
    pub device_ms: f64,
    /// Kernels alone, by device events.
    pub kernel_ms: f64,
    /// Fetching and decoding the result.
    pub transfer_ms: f64,
    /// Kernel launches.
    pub launches: u64,
    /// Bytes from host to devices.
    pub uploaded_bytes: u64,
    /// Bytes from devices to host.
    pub downloaded_bytes: u64,
    /// Bytes between devices.
    pub exchanged_bytes: u64,
    /// Most memory held on one device.
    pub peak_bytes: u64,
    /// One entry a pipeline.
    pub pipelines: Vec<PipelineReport>,
}

/// One pipeline of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PipelineReport {
    /// Source, steps and sink.
    pub name: String,
    /// Rows of the source.
    pub rows_in: u64,
    /// Rows of the sink.
    pub rows_out: u64,
    /// Bytes of the source columns.
    pub read_bytes: u64,
    /// Device time.
    pub kernel_ms: f64,
    /// Lookups in tables of joins, if they were counted.
    pub probes: u64,
    /// Rows that runtime filters dropped, if they were counted.
    pub pruned: u64,
    /// Runs again.
    pub retries: u64,
}

/// Runs of one query with other parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VariantsReport {
    /// How many were run.
    pub runs: usize,
    /// Of them, with another answer than stock DataFusion's; each in words.
    pub different: Vec<String>,
    /// Kernel modules that they compiled: 0, for literals are arguments.
    pub compiled_modules: u64,
    /// Parameters with which something was compiled.
    pub compiled_with: Vec<String>,
    /// From SQL text to the last batch, of each run.
    pub total_ms: Vec<f64>,
}

impl QueryReport {
    /// The median over runs with other literals each, if there were some.
    pub(super) fn new_literals_ms(&self) -> Option<f64> {
        self.variants.as_ref()?.median_ms()
    }
}

impl VariantsReport {
    /// Median of the runs: a hot query with literals that it has not seen before.
    pub fn median_ms(&self) -> Option<f64> {
        let mut times_ms = self.total_ms.clone();
        times_ms.sort_by(f64::total_cmp);
        times_ms.get(times_ms.len() / 2).copied()
    }
}

impl RunReport {
    /// From the times of one run and the plan that ran.
    pub(super) fn new(sql_planning_ms: f64, execution_ms: f64, placement: &Placement) -> Self {
        let metrics = &total_metrics(placement);
        Self {
            total_ms: sql_planning_ms + execution_ms,
            sql_planning_ms,
            execution_ms,
            optimizer_ms: ms(metrics.optimizer_ns),
            engine_planning_ms: ms(metrics.planning_ns),
            compile_ms: ms(metrics.compile_ns),
            compiled_modules: metrics.compiled_modules,
            device_ms: ms(metrics.device_ns),
            kernel_ms: ms(metrics.kernel_ns),
            transfer_ms: ms(metrics.transfer_ns),
            launches: metrics.launches,
            uploaded_bytes: metrics.uploaded_bytes,
            downloaded_bytes: metrics.downloaded_bytes,
            exchanged_bytes: metrics.exchanged_bytes,
            peak_bytes: metrics.peak_bytes,
            pipelines: metrics
                .pipelines
                .iter()
                .map(|pipeline| PipelineReport {
                    name: pipeline.name.clone(),
                    rows_in: pipeline.rows_in,
                    rows_out: pipeline.rows_out,
                    read_bytes: pipeline.read_bytes,
                    kernel_ms: ms(pipeline.kernel_ns),
                    probes: pipeline.probes,
                    pruned: pipeline.pruned,
                    retries: pipeline.retries,
                })
                .collect(),
        }
    }

    /// SQL and engine planning together.
    pub fn planning_ms(&self) -> f64 {
        self.sql_planning_ms + self.optimizer_ms + self.engine_planning_ms
    }
}

impl DeviceReport {
    pub(super) fn new(info: &DeviceInfo) -> Self {
        Self {
            label: format!("{}:{}", info.kind, info.ordinal),
            name: info.name.clone(),
            memory_bytes: info.memory_bytes,
            memory_bytes_per_s: info.memory_bytes_per_s,
            driver: info.driver.clone(),
            compiler: info.compiler.clone(),
        }
    }
}

impl PlacementReport {
    /// Of a plan that has run.
    pub(super) fn new(placement: &Placement) -> Self {
        let operators = || placement.cpu.iter().filter(|node| node.is_operator);
        let aggregates = operators().filter(|node| node.name.contains("Aggregate")).count();
        let mut reasons: Vec<String> =
            placement.device.iter().filter_map(|part| part.fallback.as_ref().map(ToString::to_string)).collect();
        reasons.extend(operators().filter_map(|node| node.reason.as_ref().map(ToString::to_string)));
        reasons.sort();
        reasons.dedup();
        Self {
            device_nodes: placement.device.len(),
            device_joins: placement.joins(),
            device_aggregates: placement.aggregates(),
            cpu_joins: operators().count() - aggregates,
            cpu_aggregates: aggregates,
            host_work: placement.host_work.iter().map(ToString::to_string).collect(),
            reasons,
        }
    }

    /// Whether the CPU only read and moved rows.
    pub fn all_on_devices(&self) -> bool {
        self.host_work.is_empty() && self.reasons.is_empty()
    }
}

impl Report {
    /// Whether all answers are the same (as far as they were compared), all queries ran, and no
    /// variant compiled anything; with `strict`, also whether nothing fell back to the CPU. What `strict` refuses fails by
    /// itself.
    pub fn passed(&self, strict: bool) -> bool {
        self.queries.iter().all(|query| {
            let answered = matches!(query.outcome, Outcome::Equal | Outcome::NotCompared);
            let variants = query.variants.as_ref().is_none_or(|v| v.different.is_empty() && v.compiled_modules == 0);
            answered && variants && (!strict || query.placement.reasons.is_empty())
        })
    }
}

/// What all device nodes of a plan cost together; they run one after another.
pub(super) fn total_metrics(placement: &Placement) -> QueryMetrics {
    let mut total = QueryMetrics::default();
    for part in placement.device.iter().filter_map(|part| part.metrics.as_ref()) {
        total.optimizer_ns += part.optimizer_ns;
        total.planning_ns += part.planning_ns;
        total.compile_ns += part.compile_ns;
        total.compiled_modules += part.compiled_modules;
        total.kernel_ns += part.kernel_ns;
        total.device_ns += part.device_ns;
        total.transfer_ns += part.transfer_ns;
        total.launches += part.launches;
        total.uploaded_bytes += part.uploaded_bytes;
        total.downloaded_bytes += part.downloaded_bytes;
        total.exchanged_bytes += part.exchanged_bytes;
        total.peak_bytes = total.peak_bytes.max(part.peak_bytes);
        total.rows += part.rows;
        total.pipelines.extend(part.pipelines.iter().cloned());
    }
    total
}

/// Milliseconds of nanoseconds.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
