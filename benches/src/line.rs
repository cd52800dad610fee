//! A line of the bench: what is measured, how it is set up and checked, and what it is held against.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Bench, Design, Result};

/// In what a figure, a target and a peer are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Milliseconds: less is better.
    #[serde(rename = "ms")]
    Milliseconds,
    /// 10^9 rows a second: more is better.
    #[serde(rename = "G rows/s")]
    GigaRowsPerSecond,
}

/// The target of a line, or what the best peer reaches there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// In the line's unit.
    pub value: f64,
    /// Whose it is, if it is a peer's.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub of: &'static str,
}

/// A target that follows from another line: `factor` x (its time + writing `write_bytes`).
#[derive(Debug, Clone, PartialEq)]
pub struct Relative {
    /// Group and name of the other line.
    pub to: String,
    /// How many times its time.
    pub factor: f64,
    /// What this one has to write besides, at the rate of streaming writes.
    pub write_bytes: u64,
}

/// Device times of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// From before the first piece of work to after the last.
    pub device_ns: u64,
    /// Of the kernels alone.
    pub kernel_ns: u64,
}

/// A line that is set up: inputs are on the device and kernels compiled after the first run.
pub trait Case {
    /// Runs it once.
    ///
    /// # Errors
    /// When it fails.
    fn run(&mut self) -> Result<Sample>;

    /// Checks what the last run gave, and overwrites it.
    ///
    /// # Errors
    /// When it is wrong.
    fn check(&mut self) -> Result<()>;
}

/// Makes inputs and expected results of a line.
pub type SetUpFunction = dyn Fn(&Bench) -> Result<Box<dyn Case + '_>> + Send + Sync;

/// How a line is set up, or says why the line can't be run yet.
pub enum SetUp {
    /// Called when the line is selected.
    Ready(Box<SetUpFunction>),
    /// What it needs does not exist.
    Missing(&'static str),
}

/// Names and values of what is varied: rows, key bytes, load factor, multiplicity, match rate, skew.
pub type Axes = BTreeMap<&'static str, f64>;

/// A point of a plot, whose height is the line's rows a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlotPoint {
    /// Name of the plot, and of its file.
    pub plot: &'static str,
    /// Name of the curve.
    pub series: String,
    /// Where on the x axis.
    pub x: f64,
}

/// A line of the bench.
pub struct Line {
    /// Group, such as `join`: what criterion calls a group.
    pub group: &'static str,
    /// Name within the group.
    pub name: String,
    /// What is varied.
    pub axes: Axes,
    /// Rows that rows/s counts.
    pub rows: u64,
    /// Bytes that must move however it is done: inputs read once, outputs written once.
    pub moved_bytes: u64,
    /// Ways to do it; the fastest gives the limit.
    pub designs: Vec<Design>,
    /// Unit of target and peer.
    pub unit: Unit,
    /// What issue 3 asks for.
    pub target: Option<Figure>,
    /// The target, where it follows from another line that comes before this one.
    pub relative: Option<Relative>,
    /// The best peer.
    pub peer: Option<Figure>,
    /// Where it stands in a plot.
    pub plot: Option<PlotPoint>,
    /// Inputs and what is measured.
    pub set_up: SetUp,
}

impl Line {
    /// A line without anything to hold it against.
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

    /// The same with a target, and the figure of the best peer where there is one.
    #[must_use]
    pub fn against(mut self, unit: Unit, target: f64, peer: Option<(f64, &'static str)>) -> Self {
        self.unit = unit;
        self.target = Some(Figure { value: target, of: "" });
        self.peer = peer.map(|(value, of)| Figure { value, of });
        self
    }

    /// The same as a point of a plot.
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

/// The middle one, or the lower of the two in the middle; 0 of none.
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
