//! A report as the table of a README.

use std::fmt::Write;

use super::report::{QueryReport, Report, RunReport};

/// Decimal places of a figure: enough to tell two digits apart.
fn show(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

impl Report {
    /// The queries as a Markdown table, milliseconds of the median hot run, under a sentence that says what was run.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let bandwidth = self.memory_bytes_per_s();
        // Writing to a string can't fail.
        let _ = writeln!(text, "{}\n", self.sentence(bandwidth));
        text.push_str(
            "| query | DataFusion | warpjoin | planning | device | transfer | kernels | floor | kernels / floor | first run |\n",
        );
        text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
        for query in &self.queries {
            let _ = writeln!(text, "| {} |", self.row(query, bandwidth).join(" | "));
        }
        let _ = writeln!(text, "| {} |", self.totals(bandwidth).join(" | "));
        text
    }

    /// All devices' together; `None` where one is not known.
    fn memory_bytes_per_s(&self) -> Option<f64> {
        let all = self.devices.iter().map(|device| device.memory_bytes_per_s).collect::<Vec<_>>();
        (!all.contains(&0)).then(|| all.iter().sum::<u64>() as f64).filter(|&sum| sum > 0.0)
    }

    fn sentence(&self, bandwidth: Option<f64>) -> String {
        let day = self.date.split('T').next().unwrap_or_default();
        let name = self.devices.first().map_or("no device", |device| device.name.as_str());
        let floor = bandwidth.map_or_else(
            || "The bandwidth of the device's memory is not known, so there is no floor.".to_string(),
            |bytes| {
                format!(
                    "\"Floor\": the resident columns that the query scans, each once, at {:.2} TB/s.",
                    bytes * 1e-12
                )
            },
        );
        format!(
            "TPC-H scale {}, resident on {} x {name}, hot, median of {} runs, from SQL text to Arrow batches on the host; \
             milliseconds; {day}. Stock DataFusion {} with its tables in memory, on the same {} cores. {floor} \"First run\": \
             with the kernels that it had to compile.",
            self.scale,
            self.devices.len(),
            self.hot_runs,
            self.datafusion_version,
            self.cores
        )
    }

    fn row(&self, query: &QueryReport, bandwidth: Option<f64>) -> Vec<String> {
        let hot = query.hot.as_ref();
        let cell = |ms: Option<f64>| ms.map_or_else(|| "-".to_string(), show);
        let kernel_ms = hot.map(|run| run.kernel_ms);
        let floor_ms = floor_ms(query, bandwidth);
        vec![
            query.query.to_string(),
            cell(query.datafusion_ms),
            cell(hot.map(|run| run.total_ms)),
            cell(hot.map(RunReport::planning_ms)),
            cell(hot.map(|run| run.device_ms)),
            cell(hot.map(|run| run.transfer_ms)),
            cell(kernel_ms),
            cell(floor_ms),
            ratio(kernel_ms, floor_ms),
            cell(query.first.as_ref().map(|run| run.total_ms)),
        ]
    }

    fn totals(&self, bandwidth: Option<f64>) -> Vec<String> {
        let sum = |figure: &dyn Fn(&QueryReport) -> Option<f64>| self.queries.iter().map(figure).sum::<Option<f64>>();
        let hot = |figure: fn(&RunReport) -> f64| sum(&|query| query.hot.as_ref().map(figure));
        let cell = |ms: Option<f64>| ms.map_or_else(|| "-".to_string(), show);
        let (kernel_ms, floor_ms) = (hot(|run| run.kernel_ms), sum(&|query| floor_ms(query, bandwidth)));
        vec![
            "total".to_string(),
            cell(sum(&|query| query.datafusion_ms)),
            cell(hot(|run| run.total_ms)),
            cell(hot(RunReport::planning_ms)),
            cell(hot(|run| run.device_ms)),
            cell(hot(|run| run.transfer_ms)),
            cell(kernel_ms),
            cell(floor_ms),
            ratio(kernel_ms, floor_ms),
            cell(sum(&|query| query.first.as_ref().map(|run| run.total_ms))),
        ]
    }
}

/// What reading the scanned columns once takes at least.
fn floor_ms(query: &QueryReport, bandwidth: Option<f64>) -> Option<f64> {
    bandwidth.map(|bytes_per_s| query.scanned_bytes as f64 / bytes_per_s * 1e3)
}

fn ratio(kernel_ms: Option<f64>, floor_ms: Option<f64>) -> String {
    match kernel_ms.zip(floor_ms) {
        Some((kernel_ms, floor_ms)) if floor_ms > 0.0 => format!("{:.1}", kernel_ms / floor_ms),
        _ => "-".to_string(),
    }
}
