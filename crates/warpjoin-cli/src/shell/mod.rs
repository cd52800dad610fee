//! `warpjoin sql`: runs SQL over Parquet and CSV files, from the command line, a file, a pipe or a prompt.
//!
//! Owns its flags. Must not know how a query runs.

mod copy;
mod files;
mod interactive;
mod interrupts;
mod parse;
mod print;
mod statements;
mod tables;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use clap::Args;
use datafusion::prelude::SessionConfig;
use warpjoin_datafusion::{register_cache_table, register_queries_table};

use crate::error::{CliError, Result};
use crate::target::TargetArgs;
use print::AnswerFormat;
use statements::Executor;
use tables::FileTable;

/// Flags of `warpjoin sql`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Statements to run; without -c and -f, a prompt opens
    #[arg(short, long, value_name = "SQL", conflicts_with = "file")]
    command: Option<String>,
    /// File of statements to run
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Register a Parquet or CSV file, or a folder of them, as a table
    #[arg(long = "table", value_name = "NAME=PATH", value_parser = tables::parse_file_table)]
    tables: Vec<FileTable>,
    /// How answers are printed
    #[arg(long, value_enum, default_value_t = AnswerFormat::Table)]
    format: AnswerFormat,
    /// Print how long each statement took
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// Runs the shell. Always returns true.
///
/// # Errors
/// The first error of `-c`, `-f` or piped statements; at the prompt, errors are printed instead.
pub async fn run_shell(arguments: &ShellArgs) -> Result<bool> {
    let context = arguments.target.session(SessionConfig::new().with_information_schema(true))?;
    register_cache_table(&context)?;
    register_queries_table(&context)?;
    for table in &arguments.tables {
        table.register(&context).await?;
    }
    let mut executor = Executor::new(context, arguments.timing, arguments.format)?;
    if let Some(command) = &arguments.command {
        executor.run_script(command, None).await?;
    } else if let Some(file) = &arguments.file {
        let script = std::fs::read_to_string(file).map_err(CliError::file(file))?;
        executor.run_script(&script, Some(file)).await?;
    } else if std::io::stdin().is_terminal() {
        interactive::run_prompt(&mut executor).await?;
    } else {
        let mut script = String::new();
        std::io::stdin().read_to_string(&mut script).map_err(CliError::file("standard input"))?;
        executor.run_script(&script, None).await?;
    }
    Ok(true)
}
