//! The order and the limit of a query, read from its logical plan.
//!
//! Owns the rewrite that adds sort keys to a query's columns. Must not know how answers are compared.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Limit, LogicalPlan, Projection, SkipType, Sort};
use datafusion::physical_expr::create_physical_expr;

/// A query that also returns its sort keys.
///
/// A sort key need not be an output column (`SELECT a FROM t ORDER BY b + 1`), so the plan returns all keys as additional
/// columns. Only the outermost sort counts: in SQL, the order of a subquery has no meaning.
#[derive(Debug, Clone)]
pub(super) struct OrderedQuery {
    /// The query, with its sort keys after its output columns.
    pub(super) plan: LogicalPlan,
    /// Number of output columns. Sort keys follow.
    pub(super) columns: usize,
    /// Sort options of each key.
    pub(super) options: Vec<SortOptions>,
    /// The query without LIMIT and OFFSET, if it has any.
    pub(super) unlimited: Option<Unlimited>,
}

/// A query without its LIMIT and OFFSET.
#[derive(Debug, Clone)]
pub(super) struct Unlimited {
    /// The query, with its sort keys after its output columns.
    pub(super) plan: LogicalPlan,
    /// Number of rows that OFFSET skips.
    pub(super) skip: usize,
}

impl OrderedQuery {
    /// Reads a logical plan that is not optimized yet.
    ///
    /// # Errors
    /// When DataFusion rejects one of the plans, or an OFFSET is not a constant.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Self> {
        let columns = plan.schema().fields().len();
        let skip = skip_of(plan)?;
        let unlimited = match skip {
            Some(skip) => Some(Unlimited { plan: with_keys(&without_limit(plan)?)?.0, skip }),
            None => None,
        };
        let (plan, options) = with_keys(plan)?;
        Ok(Self { plan, columns, options, unlimited })
    }
}

/// The plan with the keys of its outermost sort as its last columns, and the sort options of each key.
fn with_keys(plan: &LogicalPlan) -> Result<(LogicalPlan, Vec<SortOptions>)> {
    match plan {
        LogicalPlan::Limit(limit) => {
            let (input, keys) = with_keys(&limit.input)?;
            Ok((LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit.clone() }), keys))
        }
        LogicalPlan::Projection(projection) => {
            let (input, keys) = with_keys(&projection.input)?;
            if keys.is_empty() {
                return Ok((plan.clone(), keys));
            }
            let all = columns_of(input.schema());
            let exprs = [&projection.expr[..], &all[all.len() - keys.len()..]].concat();
            Ok((LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), keys))
        }
        LogicalPlan::Sort(sort) => {
            let key = |(at, key): (usize, &datafusion::logical_expr::SortExpr)| {
                key.expr.clone().alias(format!("__sort_key_{at}"))
            };
            let keys: Vec<Expr> = sort.expr.iter().enumerate().map(key).collect();
            let exprs = [&columns_of(sort.input.schema())[..], &keys].concat();
            let options = sort.expr.iter().map(|key| SortOptions::new(!key.asc, key.nulls_first)).collect();
            Ok((LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan.clone()))?), options))
        }
        _ => Ok((plan.clone(), vec![])),
    }
}

fn columns_of(schema: &DFSchema) -> Vec<Expr> {
    schema.iter().map(|field| Expr::Column(Column::from(field))).collect()
}

/// Number of rows that the limits at the top of a plan skip; `None` without a limit.
fn skip_of(plan: &LogicalPlan) -> Result<Option<usize>> {
    match plan {
        LogicalPlan::Limit(limit) => match limit.get_skip_type()? {
            SkipType::Literal(skip) => Ok(Some(skip + skip_of(&limit.input)?.unwrap_or(0))),
            SkipType::UnsupportedExpr => match limit.skip.as_deref().and_then(constant_of) {
                Some(skip) => Ok(Some(skip + skip_of(&limit.input)?.unwrap_or(0))),
                None => plan_err!("the OFFSET of a compared query must be a constant"),
            },
        },
        LogicalPlan::Projection(projection) => skip_of(&projection.input),
        LogicalPlan::Sort(sort) => Ok(sort.fetch.map(|_| 0)),
        _ => Ok(None),
    }
}

/// The value of an expression without columns.
fn constant_of(expr: &Expr) -> Option<usize> {
    let context = PhysicalPlanningContext::default();
    let expr = create_physical_expr(expr, &DFSchema::empty(), &ExecutionProps::new(), &context).ok()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &rows).ok()?;
    let values = expr.evaluate(&row).and_then(|value| value.into_array(1)).ok()?;
    match ScalarValue::try_from_array(&values, 0).and_then(|value| value.cast_to(&DataType::Int64)).ok()? {
        ScalarValue::Int64(Some(number)) => usize::try_from(number).ok(),
        _ => None,
    }
}

/// The plan without the LIMIT and OFFSET at its top.
fn without_limit(plan: &LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Limit(limit) => without_limit(&limit.input),
        LogicalPlan::Sort(sort) => Ok(LogicalPlan::Sort(Sort { fetch: None, ..sort.clone() })),
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

    /// Number of output columns, number of sort keys, and the rows that a limit skips.
    async fn shape(sql: &str) -> (usize, usize, Option<usize>) {
        let context = SessionContext::new();
        context.sql("create table t as values (1, 2, 3)").await.unwrap().collect().await.unwrap();
        let plan = context.state().create_logical_plan(sql).await.unwrap();
        let query = OrderedQuery::of(&plan).unwrap();
        let all = context.execute_logical_plan(query.plan.clone()).await.unwrap().schema().fields().len();
        (query.columns, all - query.columns, query.unlimited.map(|unlimited| unlimited.skip))
    }

    #[tokio::test]
    async fn every_sort_key_becomes_a_column() {
        assert_eq!(shape("select column1, column2 from t").await, (2, 0, None));
        assert_eq!(shape("select column1, column2 from t order by column2, 1").await, (2, 2, None));
        assert_eq!(shape("select column1 from t order by column3 desc, column1 + column2").await, (1, 2, None));
        assert_eq!(shape("select column1 from t order by column3 limit 3 offset 2").await, (1, 1, Some(2)));
        assert_eq!(shape("select column1 from t limit 3").await, (1, 0, Some(0)));
        assert_eq!(shape("select column1 from t limit 2::int offset 1::tinyint").await, (1, 0, Some(1)));
        let computed = "select column1 from t limit 1 + 1 offset case when 1 < 2 then 3 else 0 end";
        assert_eq!(shape(computed).await, (1, 0, Some(3)));
        assert_eq!(
            shape("select column1 a, sum(column2) s from t group by a order by max(column3)").await,
            (2, 1, None)
        );
        assert_eq!(shape("select distinct column1 from t order by column1").await, (1, 1, None));
        assert_eq!(shape("select column1 from t union all select column2 from t order by 1").await, (1, 1, None));
        assert_eq!(shape("select * from (select column1 from t order by column2) s").await, (1, 0, None));
    }
}
