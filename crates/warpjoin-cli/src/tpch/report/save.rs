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

/// Writes what host threads did during queries in Chrome's format for traces: a process a query, times in microseconds.
pub(in crate::tpch) fn save_traces(path: &Path, traces: &[(u32, Vec<TracedSpan>)]) -> Result<()> {
    let mut events = vec![];
    for (query, spans) in traces {
        let start = spans.iter().map(TracedSpan::begun).min();
        for span in spans {
            let begun = start.map_or(Duration::ZERO, |start| span.begun() - start);
            events.push(serde_json::json!({
                "ph": "X", "pid": query, "tid": span.thread(), "name": span.name(),
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
