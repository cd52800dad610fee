//! The report: measurements as a table, as JSON and as plots.
//!
//! Owns the computation of figures from samples. Must not know devices.

mod date;
mod plot;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::limits::Limits;
use crate::{Bench, Design, Error, Figure, Line, PipelineTime, PlotPoint, Relative, Result, Sample, Unit, median};

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Measured, and all results were correct.
    Right,
    /// A result was wrong or a run failed.
    Failed,
    /// A feature that the line needs does not exist yet.
    Missing,
}

/// A line with its figures. Times are medians of device times.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Group of lines.
    pub group: String,
    /// Name within the group.
    pub name: String,
    /// How the line ended.
    pub status: Status,
    /// Why it failed or is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Bench axes.
    pub axes: BTreeMap<&'static str, f64>,
    /// Number of measured runs.
    pub samples: usize,
    /// Median time from the start of the first piece of work on the device to the end of the last.
    pub time_ms: f64,
    /// Minimum of these times.
    pub fastest_ms: f64,
    /// Median time of the kernels.
    pub kernel_ms: f64,
    /// Pipelines of the last run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pipelines: Vec<PipelineTime>,
    /// Pipelines of the last run whose own kernels were not compiled.
    pub interpreted: u64,
    /// Bytes that the last run sent to host memory for lack of room on the device.
    pub spilled_bytes: u64,
    /// Number of rows of all inputs.
    pub rows: u64,
    /// Rows per second.
    pub rows_per_s: f64,
    /// Bytes of inputs read once and outputs written once.
    pub moved_bytes: u64,
    /// 10^9 of these bytes per second.
    pub gb_per_s: f64,
    /// Time of the fastest known design at the limits of this run.
    pub limit_ms: f64,
    /// Name of that design.
    pub limit_design: &'static str,
    /// `limit_ms` divided by `time_ms`.
    pub share_of_limit: f64,
    /// Unit of target and peer.
    pub unit: Unit,
    /// The target.
    pub target: Option<Figure>,
    /// The best peer.
    pub peer: Option<Figure>,
    /// Its point in a plot.
    pub plot: Option<PlotPoint>,
}

/// The results of one run of the bench.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// For example `NVIDIA H100 80GB HBM3`.
    pub device: String,
    /// Driver and compiler.
    pub software: String,
    /// `cuda`, or `sim`, whose times are meaningless.
    pub kind: String,
    /// Version of warpjoin.
    pub version: &'static str,
    /// Start of the run: date and time, UTC.
    pub date: String,
    /// Sizes are divided by 2^scale_bits.
    pub scale_bits: u32,
    /// Limits measured in this run.
    pub limits: Limits,
    /// Lines in the order in which they ran.
    pub lines: Vec<Entry>,
}

impl Report {
    /// A report without lines yet.
    pub fn new(bench: &Bench, limits: Limits) -> Self {
        let info = bench.device().info();
        Self {
            device: info.name.clone(),
            software: format!("{}, {}", info.driver, info.compiler),
            kind: info.kind.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            date: date::now(),
            scale_bits: bench.scale().bits,
            limits,
            lines: vec![],
        }
    }

    /// Adds the result of a line.
    pub fn add(&mut self, line: &Line, status: Status, reason: Option<String>, samples: &[Sample]) {
        let mut entry = Entry::new(line, status, reason, samples, &self.limits);
        if let Some(relative) = &line.relative {
            entry.target = self.relative_target(relative);
        }
        self.lines.push(entry);
    }

    /// The value of a relative target in milliseconds, if the other line was measured.
    fn relative_target(&self, relative: &Relative) -> Option<Figure> {
        let id = |entry: &Entry| format!("{}/{}", entry.group, entry.name);
        let other = self.lines.iter().find(|entry| entry.status == Status::Right && id(entry) == relative.to)?;
        let written_ms = relative.write_bytes as f64 / self.limits.write_bytes_per_s * 1e3;
        // Rounded, since it is shown next to targets set by hand.
        let value = (relative.factor * (other.time_ms + written_ms) * 1e3).round() / 1e3;
        Some(Figure { value, of: "" })
    }

    /// Whether a line failed or had a wrong result.
    pub fn has_failures(&self) -> bool {
        self.lines.iter().any(|entry| entry.status == Status::Failed)
    }

    /// Limits and lines as text.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// Writes `bench.json`, `bench.txt`, and `NAME.svg` for each plot with points.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let failed = |path: &Path, reason: String| Error::Report { path: path.to_path_buf(), reason };
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error.to_string()))?;
        let json = serde_json::to_string_pretty(self).map_err(|error| failed(folder, error.to_string()))?;
        for (name, text) in [("bench.json", json), ("bench.txt", self.table())] {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| failed(&path, error.to_string()))?;
        }
        for (name, svg) in plot::all(self)? {
            let path = folder.join(format!("{name}.svg"));
            std::fs::write(&path, svg).map_err(|error| failed(&path, error.to_string()))?;
        }
        Ok(())
    }
}

impl Entry {
    fn new(line: &Line, status: Status, reason: Option<String>, samples: &[Sample], limits: &Limits) -> Self {
        // Leaves out times of wrong results.
        let samples = if status == Status::Right { samples } else { &[] };
        let device: Vec<u64> = samples.iter().map(|sample| sample.device_ns).collect();
        let kernels: Vec<u64> = samples.iter().map(|sample| sample.kernel_ns).collect();
        let last = samples.last();
        let time_ns = median(&device) as f64;
        let per_s = |count: f64| if time_ns > 0.0 { count / (time_ns * 1e-9) } else { 0.0 };
        let (limit_design, limit_ns) =
            Design::fastest(&line.designs, limits).map_or(("", 0.0), |(design, limit_ns)| (design.name, limit_ns));
        Self {
            group: line.group.into(),
            name: line.name.clone(),
            status,
            reason,
            axes: line.axes.clone(),
            samples: samples.len(),
            time_ms: time_ns * 1e-6,
            fastest_ms: device.iter().min().copied().unwrap_or(0) as f64 * 1e-6,
            kernel_ms: median(&kernels) as f64 * 1e-6,
            pipelines: last.map(|sample| sample.pipelines.clone()).unwrap_or_default(),
            interpreted: last.map_or(0, |sample| sample.interpreted),
            spilled_bytes: last.map_or(0, |sample| sample.spilled_bytes),
            rows: line.rows,
            rows_per_s: per_s(line.rows as f64),
            moved_bytes: line.moved_bytes,
            gb_per_s: per_s(line.moved_bytes as f64 * 1e-9),
            limit_ms: limit_ns * 1e-6,
            limit_design,
            share_of_limit: if time_ns > 0.0 { limit_ns / time_ns } else { 0.0 },
            unit: line.unit,
            target: line.target.clone(),
            peer: line.peer.clone(),
            plot: line.plot.clone(),
        }
    }

    /// Ratio of this result to `other`; 1 or more is as good or better. `None` if nothing was measured.
    pub fn ratio_to(&self, other: &Figure) -> Option<f64> {
        (self.time_ms > 0.0).then(|| match self.unit {
            Unit::Milliseconds => other.value / self.time_ms,
            Unit::GigaRowsPerSecond => self.rows_per_s * 1e-9 / other.value,
        })
    }
}

#[cfg(test)]
mod tests;
