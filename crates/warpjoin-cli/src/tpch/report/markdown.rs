//! Renders a report as the table of docs/benchmarks.md.
//!
//! Must not know how queries are measured.

use std::fmt::Write;

use super::{QueryReport, Report, RunReport};

const HEADER: [&str; 11] = [
    "query",
    "DataFusion",
    "warpjoin",
    "new literals",
    "planning",
    "device",
    "transfer",
    "kernels",
    "floor",
    "kernels / floor",
    "first run",
];

/// A time with at least three significant digits from 1 ms on.
fn show(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

impl Report {
    /// A Markdown table of the queries, with the milliseconds of the median hot run, after a description of the run.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let bandwidth = self.memory_bytes_per_s();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\n", self.description(bandwidth));
        let _ = writeln!(text, "| {} |\n|{}", HEADER.join(" | "), "---|".repeat(HEADER.len()));
        let all: Vec<Figures> = self.queries.iter().map(|query| Figures::of(query, bandwidth)).collect();
        for (query, figures) in self.queries.iter().zip(&all) {
            let _ = writeln!(text, "| {} |", figures.cells(query.query.to_string()).join(" | "));
        }
        let _ = writeln!(text, "| {} |", Figures::sum(&all).cells("total".into()).join(" | "));
        text
    }

    /// Memory bandwidth of all devices; `None` if that of a device is unknown.
    fn memory_bytes_per_s(&self) -> Option<f64> {
        let all = self.devices.iter().map(|device| device.memory_bytes_per_s).collect::<Vec<_>>();
        (!all.contains(&0)).then(|| all.iter().sum::<u64>() as f64).filter(|&sum| sum > 0.0)
    }

    fn description(&self, bandwidth: Option<f64>) -> String {
        let day = self.date.split('T').next().unwrap_or_default();
        let name = self.devices.first().map_or("no device", |device| device.name.as_str());
        let floor = bandwidth.map_or_else(
            || "The memory bandwidth of the device is unknown, so there is no floor.".to_string(),
            |bytes| {
                format!("\"Floor\": time to read each resident column of the query once, at {:.2} TB/s.", bytes * 1e-12)
            },
        );
        format!(
            "TPC-H scale {}, resident on {} x {name}, hot, median of {} runs, from SQL text to Arrow batches on the host; \
             milliseconds; {day}. \"New literals\": hot runs with literals that have not run before. Stock DataFusion {} with \
             its tables in memory, on the same {} cores. {floor} \"First run\": includes compiling kernels.",
            self.scale,
            self.devices.len(),
            self.hot_runs,
            self.datafusion_version,
            self.cores
        )
    }
}

/// The milliseconds that the table shows for a query; `None` if not measured.
struct Figures {
    datafusion: Option<f64>,
    hot: Option<f64>,
    new_literals: Option<f64>,
    planning: Option<f64>,
    device: Option<f64>,
    transfer: Option<f64>,
    kernels: Option<f64>,
    floor: Option<f64>,
    first: Option<f64>,
}

impl Figures {
    fn of(query: &QueryReport, bandwidth: Option<f64>) -> Self {
        let hot = query.hot.as_ref();
        Self {
            datafusion: query.datafusion_ms,
            hot: hot.map(|run| run.total_ms),
            new_literals: query.new_literals_ms(),
            planning: hot.map(RunReport::planning_ms),
            device: hot.map(|run| run.device_ms),
            transfer: hot.map(|run| run.transfer_ms),
            kernels: hot.map(|run| run.kernel_ms),
            floor: floor_ms(query, bandwidth),
            first: query.first.as_ref().map(|run| run.total_ms),
        }
    }

    /// Sums over all queries; `None` if one was not measured.
    fn sum(all: &[Self]) -> Self {
        let sum = |figure: fn(&Self) -> Option<f64>| all.iter().map(figure).sum::<Option<f64>>();
        Self {
            datafusion: sum(|query| query.datafusion),
            hot: sum(|query| query.hot),
            new_literals: sum(|query| query.new_literals),
            planning: sum(|query| query.planning),
            device: sum(|query| query.device),
            transfer: sum(|query| query.transfer),
            kernels: sum(|query| query.kernels),
            floor: sum(|query| query.floor),
            first: sum(|query| query.first),
        }
    }

    fn cells(&self, name: String) -> [String; HEADER.len()] {
        let cell = |ms: Option<f64>| ms.map_or_else(|| "-".to_string(), show);
        [
            name,
            cell(self.datafusion),
            cell(self.hot),
            cell(self.new_literals),
            cell(self.planning),
            cell(self.device),
            cell(self.transfer),
            cell(self.kernels),
            cell(self.floor),
            ratio(self.kernels, self.floor),
            cell(self.first),
        ]
    }
}

/// Minimum time to read the scanned columns once.
fn floor_ms(query: &QueryReport, bandwidth: Option<f64>) -> Option<f64> {
    bandwidth.map(|bytes_per_s| query.scanned_bytes as f64 / bytes_per_s * 1e3)
}

fn ratio(kernel_ms: Option<f64>, floor_ms: Option<f64>) -> String {
    match kernel_ms.zip(floor_ms) {
        Some((kernel_ms, floor_ms)) if floor_ms > 0.0 => format!("{:.1}", kernel_ms / floor_ms),
        _ => "-".to_string(),
    }
}
