//! Expressions without device code, which DataFusion precomputes for every combination of input values.
//!
//! Owns when that is allowed. Must not know how values are looked up.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use warpjoin::Reason;
use warpjoin::expr::{COMBINATIONS_MAX, Expr, ExprKind};

use super::expr::{column_indices, depth, is_constant, unsupported};
use super::host::HostExpr;
use super::safety::never_fails;
use super::{Translation, is_string};

type PhysicalExprRef = Arc<dyn PhysicalExpr>;

/// Maximum attempts with computed strings as operands in one translation. Each attempt translates parts again.
const TRIALS_MAX: u32 = 16;
/// Maximum depth of an expression for such an attempt.
const TRIED_DEPTH_MAX: usize = 64;

/// Name of the column of a computed operand.
const COMPUTED: &str = "value";

/// The distinct operands of a precomputed expression, with their fields.
#[derive(Default)]
pub(super) struct Operands {
    exprs: Vec<Expr>,
    fields: Vec<FieldRef>,
}

impl Translation<'_> {
    /// `expr` as a precomputed function of its columns, or of strings computed from them.
    ///
    /// `None` if the operands are not known to have few combinations of values, or if a combination may fail.
    pub(super) fn precomputed(&self, expr: &PhysicalExprRef) -> Option<Expr> {
        let plan = self.scope.plan?;
        let is_few = |exprs: &[Expr]| plan.combinations_max(exprs).is_some_and(|most| most <= COMBINATIONS_MAX);
        if !never_fails(expr, self.scope.schema) {
            return None;
        }
        let mut columns = BTreeSet::new();
        column_indices(expr, &mut columns);
        let columns: Vec<Expr> = columns.into_iter().map(|column| self.column(column)).collect::<Option<_>>()?;
        let mut operands = Operands::default();
        let rewritten = if is_few(&columns) {
            self.over_operands(expr, &mut operands, &|_| None)
        } else {
            let trials = self.trials.get();
            if trials >= TRIALS_MAX || depth(expr) > TRIED_DEPTH_MAX {
                return None;
            }
            self.trials.set(trials + 1);
            let rewritten = self.over_operands(expr, &mut operands, &|string| self.translate(string).ok());
            rewritten.filter(|_| is_few(&operands.exprs))
        };
        self.by_host(expr, rewritten?, operands).ok()
    }

    /// The host-evaluated form of `expr`. `rewritten` is `expr` with columns in place of the operands.
    pub(super) fn by_host(
        &self,
        expr: &PhysicalExprRef,
        rewritten: PhysicalExprRef,
        operands: Operands,
    ) -> Result<Expr, Reason> {
        let (data_type, nullable) = self.type_of(expr)?;
        let Operands { exprs: operands, fields } = operands;
        let function = Arc::new(HostExpr::new(rewritten, fields, data_type.clone()));
        Ok(Expr { kind: ExprKind::Tabulated { operands, function }, data_type, nullable })
    }

    /// Collects the columns of `expr`, and the computed strings that `of_string` translates, in `operands`, and replaces them
    /// by columns at the operands' positions.
    #[recursive::recursive]
    pub(super) fn over_operands(
        &self,
        expr: &PhysicalExprRef,
        operands: &mut Operands,
        of_string: &dyn Fn(&PhysicalExprRef) -> Option<Expr>,
    ) -> Option<PhysicalExprRef> {
        let children = expr.children().into_iter().map(|child| {
            if is_constant(child) {
                return Some(Arc::clone(child));
            }
            if let Some(column) = child.downcast_ref::<Column>() {
                let operand = self.column(column.index())?;
                return Some(operands.column_of(operand, Arc::clone(&self.scope.schema.fields()[column.index()])));
            }
            let is_of_strings = child.data_type(self.scope.schema).is_ok_and(|data_type| is_string(&data_type));
            let string = if is_of_strings { of_string(child) } else { None };
            match string {
                Some(string) => Some(operands.column_of(string, self.field_of(child).ok()?)),
                None => self.over_operands(child, operands, of_string),
            }
        });
        let children = children.collect::<Option<Vec<_>>>()?;
        Arc::clone(expr).with_new_children(children).ok()
    }

    /// The field of a part of an expression.
    pub(super) fn field_of(&self, part: &PhysicalExprRef) -> Result<FieldRef, Reason> {
        part.return_field(self.scope.schema).map_err(|_| unsupported(part))
    }
}

impl Operands {
    /// The column of an operand. Adds the operand unless it is already there.
    pub(super) fn column_of(&mut self, operand: Expr, field: FieldRef) -> PhysicalExprRef {
        let column = |expr: &Expr| if let ExprKind::Column(column) = expr.kind { Some(column) } else { None };
        let is_same = |known: &Expr| column(known).is_some() && column(known) == column(&operand);
        let known = self.exprs.iter().position(is_same);
        let position = known.unwrap_or(self.exprs.len());
        let name = if column(&operand).is_some() { field.name().as_str() } else { COMPUTED };
        let replacement = Arc::new(Column::new(name, position));
        if known.is_none() {
            self.exprs.push(operand);
            self.fields.push(field);
        }
        replacement
    }
}
