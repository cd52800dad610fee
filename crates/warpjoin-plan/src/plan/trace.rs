//! Traces a column of a plan to the table that it comes from.

use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_columns::expr::ExprKind;

use super::{Plan, PlanKind};

impl Plan {
    /// Whether `column` comes from a sorted column of a table.
    pub(crate) fn is_in_order_of(&self, column: usize, inputs: &[Arc<Table>]) -> bool {
        self.traces(inputs, column, false, &|table, column| table.statistics()[column].sorted)
    }

    /// Whether a column is unique in its table, or the only key of a group-by.
    #[doc(hidden)]
    pub fn is_distinct(&self, column: usize, inputs: &[Arc<Table>]) -> bool {
        self.traces(inputs, column, true, &|table, column| table.statistics()[column].unique == Some(true))
    }

    /// Whether a column comes from a table's column for which `holds` is true; `of_group`: the answer for a single
    /// group key.
    pub(crate) fn traces(
        &self,
        inputs: &[Arc<Table>],
        column: usize,
        of_group: bool,
        holds: &dyn Fn(&Table, usize) -> bool,
    ) -> bool {
        match &self.kind {
            PlanKind::Scan { table, projection } => holds(table, projection[column]),
            PlanKind::Input { index } => inputs.get(*index).is_some_and(|table| holds(table, column)),
            PlanKind::Filter { input, .. }
            | PlanKind::Marked { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. } => input.traces(inputs, column, of_group, holds),
            PlanKind::Project { input, exprs } => match exprs[column].kind {
                ExprKind::Column(column) => input.traces(inputs, column, of_group, holds),
                _ => false,
            },
            // Right as long as no row of that side matches twice, which a guess may suppose.
            PlanKind::Join(join) => {
                let build_width = join.build.schema.fields().len();
                match join.output[column].checked_sub(build_width) {
                    None => join.build.traces(inputs, join.output[column], of_group, holds),
                    // A mark.
                    Some(probe_column) if probe_column >= join.probe.schema.fields().len() => false,
                    Some(probe_column) => join.probe.traces(inputs, probe_column, of_group, holds),
                }
            }
            PlanKind::Aggregate { group_by, .. } => of_group && group_by.len() == 1 && column == 0,
            PlanKind::Shared(plan) => plan.traces(inputs, column, of_group, holds),
            PlanKind::Numbered { input }
            | PlanKind::RowNumbers { input }
            | PlanKind::Window { input, .. }
            | PlanKind::HasRows { input, .. }
                if column < input.schema.fields().len() =>
            {
                input.traces(inputs, column, of_group, holds)
            }
            // As the table's own column, where a row is as seldom read twice.
            PlanKind::Fetch(fetch) => match column.checked_sub(fetch.input.schema.fields().len()) {
                None => fetch.input.traces(inputs, column, of_group, holds),
                Some(fetched) => {
                    holds(&fetch.table, fetch.columns[fetched])
                        && fetch.input.traces(inputs, fetch.row, of_group, holds)
                }
            },
            // The number itself.
            PlanKind::Numbered { .. } | PlanKind::RowNumbers { .. } => true,
            PlanKind::GroupingSets { .. }
            | PlanKind::Union { .. }
            | PlanKind::Window { .. }
            | PlanKind::HasRows { .. } => false,
        }
    }
}
