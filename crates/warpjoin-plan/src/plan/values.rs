//! Upper bounds of the number of distinct values in a plan's output, from the bounds and dictionaries of the tables
//! that it scans.

use arrow::datatypes::DataType;
use warpjoin_columns::column::Domain;
use warpjoin_columns::column::holds_strings;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::{Plan, PlanKind};

/// Maximum columns and expressions visited for one answer: each layer of a plan may refer to the one below several
/// times.
const STEPS_MAX: u32 = 10_000;

impl Plan {
    /// Maximum combinations of the values, nulls included, of several expressions over the columns; `None`: unknown, or
    /// one of them is a float.
    pub fn combinations_max(&self, exprs: &[Expr]) -> Option<u64> {
        self.combinations(exprs, &mut { STEPS_MAX })
    }

    fn combinations(&self, exprs: &[Expr], steps: &mut u32) -> Option<u64> {
        exprs.iter().try_fold(1, |product: u64, expr| {
            let places = self.values_of(expr, steps)?.checked_add(expr.nullable.into())?;
            product.checked_mul(places)
        })
    }

    /// Maximum distinct values of a column, not counting null.
    fn values(&self, column: usize, steps: &mut u32) -> Option<u64> {
        *steps = steps.checked_sub(1)?;
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
            | PlanKind::Marked { input, .. } => input.values(column, steps),
            PlanKind::Shared(plan) => plan.values(column, steps),
            PlanKind::Project { input, exprs } => input.values_of(exprs.get(column)?, steps),
            PlanKind::Window { input, .. } | PlanKind::Numbered { input } | PlanKind::HasRows { input, .. } => {
                (column < input.schema.fields().len()).then(|| input.values(column, steps))?
            }
            PlanKind::Join(join) => {
                let (column, build) = (*join.output.get(column)?, join.build.schema.fields().len());
                let probe = join.probe.schema.fields().len();
                match column {
                    column if column < build => join.build.values(column, steps),
                    column if column < build + probe => join.probe.values(column - build, steps),
                    _ => None,
                }
            }
            PlanKind::Aggregate { input, group_by, aggregates }
            | PlanKind::GroupingSets { input, group_by, aggregates, .. } => {
                if let Some(key) = group_by.get(column) {
                    return input.values_of(key, steps);
                }
                let behind = self.schema.fields().len().checked_sub(aggregates.len())?;
                let call = aggregates.get(column.checked_sub(behind)?)?;
                let keeps = call.function.fold().is_some() && call.function.spec().is_of_values;
                call.argument.as_ref().filter(|_| keeps).and_then(|argument| input.values_of(argument, steps))
            }
            PlanKind::Input { .. } | PlanKind::Union { .. } | PlanKind::RowNumbers { .. } | PlanKind::Fetch(_) => None,
        }
    }

    /// The same of an expression over the columns.
    fn values_of(&self, expr: &Expr, steps: &mut u32) -> Option<u64> {
        *steps = steps.checked_sub(1)?;
        match &expr.kind {
            ExprKind::Column(column) => self.values(*column, steps),
            _ if expr.data_type == DataType::Boolean => Some(2),
            // All numbers between two count, and only columns have bounds here.
            _ if !holds_strings(&expr.data_type) => None,
            ExprKind::Literal(_) => Some(1),
            ExprKind::Tabulated { operands, .. } => self.combinations(operands, steps),
            ExprKind::Case { branches, otherwise } => {
                let mut results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
                results.try_fold(0, |sum: u64, result| sum.checked_add(self.values_of(result, steps)?))
            }
            _ => None,
        }
    }
}
