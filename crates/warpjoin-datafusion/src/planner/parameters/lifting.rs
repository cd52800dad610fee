//! Placeholders for the constants of comparisons, lists and patterns.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable, Like, Operator, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::placeholder;

/// Whether items of lists get placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lists {
    Lifted,
    Kept,
}

/// Finds the constants of one predicate.
pub(super) struct Lifting<'a> {
    simplifier: ExprSimplifier,
    schema: Arc<DFSchema>,
    values: &'a mut Vec<ScalarValue>,
    lists: Lists,
    replaced: usize,
}

impl<'a> Lifting<'a> {
    pub(super) fn new(
        schema: Arc<DFSchema>,
        values: &'a mut Vec<ScalarValue>,
        lists: Lists,
        session: &SessionState,
    ) -> Self {
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(&schema))
            .with_config_options(Arc::clone(session.config_options()))
            .build();
        Self { simplifier: ExprSimplifier::new(context), schema, values, lists, replaced: 0 }
    }

    /// Replaces the constants of an expression. Returns whether it has any.
    pub(super) fn replace(&mut self, expr: &mut Expr) -> Result<bool> {
        let before = self.replaced;
        let given = std::mem::take(expr);
        *expr = given.transform_down(|part| self.of(part)).data()?;
        Ok(self.replaced > before)
    }

    /// Replaces the constant of a comparison.
    fn of(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
                // DataFusion, too, puts literals on the right.
                let (left, op, right) = match (is_constant(&left), is_constant(&right), op.swap()) {
                    (true, false, Some(swapped)) => (right, swapped, left),
                    _ => (left, op, right),
                };
                let is_comparison = is_constant(&right) && !is_constant(&left);
                let placeholder = if is_comparison { self.placeholder(&left, op, &right)? } else { None };
                let right = placeholder.map_or(right, Box::new);
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let mut bound = |bound: Box<Expr>, op| -> Result<Box<Expr>> {
                    let placeholder = if is_constant(&bound) { self.placeholder(&expr, op, &bound)? } else { None };
                    Ok(placeholder.map_or(bound, Box::new))
                };
                let (low, high) = (bound(low, Operator::GtEq)?, bound(high, Operator::LtEq)?);
                Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
            }
            Expr::Like(mut like) => {
                let given = |like: &Like| match &*like.pattern {
                    Expr::Literal(value, None) if value.try_as_str().flatten().is_some_and(has_wildcards) => {
                        Some(value.clone())
                    }
                    _ => None,
                };
                let value = given(&like).and_then(|value| value.cast_to(&like.expr.get_type(&self.schema).ok()?).ok());
                if let Some(value) = value {
                    *like.pattern = self.placeholder_of(value);
                }
                Transformed::new(Expr::Like(like), true, TreeNodeRecursion::Jump)
            }
            Expr::InList(list) if self.lists == Lists::Kept => {
                Transformed::new(Expr::InList(list), false, TreeNodeRecursion::Jump)
            }
            Expr::InList(mut list) => {
                // DataFusion makes comparisons of a short list.
                if list.list.len() > COMPARED_MAX {
                    self.list(&mut list)?;
                } else {
                    for item in list.list.iter_mut().filter(|item| is_constant(item)) {
                        if let Some(placeholder) = self.placeholder(&list.expr, Operator::Eq, item)? {
                            *item = placeholder;
                        }
                    }
                }
                Transformed::new(Expr::InList(list), true, TreeNodeRecursion::Jump)
            }
            expr => Transformed::no(expr),
        })
    }

    /// The placeholder for a constant that is compared with `operand`; `None` if the value could change more than the
    /// constant: the operand's type, or whether the comparison is needed.
    fn placeholder(&mut self, operand: &Expr, op: Operator, constant: &Expr) -> Result<Option<Expr>> {
        let comparison = BinaryExpr::new(Box::new(operand.clone()), op, Box::new(constant.clone()));
        let coerced = self.simplifier.coerce(Expr::BinaryExpr(comparison), &self.schema);
        let Ok(simple) = coerced.and_then(|coerced| self.simplifier.simplify(coerced)) else { return Ok(None) };
        let Expr::BinaryExpr(BinaryExpr { left, op: found, right }) = simple else { return Ok(None) };
        if *left != *operand || found != op {
            return Ok(None);
        }
        let value = literal_of(*right, &operand.get_type(&self.schema)?);
        Ok(value.map(|value| self.placeholder_of(value)))
    }

    /// Puts placeholders in place of a long list's items, if DataFusion changes no more than their types.
    fn list(&mut self, list: &mut InList) -> Result<()> {
        if list.list.len() > LISTED_MAX || !list.list.iter().all(is_constant) {
            return Ok(());
        }
        let coerced = self.simplifier.coerce(Expr::InList(list.clone()), &self.schema);
        let Ok(simple) = coerced.and_then(|coerced| self.simplifier.simplify(coerced)) else { return Ok(()) };
        let Expr::InList(InList { expr, list: items, negated }) = simple else { return Ok(()) };
        let data_type = list.expr.get_type(&self.schema)?;
        let values: Option<Vec<_>> = items.into_iter().map(|item| literal_of(item, &data_type)).collect();
        if let Some(values) = values
            && expr == list.expr
            && (negated, values.len()) == (list.negated, list.list.len())
        {
            list.list = values.into_iter().map(|value| self.placeholder_of(value)).collect();
        }
        Ok(())
    }

    fn placeholder_of(&mut self, value: ScalarValue) -> Expr {
        let data_type = value.data_type();
        let at = self.values.len();
        let equal = self.values.iter().position(|known| *known == value).unwrap_or(at);
        self.values.push(value);
        self.replaced += 1;
        placeholder(at, equal, data_type)
    }
}

/// Maximum length of a list that DataFusion turns into comparisons.
const COMPARED_MAX: usize = 3;
/// Longer lists are part of a plan.
const LISTED_MAX: usize = 64;

/// The value of a literal of this type, unless it is null.
fn literal_of(expr: Expr, data_type: &DataType) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, None) if !value.is_null() && value.data_type() == *data_type => Some(value),
        _ => None,
    }
}

/// Whether a pattern of LIKE is more than a comparison.
fn has_wildcards(pattern: &str) -> bool {
    pattern.contains(['%', '_']) && !pattern.contains('\\') && pattern.chars().any(|c| c != '%')
}

/// Whether an expression is a constant.
pub(super) fn is_constant(expr: &Expr) -> bool {
    let mut is_constant = true;
    let visited = expr.apply(|part| {
        is_constant &= match part {
            Expr::Literal(..) | Expr::Cast(_) | Expr::TryCast(_) | Expr::BinaryExpr(_) | Expr::Negative(_) => true,
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
            _ => false,
        };
        Ok(if is_constant { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && is_constant
}
