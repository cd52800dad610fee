//! Constants of a plan: the plan has parameters in their place, and the bindings of an execution have the values.

use std::cell::RefCell;

use warpjoin_columns::expr::{Expr, ExprKind, Leaf, Scalar};
use warpjoin_columns::{Error, Result};

/// Constants in the order in which a plan has them.
#[derive(Debug, Default)]
pub(super) struct Constants(RefCell<Vec<ExprKind>>);

impl Constants {
    /// The expression with parameters in place of its constants, except NULL, which affects nullability.
    pub(super) fn take_from(&self, expr: &Expr) -> Expr {
        expr.rebuilt(&|leaf| match leaf {
            Leaf::Column(column) => ExprKind::Column(column),
            Leaf::Constant(null @ ExprKind::Literal(Scalar::Null)) => null.clone(),
            Leaf::Constant(constant) => {
                let mut constants = self.0.borrow_mut();
                constants.push(constant.clone());
                ExprKind::Literal(Scalar::Parameter(constants.len() - 1))
            }
        })
    }

    pub(super) fn into_vec(self) -> Vec<ExprKind> {
        self.0.into_inner()
    }
}

/// The expression with the constants of an execution in place of its parameters.
///
/// # Errors
/// When one is missing.
pub fn bind(expr: &Expr, constants: &[ExprKind]) -> Result<Expr> {
    let missing = RefCell::new(None);
    let bound = expr.rebuilt(&|leaf| match leaf {
        Leaf::Column(column) => ExprKind::Column(column),
        Leaf::Constant(constant @ &ExprKind::Literal(Scalar::Parameter(number))) => {
            constants.get(number).cloned().unwrap_or_else(|| {
                missing.borrow_mut().get_or_insert(number);
                constant.clone()
            })
        }
        Leaf::Constant(constant) => constant.clone(),
    });
    match missing.into_inner() {
        Some(number) => Err(Error::internal(format!("no constant {number}"))),
        None => Ok(bound),
    }
}
