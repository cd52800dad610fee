//! Runs statements one after another, and prints their answers. Ctrl-C cancels a statement.
//!
//! Must not know where statements come from.

use std::path::Path;
use std::time::Instant;

use datafusion::prelude::SessionContext;
use warpjoin_datafusion::{CachedTable, Query, WarpjoinSessionContext, cache_table, runtime_of, uncache_table};

use super::copy::Replacement;
use super::interrupts::Interrupts;
use super::parse::{Command, Placed, parse};
use super::print::{AnswerFormat, Printed, print_answer};
use crate::error::{CliError, Result};
use crate::output::print_line;

/// A session whose answers are printed.
pub(super) struct Executor {
    context: SessionContext,
    timing: bool,
    format: AnswerFormat,
    interrupts: Interrupts,
}

impl Executor {
    /// # Errors
    /// When Ctrl-C cannot be heard.
    pub(super) fn new(context: SessionContext, timing: bool, format: AnswerFormat) -> Result<Self> {
        Ok(Self { context, timing, format, interrupts: Interrupts::listen()? })
    }

    /// Turns printing of times on or off, and returns the new state.
    pub(super) fn toggle_timing(&mut self) -> bool {
        self.timing = !self.timing;
        self.timing
    }

    /// Runs all statements of `script`, and stops at the first error. Errors name the statement's line; `file` is where
    /// the script comes from.
    pub(super) async fn run_script(&mut self, script: &str, file: Option<&Path>) -> Result<()> {
        self.interrupts.forget();
        let in_file = |error| match file {
            Some(file) => CliError::Statement { place: file.display().to_string(), error: Box::new(error) },
            None => error,
        };
        let commands = parse(script.trim_start_matches('\u{feff}')).map_err(in_file)?;
        let are_several = commands.len() > 1;
        for (number, Placed { line, command }) in commands.into_iter().enumerate() {
            self.run_command(command).await.map_err(|error| {
                let place = match file {
                    _ if matches!(error, CliError::OutputClosed | CliError::Cancelled) => return error,
                    Some(file) => format!("{}:{line}", file.display()),
                    None if are_several => format!("statement {} (line {line})", number + 1),
                    None => return error,
                };
                CliError::Statement { place, error: Box::new(error) }
            })?;
        }
        Ok(())
    }

    async fn run_command(&mut self, command: Command) -> Result<()> {
        let start = Instant::now();
        let (context, format) = (self.context.clone(), self.format);
        // A separate task runs on another thread, so that this one can wait for Ctrl-C.
        let mut query = tokio::spawn(async move { run(&context, command, format).await });
        let printed = tokio::select! {
            printed = &mut query => printed.map_err(|error| CliError::Internal(format!("the task of the query failed: {error}")))??,
            () = self.interrupts.next() => {
                query.abort();
                return Err(CliError::Cancelled);
            }
        };
        if self.timing {
            let elapsed_ms = start.elapsed().saturating_sub(printed.time).as_secs_f64() * 1e3;
            let text = format!("{} rows, {elapsed_ms:.1} ms", printed.rows);
            match self.format {
                AnswerFormat::Table => print_line(&text)?,
                // Standard output is for a program.
                AnswerFormat::Csv | AnswerFormat::Json => eprintln!("{text}"),
            }
        }
        Ok(())
    }
}

/// Runs a statement to its end, and prints its answer.
async fn run(context: &SessionContext, command: Command, format: AnswerFormat) -> Result<Printed> {
    let text = match command {
        Command::Sql(statement) => {
            let text = statement.to_string();
            let mut plan = context.state().statement_to_plan(*statement).await?;
            let replacement = Replacement::prepare(&mut plan)?;
            let query = context.query_of_plan(plan).await?.with_text(&text);
            let printed = print(query, format).await;
            return match replacement {
                None => printed,
                Some(replacement) => {
                    let printed = printed.map_err(|error| replacement.error(error))?;
                    replacement.finish()?;
                    Ok(printed)
                }
            };
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
                return Ok(Printed::default());
            }
            format!("{table}: {} columns left the devices", uncache_table(context, table.clone()).await?)
        }
        Command::Queries => return print(context.query("SELECT * FROM warpjoin.queries").await?, format).await,
        Command::Kill(id) => {
            runtime_of(context)?.kill(id)?;
            format!("query {id} is cancelled")
        }
    };
    match format {
        AnswerFormat::Table => print_line(&text)?,
        AnswerFormat::Csv | AnswerFormat::Json => eprintln!("{text}"),
    }
    Ok(Printed::default())
}

async fn print(query: Query, format: AnswerFormat) -> Result<Printed> {
    print_answer(query.stream()?, format).await
}
