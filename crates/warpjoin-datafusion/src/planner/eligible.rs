//! Decides which plans are kept: those whose result depends only on the query, resident tables and Parquet files.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableSource, Volatility, WindowFunctionDefinition};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use futures::future::join_all;

use crate::exec::WarpjoinExec;
use crate::kept::{KeptPlans, Listing, TableId};
use crate::table::provider::DeviceTableProvider;

use super::files::reads_files;

/// The tables of a plan.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    /// Ids of the tables, in the order of the scans.
    pub(super) ids: Vec<TableId>,
    /// Tables of files, each once.
    of_files: Vec<Arc<dyn TableProvider>>,
}

impl Tables {
    /// Listings of their current files. `None` if a table can't list them, or only by a request to a remote store.
    pub(super) async fn listings(&self, session: &SessionState) -> Option<Vec<Listing>> {
        let listings = join_all(self.of_files.iter().map(|table| Listing::of(table, session))).await;
        listings.into_iter().collect()
    }

    /// Adds the table of a scan; `None` if it is neither resident nor a table of files.
    fn add(&mut self, scan: &TableScan, kept: &KeptPlans) -> Option<()> {
        let provider = source_as_provider(&scan.source).ok()?;
        if let Some(table) = provider.downcast_ref::<DeviceTableProvider>() {
            self.ids.push(table.id());
            return Some(());
        }
        let files = provider.downcast_ref::<ListingTable>()?;
        let _parquet = files.options().format.downcast_ref::<ParquetFormat>()?;
        let id = kept.name(&provider);
        if !self.ids.contains(&id) {
            self.of_files.push(provider);
        }
        self.ids.push(id);
        Some(())
    }
}

/// The tables of a plan; `None` if the plan is not kept. A plan is kept if it reads at least one table, all tables are
/// resident or of Parquet files, and all functions are immutable.
pub(super) fn tables(plan: &LogicalPlan, kept: &KeptPlans) -> Option<Tables> {
    let (mut tables, mut is_kept) = (Tables { ids: vec![], of_files: vec![] }, true);
    let visited = plan.apply_with_subqueries(|node| {
        is_kept = match node {
            LogicalPlan::TableScan(scan) => tables.add(scan, kept).is_some() && scan.statistics_requests.is_empty(),
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
    (visited.is_ok() && is_kept && !tables.ids.is_empty()).then_some(tables)
}

fn going_on_if(is_wanted: bool) -> TreeNodeRecursion {
    if is_wanted { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop }
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

/// The plan without its tables, for comparisons: it keeps no table alive.
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

/// Whether a node of a physical plan has state that a second run would see.
pub(super) fn runs_once(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(part) = node.downcast_ref::<WarpjoinExec>() {
        // A template's nodes are reset before they run, so its scans have filters that nobody changes any more.
        return part.template().exists(|node| Ok(!reads_files(node) && runs_once(node))).unwrap_or(true);
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
    visited.is_err() || has
}
