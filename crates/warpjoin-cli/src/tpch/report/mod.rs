//! The results of a TPC-H run as data, in the format of the JSON file.
//!
//! Must not know how queries are measured.

mod markdown;
mod plot;
pub(super) mod save;
mod show;
pub(super) mod table;

use serde::{Deserialize, Serialize};
use warpjoin::QueryMetrics;
use warpjoin_datafusion::Placement;
use warpjoin_device::{DeviceInfo, TracedSpan};

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
    /// End of the run, UTC.
    pub date: String,
    /// The command line.
    pub command: Vec<String>,
    /// Scale factor.
    pub scale: f64,
    /// Number of hot runs of each query.
    pub hot_runs: usize,
    /// Number of CPU cores of the host.
    pub cores: usize,
    /// Devices, in shard order.
    pub devices: Vec<DeviceReport>,
    /// One entry per table.
    pub tables: Vec<LoadReport>,
    /// One entry per query.
    pub queries: Vec<QueryReport>,
    /// One entry per number of concurrent clients, if requested.
    #[serde(default)]
    pub clients: Vec<ClientsReport>,
}

/// A device of the run.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// For example `cuda:0`.
    pub label: String,
    /// For example `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Total memory.
    pub memory_bytes: u64,
    /// Peak memory bandwidth; 0 if unknown.
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
    /// Text of the query.
    pub sql: String,
    /// Number of rows of the answer.
    pub rows: usize,
    /// Result of the comparison.
    pub outcome: Outcome,
    /// The difference or the error.
    pub difference: Option<String>,
    /// Whether the answer equals the one that the TPC publishes; `None` unless the scale factor is 1.
    pub is_published: Option<bool>,
    /// Operators on devices and on the CPU.
    pub placement: PlacementReport,
    /// Bytes of the resident columns that the query scans, each column counted once.
    pub scanned_bytes: u64,
    /// Median time of the hot runs on stock DataFusion, including planning.
    pub datafusion_ms: Option<f64>,
    /// First run.
    pub first: Option<RunReport>,
    /// The hot run with the median total time.
    pub hot: Option<RunReport>,
    /// Total times of all hot runs.
    pub hot_total_ms: Vec<f64>,
    /// The run with the median total time of those without any column on the devices, if requested.
    #[serde(default)]
    pub cold: Option<RunReport>,
    /// Runs with other parameters, if requested.
    pub variants: Option<VariantsReport>,
    /// What host threads did during the first run, if it is traced.
    #[serde(skip)]
    pub first_spans: Vec<TracedSpan>,
}

/// Result of comparing the answers to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answers are equal.
    Equal,
    /// The answers differ.
    Different,
    /// There was no reference answer.
    NotCompared,
    /// The query failed.
    Failed,
}

/// Which operators ran on devices and on the CPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Number of device nodes in the plan.
    pub device_nodes: usize,
    /// Number of joins in device nodes.
    pub device_joins: usize,
    /// Number of aggregates in device nodes.
    pub device_aggregates: usize,
    /// Number of joins on the CPU.
    pub cpu_joins: usize,
    /// Number of aggregates on the CPU.
    pub cpu_aggregates: usize,
    /// Descriptions of CPU work other than reading and moving rows.
    pub host_work: Vec<String>,
    /// Why operators ran on the CPU, or fell back to it.
    pub reasons: Vec<String>,
}

/// One run of a query through warpjoin.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// Time from SQL text to the last batch.
    pub total_ms: f64,
    /// Time from SQL text to the physical plan.
    pub sql_planning_ms: f64,
    /// Time from the physical plan to the last batch.
    pub execution_ms: f64,
    /// Time to optimize the device plan.
    pub optimizer_ms: f64,
    /// Time of the engine's other planning.
    pub engine_planning_ms: f64,
    /// Time to compile kernels, or to load them from disk.
    pub compile_ms: f64,
    /// Number of kernel modules that were not in memory.
    pub compiled_modules: u64,
    /// Time from the first launch to the result on the devices.
    pub device_ms: f64,
    /// Time of kernels, by device events.
    pub kernel_ms: f64,
    /// Time to fetch and decode the result.
    pub transfer_ms: f64,
    /// Number of kernel launches.
    pub launches: u64,
    /// Bytes copied from the host to devices.
    pub uploaded_bytes: u64,
    /// Bytes copied from devices to the host.
    pub downloaded_bytes: u64,
    /// Bytes copied between devices.
    pub exchanged_bytes: u64,
    /// Peak memory of a device.
    pub peak_bytes: u64,
    /// One entry per pipeline.
    pub pipelines: Vec<PipelineReport>,
}

/// One pipeline of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PipelineReport {
    /// Source, steps and sink.
    pub name: String,
    /// Number of rows of the source.
    pub rows_in: u64,
    /// Number of rows of the sink.
    pub rows_out: u64,
    /// Bytes of the source columns.
    pub read_bytes: u64,
    /// Device time.
    pub kernel_ms: f64,
    /// Number of probes of join hash tables, if counted.
    pub probes: u64,
    /// Number of rows that runtime filters dropped, if counted.
    pub pruned: u64,
    /// Number of retries.
    pub retries: u64,
}

/// Runs of one query with other parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VariantsReport {
    /// Number of runs.
    pub runs: usize,
    /// Differences from stock DataFusion's answers.
    pub different: Vec<String>,
    /// Number of kernel modules that they compiled. Should be 0, since literals are kernel arguments.
    pub compiled_modules: u64,
    /// Parameters of the runs that compiled a module.
    pub compiled_with: Vec<String>,
    /// Runs with the plan of an earlier query, which had other literals.
    #[serde(default)]
    pub kept: usize,
    /// Time of each run, from SQL text to the last batch.
    pub total_ms: Vec<f64>,
}

impl QueryReport {
    /// Median time of the runs with new literals, if any.
    pub(super) fn new_literals_ms(&self) -> Option<f64> {
        self.variants.as_ref()?.median_ms()
    }
}

impl VariantsReport {
    /// Median time of the runs.
    pub fn median_ms(&self) -> Option<f64> {
        let mut times_ms = self.total_ms.clone();
        times_ms.sort_by(f64::total_cmp);
        times_ms.get(times_ms.len() / 2).copied()
    }
}

impl RunReport {
    /// Combines the times of a run with the metrics of its plan.
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

    /// Time of SQL planning and engine planning.
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
    /// The placement of a plan that has run.
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
    /// Whether all queries ran, all compared answers are equal, and no variant compiled a module. With `strict`, also whether
    /// nothing fell back to the CPU; a query that violates `strict` otherwise has failed.
    pub fn passed(&self, strict: bool) -> bool {
        self.queries.iter().all(|query| {
            let answered = matches!(query.outcome, Outcome::Equal | Outcome::NotCompared);
            let variants = query.variants.as_ref().is_none_or(|v| v.different.is_empty() && v.compiled_modules == 0);
            answered && variants && (!strict || query.placement.reasons.is_empty())
        })
    }
}

/// Sums of the metrics of all device nodes of a plan, which run one after another.
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

/// Converts nanoseconds to milliseconds.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
