//! DataFusion's own .slt files, on an engine and on stock DataFusion.
//!
//! The files come with a package that is downloaded and never compiled: an optional dependency. What they say
//! about types and layout of answers is DataFusion's matter; here each query's answer on the engine
//! must be stock DataFusion's, and what ran on devices is counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use sqllogictest::{DefaultColumnType, Record, parse_file};
use warpjoin_cli::answers::{Answer, RowOrder, Verdict};
use warpjoin_datafusion::Placement;

use crate::engine::Engine;
use crate::runner::{SltError, describe};

const PACKAGE: &str = "datafusion-sqllogictest";
/// A query that takes longer is a failure.
const QUERY_TIME_MAX: Duration = Duration::from_secs(120);
/// Statements that would write files, or read those that are not there.
const SKIPPED: [&str; 6] =
    ["copy ", "create external", "create unbounded", "explain", "insert into external", "prepare "];

/// What became of a file.
#[derive(Debug, Default)]
pub struct FileResult {
    /// Queries that stock DataFusion answers.
    pub queries: usize,
    /// Of them, those with a join or an aggregate.
    pub with_operators: usize,
    /// Of these, those with one on a device.
    pub on_devices: usize,
    /// Queries whose answer DataFusion itself does not determine.
    pub ambiguous: usize,
    /// Queries with another answer than stock DataFusion's.
    pub failures: Vec<String>,
    /// Why operators stayed on the CPU, and how often.
    pub reasons: BTreeMap<String, usize>,
}

impl FileResult {
    fn count(&mut self, placement: &Placement) {
        let finished = placement.device.iter().filter(|part| part.fallback.is_none());
        let on_devices: usize = finished.map(|part| part.joins + part.aggregates).sum();
        let all_on_devices = placement.joins() + placement.aggregates();
        let on_cpu = placement.cpu.iter().filter(|node| node.is_operator).count() + (all_on_devices - on_devices);
        self.with_operators += usize::from(on_devices + on_cpu > 0);
        self.on_devices += usize::from(on_devices > 0);
        if on_cpu > 0 {
            *self.reasons.entry(describe(placement)).or_default() += 1;
        }
    }
}

/// The folder of DataFusion's .slt files.
///
/// # Errors
/// When cargo can't find or download the package.
pub fn datafusion_files() -> Result<PathBuf, SltError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--all-features", "--manifest-path"])
        .arg(manifest)
        .output()
        .map_err(|error| SltError::File(format!("cargo metadata: {error}")))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        SltError::File(format!("cargo metadata: {error}; {}", String::from_utf8_lossy(&output.stderr)))
    })?;
    metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == PACKAGE))
        .and_then(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(|folder| folder.join("test_files"))
        .filter(|folder| folder.is_dir())
        .ok_or_else(|| SltError::File(format!("cargo knows no files of {PACKAGE}")))
}

/// Runs one file; of its queries every `every`th on the engine, from the `first`th on.
///
/// # Errors
/// When it can't be parsed.
pub async fn run_datafusion_file(
    file: &Path,
    engine: &Engine,
    stock: &Engine,
    (first, every): (usize, usize),
) -> Result<FileResult, SltError> {
    let plans_only = std::env::var("WARPJOIN_FILES_PLAN").is_ok_and(|value| value == "1");
    let records = parse_file::<DefaultColumnType>(file).map_err(|error| SltError::File(error.to_string()))?;
    let (expected, actual) = (stock.session(), engine.session());
    let mut result = FileResult::default();
    let mut number = 0;
    for record in records {
        let (sql, is_query, location) = match record {
            Record::Statement { sql, loc, .. } => (sql, false, loc),
            Record::Query { sql, loc, .. } => (sql, true, loc),
            Record::Halt { .. } => break,
            _ => continue,
        };
        let start = sql.trim_start().to_lowercase();
        if SKIPPED.iter().any(|skipped| start.starts_with(skipped)) || start.contains("location '") {
            continue;
        }
        if !is_query {
            // Tables and settings: what fails in one fails in the other.
            let _ = run(&expected, &sql).await;
            let _ = run(&actual, &sql).await;
            continue;
        }
        number += 1;
        if number % every != first % every {
            continue;
        }
        if plans_only {
            let Ok(plan) = plan_of(&actual, &sql).await else { continue };
            result.queries += 1;
            let placement = Placement::of(&plan);
            result.count(&placement);
            // Sorts and windows, too.
            for node in placement.cpu.iter().filter(|node| !node.is_operator) {
                if let Some(reason) = &node.reason {
                    *result.reasons.entry(format!("{} is on the CPU: {reason}", node.name)).or_default() += 1;
                }
            }
            continue;
        }
        let Ok((wanted, _)) = run(&expected, &sql).await else { continue };
        result.queries += 1;
        let outcome = run(&actual, &sql).await;
        let difference = match &outcome {
            Ok((answer, _)) => match answer.compare(&wanted, &RowOrder::default()) {
                Verdict::Equal => None,
                Verdict::Different(difference) => Some(difference),
                Verdict::TiesAtLimit => Some("ties at a LIMIT".into()),
            },
            Err(error) => Some(format!("an error: {error}")),
        };
        if let Ok((_, placement)) = &outcome {
            result.count(placement);
        }
        if let Some(difference) = difference {
            let is_legal = match &outcome {
                Ok((answer, _)) => is_legal(&expected, &sql, answer, &wanted).await,
                Err(_) => false,
            };
            if is_legal || is_ambiguous(&expected, &sql, &wanted).await {
                result.ambiguous += 1;
            } else {
                let at = format!("{}:{}", file.file_name().unwrap_or_default().to_string_lossy(), location.line());
                result.failures.push(format!("{at} [{}]: {difference}\n{sql}", engine.kind()));
            }
        }
    }
    Ok(result)
}

/// Whether the answer is stock DataFusion's in the query's order, or another one that a LIMIT allows.
async fn is_legal(stock: &SessionContext, sql: &str, answer: &Answer, wanted: &Answer) -> bool {
    let Ok(order) = RowOrder::of_query(stock, sql).await else { return false };
    matches!(answer.difference(wanted, &order, stock, sql).await, Ok(None))
}

/// Whether stock DataFusion itself gives other answers with other partitions.
async fn is_ambiguous(context: &SessionContext, sql: &str, wanted: &Answer) -> bool {
    let partitions = context.state().config().target_partitions();
    let mut differs = false;
    for count in [1, 2, 5] {
        let set = |count: usize| format!("set datafusion.execution.target_partitions = {count}");
        let _ = run(context, &set(count)).await;
        let _ = run(context, "set datafusion.execution.batch_size = 3").await;
        differs |= match run(context, sql).await {
            Ok((answer, _)) => !matches!(answer.compare(wanted, &RowOrder::default()), Verdict::Equal),
            Err(_) => true,
        };
        let _ = run(context, "reset datafusion.execution.batch_size").await;
        let _ = run(context, &set(partitions)).await;
    }
    differs
}

async fn plan_of(context: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    context.sql(sql).await?.create_physical_plan().await
}

async fn run(context: &SessionContext, sql: &str) -> Result<(Answer, Placement), DataFusionError> {
    let work = async {
        let plan = plan_of(context, sql).await?;
        let task = context.task_ctx();
        let batches = collect(Arc::clone(&plan), task).await?;
        Ok((Answer::new(plan.schema(), &batches)?, Placement::of(&plan)))
    };
    match tokio::time::timeout(QUERY_TIME_MAX, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(DataFusionError::Execution(format!("not done after {} s", QUERY_TIME_MAX.as_secs()))),
    }
}
