//! Plans queries that differ only in literals once.
//!
//! A literal that is compared with a column, and a pattern of LIKE, become parameters. DataFusion plans the query with
//! parameters without knowing their values; that plan is kept if it equals the plan with the literals of the current
//! query.

mod aggregates;
mod lifting;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

use super::{KeepingPlanner, bound, check};
use crate::kept::Instance;
use crate::kept::parameter::Parameters;
use lifting::Lifting;

/// A query with placeholders in place of literals, and their values.
pub(super) struct Parameterized {
    pub(super) plan: LogicalPlan,
    pub(super) values: Vec<ScalarValue>,
}

/// Replaces constants by placeholders: those that filters, joins and aggregates compare with; then those of filters and
/// joins alone. Queries with equal constants in different places get different plans.
pub(super) fn parameterize(plan: &LogicalPlan, session: &SessionState) -> Result<Vec<Parameterized>> {
    let mut values = vec![];
    let plan = plan.clone().transform_down_with_subqueries(|mut node| {
        let changed = match &mut node {
            LogicalPlan::Filter(filter) => {
                let schema = Arc::clone(filter.input.schema());
                replace(&mut filter.predicate, &mut Lifting::new(schema, &mut values, session))?
            }
            LogicalPlan::Join(join) => match &mut join.filter {
                Some(filter) => {
                    let schema = Arc::new(join.left.schema().join(join.right.schema())?);
                    replace(filter, &mut Lifting::new(schema, &mut values, session))?
                }
                None => false,
            },
            _ => false,
        };
        Ok(if changed { Transformed::yes(node) } else { Transformed::no(node) })
    });
    let of_rows = Parameterized { plan: plan.data()?, values };
    let of_aggregates = aggregates::parameterize(&of_rows, session)?;
    let of_rows = (!of_rows.values.is_empty()).then_some(of_rows);
    Ok(of_aggregates.into_iter().chain(of_rows).collect())
}

fn replace(predicate: &mut Expr, lifting: &mut Lifting<'_>) -> Result<bool> {
    let before = lifting.replaced;
    let given = std::mem::take(predicate);
    *predicate = given.transform_down(|expr| lifting.of(expr)).data()?;
    Ok(lifting.replaced > before)
}

/// The placeholder of value `at`, which equals the value `equal` and none before that. SQL texts have no such
/// placeholders.
fn placeholder(at: usize, equal: usize, data_type: DataType) -> Expr {
    let field = Arc::new(Field::new("", data_type, false));
    Expr::Placeholder(Placeholder::new_with_field(format!("{PREFIX}{at} {equal}"), Some(field)))
}

const PREFIX: &str = "$warpjoin ";

fn places_of(id: &str) -> Option<(usize, usize)> {
    let (at, equal) = id.strip_prefix(PREFIX)?.split_once(' ')?;
    Some((at.parse().ok()?, equal.parse().ok()?))
}

/// A plan of a parameterized query; `None` if it differs from `expected`, which was planned with the values as literals.
///
/// DataFusion merges conditions that are equal, and computes an expression once that stands twice, but not a literal. So equal
/// constants are tried as different placeholders, and then as one.
pub(super) async fn instance(
    query: &Parameterized,
    expected: &Arc<dyn ExecutionPlan>,
    session: &SessionState,
) -> Result<Option<Instance>> {
    let merged = merged(&query.plan)?;
    for given in std::iter::once(&query.plan).chain(&merged) {
        let parameters = Parameters::like(&query.values);
        let optimized = with_functions(session.optimize(given)?, &parameters)?;
        let planner = KeepingPlanner::inner_of(session.query_planner());
        let plan = planner.create_physical_plan(&optimized, session).await?;
        parameters.set(&query.values);
        let bound = bound(&plan)?;
        if check::is_same(&bound, expected) {
            return Ok(Some(Instance::of_parameters(plan, parameters, bound)));
        }
    }
    Ok(None)
}

/// The plan with one placeholder for constants that are equal; `None` if all are different.
fn merged(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let of = |expr: Expr| match &expr {
        Expr::Placeholder(Placeholder { id, field }) => match places_of(id) {
            Some((at, equal)) if at != equal => {
                let id = format!("{PREFIX}{equal} {equal}");
                Ok(Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(id, field.clone()))))
            }
            _ => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    };
    let merged =
        plan.clone().transform_up_with_subqueries(|node| node.map_expressions(|expr| expr.transform_up(of)))?;
    Ok(merged.transformed.then_some(merged.data))
}

/// Replaces placeholders by their parameters.
fn with_functions(plan: LogicalPlan, parameters: &Arc<Parameters>) -> Result<LogicalPlan> {
    let of = |expr: Expr| match &expr {
        Expr::Placeholder(Placeholder { id, .. }) => {
            let (at, equal) =
                places_of(id).ok_or_else(|| DataFusionError::Internal(format!("unknown placeholder {id}")))?;
            parameters.expr(at, equal, id).map(Transformed::yes)
        }
        _ => Ok(Transformed::no(expr)),
    };
    plan.transform_up_with_subqueries(|node| node.map_expressions(|expr| expr.transform_up(of))).data()
}
