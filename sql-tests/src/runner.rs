//! Runs .slt files on an engine, and checks where their queries run.
//!
//! A comment `# device: all`, `# device: cpu` or `# device: any` says where the following queries must run:
//! - `all`, the default: wholly on devices. They run with `warpjoin.strict`, and the CPU may take no row.
//! - `cpu`: in part on the CPU, because something is not supported. The test fails when it becomes supported.
//! - `any`: anywhere.
//!
//! Stock DataFusion ignores these comments.

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
use warpjoin_datafusion::{Placement, WarpjoinSessionContext, load_table};
use warpjoin_device::Recording;

use crate::engine::{Engine, EngineKind};
use crate::text;

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SltError {
    /// An error of DataFusion or warpjoin.
    #[error("{0}")]
    Query(String),
    /// A file cannot be read or parsed.
    #[error("{0}")]
    File(String),
}

impl From<DataFusionError> for SltError {
    fn from(error: DataFusionError) -> Self {
        Self::Query(error.strip_backtrace())
    }
}

/// Where a query must run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expectation {
    AllOnDevices,
    SomeOnCpu,
    Any,
}

/// The placement of the last query; `None` if it has no output.
type LastPlacement = Arc<Mutex<Option<Placement>>>;

struct Connection {
    context: SessionContext,
    name: &'static str,
    /// Whether queries run twice.
    repeats: bool,
    last: LastPlacement,
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = SltError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SltError> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let (mut plan, mut context) = self.context.query(sql).await?.into_parts();
        let mut batches = collect(Arc::clone(&plan), context).await?;
        if plan.schema().fields().is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        if self.repeats {
            // Once more, with the kept plan, whose answer counts.
            drop(plan);
            (plan, context) = self.context.query(sql).await?.into_parts();
            batches = collect(Arc::clone(&plan), context).await?;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Placement::of(&plan));
        let rows = text::rows(&batches).map_err(DataFusionError::from)?;
        Ok(DBOutput::Rows { types: text::column_types(&plan.schema()), rows })
    }

    async fn shutdown(&mut self) {}

    /// `stock` or `device`, for `onlyif` and `skipif`.
    fn engine_name(&self) -> &str {
        self.name
    }
}

/// Runs the file at `path`. Returns descriptions of all failures, and does not stop at the first.
///
/// # Errors
/// Returns an error if the file cannot be parsed.
pub async fn run_file(engine: &Engine, path: &Path) -> Result<Vec<String>, SltError> {
    run_recorded(engine, path, |_, _| {}).await
}

/// As [`run_file`]. Calls `each` with each query that succeeds and its recording.
///
/// # Errors
/// Returns an error if the file cannot be parsed.
pub async fn run_recorded(
    engine: &Engine,
    path: &Path,
    mut each: impl FnMut(&str, Recording),
) -> Result<Vec<String>, SltError> {
    let records: Vec<Record<DefaultColumnType>> =
        parse_file(path).map_err(|error| SltError::File(error.to_string()))?;
    let last = LastPlacement::default();
    let context = engine.session();
    let mut runner = runner(engine, &context, &last);
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
            // A query with an expected error has no placement.
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

/// Replaces the answers in the file at `path` by those of `engine`.
///
/// # Errors
/// Returns an error if the file cannot be parsed or written.
pub async fn complete_file(engine: &Engine, path: &Path) -> Result<(), SltError> {
    let mut runner = runner(engine, &engine.session(), &LastPlacement::default());
    runner
        .update_test_file(path, " ", default_validator, default_normalizer, strict_column_validator)
        .await
        .map_err(|error| SltError::File(error.to_string()))
}

fn runner(
    engine: &Engine,
    context: &SessionContext,
    last: &LastPlacement,
) -> Runner<Connection, impl MakeConnection<Conn = Connection> + use<>> {
    let name = if engine.kind() == EngineKind::Stock { "stock" } else { "device" };
    let repeats = engine.has_resident_tables() && !engine.is_recorded();
    let (context, last) = (context.clone(), Arc::clone(last));
    let mut runner = Runner::new(move || {
        let connection = Connection { context: context.clone(), name, repeats, last: Arc::clone(&last) };
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

/// Devices may run more over resident tables, because their statistics are known.
fn expectation_of(expectation: Expectation, engine: &Engine) -> Expectation {
    if engine.has_resident_tables() && expectation == Expectation::SomeOnCpu { Expectation::Any } else { expectation }
}

fn directive(comment: &str) -> Result<Option<Expectation>, SltError> {
    let Some(place) = comment.trim().strip_prefix("device:") else { return Ok(None) };
    // A remark may follow the first word.
    match place.split_whitespace().next() {
        Some("all") => Ok(Some(Expectation::AllOnDevices)),
        Some("cpu") => Ok(Some(Expectation::SomeOnCpu)),
        Some("any") => Ok(Some(Expectation::Any)),
        _ => Err(SltError::File(format!("# {comment}: expected all, cpu or any"))),
    }
}

/// Describes how a placement differs from the expectation.
fn misplaced(expectation: Expectation, placement: &Placement) -> Option<String> {
    match expectation {
        Expectation::AllOnDevices if !placement.is_wholly_on_devices() => Some(describe(placement)),
        Expectation::SomeOnCpu if !placement.device.is_empty() && placement.is_wholly_on_devices() => {
            Some("it runs wholly on devices now: change the comment to `# device: all`".to_string())
        }
        _ => None,
    }
}

/// The work on the CPU, with reasons.
fn describe(placement: &Placement) -> String {
    let mut work = vec![];
    for part in &placement.device {
        work.extend(part.fallback.iter().map(|why| format!("fell back to the CPU: {why}")));
    }
    work.extend(placement.host_work.iter().map(|node| format!("on the CPU: {node}")));
    work.join("; ")
}
