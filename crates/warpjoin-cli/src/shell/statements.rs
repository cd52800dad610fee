//! Runs statements one after another, and prints their answers. Ctrl-C cancels a statement.
//!
//! Must not know where statements come from.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::dataframe::DataFrame;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParser, Statement};

use crate::error::{CliError, Result};
use crate::output::print_line;

/// A session whose answers are printed.
pub(super) struct Executor {
    context: SessionContext,
    timing: bool,
}

impl Executor {
    pub(super) fn new(context: SessionContext, timing: bool) -> Self {
        Self { context, timing }
    }

    /// Turns printing of times on or off, and returns the new state.
    pub(super) fn toggle_timing(&mut self) -> bool {
        self.timing = !self.timing;
        self.timing
    }

    /// Runs all statements of `script`, and stops at the first error.
    pub(super) async fn run_script(&mut self, script: &str) -> Result<()> {
        for statement in DFParser::parse_sql(script)? {
            self.run_statement(statement).await?;
        }
        Ok(())
    }

    async fn run_statement(&mut self, statement: Statement) -> Result<()> {
        let start = Instant::now();
        let context = self.context.clone();
        // A separate task runs on another thread, so that this one can wait for Ctrl-C.
        let mut query = tokio::spawn(async move {
            let plan = context.state().statement_to_plan(statement).await?;
            let frame = context.execute_logical_plan(plan).await?;
            collect(frame).await
        });
        let answer = tokio::select! {
            answer = &mut query => answer.map_err(|error| CliError::Internal(format!("the task of the query failed: {error}")))??,
            _ = tokio::signal::ctrl_c() => {
                query.abort();
                return Err(CliError::Cancelled);
            }
        };
        let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
        if let Some(text) = answer.text {
            print_line(&text)?;
        }
        if self.timing {
            print_line(&format!("{} rows, {elapsed_ms:.1} ms", answer.rows))?;
        }
        Ok(())
    }
}

struct PrintedAnswer {
    /// `None` for statements without an answer.
    text: Option<String>,
    rows: usize,
}

async fn collect(frame: DataFrame) -> Result<PrintedAnswer> {
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await?;
    let rows = batches.iter().map(|batch| batch.num_rows()).sum();
    let text = match schema.fields().is_empty() {
        true => None,
        false => Some(pretty_format_batches_with_schema(schema, &batches)?.to_string()),
    };
    Ok(PrintedAnswer { text, rows })
}
