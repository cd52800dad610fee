//! `warpjoin tpch-report`: shows a JSON report, for docs/benchmarks.md.

use std::path::PathBuf;

use clap::Args;

use super::Report;
use crate::error::{CliError, Result};
use crate::output::print_line;

/// Flags of `warpjoin tpch-report`.
#[derive(Debug, Clone, Args)]
pub struct TpchReportArgs {
    /// A file written by `warpjoin tpch --json FILE`
    pub file: PathBuf,
    /// Write a plot of warpjoin and stock DataFusion to an SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Prints the report as a Markdown table, and draws the plot.
///
/// # Errors
/// When the file is not a report of this version, or the plot cannot be written.
pub fn run_tpch_report(arguments: &TpchReportArgs) -> Result<bool> {
    let text = std::fs::read_to_string(&arguments.file).map_err(CliError::file(&arguments.file))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| {
        let hint = "write one with `warpjoin tpch --json FILE`";
        CliError::Usage(format!("{} is not a report of this version ({error}): {hint}", arguments.file.display()))
    })?;
    print_line(&report.markdown())?;
    if let Some(path) = &arguments.plot {
        std::fs::write(path, report.plot()?).map_err(CliError::file(path))?;
    }
    Ok(true)
}
