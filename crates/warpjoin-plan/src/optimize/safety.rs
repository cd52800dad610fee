//! Which expressions may be evaluated earlier, later, or on fewer rows than the plan says.
//!
//! An error of a value is an error of the query if the row needs the value. So what may fail stays where it is: a
//! reordered plan reports the same errors as the one that was given.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{ArithmeticOp, Expr, ExprKind};

use crate::plan::{Plan, PlanKind};

/// Whether evaluating `expr` never reports an error, whatever its columns hold.
pub(super) fn never_fails(expr: &Expr) -> bool {
    let is_safe = match &expr.kind {
        ExprKind::Column(_)
        | ExprKind::Literal(_)
        | ExprKind::Deferred(_)
        | ExprKind::And(..)
        | ExprKind::Or(..)
        | ExprKind::Not(_)
        | ExprKind::IsNull(_)
        | ExprKind::Case { .. }
        | ExprKind::TryCast(_)
        | ExprKind::InList { .. }
        | ExprKind::Tabulated { .. } => true,
        // Other scales are brought to one, which may overflow.
        ExprKind::Compare(_, left, right) => left.data_type == right.data_type || !left.data_type.is_decimal(),
        ExprKind::Arithmetic(op, ..) => {
            expr.data_type.is_floating()
                || expr.data_type.is_integer() && !matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo)
        }
        ExprKind::Negative(_) => expr.data_type.is_floating() || expr.data_type.is_integer(),
        ExprKind::Cast(operand) => is_widening(&operand.data_type, &expr.data_type),
        ExprKind::Function(function, arguments) => {
            arguments.first().is_some_and(|first| !(function.spec().may_fail)(&first.data_type))
        }
        ExprKind::Average(..) | ExprKind::Moment { .. } | ExprKind::OrderWord(_) | ExprKind::RowNumber { .. } => false,
    };
    is_safe && expr.children().into_iter().all(never_fails)
}

fn is_widening(from: &DataType, to: &DataType) -> bool {
    let bits = |data_type: &DataType| data_type.primitive_width().unwrap_or(0);
    let is_signed = |data_type: &DataType| data_type.is_signed_integer();
    from == to
        || from.is_integer() && to.is_integer() && is_signed(from) == is_signed(to) && bits(from) <= bits(to)
        || from.is_integer() && to.is_floating()
}

/// Whether a column of `plan` is there without anything that may fail: loaded, or computed by what never does.
pub(super) fn is_plain(plan: &Plan, column: usize) -> bool {
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } => true,
        PlanKind::Filter { input, .. }
        | PlanKind::Sort { input, .. }
        | PlanKind::Limit { input, .. }
        | PlanKind::Marked { input, .. } => is_plain(input, column),
        PlanKind::Union { inputs } => inputs.iter().all(|input| is_plain(input, column)),
        PlanKind::Window { input, .. } => column < input.schema.fields().len() && is_plain(input, column),
        PlanKind::Numbered { input } | PlanKind::RowNumbers { input } | PlanKind::HasRows { input, .. } => {
            column >= input.schema.fields().len() || is_plain(input, column)
        }
        PlanKind::Fetch(fetch) => column >= fetch.input.schema.fields().len() || is_plain(&fetch.input, column),
        PlanKind::Shared(plan) => is_plain(plan, column),
        PlanKind::GroupingSets { .. } => false,
        PlanKind::Project { input, exprs } => exprs.get(column).is_some_and(|expr| is_plain_expr(input, expr)),
        PlanKind::Join(join) => {
            let build_width = join.build.schema.fields().len();
            let Some(&position) = join.output.get(column) else { return false };
            match position.checked_sub(build_width) {
                None => is_plain(&join.build, position),
                // The mark, too, is there.
                Some(position) => position >= join.probe.schema.fields().len() || is_plain(&join.probe, position),
            }
        }
        // Keys were packed; means and statistics are computed when they are read.
        PlanKind::Aggregate { group_by, aggregates, .. } => match column.checked_sub(group_by.len()) {
            None => true,
            Some(call) => aggregates.get(call).is_some_and(|call| !call.function.spec().is_computed),
        },
    }
}

/// Whether an expression over `input` is: see [`is_plain`].
pub(super) fn is_plain_expr(input: &Plan, expr: &Expr) -> bool {
    let mut is_safe = never_fails(expr);
    expr.visit_columns(&mut |column| is_safe = is_safe && is_plain(input, column));
    is_safe
}
