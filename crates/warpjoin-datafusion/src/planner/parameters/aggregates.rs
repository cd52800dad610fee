//! Placeholders for the constants that arguments and filters of aggregates compare with.
//!
//! An aggregate's column is named after its text, so a placeholder changes the name; nodes above take the new one. A query
//! whose answer has such a name keeps these literals.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};

use super::Parameterized;
use super::lifting::{Lifting, Lists};

/// New names of columns, by their old ones.
type Names = HashMap<String, String>;

/// The query with further placeholders; `None` if there is nothing to replace, or the answer would have other names.
pub(super) fn parameterize(
    query: &Parameterized,
    lists: Lists,
    session: &SessionState,
) -> Result<Option<Parameterized>> {
    let mut values = query.values.clone();
    let lifted = lifted(&query.plan, &mut values, (lists, session), 0)?;
    let lifted = lifted.filter(|(_, names)| names.is_empty() && values.len() > query.values.len());
    Ok(lifted.map(|(plan, _)| Parameterized { plan, values }))
}

/// Deeper plans keep the literals of their aggregates.
const DEPTH_MAX: usize = 100;

/// A plan with placeholders, and the new names of its columns. `None` where a node cannot take new names or inputs.
fn lifted(
    plan: &LogicalPlan,
    values: &mut Vec<ScalarValue>,
    (lists, session): (Lists, &SessionState),
    depth: usize,
) -> Result<Option<(LogicalPlan, Names)>> {
    if depth > DEPTH_MAX {
        return Ok(None);
    }
    let mut names = Names::new();
    let mut inputs = vec![];
    let known = values.len();
    for input in plan.inputs() {
        let Some((input, of_input)) = lifted(input, values, (lists, session), depth + 1)? else { return Ok(None) };
        inputs.push(input);
        names.extend(of_input);
    }
    let aggregated = match plan {
        LogicalPlan::Aggregate(aggregate) if names.is_empty() => {
            Some(of_aggregate(aggregate, values, (lists, session))?)
        }
        _ => None,
    };
    if values.len() == known {
        return Ok(Some((plan.clone(), names)));
    }
    if let Some((exprs, names)) = aggregated {
        return Ok(Some((plan.with_new_exprs(exprs, inputs)?, names)));
    }
    if names.is_empty() {
        // Others may not be made of their expressions and inputs alone, as DISTINCT ON.
        let is_known = matches!(
            plan,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Union(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Distinct(Distinct::All(_))
        );
        if !is_known {
            return Ok(None);
        }
        return Ok(Some((plan.with_new_exprs(plan.expressions(), inputs)?, names)));
    }
    let makes_columns = match plan {
        LogicalPlan::Projection(_) => true,
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => false,
        _ => return Ok(None),
    };
    let mut own = if makes_columns { Names::new() } else { names.clone() };
    let mut exprs = vec![];
    for expr in plan.expressions() {
        let before = expr.schema_name().to_string();
        let expr = renamed(expr, &names)?;
        let after = expr.schema_name().to_string();
        if makes_columns && before != after {
            own.insert(before, after);
        }
        exprs.push(expr);
    }
    Ok(Some((plan.with_new_exprs(exprs, inputs)?, own)))
}

/// The expressions of an aggregation with placeholders, and their new names.
fn of_aggregate(
    aggregate: &Aggregate,
    values: &mut Vec<ScalarValue>,
    (lists, session): (Lists, &SessionState),
) -> Result<(Vec<Expr>, Names)> {
    let mut names = Names::new();
    let mut exprs = aggregate.group_expr.clone();
    let mut lifting = Lifting::new(Arc::clone(aggregate.input.schema()), values, lists, session);
    for expr in &aggregate.aggr_expr {
        // The name that DataFusion gives `count(*)` has the literals of its filter; others are a user's.
        let is_named = matches!(expr, Expr::Alias(alias) if !alias.name.starts_with("count(*)"));
        let mut lifted = if is_named { expr.clone() } else { expr.clone().unalias() };
        if !lifting.replace(&mut lifted)? {
            // Comparisons may have been turned round.
            exprs.push(expr.clone());
        } else if is_named {
            exprs.push(lifted);
        } else {
            let name = lifted.schema_name().to_string();
            names.insert(expr.schema_name().to_string(), name.clone());
            // Of a filter, the name has another text once its placeholders are functions.
            let is_filtered = matches!(&lifted, Expr::AggregateFunction(call) if call.params.filter.is_some());
            exprs.push(if is_filtered { lifted.alias(name) } else { lifted });
        }
    }
    Ok((exprs, names))
}

/// The expression with the new names of columns.
fn renamed(expr: Expr, names: &Names) -> Result<Expr> {
    let of = |part: Expr| match &part {
        Expr::Column(Column { relation: None, name, .. }) => match names.get(name) {
            Some(name) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name)))),
            None => Ok(Transformed::no(part)),
        },
        _ => Ok(Transformed::no(part)),
    };
    // Names within a named expression may have literals, and nobody reads them.
    let expr = match expr {
        Expr::Alias(alias) => {
            let inner = alias.expr.unalias_nested().data;
            Expr::Alias(Alias { expr: Box::new(inner), ..alias })
        }
        expr => expr,
    };
    expr.transform_up(of).data()
}
