//! Expressions that devices don't know, of a few values: DataFusion evaluates all combinations before a kernel runs.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use warpjoin::expr::{COMBINATIONS_MAX, Expr, ExprKind};
use warpjoin::plan::Plan;

use super::expr::{any, is_constant};
use super::host::HostExpr;
use super::{Translation, is_string};

type PhysicalExprRef = Arc<dyn PhysicalExpr>;

/// Most trials of an expression.
const TRIALS_MAX: u32 = 16;

impl Translation<'_> {
    /// `expr` as a function of its columns, or of strings that are computed of them; `None` where tables don't tell that
    /// these have few combinations of values.
    pub(super) fn tabulated(&self, expr: &PhysicalExprRef) -> Option<Expr> {
        let plan = self.scope.plan?;
        if any(expr, &|node| node.is::<ScalarSubqueryExpr>()) {
            return None;
        }
        self.over(expr, plan, &|_| None).or_else(|| {
            let trials = self.trials.get();
            self.trials.set(trials + 1);
            if trials < TRIALS_MAX { self.over(expr, plan, &|string| self.translate(string).ok()) } else { None }
        })
    }

    /// The same of columns, and of the computed strings that `of_string` gives.
    fn over(
        &self,
        expr: &PhysicalExprRef,
        plan: &Plan,
        of_string: &dyn Fn(&PhysicalExprRef) -> Option<Expr>,
    ) -> Option<Expr> {
        let mut operands = vec![];
        let moved = self.over_operands(expr, &mut operands, of_string)?;
        if plan.combinations_max(&operands)? > COMBINATIONS_MAX {
            return None;
        }
        let (data_type, nullable) = self.type_of(expr).ok()?;
        let types = operands.iter().map(|operand| operand.data_type.clone()).collect();
        let function = Arc::new(HostExpr::new(moved, types, data_type.clone()));
        Some(Expr { kind: ExprKind::Tabulated { operands, function }, data_type, nullable })
    }

    /// `expr` with what it is a function of replaced by columns at the positions of `operands`.
    fn over_operands(
        &self,
        expr: &PhysicalExprRef,
        operands: &mut Vec<Expr>,
        of_string: &dyn Fn(&PhysicalExprRef) -> Option<Expr>,
    ) -> Option<PhysicalExprRef> {
        let children = expr.children().into_iter().map(|child| {
            if is_constant(child) {
                return Some(Arc::clone(child));
            }
            if child.is::<Column>() {
                return self.translate(child).ok().map(|column| position(column, operands));
            }
            let is_of_strings = child.data_type(self.scope.schema).is_ok_and(|data_type| is_string(&data_type));
            let string = if is_of_strings { of_string(child) } else { None };
            match string {
                Some(string) => Some(position(string, operands)),
                None => self.over_operands(child, operands, of_string),
            }
        });
        let children = children.collect::<Option<Vec<_>>>()?;
        Arc::clone(expr).with_new_children(children).ok()
    }
}

/// The column of an operand, which is added if it is not there.
fn position(operand: Expr, operands: &mut Vec<Expr>) -> PhysicalExprRef {
    let column = |expr: &Expr| if let ExprKind::Column(column) = expr.kind { Some(column) } else { None };
    let is_it = |known: &Expr| column(known).is_some() && column(known) == column(&operand);
    let known = operands.iter().position(is_it);
    let position = known.unwrap_or(operands.len());
    if known.is_none() {
        operands.push(operand);
    }
    Arc::new(Column::new("value", position))
}
