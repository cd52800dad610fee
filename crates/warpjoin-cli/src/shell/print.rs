//! Prints answers as they come, so that large ones need little memory.
//!
//! Must not know how a query runs.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::SchemaRef;
use arrow::json::LineDelimitedWriter;
use arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use crate::error::Result;
use crate::output::{print_bytes, print_line};

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AnswerFormat {
    /// Tables with frames
    Table,
    /// CSV with a header
    Csv,
    /// An object of JSON a line
    Json,
}

/// Rows of a printed table; a longer answer is printed as several.
const TABLE_ROWS: usize = 20_000;

/// What was printed.
#[derive(Default)]
pub(super) struct Printed {
    pub(super) rows: usize,
    /// Time that printing took.
    pub(super) time: Duration,
}

/// Prints all rows of an answer. An answer without columns, such as that of SET, prints nothing.
///
/// # Errors
/// Those of the query; [`crate::CliError::OutputClosed`] if nobody reads.
pub(super) async fn print_answer(mut answer: SendableRecordBatchStream, format: AnswerFormat) -> Result<Printed> {
    let mut printer = Printer::new(answer.schema(), format, TABLE_ROWS);
    let mut printed = Printed::default();
    while let Some(batch) = answer.next().await {
        let batch = batch?;
        printed.rows += batch.num_rows();
        let start = Instant::now();
        printer.push(&batch)?;
        printed.time += start.elapsed();
    }
    let start = Instant::now();
    printer.finish()?;
    printed.time += start.elapsed();
    Ok(printed)
}

struct Printer {
    schema: SchemaRef,
    format: AnswerFormat,
    /// Rows of a table at most.
    table_rows: usize,
    /// Rows of the next table.
    held: Vec<RecordBatch>,
    held_rows: usize,
    /// Tables or batches printed so far.
    tables: usize,
}

impl Printer {
    fn new(schema: SchemaRef, format: AnswerFormat, table_rows: usize) -> Self {
        Self { schema, format, table_rows, held: vec![], held_rows: 0, tables: 0 }
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.schema.fields().is_empty() {
            return Ok(());
        }
        if self.format != AnswerFormat::Table {
            return self.print(std::slice::from_ref(batch));
        }
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = (batch.num_rows() - from).min(self.table_rows - self.held_rows);
            self.held.push(batch.slice(from, rows));
            self.held_rows += rows;
            from += rows;
            if self.held_rows == self.table_rows {
                self.print_held()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let is_due = self.held_rows > 0 || self.tables == 0;
        if self.schema.fields().is_empty() || !is_due { Ok(()) } else { self.print_held() }
    }

    fn print_held(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        self.held_rows = 0;
        self.print(&held)
    }

    fn print(&mut self, batches: &[RecordBatch]) -> Result<()> {
        let mut bytes = vec![];
        match self.format {
            AnswerFormat::Table => {
                let table = pretty_format_batches_with_schema(self.schema.clone(), batches)?;
                self.tables += 1;
                return print_line(&table.to_string());
            }
            AnswerFormat::Csv => {
                let mut writer = WriterBuilder::new().with_header(self.tables == 0).build(&mut bytes);
                if batches.is_empty() {
                    writer.write(&RecordBatch::new_empty(self.schema.clone()))?;
                }
                batches.iter().try_for_each(|batch| writer.write(batch))?;
            }
            AnswerFormat::Json => {
                let mut writer = LineDelimitedWriter::new(&mut bytes);
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                writer.finish()?;
            }
        }
        self.tables += 1;
        print_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn long_answers_are_cut_into_tables() {
        let batch = |rows: usize| {
            let values = arrow::array::Int64Array::from_iter_values(0..rows as i64);
            RecordBatch::try_from_iter([("x", std::sync::Arc::new(values) as _)]).unwrap()
        };
        let schema = batch(1).schema();
        for (rows, tables) in [(&[][..], 1), (&[1, 1], 1), (&[3], 1), (&[2, 5], 3)] {
            let mut printer = Printer::new(schema.clone(), AnswerFormat::Table, 3);
            for rows in rows {
                printer.push(&batch(*rows)).unwrap();
                assert!(printer.held_rows < 3);
            }
            printer.finish().unwrap();
            assert_eq!(printer.tables, tables, "{rows:?}");
        }
    }
}
