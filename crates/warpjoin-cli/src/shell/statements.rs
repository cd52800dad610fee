//! Runs statements one after another, and prints their answers. Ctrl-C cancels a statement.
//!
//! Must not know where statements come from.

use std::time::Instant;

use datafusion::arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::prelude::SessionContext;
use warpjoin_datafusion::{CachedTable, Query, WarpjoinSessionContext, cache_table, runtime_of, uncache_table};

use crate::error::{CliError, Result};
use crate::output::print_line;
use crate::shell::parse::{Command, parse};

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
        for command in parse(script)? {
            self.run_command(command).await?;
        }
        Ok(())
    }

    async fn run_command(&mut self, command: Command) -> Result<()> {
        let start = Instant::now();
        let context = self.context.clone();
        // A separate task runs on another thread, so that this one can wait for Ctrl-C.
        let mut query = tokio::spawn(async move { run(&context, command).await });
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

/// Runs a statement to its end.
async fn run(context: &SessionContext, command: Command) -> Result<PrintedAnswer> {
    let text = match command {
        Command::Sql(statement) => {
            let text = statement.to_string();
            let plan = context.state().statement_to_plan(*statement).await?;
            return collect(context.query_of_plan(plan).await?.with_text(&text)).await;
        }
        Command::Cache(table) => {
            let CachedTable { columns, rows, bytes, skipped } = cache_table(context, table.clone()).await?;
            let megabytes = bytes.div_ceil(1_000_000);
            let skipped = match &skipped[..] {
                [] => String::new(),
                names => format!("; not cached, because devices do not support their types: {}", names.join(", ")),
            };
            format!("{table}: {columns} columns of {rows} rows on the devices, {megabytes} MB{skipped}")
        }
        Command::Uncache { table, if_exists } => {
            if if_exists && !context.table_exist(table.clone())? {
                return Ok(PrintedAnswer { text: None, rows: 0 });
            }
            format!("{table}: {} columns left the devices", uncache_table(context, table.clone()).await?)
        }
        Command::Queries => return collect(context.query("SELECT * FROM warpjoin.queries").await?).await,
        Command::Kill(id) => {
            runtime_of(context)?.kill(id)?;
            format!("query {id} is cancelled")
        }
    };
    Ok(PrintedAnswer { text: Some(text), rows: 0 })
}

struct PrintedAnswer {
    /// `None` for statements without an answer.
    text: Option<String>,
    rows: usize,
}

async fn collect(query: Query) -> Result<PrintedAnswer> {
    let schema = query.schema();
    let batches = query.collect().await?;
    let rows = batches.iter().map(|batch| batch.num_rows()).sum();
    let text = match schema.fields().is_empty() {
        true => None,
        false => Some(pretty_format_batches_with_schema(schema, &batches)?.to_string()),
    };
    Ok(PrintedAnswer { text, rows })
}
