//! The prompt: line editing, history, and backslash commands.
//!
//! Must not know how statements run.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};

use super::parse::is_ended;
use super::statements::Executor;
use crate::error::{CliError, Result};
use crate::output::print_line;

const HELP: &str = "\
Statements end with a semicolon; Ctrl-C drops one that is not ended, or stops one that runs. Commands:
  \\d          list tables
  \\d NAME     columns of a table
  \\timing     turn printing of statement times on or off
  \\q          quit (or Ctrl-D)
Devices: SET warpjoin.device = 'sim'; SHOW warpjoin.strict; EXPLAIN SELECT ...";

/// Reads and runs statements until the user quits. Prints their errors.
pub(super) async fn run_prompt(executor: &mut Executor) -> Result<()> {
    let mut editor: Editor<Prompt, DefaultHistory> = Editor::new().map_err(terminal_error)?;
    editor.set_helper(Some(Prompt));
    let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".warpjoin_history"));
    if let Some(history) = &history {
        // The file does not exist the first time.
        let _ = editor.load_history(history);
    }
    print_line(&format!("warpjoin {}: \\? for help", env!("CARGO_PKG_VERSION")))?;
    loop {
        match tokio::task::block_in_place(|| editor.readline("warpjoin> ")) {
            Ok(line) => {
                let line = line.trim();
                if line.is_empty() {
                    continue;
                }
                let _ = editor.add_history_entry(line);
                match run_line(executor, line).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(CliError::OutputClosed) => return Err(CliError::OutputClosed),
                    Err(error) => eprintln!("error: {error}"),
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(terminal_error(error)),
        }
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        log::warn!("cannot save the history: {error}");
    }
    Ok(())
}

/// Returns false if the user quits.
async fn run_line(executor: &mut Executor, line: &str) -> Result<bool> {
    let Some(command) = line.strip_prefix('\\') else {
        executor.run_script(line, None).await?;
        return Ok(true);
    };
    let command = command.trim_end_matches(';').trim();
    let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (name, argument.trim()) {
        ("q", "") => return Ok(false),
        ("?" | "h", "") => print_line(HELP)?,
        ("timing", "") => print_line(if executor.toggle_timing() { "timing is on" } else { "timing is off" })?,
        ("d", "") => {
            let tables = "SELECT table_name, table_type FROM information_schema.tables \
                          WHERE table_schema <> 'information_schema' ORDER BY table_name";
            executor.run_script(tables, None).await?;
        }
        ("d", table) => executor.run_script(&format!("DESCRIBE {table}"), None).await?,
        _ => return Err(CliError::Usage(format!("unknown command \\{command}; \\? lists the commands"))),
    }
    Ok(true)
}

fn terminal_error(error: ReadlineError) -> CliError {
    CliError::Usage(format!("the terminal cannot be used: {error}; pass statements with -c or -f"))
}

/// Lets a statement span several lines, up to its semicolon.
struct Prompt;

impl Validator for Prompt {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let complete = is_complete(context.input());
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Helper for Prompt {}
impl Highlighter for Prompt {}
impl Hinter for Prompt {
    type Hint = String;
}
impl Completer for Prompt {
    type Candidate = String;
}

/// Whether Enter runs the input.
fn is_complete(input: &str) -> bool {
    let input = input.trim();
    input.is_empty() || input.starts_with('\\') || is_ended(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_whole_statements_are_complete() {
        for complete in ["", "select 1;", "\\d", "\\timing", "select 1; -- it's one"] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in ["select 1", "select ';", "select 1\nfrom"] {
            assert!(!is_complete(open), "{open}");
        }
    }
}
