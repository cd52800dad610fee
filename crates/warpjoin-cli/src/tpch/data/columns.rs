//! The columns that the chosen queries read.
//!
//! Must not know how columns are generated or loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;

use super::tables::TpchTable;
use crate::error::Result;

/// The tables that `queries` read, with their columns (positions, ascending, at least one). Taken from
/// the scans of the optimized plans over empty tables.
///
/// # Errors
/// When a query cannot be planned.
pub async fn columns_read(queries: &[String]) -> Result<BTreeMap<TpchTable, Vec<usize>>> {
    let context = SessionContext::new();
    for table in TpchTable::ALL {
        context.register_table(table.name(), Arc::new(MemTable::try_new(table.schema(), vec![vec![]])?))?;
    }
    let mut read: BTreeMap<TpchTable, BTreeSet<usize>> = BTreeMap::new();
    for query in queries {
        let state = context.state();
        let plan = state.optimize(&state.create_logical_plan(query).await?)?;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Some(table) = TpchTable::ALL.into_iter().find(|table| table.name() == scan.table_name.table())
            {
                let every = || (0..table.schema().fields().len()).collect();
                let columns = read.entry(table).or_default();
                columns.extend(scan.projection.clone().unwrap_or_else(every));
                for filter in &scan.filters {
                    columns.extend(filter.column_refs().iter().filter_map(|c| table.schema().index_of(c.name()).ok()));
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    // A query that only counts rows reads no column, but a table needs one.
    let at_least_one =
        |columns: BTreeSet<usize>| if columns.is_empty() { vec![0] } else { columns.into_iter().collect() };
    Ok(read.into_iter().map(|(table, columns)| (table, at_least_one(columns))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpch::parameters::Parameters;
    use crate::tpch::queries::{QUERY_COUNT, query_text};

    fn text(number: u32) -> String {
        query_text(number, &Parameters::validation(1.0)).unwrap()
    }

    #[tokio::test]
    async fn query_6_reads_four_columns() {
        let read = columns_read(&[text(6)]).await.unwrap();
        let names = |table: TpchTable| -> Vec<String> {
            read[&table].iter().map(|&i| table.schema().field(i).name().clone()).collect()
        };
        assert_eq!(read.len(), 1);
        assert_eq!(names(TpchTable::LineItem), ["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]);
    }

    #[tokio::test]
    async fn every_query_can_be_planned() {
        let all: Vec<String> = (1..=QUERY_COUNT).map(text).collect();
        let read = columns_read(&all).await.unwrap();
        assert_eq!(read.len(), 8);
        assert!(!read[&TpchTable::LineItem].contains(&15), "no query reads l_comment");
    }

    #[tokio::test]
    async fn a_count_keeps_one_column() {
        let read = columns_read(&["select count(*) from region".to_string()]).await.unwrap();
        assert_eq!(read.get(&TpchTable::Region).map(Vec::len).unwrap_or(1), 1);
    }
}
