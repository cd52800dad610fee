//! Writes answers and reports to files.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::SchemaRef;
use warpjoin_device::TracedSpan;

use super::Report;
use crate::error::{CliError, Result};

/// Writes an answer to `folder/qNN.csv`, with a header.
pub(in crate::tpch) fn save_answer(
    folder: &Path,
    query: u32,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<()> {
    let path = folder.join(format!("q{query:02}.csv"));
    let file = File::create(&path).map_err(CliError::file(&path))?;
    let mut writer = WriterBuilder::new().with_header(true).build(file);
    // An empty answer has a header too.
    writer.write(&RecordBatch::new_empty(SchemaRef::clone(schema)))?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(())
}

/// Writes what host threads did during runs of queries in Chrome's format for traces: a process a run, times in microseconds.
pub(in crate::tpch) fn save_traces(path: &Path, traces: &[(u32, &str, Vec<TracedSpan>)]) -> Result<()> {
    let mut events = vec![];
    for (process, (query, run, spans)) in traces.iter().enumerate() {
        events.push(serde_json::json!({
            "ph": "M", "pid": process, "name": "process_name", "args": { "name": format!("query {query}, {run} run") },
        }));
        let start = spans.iter().map(TracedSpan::begun).min();
        for span in spans {
            let begun = start.map_or(Duration::ZERO, |start| span.begun() - start);
            events.push(serde_json::json!({
                "ph": "X", "pid": process, "tid": span.thread(), "name": span.name(),
                "ts": begun.as_nanos() as f64 / 1e3, "dur": span.took().as_nanos() as f64 / 1e3,
            }));
        }
    }
    let text = serde_json::to_string(&events).map_err(|error| CliError::Internal(error.to_string()))?;
    std::fs::write(path, text).map_err(CliError::file(path))
}

/// Writes the report as JSON.
pub(in crate::tpch) fn save_report(path: &Path, report: &Report) -> Result<()> {
    let text = serde_json::to_string_pretty(report).map_err(|error| CliError::Internal(error.to_string()))?;
    std::fs::write(path, text).map_err(CliError::file(path))
}
