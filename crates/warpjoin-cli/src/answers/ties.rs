//! Answers to a query whose LIMIT leaves a choice: what else is legal, stock DataFusion tells.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::prelude::SessionContext;

use super::{Answer, RowOrder, Verdict, without_limit};

impl RowOrder {
    /// The order that a query fixes.
    ///
    /// # Errors
    /// When DataFusion can't plan the query.
    pub async fn of_query(context: &SessionContext, sql: &str) -> Result<Self> {
        Ok(Self::of(&context.state().create_logical_plan(sql).await?))
    }
}

impl Answer {
    /// How this answer to `sql` differs from the one of `stock`, which is `expected`; `None` if it does not. Of rows that tie at
    /// a LIMIT, all of them without an order, any will do that are in the answer without it.
    ///
    /// # Errors
    /// When `stock` can't answer the query without its LIMIT.
    pub async fn difference(
        &self,
        expected: &Self,
        order: &RowOrder,
        stock: &SessionContext,
        sql: &str,
    ) -> Result<Option<String>> {
        let mut verdict = self.compare(expected, order);
        if verdict == Verdict::TiesAtLimit {
            let plan = without_limit(&stock.state().create_logical_plan(sql).await?)?;
            let full = stock.execute_logical_plan(plan).await?;
            let schema = Arc::clone(full.schema().inner());
            verdict = self.check_ties(&Self::new(schema, &full.collect().await?)?, order);
        }
        Ok(match verdict {
            Verdict::Equal => None,
            Verdict::Different(difference) => Some(difference),
            Verdict::TiesAtLimit => Some("rows that tie at the LIMIT were not checked".to_string()),
        })
    }
}
