//! `warpjoin bench-compare`: compares reports before and after a change.
//!
//! Owns the rule of what is too slow. Must not know how figures are measured.

mod figures;

use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;

use crate::error::{CliError, Result};
use crate::output::print_line;
use figures::{Figure, figures};

/// Flags of `warpjoin bench-compare`.
#[derive(Debug, Clone, Args)]
pub struct BenchCompareArgs {
    /// Reports before the change, separated by commas: files of `warpjoin tpch --json` or `bench.json` of the benches
    #[arg(value_parser = parse_files)]
    pub before: Files,
    /// Reports after the change, of the same kind and machine
    #[arg(value_parser = parse_files)]
    pub after: Files,
    /// Fail if a figure grows by more than this
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub percent: f64,
}

/// Reports whose medians count.
#[derive(Debug, Clone)]
pub struct Files(Vec<PathBuf>);

fn parse_files(text: &str) -> Result<Files, String> {
    let files: Vec<PathBuf> = text.split(',').filter(|file| !file.is_empty()).map(PathBuf::from).collect();
    if files.is_empty() { Err("expected a file, or several separated by commas".into()) } else { Ok(Files(files)) }
}

/// A figure before and after the change: medians over the reports.
#[derive(Debug, Clone, PartialEq)]
struct Change {
    name: String,
    before: Option<f64>,
    after: Option<f64>,
}

impl Change {
    /// Growth in percent; `None` if the figure is missing in one, or was 0.
    fn growth(&self) -> Option<f64> {
        let (before, after) = (self.before?, self.after?);
        (before > 0.0).then(|| (after / before - 1.0) * 100.0)
    }

    /// Why the change is not accepted.
    fn problem(&self, percent_max: f64) -> Option<&'static str> {
        match (self.before, self.after) {
            (Some(_), None) => Some("missing after the change"),
            (Some(0.0), Some(after)) if after > 0.0 => Some("was 0"),
            (Some(before), Some(after)) if after - before > before * percent_max / 100.0 => Some("too much"),
            _ => None,
        }
    }
}

/// Prints the figures side by side. Returns false if one has grown by more than the allowed percentage, or is missing.
///
/// # Errors
/// When a file is not a report, or has a failed line or query.
pub fn run_bench_compare(arguments: &BenchCompareArgs) -> Result<bool> {
    if !(arguments.percent.is_finite() && arguments.percent >= 0.0) {
        return Err(CliError::Usage(format!("--percent {}: give a number of 0 or more", arguments.percent)));
    }
    let read_all = |files: &Files| files.0.iter().map(|file| read(file)).collect::<Result<Vec<_>>>();
    let changes = compare(&read_all(&arguments.before)?, &read_all(&arguments.after)?);
    if changes.iter().all(|change| change.before.is_none() || change.after.is_none()) {
        return Err(CliError::Usage("the reports have no figure in common: give two of one kind".into()));
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(["figure", "before", "after", "change", ""]);
    for change in &changes {
        table.add_row([
            change.name.clone(),
            show(change.before),
            show(change.after),
            change.growth().map_or_else(|| "-".into(), |growth| format!("{growth:+.1} %")),
            change.problem(arguments.percent).unwrap_or_default().into(),
        ]);
    }
    let problems = changes.iter().filter(|change| change.problem(arguments.percent).is_some()).count();
    let verdict = match problems {
        0 => format!("No figure grew by more than {} %.", arguments.percent),
        1 => format!("1 figure grew by more than {} %, or is missing.", arguments.percent),
        _ => format!("{problems} figures grew by more than {} %, or are missing.", arguments.percent),
    };
    print_line(&format!("{table}\n{verdict}"))?;
    Ok(problems == 0)
}

fn read(file: &Path) -> Result<Vec<Figure>> {
    let text = std::fs::read_to_string(file).map_err(CliError::file(file))?;
    let wrong = |reason: String| {
        let hint = "write one with `warpjoin tpch --json FILE`, or run the benches";
        CliError::Usage(format!("{} cannot be compared ({reason}): {hint}", file.display()))
    };
    let report = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    figures(&report).map_err(wrong)
}

/// All figures in the order of the first report that has them.
fn compare(before: &[Vec<Figure>], after: &[Vec<Figure>]) -> Vec<Change> {
    let mut names: Vec<&str> = vec![];
    for figure in before.iter().chain(after).flatten() {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    let change = |name: &str| Change { name: name.into(), before: median(before, name), after: median(after, name) };
    names.into_iter().map(change).collect()
}

/// Median of the values of a figure; the mean of both middle ones of an even number. `None` unless every report has it.
fn median(reports: &[Vec<Figure>], name: &str) -> Option<f64> {
    let value = |report: &Vec<Figure>| report.iter().find(|figure| figure.name == name).map(|figure| figure.value);
    let mut values = reports.iter().map(value).collect::<Option<Vec<f64>>>()?;
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get((values.len().max(1) - 1) / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

fn show(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.3}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tpch(device_ms: f64, peak_bytes: u64) -> Vec<Figure> {
        let run = |device_ms: f64, peak_bytes: u64| json!({ "total_ms": 10.0, "device_ms": device_ms, "kernel_ms": 1.0, "launches": 4, "peak_bytes": peak_bytes });
        let query = |number: u32, peak_bytes| json!({ "query": number, "hot": run(device_ms, peak_bytes), "first": run(0.0, 0) });
        figures(&json!({ "queries": [query(1, peak_bytes), query(2, 7)] })).unwrap()
    }

    fn problems(before: &[Vec<Figure>], after: &[Vec<Figure>]) -> Vec<(String, &'static str)> {
        let changes = compare(before, after);
        changes.iter().filter_map(|change| Some((change.name.clone(), change.problem(5.0)?))).collect()
    }

    #[test]
    fn figures_of_queries_are_added() {
        let figures = tpch(3.0, 1000);
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().value;
        assert_eq!((value("device time, ms"), value("launches"), value("peak device bytes")), (6.0, 8.0, 1000.0));
        assert_eq!((value("hot total, ms"), value("first runs, ms")), (20.0, 20.0));
    }

    #[test]
    fn only_growth_is_a_problem() {
        assert_eq!(problems(&[tpch(3.0, 1000)], &[tpch(3.13, 1050)]), []);
        assert_eq!(problems(&[tpch(3.0, 1000)], &[tpch(1.0, 10)]), []);
        assert_eq!(problems(&[tpch(3.0, 1000)], &[tpch(3.16, 1000)]), [("device time, ms".into(), "too much")]);
        assert_eq!(problems(&[tpch(3.0, 1000)], &[tpch(3.0, 1051)]), [("peak device bytes".into(), "too much")]);
        assert_eq!(problems(&[tpch(0.0, 1000)], &[tpch(3.0, 1000)]), [("device time, ms".into(), "was 0")]);
    }

    #[test]
    fn several_reports_count_by_their_medians() {
        let before = [tpch(3.0, 1), tpch(9.0, 1), tpch(3.1, 1)];
        assert_eq!(problems(&before, &[tpch(3.1, 1), tpch(3.2, 1), tpch(20.0, 1)]), []);
        assert_eq!(problems(&before, &[tpch(9.0, 1)]).len(), 1);
        assert_eq!(median(&[tpch(1.0, 1), tpch(2.0, 1)], "device time, ms"), Some(3.0));
    }

    #[test]
    fn lines_that_fail_or_vanish_are_told() {
        let line =
            |name: &str, status: &str| json!({ "group": "join", "name": name, "status": status, "time_ms": 2.0 });
        let report = |lines: &[Value]| figures(&json!({ "lines": lines }));
        let before = report(&[line("a", "right"), line("b", "right"), line("c", "missing")]).unwrap();
        assert_eq!(before.len(), 2);
        let after = report(&[line("a", "right")]).unwrap();
        assert_eq!(problems(&[before], &[after]), [("join / b, ms".into(), "missing after the change")]);
        assert!(report(&[line("a", "failed")]).unwrap_err().contains("join / a"));
        assert!(figures(&json!({ "rows": 1 })).is_err());
        assert!(figures(&json!({ "queries": [{ "query": 3, "hot": null }] })).unwrap_err().contains("query 3"));
    }
}
