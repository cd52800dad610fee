//! Plans queries that differ only in literals once.
//!
//! A literal that is compared with a column, and a pattern of LIKE, become parameters. DataFusion plans the query with
//! parameters without knowing their values; that plan is kept if it equals the plan with the literals of the current
//! query.

mod aggregates;
mod lifting;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Alias, Placeholder};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::physical_plan::ExecutionPlan;

use super::{KeepingPlanner, bound, check};
use crate::kept::Instance;
use crate::kept::parameter::Parameters;
use lifting::{Lifting, Lists, is_constant};

/// A query with placeholders in place of literals, and their values.
pub(super) struct Parameterized {
    pub(super) plan: LogicalPlan,
    pub(super) values: Vec<ScalarValue>,
}

/// Replaces constants by placeholders: those that filters, joins and aggregates compare with; then those of filters and
/// joins alone. Queries with equal constants in different places get different plans.
pub(super) fn parameterize(plan: &LogicalPlan, session: &SessionState) -> Result<Vec<Parameterized>> {
    let mut queries = with_lists(plan, Lists::Lifted, session)?;
    let all = queries.len();
    queries.retain(|query| !mixes_lists(&query.plan));
    if queries.len() < all {
        queries.extend(with_lists(plan, Lists::Kept, session)?);
    }
    Ok(queries)
}

/// The same, with placeholders for items of lists or without.
fn with_lists(plan: &LogicalPlan, lists: Lists, session: &SessionState) -> Result<Vec<Parameterized>> {
    let mut values = vec![];
    let plan = plan.clone().transform_down_with_subqueries(|mut node| {
        let changed = match &mut node {
            LogicalPlan::Filter(filter) => {
                let schema = Arc::clone(filter.input.schema());
                Lifting::new(schema, &mut values, lists, session).replace(&mut filter.predicate)?
            }
            LogicalPlan::Join(join) => match &mut join.filter {
                Some(filter) => {
                    let schema = Arc::new(join.left.schema().join(join.right.schema())?);
                    Lifting::new(schema, &mut values, lists, session).replace(filter)?
                }
                None => false,
            },
            _ => false,
        };
        Ok(if changed { Transformed::yes(node) } else { Transformed::no(node) })
    });
    let of_rows = Parameterized { plan: plan.data()?, values };
    let of_aggregates = aggregates::parameterize(&of_rows, lists, session).unwrap_or_else(|error| {
        log::debug!("no parameters in aggregates: {error}");
        None
    });
    let of_rows = (!of_rows.values.is_empty()).then_some(of_rows);
    Ok(of_aggregates.into_iter().chain(of_rows).collect())
}

/// Whether some lists have placeholders, and others have other items, as has an equality with a constant: a list of one.
/// DataFusion merges lists of one operand, and takes items for different if their expressions are: a placeholder and a literal
/// may be equal, two placeholders only as their numbers say.
fn mixes_lists(plan: &LogicalPlan) -> bool {
    let (mut are_lifted, mut are_kept) = (false, false);
    let mut visit = |part: &Expr| {
        match part {
            Expr::InList(list) => {
                let is_lifted = |item: &Expr| matches!(item, Expr::Placeholder(_));
                are_lifted |= list.list.iter().any(is_lifted);
                are_kept |= !list.list.iter().all(is_lifted);
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq | Operator::NotEq, right }) => {
                are_kept |= is_constant(left) || is_constant(right);
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    };
    let visited = plan.apply_with_subqueries(|node| node.apply_expressions(|expr| expr.apply(&mut visit)));
    visited.is_err() || (are_lifted && are_kept)
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
    let of = |expr: Expr| {
        Ok(match expr {
            Expr::Placeholder(Placeholder { id, field }) => match merged_id(&id) {
                Some(id) => Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(id, field))),
                None => Transformed::no(Expr::Placeholder(Placeholder { id, field })),
            },
            // Names of aggregates have placeholders, too.
            Expr::Column(column) => match merged_name(&column.name) {
                Some(name) => Transformed::yes(Expr::Column(Column::new(column.relation, name))),
                None => Transformed::no(Expr::Column(column)),
            },
            Expr::Alias(alias) => match merged_name(&alias.name) {
                Some(name) => Transformed::yes(Expr::Alias(Alias { name, ..alias })),
                None => Transformed::no(Expr::Alias(alias)),
            },
            expr => Transformed::no(expr),
        })
    };
    let merged = plan.clone().transform_up_with_subqueries(|node| {
        let node = node.map_expressions(|expr| expr.transform_up(of))?;
        if node.transformed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
    })?;
    Ok(merged.transformed.then_some(merged.data))
}

/// The placeholder of the first value that is equal; `None` if it is that.
fn merged_id(id: &str) -> Option<String> {
    let (at, equal) = places_of(id)?;
    (at != equal).then(|| format!("{PREFIX}{equal} {equal}"))
}

/// A name with such placeholders in the place of others; `None` if it has no others.
fn merged_name(name: &str) -> Option<String> {
    let mut parts = name.split(PREFIX);
    let mut merged = parts.next()?.to_string();
    for part in parts {
        let is_of_places = |c: char| c.is_ascii_digit() || c == ' ';
        // Two numbers, then whatever stands behind them in the name.
        let end = part.find(|c| !is_of_places(c)).unwrap_or(part.len());
        let id = format!("{PREFIX}{}", part[..end].trim_end());
        merged.push_str(&merged_id(&id).unwrap_or(id));
        merged.push_str(&part[part[..end].trim_end().len()..]);
    }
    (merged != name).then_some(merged)
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
