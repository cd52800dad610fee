//! How many different values there can be of what a plan puts out, before it runs: by the bounds and dictionaries of the
//! tables that it scans.

use arrow::datatypes::DataType;

use super::{AggregateFunction, Plan, PlanKind};
use crate::codegen::is_string;
use crate::column::Domain;
use crate::expr::{Expr, ExprKind};

impl Plan {
    /// Most different values of a column (null apart), as far as tables know; `None`: nobody does, or they are floats.
    pub fn values_max(&self, column: usize) -> Option<u64> {
        match &self.kind {
            PlanKind::Scan { table, projection } => {
                let column_type = table.column_types().get(*projection.get(column)?)?;
                match (&column_type.dictionary, column_type.domain) {
                    (Some(dictionary), _) => Some(dictionary.len() as u64),
                    (None, Domain::Int { min, max }) => u64::try_from(max.checked_sub(min)?).ok()?.checked_add(1),
                    (None, Domain::Float32 | Domain::Float64 | Domain::Bytes) => None,
                }
            }
            PlanKind::Filter { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::Marked { input, .. } => input.values_max(column),
            PlanKind::Shared(plan) => plan.values_max(column),
            PlanKind::Project { input, exprs } => input.values_max_of(exprs.get(column)?),
            PlanKind::Window { input, .. } | PlanKind::Numbered { input } => {
                (column < input.schema.fields().len()).then(|| input.values_max(column))?
            }
            PlanKind::Join(join) => {
                let (column, build) = (*join.output.get(column)?, join.build.schema.fields().len());
                let probe = join.probe.schema.fields().len();
                match column {
                    column if column < build => join.build.values_max(column),
                    column if column < build + probe => join.probe.values_max(column - build),
                    _ => None,
                }
            }
            PlanKind::Aggregate { input, group_by, aggregates }
            | PlanKind::GroupingSets { input, group_by, aggregates, .. } => {
                if let Some(key) = group_by.get(column) {
                    return input.values_max_of(key);
                }
                let behind = schema_width(self).checked_sub(aggregates.len())?;
                let call = aggregates.get(column.checked_sub(behind)?)?;
                let keeps = matches!(call.function, AggregateFunction::Min | AggregateFunction::Max);
                call.argument.as_ref().filter(|_| keeps).and_then(|argument| input.values_max_of(argument))
            }
            PlanKind::Input { .. } | PlanKind::Union { .. } | PlanKind::RowNumbers { .. } | PlanKind::Fetch(_) => None,
        }
    }

    /// The same of an expression over the columns.
    pub fn values_max_of(&self, expr: &Expr) -> Option<u64> {
        match &expr.kind {
            ExprKind::Column(column) => self.values_max(*column),
            _ if expr.data_type == DataType::Boolean => Some(2),
            // All numbers between two count, and only columns have bounds here.
            _ if !is_string(&expr.data_type) => None,
            ExprKind::Literal(_) => Some(1),
            ExprKind::Tabulated { operands, .. } => self.combinations_max(operands),
            ExprKind::Case { branches, otherwise } => {
                let results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
                results
                    .map(|result| self.values_max_of(result))
                    .try_fold(0, |sum: u64, values| sum.checked_add(values?))
            }
            _ => None,
        }
    }

    /// Most combinations of the values, or nulls, of several expressions.
    pub fn combinations_max(&self, exprs: &[Expr]) -> Option<u64> {
        let places = |expr: &Expr| self.values_max_of(expr)?.checked_add(expr.nullable.into());
        exprs.iter().map(places).try_fold(1, |product: u64, places| product.checked_mul(places?))
    }
}

fn schema_width(plan: &Plan) -> usize {
    plan.schema.fields().len()
}
