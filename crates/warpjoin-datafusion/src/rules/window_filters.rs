//! Moves the filters of windowed aggregates into their arguments, because physical windows do not expose filters.
//!
//! This logical rule rewrites `sum(x) FILTER (WHERE f) OVER w` to `sum(CASE WHEN f THEN x END) OVER w`, which is the
//! same for aggregates that ignore nulls. With several arguments it changes the first one. An argument that fails only
//! for rows outside the filter then does not fail. Must not know devices.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Alias, Case, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{Expr, LogicalPlan, Window, WindowFunctionDefinition};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use warpjoin::plan::Way;

use crate::config::WarpjoinOptions;
use crate::matcher::function_of;

/// Rewrites filters of windowed aggregates.
#[derive(Debug, Default)]
pub(crate) struct WindowFilters;

impl WindowFilters {
    /// The rule's name.
    pub(crate) const NAME: &str = "warpjoin_window_filters";
}

impl OptimizerRule for WindowFilters {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let options = config.options();
        let is_enabled = options.extensions.get::<WarpjoinOptions>().is_some_and(|options| options.enabled);
        let LogicalPlan::Window(window) = plan else { return Ok(Transformed::no(plan)) };
        if !is_enabled || !window.window_expr.iter().any(|expr| filtered(expr).is_some()) {
            return Ok(Transformed::no(LogicalPlan::Window(window)));
        }
        let exprs = window.window_expr.into_iter().map(without_filter).collect();
        Ok(Transformed::yes(LogicalPlan::Window(Window { window_expr: exprs, ..window })))
    }
}

/// The window function of `expr`, if its filter can move into its argument.
fn filtered(expr: &Expr) -> Option<&WindowFunction> {
    let function = match expr {
        Expr::WindowFunction(function) => function,
        Expr::Alias(Alias { expr, .. }) => return filtered(expr),
        _ => return None,
    };
    let WindowFunctionDefinition::AggregateUDF(aggregate) = &function.fun else { return None };
    // A first or last value may be null, and the first argument of a percentile may be a constant.
    let ignores_nulls =
        function_of(aggregate).is_some_and(|function| matches!(function.spec().way, Way::Accumulated | Way::Moment));
    let WindowFunctionParams { args, filter, .. } = &function.params;
    let is_movable = filter.is_some() && !args.is_empty() && !args.iter().any(Expr::is_volatile);
    (ignores_nulls && is_movable).then_some(function)
}

fn without_filter(expr: Expr) -> Expr {
    if filtered(&expr).is_none() {
        return expr;
    }
    match expr {
        Expr::Alias(alias) => Expr::Alias(Alias { expr: Box::new(filter_in_argument(*alias.expr)), ..alias }),
        expr => {
            let name = expr.schema_name().to_string();
            filter_in_argument(expr).alias(name)
        }
    }
}

fn filter_in_argument(expr: Expr) -> Expr {
    let Expr::WindowFunction(function) = expr else { return expr };
    let WindowFunction { fun, params } = *function;
    let WindowFunctionParams { args, filter, .. } = params;
    let mut args = args;
    // Of pairs none counts whose first value is null.
    if let (Some(filter), Some(first)) = (filter, args.first_mut()) {
        *first = Expr::Case(Case::new(None, vec![(filter, Box::new(first.clone()))], None));
    }
    let params = WindowFunctionParams { args, filter: None, ..params };
    Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
}
