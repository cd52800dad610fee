//! Runs .slt files on an engine, and checks where their queries ran.
//!
//! A comment of the form `# device: all`, `# device: cpu` or `# device: any` says where the work of the queries after it must
//! be: all on devices (they run with `warpjoin.strict`, and no row for the CPU), some on the CPU (something in them is known
//! not to be supported: the test fails once it is), or wherever it likes. At the start of a file it is `all`. Stock DataFusion
//! has no devices and ignores it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use sqllogictest::{
    AsyncDB, DBOutput, DefaultColumnType, MakeConnection, Record, Runner, default_normalizer, default_validator,
    parse_file, strict_column_validator,
};
use warpjoin_datafusion::{Placement, load_table};
use warpjoin_device::Recording;

use crate::engine::{Engine, EngineKind};
use crate::text;

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SltError {
    /// DataFusion's or warpjoin's own words.
    #[error("{0}")]
    Query(String),
    /// A file could not be read or parsed.
    #[error("{0}")]
    File(String),
}

impl From<DataFusionError> for SltError {
    fn from(error: DataFusionError) -> Self {
        Self::Query(error.strip_backtrace())
    }
}

/// Where the joins and aggregates of a query must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expectation {
    AllOnDevices,
    SomeOnCpu,
    Any,
}

/// Where those of the last query were, in words; `None` without any.
type LastPlacement = Arc<Mutex<Option<Placement>>>;

struct Connection {
    context: SessionContext,
    name: &'static str,
    last: LastPlacement,
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = SltError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SltError> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let frame = self.context.sql(sql).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let batches = collect(Arc::clone(&plan), task).await?;
        if plan.schema().fields().is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Placement::of(&plan));
        let rows = text::rows(&batches).map_err(DataFusionError::from)?;
        Ok(DBOutput::Rows { types: text::column_types(&plan.schema()), rows })
    }

    async fn shutdown(&mut self) {}

    /// For `onlyif` and `skipif`: `stock` or `device`.
    fn engine_name(&self) -> &str {
        self.name
    }
}

/// Runs the file at `path`; returns all that went wrong, in words. Stops at no failure.
///
/// # Errors
/// When the file can't be parsed.
pub async fn run_file(engine: &Engine, path: &Path) -> Result<Vec<String>, SltError> {
    run_recorded(engine, path, |_, _| {}).await
}

/// As [`run_file`]; `each` gets every query that gave its answer, and what the devices were asked for by it.
///
/// # Errors
/// When the file can't be parsed.
pub async fn run_recorded(
    engine: &Engine,
    path: &Path,
    mut each: impl FnMut(&str, Recording),
) -> Result<Vec<String>, SltError> {
    let records: Vec<Record<DefaultColumnType>> =
        parse_file(path).map_err(|error| SltError::File(error.to_string()))?;
    let last = LastPlacement::default();
    let context = engine.session();
    let mut runner = runner(engine.kind(), &context, &last);
    let mut expectation = Expectation::AllOnDevices;
    let mut failures = vec![];
    for record in records {
        let mut created = None;
        let query = match &record {
            Record::Halt { .. } => break,
            Record::Statement { sql, .. } if engine.has_resident_tables() => {
                created = created_table(sql);
                None
            }
            Record::Comment(lines) => {
                for line in lines {
                    expectation = directive(line)?.unwrap_or(expectation);
                }
                None
            }
            Record::Query { loc, sql, .. } => Some((format!("{loc}\n{sql}"), sql.clone())),
            _ => None,
        };
        if engine.kind() != EngineKind::Stock {
            let is_strict = query.is_some() && expectation == Expectation::AllOnDevices;
            context.sql(&format!("SET warpjoin.strict = {is_strict}")).await?.collect().await?;
        }
        engine.take_recording();
        if let Err(error) = runner.run_async(record).await {
            failures.push(format!("[{}] {}", engine.kind(), error.display(false)));
        } else if let Some((query, sql)) = query {
            // A query that fails as it should has no place.
            let Some(placement) = last.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            if engine.kind() != EngineKind::Stock
                && let Some(failure) = misplaced(expectation_of(expectation, engine), &placement)
            {
                failures.push(format!("[{}] {failure}\nat {query}", engine.kind()));
            }
            if let Some(recording) = engine.take_recording() {
                each(&sql, recording);
            }
        } else if let Some(table) = created {
            load_table(&context, table).await?;
        }
    }
    Ok(failures)
}

/// Writes the answers of `engine` into the file at `path`, in place of those in it.
///
/// # Errors
/// When the file can't be parsed or written.
pub async fn complete_file(engine: &Engine, path: &Path) -> Result<(), SltError> {
    let mut runner = runner(engine.kind(), &engine.session(), &LastPlacement::default());
    runner
        .update_test_file(path, " ", default_validator, default_normalizer, strict_column_validator)
        .await
        .map_err(|error| SltError::File(error.to_string()))
}

fn runner(
    kind: EngineKind,
    context: &SessionContext,
    last: &LastPlacement,
) -> Runner<Connection, impl MakeConnection<Conn = Connection> + use<>> {
    let name = if kind == EngineKind::Stock { "stock" } else { "device" };
    let (context, last) = (context.clone(), Arc::clone(last));
    let mut runner = Runner::new(move || {
        let connection = Connection { context: context.clone(), name, last: Arc::clone(&last) };
        async move { Ok(connection) }
    });
    runner.with_column_validator(strict_column_validator);
    runner
}

/// The table that a statement creates.
fn created_table(sql: &str) -> Option<String> {
    let name = sql.trim_start().strip_prefix("CREATE TABLE ")?.split_whitespace().next()?;
    Some(name.to_string())
}

/// Of resident tables more is known, so that devices do more.
fn expectation_of(expectation: Expectation, engine: &Engine) -> Expectation {
    if engine.has_resident_tables() && expectation == Expectation::SomeOnCpu { Expectation::Any } else { expectation }
}

fn directive(comment: &str) -> Result<Option<Expectation>, SltError> {
    let Some(where_to) = comment.trim().strip_prefix("device:") else { return Ok(None) };
    // What follows the word is a remark.
    match where_to.split_whitespace().next() {
        Some("all") => Ok(Some(Expectation::AllOnDevices)),
        Some("cpu") => Ok(Some(Expectation::SomeOnCpu)),
        Some("any") => Ok(Some(Expectation::Any)),
        _ => Err(SltError::File(format!("# {comment}: it takes all, cpu or any"))),
    }
}

/// How a placement breaks what was expected.
fn misplaced(expectation: Expectation, placement: &Placement) -> Option<String> {
    match expectation {
        Expectation::AllOnDevices if !placement.is_wholly_on_devices() => Some(describe(placement)),
        Expectation::SomeOnCpu if !placement.device.is_empty() && placement.is_wholly_on_devices() => {
            Some("all of it is on devices now: say `# device: all`".to_string())
        }
        _ => None,
    }
}

/// What is on the CPU, and why.
fn describe(placement: &Placement) -> String {
    let mut words = vec![];
    for part in &placement.device {
        words.extend(part.fallback.iter().map(|why| format!("fell back to the CPU: {why}")));
    }
    words.extend(placement.host_work.iter().map(|work| format!("on the CPU: {work}")));
    words.join("; ")
}
