//! Decides which statements of DataFusion's files run, and adapts their paths.

use std::path::Path;

use datafusion::sql::parser::{DFParser, Statement};

use super::data;

/// The folder that DataFusion's files write to.
const SCRATCH: &str = "test_files/scratch";

/// A prepared statement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    /// It runs with this text.
    Run(String),
    /// It is skipped for this reason.
    Skip(&'static str),
}

/// Prefixes of skipped statements, mostly because their answers differ between engines, with the reason.
const SKIPPED: [(&str, &str); 4] = [
    ("explain", "EXPLAIN"),
    ("show all", "lists settings"),
    ("create unbounded", "unbounded table"),
    ("create function", "CREATE FUNCTION"),
];
/// Words of skipped queries, whose answers differ from run to run, with the reason.
const NONDETERMINISTIC: [(&str, &str); 9] = [
    ("random()", "not deterministic"),
    ("uuid()", "not deterministic"),
    ("now()", "not deterministic"),
    ("current_timestamp", "not deterministic"),
    ("current_date", "not deterministic"),
    ("current_time", "not deterministic"),
    ("df_settings", "lists settings"),
    ("information_schema", "lists the session"),
    ("input_file_name()", "names its own files"),
];

/// Prepares a statement. Its files go to `scratch`, which belongs to one engine.
pub(super) fn prepare(sql: &str, scratch: &Path) -> Prepared {
    let lower = sql.trim_start().to_lowercase();
    if let Some((_, why)) = SKIPPED.iter().find(|(start, _)| lower.starts_with(start)) {
        return Prepared::Skip(why);
    }
    if let Some((_, why)) = NONDETERMINISTIC.iter().find(|(word, _)| lower.contains(word)) {
        return Prepared::Skip(why);
    }
    let moved = sql.replace(SCRATCH, &scratch.to_string_lossy());
    if !lower.starts_with("create external") {
        return Prepared::Run(moved);
    }
    let Ok(mut statements) = DFParser::parse_sql(&moved) else { return Prepared::Run(moved) };
    match statements.pop_front() {
        Some(Statement::CreateExternalTable(table)) => match table.locations.as_slice() {
            [location] if Path::new(location).exists() || is_written(location, scratch) => Prepared::Run(moved),
            [location] => match data::stand_in(&table, location, scratch) {
                Some(file) => Prepared::Run(moved.replace(location, &file.to_string_lossy())),
                None => Prepared::Skip("data not in the package"),
            },
            _ => Prepared::Skip("data not in the package"),
        },
        _ => Prepared::Run(moved),
    }
}

/// Whether statements of the file write to the location.
fn is_written(location: &str, scratch: &Path) -> bool {
    Path::new(location).starts_with(scratch)
}
