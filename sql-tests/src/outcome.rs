//! One run of a query, and kinds of errors, by which failures are compared.
//!
//! Must not know which engine ran the query.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use warpjoin_cli::answers::Answer;
use warpjoin_datafusion::WarpjoinSessionContext;

use crate::coverage::Coverage;

/// A query that takes longer fails.
const QUERY_TIME_MAX: Duration = Duration::from_secs(120);

/// Stock DataFusion's `last_value ... IGNORE NULLS` over groups that several partitions merge.
const INCONSISTENT_TYPES: &str = "inconsistent types in scalarvalue::iter_to_array";

/// Kinds of errors. Two errors are equal if their kinds are equal; engines have different messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// A value outside the range of its type.
    Overflow,
    /// A division by zero.
    DivisionByZero,
    /// A value or text that cannot be cast.
    Cast,
    /// A scalar subquery with several rows.
    Cardinality,
    /// The query took too long.
    Time,
    /// DataFusion's memory pool is exhausted. Devices do not use it.
    Resources,
    /// A panic, or an internal error.
    Bug,
    /// Other errors, of the parser, the planner or a function.
    Other,
}

impl ErrorKind {
    /// Classifies the text of an error, because DataFusion and Arrow have no types for most of these.
    pub fn of(error: &str) -> Self {
        let text = error.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if has(&["panicked", "internal error", "must match number of fields", "sanitycheckplan", INCONSISTENT_TYPES]) {
            Self::Bug
        } else if has(&["resources exhausted"]) {
            Self::Resources
        } else if has(&["divide by zero", "division by zero"]) {
            Self::DivisionByZero
        } else if has(&["overflow", "out of range", "exceeds maximum", "too large to store", "too small to store"]) {
            Self::Overflow
        } else if has(&["cast", "parse '", "parsing"]) {
            Self::Cast
        } else if has(&["more than one row"]) {
            Self::Cardinality
        } else if has(&["not done after"]) {
            Self::Time
        } else {
            Self::Other
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub struct Failure {
    /// The kind of error.
    pub kind: ErrorKind,
    /// The engine's message.
    pub text: String,
}

/// What a query came to.
#[derive(Debug)]
pub struct Outcome {
    /// The answer, or why there is none.
    pub answer: Result<Answer, Failure>,
    /// Where it ran; empty if it could not be planned.
    pub coverage: Coverage,
}

impl Failure {
    /// The failure for an error of DataFusion or warpjoin.
    pub fn new(error: &DataFusionError) -> Self {
        let text = error.strip_backtrace();
        Self { kind: ErrorKind::of(&text), text }
    }
}

impl Outcome {
    /// Plans and runs `sql`.
    pub async fn of(context: &SessionContext, sql: &str) -> Self {
        let plan = match tokio::time::timeout(QUERY_TIME_MAX, no_panic(plan_of(context, sql))).await {
            Ok(Ok(plan)) => plan,
            Ok(Err(error)) => return Self::failed(Failure::new(&error)),
            Err(_) => return Self::failed(too_slow()),
        };
        let answer = no_panic(async {
            let batches = collect(Arc::clone(&plan), context.task_ctx()).await?;
            Ok(Answer::new(plan.schema(), &batches)?)
        });
        let answer = match tokio::time::timeout(QUERY_TIME_MAX, answer).await {
            Ok(answer) => answer.map_err(|error: DataFusionError| Failure::new(&error)),
            Err(_) => Err(too_slow()),
        };
        Self { answer, coverage: Coverage::of(&plan) }
    }

    fn failed(failure: Failure) -> Self {
        Self { answer: Err(failure), coverage: Coverage::default() }
    }
}

/// Turns a panic of `work` into an error. DataFusion propagates panics of its tasks.
pub(crate) async fn no_panic<T>(work: impl Future<Output = Result<T, DataFusionError>>) -> Result<T, DataFusionError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        Err(DataFusionError::Execution(format!("panicked: {message}")))
    })
}

/// The physical plan of a query or statement.
///
/// # Errors
/// Returns errors of planning.
pub(crate) async fn plan_of(context: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    Ok(Arc::clone(context.query(sql).await?.plan()))
}

fn too_slow() -> Failure {
    Failure { kind: ErrorKind::Time, text: format!("not done after {} s", QUERY_TIME_MAX.as_secs()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_kinds() {
        for (text, kind) in [
            ("Arrow error: Divide by zero error", ErrorKind::DivisionByZero),
            ("Arrow error: Arithmetic overflow: Overflow happened on: 1 + 2", ErrorKind::Overflow),
            ("Cast error: Can't cast value 300 to type Int8", ErrorKind::Cast),
            ("Arrow error: Cast error: Cannot cast string 'x' to value of Int64 type", ErrorKind::Cast),
            ("Execution error: Scalar subquery returned more than one row", ErrorKind::Cardinality),
            ("Resources exhausted: Failed to allocate additional 6.6 KB", ErrorKind::Resources),
            ("Schema error: No field named x", ErrorKind::Other),
            ("Execution error: panicked: assertion `left == right` failed", ErrorKind::Bug),
        ] {
            assert_eq!(ErrorKind::of(text), kind, "{text}");
        }
    }
}
