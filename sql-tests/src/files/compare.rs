//! Decides whether stock DataFusion may have the same outcome of a query as an engine.

use datafusion::prelude::SessionContext;
use warpjoin_cli::answers::{Answer, Reference};

use crate::outcome::{ErrorKind, Failure, Outcome};

/// The result of comparing two outcomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The answers are equal.
    Equal,
    /// Both fail with the same kind of error.
    BothFail,
    /// Stock DataFusion's answer depends on partitions, batches or memory, or is not sorted as the query says.
    Ambiguous,
    /// The outcomes differ, as described.
    Different(String),
}

/// Compares an engine's outcome of `sql` with that of the session `stock`.
pub(super) async fn compare(stock: &SessionContext, sql: &str, actual: &Outcome) -> Verdict {
    let expected = Outcome::of(stock, sql).await;
    let answer = match (&expected.answer, &actual.answer) {
        (Ok(_), Ok(answer)) => answer,
        (Ok(_), Err(failure)) => return Verdict::Different(format!("an error: {}", failure.text)),
        (Err(Failure { kind: ErrorKind::Resources, .. }), Ok(_)) => return Verdict::Ambiguous,
        (Err(failure), Ok(_)) => return Verdict::Different(format!("no error; stock DataFusion: {}", failure.text)),
        (Err(wanted), Err(failure)) if wanted.kind == failure.kind => return Verdict::BothFail,
        (Err(wanted), Err(failure)) => {
            return Verdict::Different(format!("another error: {}; stock DataFusion: {}", failure.text, wanted.text));
        }
    };
    match difference(stock, sql, answer, &expected).await {
        Ok(None) => Verdict::Equal,
        // Another run may sort as the query says: that stock DataFusion once did not is enough.
        Err(failure) if failure.kind == ErrorKind::Bug => Verdict::Ambiguous,
        _ if is_ambiguous(stock, sql).await => Verdict::Ambiguous,
        Ok(Some(difference)) => Verdict::Different(difference),
        Err(failure) => Verdict::Different(format!("the answer with sort keys, or without LIMIT: {}", failure.text)),
    }
}

/// Describes how an answer differs from all correct answers; `None` if it is correct. For other statements than queries only
/// the number of rows is compared.
///
/// # Errors
/// When `stock` has no answer with sort keys, or none without LIMIT.
async fn difference(
    stock: &SessionContext,
    sql: &str,
    answer: &Answer,
    expected: &Outcome,
) -> Result<Option<String>, Failure> {
    let Ok(wanted) = &expected.answer else { return Ok(None) };
    let is_query = stock.state().create_logical_plan(sql).await.is_ok_and(|plan| !plan.schema().fields().is_empty());
    if !is_query || changes_state(sql) {
        return Ok(
            (answer.rows() != wanted.rows()).then(|| format!("{} rows instead of {}", answer.rows(), wanted.rows()))
        );
    }
    let reference = Reference::of(stock, sql).await.map_err(|error| Failure::new(&error))?;
    reference.difference(answer, stock).await.map_err(|error| Failure::new(&error))
}

/// Whether the statement changes tables, files or settings, so that it must not run again.
pub(super) fn changes_state(sql: &str) -> bool {
    let start = sql.trim_start().to_lowercase();
    ["insert", "copy", "create", "drop", "set ", "reset", "delete", "update", "prepare", "deallocate", "truncate"]
        .iter()
        .any(|word| start.starts_with(word))
}

/// Whether stock DataFusion's answer depends on partitions or batches. Failures and timeouts do not count.
async fn is_ambiguous(context: &SessionContext, sql: &str) -> bool {
    if sql.to_lowercase().contains("any_value(") {
        return true;
    }
    let reference = match Reference::of(context, sql).await {
        Ok(reference) => reference,
        Err(error) => return Failure::new(&error).kind == ErrorKind::Bug,
    };
    let partitions = context.state().config().target_partitions();
    let batch_rows = context.state().config().batch_size();
    let mut differs = false;
    for (count, rows) in [(1, batch_rows), (2, 3), (5, 7)] {
        set(context, count, rows).await;
        let outcome = Outcome::of(context, sql).await;
        set(context, partitions, batch_rows).await;
        differs |= match outcome.answer {
            Ok(answer) => reference.difference(&answer, context).await.is_ok_and(|difference| difference.is_some()),
            Err(_) => false,
        };
    }
    differs
}

async fn set(context: &SessionContext, partitions: usize, batch_rows: usize) {
    for (name, value) in [("target_partitions", partitions), ("batch_size", batch_rows)] {
        // Both settings exist, so this cannot fail.
        let _ = context.sql(&format!("set datafusion.execution.{name} = {value}")).await;
    }
}
