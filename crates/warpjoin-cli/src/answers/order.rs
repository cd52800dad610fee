//! What a query says about the order of its rows.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The order that a query fixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowOrder {
    /// Output columns by which rows are sorted; empty when their order is open.
    pub keys: Vec<usize>,
    /// Whether a LIMIT may cut through rows of equal keys.
    pub limited: bool,
}

impl RowOrder {
    /// Reads it off a logical plan that was not optimised yet.
    pub fn of(plan: &LogicalPlan) -> Self {
        let names: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let mut order = Self::default();
        order.descend(plan, names);
        order
    }

    /// `outputs`: what stands for each output column at this node.
    fn descend(&mut self, plan: &LogicalPlan, outputs: Vec<Expr>) {
        match plan {
            LogicalPlan::Limit(limit) => {
                self.limited = true;
                self.descend(&limit.input, outputs);
            }
            LogicalPlan::Projection(projection) => {
                let columns = projection.schema.columns();
                let below = outputs.iter().map(|output| {
                    let at = columns.iter().position(|column| matches!(output, Expr::Column(c) if c == column));
                    at.map_or_else(|| output.clone(), |at| projection.expr[at].clone().unalias())
                });
                self.descend(&projection.input, below.collect());
            }
            LogicalPlan::Sort(sort) => {
                self.limited |= sort.fetch.is_some();
                let position = |key: &Expr| outputs.iter().position(|output| output == key);
                self.keys = sort.expr.iter().map_while(|key| position(&key.expr)).collect();
            }
            _ => {}
        }
    }
}

/// The same query without the LIMIT at its top.
///
/// # Errors
/// When DataFusion refuses the smaller plan.
pub fn without_limit(plan: &LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Limit(limit) => without_limit(&limit.input),
        LogicalPlan::Sort(sort) => {
            let mut sort = sort.clone();
            sort.fetch = None;
            sort.input = Arc::new(without_limit(&sort.input)?);
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Projection(projection) => {
            plan.with_new_exprs(projection.expr.clone(), vec![without_limit(&projection.input)?])
        }
        _ => Ok(plan.clone()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn order(sql: &str) -> RowOrder {
        let context = SessionContext::new();
        context.sql("create table t as values (1, 2, 3)").await.unwrap().collect().await.unwrap();
        let plan = context.state().create_logical_plan(sql).await.unwrap();
        let order = RowOrder::of(&plan);
        let full = RowOrder::of(&without_limit(&plan).unwrap());
        assert_eq!(full, RowOrder { keys: order.keys.clone(), limited: false });
        order
    }

    #[tokio::test]
    async fn keys_are_output_columns() {
        let keys = |keys: &[usize], limited| RowOrder { keys: keys.to_vec(), limited };
        assert_eq!(order("select column1, column2 from t").await, keys(&[], false));
        assert_eq!(order("select column1, column2 from t order by column2, 1").await, keys(&[1, 0], false));
        assert_eq!(order("select column1 as a from t order by a limit 3").await, keys(&[0], true));
        assert_eq!(order("select column1 as a from t order by column1, column3").await, keys(&[0], false));
        assert_eq!(order("select column1 from t limit 3").await, keys(&[], true));
        assert_eq!(
            order("select column1 a, sum(column2) s from t group by a order by s desc").await,
            keys(&[1], false)
        );
        assert_eq!(
            order("select column1 a, sum(column2) s from t group by a order by sum(column2)").await,
            keys(&[1], false)
        );
    }
}
