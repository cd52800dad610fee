//! Builders of composite expressions.

use arrow::datatypes::DataType;

use super::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};

/// A list of expressions, each once.
#[derive(Default)]
pub struct ExprList {
    pub exprs: Vec<Expr>,
}

impl ExprList {
    /// The position of an expression, and a column that reads it there.
    pub fn add(&mut self, expr: &Expr) -> Expr {
        column_of(self.position(expr), expr)
    }

    /// The position of an expression.
    pub fn position(&mut self, expr: &Expr) -> usize {
        let position = self.exprs.iter().position(|known| known.is_same(expr)).unwrap_or(self.exprs.len());
        if position == self.exprs.len() {
            self.exprs.push(expr.clone());
        }
        position
    }
}

/// Column `index`, which holds values of `expr`.
pub fn column_of(index: usize, expr: &Expr) -> Expr {
    Expr::column(index, expr.data_type.clone(), expr.nullable)
}

pub fn zero(data_type: DataType) -> Expr {
    Expr::literal(Scalar::Int(0), data_type)
}

/// The value of an expression in another type.
pub fn cast(expr: Expr, data_type: DataType) -> Expr {
    let nullable = expr.nullable;
    Expr { kind: ExprKind::Cast(Box::new(expr)), data_type, nullable }
}

/// Arithmetic of two values of the result's type.
pub fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let (data_type, nullable) = (left.data_type.clone(), left.nullable || right.nullable);
    Expr { kind: ExprKind::Arithmetic(op, Box::new(left), Box::new(right)), data_type, nullable }
}

pub fn is_null(expr: &Expr) -> Expr {
    Expr { kind: ExprKind::IsNull(Box::new(expr.clone())), data_type: DataType::Boolean, nullable: false }
}

pub fn not(expr: Expr) -> Expr {
    let nullable = expr.nullable;
    Expr { kind: ExprKind::Not(Box::new(expr)), data_type: DataType::Boolean, nullable }
}

pub fn compare(op: CompareOp, left: &Expr, right: &Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    let kind = ExprKind::Compare(op, Box::new(left.clone()), Box::new(right.clone()));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

/// The first result whose condition holds, else `otherwise`.
pub fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>, data_type: DataType, nullable: bool) -> Expr {
    let kind = ExprKind::Case { branches, otherwise: otherwise.map(Box::new) };
    Expr { kind, data_type, nullable }
}

/// A sum of counts over no rows is null, a count is 0.
pub fn or_zero(count: Expr) -> Expr {
    let data_type = count.data_type.clone();
    case(vec![(is_null(&count), zero(data_type.clone()))], Some(count), data_type, false)
}

/// The value; null where `other` is.
pub fn where_not_null(expr: &Expr, other: &Expr) -> Expr {
    if !other.nullable {
        return expr.clone();
    }
    case(vec![(not(is_null(other)), expr.clone())], None, expr.data_type.clone(), true)
}
