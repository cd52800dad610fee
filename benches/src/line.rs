//! A line of the bench: one measurement, with its set-up, its check, and the figures to compare with.
//!
//! Must not know a particular operator.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Bench, Design, Result};

/// Unit of targets and peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Milliseconds: less is better.
    #[serde(rename = "ms")]
    Milliseconds,
    /// 10^9 rows per second: more is better.
    #[serde(rename = "G rows/s")]
    GigaRowsPerSecond,
}

/// The target of a line, or the result of the best peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Value in the line's unit.
    pub value: f64,
    /// Name of the peer; empty for a target.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub of: &'static str,
}

/// A target relative to another line: `factor` x (its time + the time to write `write_bytes`).
#[derive(Debug, Clone, PartialEq)]
pub struct Relative {
    /// Group and name of the other line.
    pub to: String,
    /// Factor of the other line's time.
    pub factor: f64,
    /// Additional bytes that this line writes, at the rate of streaming writes.
    pub write_bytes: u64,
}

/// Device times of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time from the start of the first piece of work to the end of the last.
    pub device_ns: u64,
    /// Time of the kernels.
    pub kernel_ns: u64,
    /// The pipelines of an operator, in execution order.
    pub pipelines: Vec<PipelineTime>,
    /// Pipelines whose own kernels were not compiled.
    pub interpreted: u64,
    /// Bytes that went to host memory for lack of room on the device.
    pub spilled_bytes: u64,
}

/// Kernel time of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PipelineTime {
    /// Source, steps and sink.
    pub name: String,
    /// Time of its kernels.
    pub kernel_ns: u64,
    /// Runs in vain, because a table or an output was too small.
    pub retries: u64,
}

/// A line after set-up: its inputs are on the device. The first run compiles its kernels.
pub trait Case {
    /// Runs it once.
    ///
    /// # Errors
    /// When it fails.
    fn run(&mut self) -> Result<Sample>;

    /// Checks the result of the last run, and overwrites it.
    ///
    /// # Errors
    /// When the result is wrong.
    fn check(&mut self) -> Result<()>;
}

/// Makes the inputs and the expected result of a line.
pub type SetUpFunction = dyn Fn(&Bench) -> Result<Box<dyn Case + '_>> + Send + Sync;

/// The set-up of a line, or why the line cannot run yet.
pub enum SetUp {
    /// Called when the line is selected.
    Ready(Box<SetUpFunction>),
    /// A feature that the line needs does not exist.
    Missing(&'static str),
}

/// Names and values of the bench axes: rows, key bytes, load factor, multiplicity, match rate, skew.
pub type Axes = BTreeMap<&'static str, f64>;

/// A point of a plot. Its y value is the line's rows per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlotPoint {
    /// Name of the plot and of its file.
    pub plot: &'static str,
    /// Name of the curve.
    pub series: String,
    /// The x value.
    pub x: f64,
}

/// A line of the bench.
pub struct Line {
    /// Criterion's group, such as `join`.
    pub group: &'static str,
    /// Name within the group.
    pub name: String,
    /// Bench axes.
    pub axes: Axes,
    /// Number of rows in rows/s.
    pub rows: u64,
    /// Bytes that any design must move: inputs read once, outputs written once.
    pub moved_bytes: u64,
    /// Possible designs. The fastest determines the limit.
    pub designs: Vec<Design>,
    /// Unit of target and peer.
    pub unit: Unit,
    /// The target.
    pub target: Option<Figure>,
    /// The target, if it is relative to an earlier line.
    pub relative: Option<Relative>,
    /// The best peer.
    pub peer: Option<Figure>,
    /// Its point in a plot.
    pub plot: Option<PlotPoint>,
    /// Makes inputs and runs the measured work.
    pub set_up: SetUp,
}

impl Line {
    /// A line without a target or a peer.
    pub fn new(group: &'static str, name: impl Into<String>, set_up: SetUp) -> Self {
        Self {
            group,
            name: name.into(),
            axes: Axes::new(),
            rows: 0,
            moved_bytes: 0,
            designs: vec![],
            unit: Unit::Milliseconds,
            target: None,
            relative: None,
            peer: None,
            plot: None,
            set_up,
        }
    }

    /// Sets a target, and the figure and name of the best peer, if any.
    #[must_use]
    pub fn against(mut self, unit: Unit, target: f64, peer: Option<(f64, &'static str)>) -> Self {
        self.unit = unit;
        self.target = Some(Figure { value: target, of: "" });
        self.peer = peer.map(|(value, of)| Figure { value, of });
        self
    }

    /// Adds the line to a plot.
    #[must_use]
    pub fn plotted(mut self, plot: &'static str, series: impl Into<String>, x: f64) -> Self {
        self.plot = Some(PlotPoint { plot, series: series.into(), x });
        self
    }

    /// Group and name.
    pub fn id(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }
}

/// The median, or the lower of the two middle values; 0 without samples.
pub fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn median_of_few_and_many() {
        assert_eq!(median(&[]), 0);
        assert_eq!(median(&[7]), 7);
        assert_eq!(median(&[9, 1]), 1);
        assert_eq!(median(&[9, 1, 5]), 5);
        assert_eq!(median(&[4, 1, 3, 2, 1000]), 3);
    }
}
