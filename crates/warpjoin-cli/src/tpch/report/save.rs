//! Writes answers and reports to files.

use std::fs::File;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::SchemaRef;

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

/// Writes the report as JSON.
pub(in crate::tpch) fn save_report(path: &Path, report: &Report) -> Result<()> {
    let text = serde_json::to_string_pretty(report).map_err(|error| CliError::Internal(error.to_string()))?;
    std::fs::write(path, text).map_err(CliError::file(path))
}
