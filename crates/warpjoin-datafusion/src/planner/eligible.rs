//! Which plans are kept: those whose answer depends on the query, on resident tables and on nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableSource, Volatility, WindowFunctionDefinition};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::exec::WarpjoinExec;
use crate::kept::TableId;
use crate::table::provider::DeviceTableProvider;

/// The tables of a plan in the order of its scans; `None` if the plan is not kept. Kept are queries over at least one resident
/// table and no other ones, whose functions are immutable.
pub(super) fn tables(plan: &LogicalPlan) -> Option<Vec<TableId>> {
    let (mut tables, mut is_kept) = (vec![], true);
    let visited = plan.apply_with_subqueries(|node| {
        is_kept = match node {
            LogicalPlan::TableScan(scan) => {
                let table = resident(scan);
                tables.extend(table);
                table.is_some() && scan.statistics_requests.is_empty()
            }
            node => is_plain(node),
        };
        if is_kept {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    is_kept &= is_fixed(part);
                    Ok(going_on_if(is_kept))
                })
            })?;
        }
        Ok(going_on_if(is_kept))
    });
    (visited.is_ok() && is_kept && !tables.is_empty()).then_some(tables)
}

fn going_on_if(is_wanted: bool) -> TreeNodeRecursion {
    if is_wanted { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop }
}

fn resident(scan: &TableScan) -> Option<TableId> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<DeviceTableProvider>().map(DeviceTableProvider::id)
}

/// Whether a node only computes rows from the rows of its inputs.
fn is_plain(node: &LogicalPlan) -> bool {
    matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
    )
}

/// Whether an expression has the same value in every query.
fn is_fixed(expr: &Expr) -> bool {
    let is_open = matches!(expr, Expr::ScalarVariable(..) | Expr::Placeholder(_) | Expr::HigherOrderFunction(_));
    !is_open && called(expr).is_none_or(|called| called.volatility == Volatility::Immutable)
}

/// A function that an expression calls.
struct Called<'a> {
    name: &'a str,
    aliases: &'a [String],
    volatility: Volatility,
}

fn called(expr: &Expr) -> Option<Called<'_>> {
    Some(match expr {
        Expr::ScalarFunction(call) => {
            let function = &call.func;
            Called { name: function.name(), aliases: function.aliases(), volatility: function.signature().volatility }
        }
        Expr::AggregateFunction(call) => {
            let function = &call.func;
            Called { name: function.name(), aliases: function.aliases(), volatility: function.signature().volatility }
        }
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => Called {
                name: function.name(),
                aliases: function.aliases(),
                volatility: function.signature().volatility,
            },
            WindowFunctionDefinition::WindowUDF(function) => Called {
                name: function.name(),
                aliases: function.aliases(),
                volatility: function.signature().volatility,
            },
        },
        _ => return None,
    })
}

/// The names of the functions of a plan, with their aliases.
pub(super) fn function_names(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Some(called) = called(part) {
                    names.insert(called.name.to_string());
                    names.extend(called.aliases.iter().cloned());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names.into_iter().collect())
}

/// A table that only has a schema.
struct NoTable(SchemaRef);

impl TableSource for NoTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }
}

/// The plan without its tables, to compare with others: whoever holds it holds no table.
pub(super) fn without_tables(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let without = plan.clone().transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            scan.source = Arc::new(NoTable(scan.source.schema()));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        node => Ok(Transformed::no(node)),
    });
    without.data()
}

/// Whether a node of a physical plan has state that a second run would find.
pub(super) fn runs_once(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(part) = node.downcast_ref::<WarpjoinExec>() {
        return part.template().exists(|node| Ok(runs_once(node))).unwrap_or(true);
    }
    // These make their own filter anew. Whoever else has taken it would keep the old one.
    let makes_filters = node.is::<SortExec>() || node.is::<HashJoinExec>() || node.is::<AggregateExec>();
    matches!(node.name(), "RecursiveQueryExec" | "WorkTableExec") || !makes_filters && has_dynamic_filter(node)
}

fn has_dynamic_filter(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut has = false;
    let visited = node.apply_expressions(&mut |expr: &Arc<dyn PhysicalExpr>| {
        expr.apply(|part| {
            has |= part.is::<DynamicFilterPhysicalExpr>();
            Ok(going_on_if(!has))
        })
    });
    if has {
        eprintln!("DYN {} {:?}", node.name(), node);
    }
    visited.is_err() || has
}
