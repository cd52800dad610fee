//! One run of one query, and when two failures are the same.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use warpjoin_cli::answers::Answer;

use crate::coverage::Coverage;

/// A query that takes longer has failed.
const QUERY_TIME_MAX: Duration = Duration::from_secs(120);

/// Kinds of errors that data cause. Two errors are equal if their kinds are; their words are each engine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// A value left the range of its type.
    Overflow,
    /// A division by zero.
    DivisionByZero,
    /// A value or text that a cast can't represent.
    Cast,
    /// A scalar subquery with several rows.
    Cardinality,
    /// The query took too long.
    Time,
    /// DataFusion's memory pool is exhausted, which devices do not use.
    Resources,
    /// A panic, or an error that says of itself that it is a bug.
    Bug,
    /// Everything else: refused by the parser, the planner or a function.
    Other,
}

impl ErrorKind {
    /// Classifies the text of an error: DataFusion and Arrow give most of these no type of their own.
    pub fn of(error: &str) -> Self {
        let text = error.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if has(&["panicked", "internal error", "must match number of fields", "sanitycheckplan"]) {
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
    /// Its kind.
    pub kind: ErrorKind,
    /// The engine's words.
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
    /// Of an error of DataFusion or of the engine.
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

/// The same, with an error for a panic: DataFusion passes those of its tasks on.
pub(crate) async fn no_panic<T>(work: impl Future<Output = Result<T, DataFusionError>>) -> Result<T, DataFusionError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        Err(DataFusionError::Execution(format!("panicked: {words}")))
    })
}

/// The physical plan of a query or statement.
///
/// # Errors
/// When DataFusion or the engine refuses it.
pub(crate) async fn plan_of(context: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    context.sql(sql).await?.create_physical_plan().await
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
