//! How an answer is held against stock DataFusion's: in the query's order, and where a LIMIT leaves a choice, any legal one.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use warpjoin_cli::answers::{Answer, RowOrder, Verdict, without_limit};

/// How `actual` differs from stock DataFusion's answer to `sql`; `None` if it does not. Of rows that tie at a LIMIT, all of
/// them without an order, any will do that are in the answer without it.
///
/// # Errors
/// When stock DataFusion can't answer the query without its LIMIT.
pub(crate) async fn difference(
    stock: &SessionContext,
    sql: &str,
    actual: &Answer,
    expected: &Answer,
) -> Result<Option<String>, DataFusionError> {
    let plan = stock.state().create_logical_plan(sql).await?;
    let order = RowOrder::of(&plan);
    let mut verdict = actual.compare(expected, &order);
    if verdict == Verdict::TiesAtLimit {
        let full = stock.execute_logical_plan(without_limit(&plan)?).await?;
        let schema = Arc::clone(full.schema().inner());
        verdict = actual.check_ties(&Answer::new(schema, &full.collect().await?)?, &order);
    }
    Ok(match verdict {
        Verdict::Equal => None,
        Verdict::Different(difference) => Some(difference),
        Verdict::TiesAtLimit => Some("rows that tie at the LIMIT were not checked".to_string()),
    })
}
