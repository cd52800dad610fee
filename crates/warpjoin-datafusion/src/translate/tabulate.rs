//! Expressions that DataFusion evaluates before a kernel runs: of a dictionary's strings, and those of a few values that devices
//! don't know, for all combinations.

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

/// Most trials of an expression, and how deep one may be that is tried: each translates parts once more.
const TRIALS_MAX: u32 = 16;
const TRIED_DEPTH_MAX: usize = 64;

/// Name of the column that stands for a computed operand.
const COMPUTED: &str = "value";

/// What a table of results is a function of.
#[derive(Default)]
pub(super) struct Operands {
    exprs: Vec<Expr>,
    fields: Vec<FieldRef>,
}

impl Translation<'_> {
    /// `expr` as a function of its columns, or of strings that are computed of them; `None` where tables don't tell that
    /// these have few combinations of values, or one that does not occur might be an error.
    pub(super) fn tabulated(&self, expr: &PhysicalExprRef) -> Option<Expr> {
        let plan = self.scope.plan?;
        let is_few = |exprs: &[Expr]| plan.combinations_max(exprs).is_some_and(|most| most <= COMBINATIONS_MAX);
        if !never_fails(expr, self.scope.schema) {
            return None;
        }
        let mut columns = BTreeSet::new();
        column_indices(expr, &mut columns);
        let columns: Vec<Expr> = columns.into_iter().map(|column| self.column(column)).collect::<Option<_>>()?;
        let mut operands = Operands::default();
        let moved = if is_few(&columns) {
            self.over_operands(expr, &mut operands, &|_| None)
        } else {
            let trials = self.trials.get();
            if trials >= TRIALS_MAX || depth(expr) > TRIED_DEPTH_MAX {
                return None;
            }
            self.trials.set(trials + 1);
            let moved = self.over_operands(expr, &mut operands, &|string| self.translate(string).ok());
            moved.filter(|_| is_few(&operands.exprs))
        };
        self.by_host(expr, moved?, operands).ok()
    }

    /// `moved`, which is `expr` over columns in the places of the operands, evaluated by the host.
    pub(super) fn by_host(
        &self,
        expr: &PhysicalExprRef,
        moved: PhysicalExprRef,
        operands: Operands,
    ) -> Result<Expr, Reason> {
        let (data_type, nullable) = self.type_of(expr)?;
        let Operands { exprs: operands, fields } = operands;
        let function = Arc::new(HostExpr::new(moved, fields, data_type.clone()));
        Ok(Expr { kind: ExprKind::Tabulated { operands, function }, data_type, nullable })
    }

    /// `expr` with its columns, and the computed strings that `of_string` gives, replaced by columns in the places of the
    /// operands that they become.
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
    /// The column that stands for an operand, which is added if it is not there.
    pub(super) fn column_of(&mut self, operand: Expr, field: FieldRef) -> PhysicalExprRef {
        let column = |expr: &Expr| if let ExprKind::Column(column) = expr.kind { Some(column) } else { None };
        let is_it = |known: &Expr| column(known).is_some() && column(known) == column(&operand);
        let known = self.exprs.iter().position(is_it);
        let position = known.unwrap_or(self.exprs.len());
        let name = if column(&operand).is_some() { field.name().as_str() } else { COMPUTED };
        let stands_for = Arc::new(Column::new(name, position));
        if known.is_none() {
            self.exprs.push(operand);
            self.fields.push(field);
        }
        stands_for
    }
}
