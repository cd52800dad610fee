//! Device plans in words, for EXPLAIN and messages.

use std::fmt;

use warpjoin_columns::expr::Expr;

use super::{
    AggregateCall, AggregateFunction, FilterForm, Mark, Plan, PlanKind, ReductionTest, RowsOf, Share, SortKey,
};
use crate::window::WindowCall;

impl Plan {
    /// One line: what this node does.
    pub fn describe(&self) -> String {
        let list = |exprs: &[Expr]| exprs.iter().map(Expr::to_string).collect::<Vec<_>>().join(", ");
        match &self.kind {
            PlanKind::Scan { table, projection } => {
                let schema = table.schema();
                let names: Vec<&str> = projection.iter().map(|&i| schema.field(i).name().as_str()).collect();
                format!("Scan: {} rows [{}]", table.rows(), names.join(", "))
            }
            PlanKind::Input { index } => format!("Upload: input {index}"),
            PlanKind::Filter { predicate, .. } => format!("Filter: {predicate}"),
            PlanKind::Project { exprs, .. } => format!("Project: {}", list(exprs)),
            PlanKind::Join(join) => {
                let on: Vec<String> = join.on.iter().map(|(b, p)| format!("{b} = {p}")).collect();
                let residual = join.residual.as_ref().map(|r| format!(", residual {r}")).unwrap_or_default();
                format!("HashJoin: {:?}, build = probe: [{}]{residual}", join.kind, on.join(", "))
            }
            PlanKind::Aggregate { group_by, aggregates, .. } => {
                let calls: Vec<String> = aggregates.iter().map(AggregateCall::to_string).collect();
                format!("GroupBy: [{}], [{}]", list(group_by), calls.join(", "))
            }
            PlanKind::Sort { keys, skip, fetch, .. } => {
                let keys: Vec<String> = keys.iter().map(SortKey::to_string).collect();
                let name = if fetch.is_some() { "TopK" } else { "Sort" };
                format!("{name}: [{}]{}", keys.join(", "), window(*skip, *fetch))
            }
            PlanKind::Limit { skip, fetch, .. } => format!("Limit:{}", window(*skip, *fetch).trim_start_matches(',')),
            PlanKind::GroupingSets { group_by, sets, aggregates, .. } => {
                let calls: Vec<String> = aggregates.iter().map(AggregateCall::to_string).collect();
                let sets: Vec<String> = sets.iter().map(|set| format!("{:?}", set.keys)).collect();
                format!("GroupBy: [{}] by sets {}, [{}]", list(group_by), sets.join(" "), calls.join(", "))
            }
            PlanKind::Window { partition_by, order_by, calls, .. } => {
                let calls: Vec<String> = calls.iter().map(WindowCall::to_string).collect();
                let keys: Vec<String> = order_by.iter().map(SortKey::to_string).collect();
                format!("Window: [{}] by [{}], order [{}]", calls.join(", "), list(partition_by), keys.join(", "))
            }
            PlanKind::Union { inputs } => format!("Union: {} inputs", inputs.len()),
            PlanKind::Numbered { .. } => "Numbered".to_string(),
            PlanKind::RowNumbers { .. } => "RowNumbers".to_string(),
            PlanKind::Fetch(fetch) => format!("Fetch: [{}] by row #{}", fetch.names().join(", "), fetch.row),
            PlanKind::HasRows { of: RowsOf::Plan(_), .. } => "HasRows: of the second input".to_string(),
            PlanKind::HasRows { of: RowsOf::Build, .. } => "HasRows: of the join's build side".to_string(),
            PlanKind::Shared(_) => "Shared".to_string(),
            PlanKind::Marked { mark: Mark::SharedBuild(number), .. } => format!("Table {number}"),
            PlanKind::Marked { mark: Mark::Reduced { table, keys, test }, .. } => {
                format!("RuntimeFilter: [{}] in table {table}, by {test}", list(keys))
            }
            PlanKind::Marked { mark: Mark::Compact, .. } => "Compact".to_string(),
            PlanKind::Marked { mark: Mark::Written, .. } => "Materialise".to_string(),
            PlanKind::Marked { mark: Mark::Shared(share), .. } => match share {
                Share::Within(number) => format!("Shared {number}"),
                Share::Left(_) => "Shared: kept for the plan above".to_string(),
                Share::Found(_) => "Shared: kept by a subquery".to_string(),
            },
        }
    }

    /// The name of its first column, to identify it for a reader.
    #[doc(hidden)]
    pub fn first_column(&self) -> String {
        match &self.kind {
            PlanKind::Scan { table, projection } => {
                projection.first().map_or("scan".into(), |&column| table.schema().field(column).name().clone())
            }
            PlanKind::Input { index } => format!("input{index}"),
            PlanKind::Join(join) => format!("join({})", join.probe.first_column()),
            PlanKind::Aggregate { input, .. } | PlanKind::GroupingSets { input, .. } => {
                format!("groups({})", input.first_column())
            }
            PlanKind::Union { .. } => "union".into(),
            PlanKind::Shared(plan) => plan.first_column(),
            PlanKind::Fetch(fetch) => fetch.input.first_column(),
            PlanKind::Filter { input, .. }
            | PlanKind::Project { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::Numbered { input }
            | PlanKind::RowNumbers { input }
            | PlanKind::HasRows { input, .. }
            | PlanKind::Window { input, .. }
            | PlanKind::Marked { input, .. } => input.first_column(),
        }
    }
}

impl fmt::Display for Plan {
    /// The tree, a node a line, two spaces a level.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn node(plan: &Plan, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            writeln!(f, "{:indent$}{}", "", plan.describe(), indent = depth * 2)?;
            plan.inputs().into_iter().try_for_each(|input| node(input, depth + 1, f))
        }
        node(self, 0, f)
    }
}

/// The range of rows, in words.
fn window(skip: u64, fetch: Option<u64>) -> String {
    let skip = if skip > 0 { format!(", skip={skip}") } else { String::new() };
    skip + &fetch.map(|fetch| format!(", fetch={fetch}")).unwrap_or_default()
}

impl fmt::Display for FilterForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Bitmap => "bitmap",
            Self::Bloom => "Bloom filter",
        })
    }
}

impl fmt::Display for ReductionTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.has_bounds { "bounds, " } else { "" }, self.form)
    }
}

impl fmt::Display for AggregateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}", self.function, if self.is_distinct { "DISTINCT " } else { "" })?;
        match &self.argument {
            Some(argument) => write!(f, "{argument}")?,
            None => f.write_str("*")?,
        }
        self.second.iter().try_for_each(|second| write!(f, ", {second}"))?;
        for (index, key) in self.order_by.iter().enumerate() {
            write!(f, "{} {key}", if index == 0 { " ORDER BY" } else { "," })?;
        }
        f.write_str(")")?;
        self.filter.iter().try_for_each(|filter| write!(f, " WHERE {filter}"))
    }
}

impl fmt::Display for AggregateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().name)
    }
}
