//! The translation itself, one kind of expression after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
    NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use warpjoin::Reason;
use warpjoin::column::check_type;
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};

use super::dictionary::StringFunction;
use super::{Scope, is_string, literal};

type PhysicalExprRef = Arc<dyn PhysicalExpr>;

/// The device expression that computes the same as `expr`.
///
/// # Errors
/// The reason for which there is none.
pub(crate) fn translate(expr: &PhysicalExprRef, scope: Scope<'_>) -> Result<Expr, Reason> {
    if is_volatile(expr) {
        return Err(Reason::Expression(format!("{expr} is volatile")));
    }
    if any(expr, &|node| node.is::<DynamicFilterPhysicalExpr>()) {
        return Err(Reason::Expression("of a filter that changes while the query runs".to_string()));
    }
    if any(expr, &|node| node.is::<ScalarSubqueryExpr>()) {
        return Err(Reason::Expression(format!("{expr}: a scalar subquery")));
    }
    scope.translate(expr)
}

/// `expr` with every column replaced by the expression at its position.
///
/// # Errors
/// When a position is beyond `exprs`, or an expression refuses its new operands.
pub(crate) fn substitute(expr: &PhysicalExprRef, exprs: &[PhysicalExprRef]) -> Result<PhysicalExprRef, Reason> {
    replace_columns(expr, &|column| exprs.get(column.index()).cloned())
}

fn replace_columns(
    expr: &PhysicalExprRef,
    replacement: &impl Fn(&Column) -> Option<PhysicalExprRef>,
) -> Result<PhysicalExprRef, Reason> {
    let replaced = Arc::clone(expr)
        .transform_down(|node| {
            let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
            let with = replacement(column).ok_or_else(|| {
                datafusion::common::DataFusionError::Internal(format!("column {column} is out of range"))
            })?;
            // What is put in speaks about other columns: it must not be visited again.
            Ok(Transformed::new(with, true, TreeNodeRecursion::Jump))
        })
        .data();
    replaced.map_err(|error| Reason::Expression(format!("{expr}: {}", error.strip_backtrace())))
}

fn any(expr: &PhysicalExprRef, is_it: &impl Fn(&PhysicalExprRef) -> bool) -> bool {
    is_it(expr) || expr.children().into_iter().any(|child| any(child, is_it))
}

fn column_indices(expr: &PhysicalExprRef, indices: &mut BTreeSet<usize>) {
    if let Some(column) = expr.downcast_ref::<Column>() {
        indices.insert(column.index());
    }
    for child in expr.children() {
        column_indices(child, indices);
    }
}

impl Scope<'_> {
    fn translate(&self, expr: &PhysicalExprRef) -> Result<Expr, Reason> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            let field = self.schema.fields().get(column.index()).ok_or_else(|| unsupported(expr))?;
            return Ok(Expr::column(column.index(), field.data_type().clone(), field.is_nullable()));
        }
        let mut columns = BTreeSet::new();
        column_indices(expr, &mut columns);
        let only_column = if columns.len() == 1 { columns.first().copied() } else { None };
        if columns.is_empty() {
            return self.constant(expr);
        }
        if let Some(test) = self.null_test(expr)? {
            return Ok(test);
        }
        if let Some(column) = only_column
            && is_string(self.schema.field(column).data_type())
        {
            return self.over_dictionary(expr, column);
        }
        let kind = self.kind(expr)?;
        let (data_type, nullable) = self.type_of(expr)?;
        Ok(Expr { kind, data_type, nullable })
    }

    fn boxed(&self, expr: &PhysicalExprRef) -> Result<Box<Expr>, Reason> {
        self.translate(expr).map(Box::new)
    }

    fn type_of(&self, expr: &PhysicalExprRef) -> Result<(DataType, bool), Reason> {
        let data_type = expr.data_type(self.schema).map_err(|_| unsupported(expr))?;
        let nullable = expr.nullable(self.schema).map_err(|_| unsupported(expr))?;
        check_type(&data_type)?;
        Ok((data_type, nullable))
    }

    fn constant(&self, expr: &PhysicalExprRef) -> Result<Expr, Reason> {
        let value = match expr.downcast_ref::<Literal>() {
            Some(literal) => literal.value().clone(),
            None => literal::evaluate(expr)?,
        };
        if is_string(&value.data_type()) {
            return Err(Reason::Expression(format!("{expr}: a string that is not in a column")));
        }
        check_type(&value.data_type())?;
        Ok(Expr::literal(literal::scalar(&value)?, value.data_type()))
    }

    /// IS NULL and IS NOT NULL, which need the validity only, also of strings.
    fn null_test(&self, expr: &PhysicalExprRef) -> Result<Option<Expr>, Reason> {
        let (operand, negated) = if let Some(test) = expr.downcast_ref::<IsNullExpr>() {
            (test.arg(), false)
        } else if let Some(test) = expr.downcast_ref::<IsNotNullExpr>() {
            (test.arg(), true)
        } else {
            return Ok(None);
        };
        let test = is_null(self.translate(operand)?);
        Ok(Some(if negated { boolean(ExprKind::Not(Box::new(test)), false) } else { test }))
    }

    fn over_dictionary(&self, expr: &PhysicalExprRef, column: usize) -> Result<Expr, Reason> {
        if self.computed.get(column).copied().unwrap_or(false) {
            return Err(Reason::Expression(format!("{expr} over a string that was itself computed")));
        }
        let (data_type, nullable) = self.type_of(expr)?;
        let column_type = self.schema.field(column).data_type().clone();
        let moved = replace_columns(expr, &|column| Some(Arc::new(Column::new(column.name(), 0)) as PhysicalExprRef))?;
        let function = Arc::new(StringFunction::new(moved, column_type, data_type.clone()));
        Ok(Expr { kind: ExprKind::OverDictionary { column, function }, data_type, nullable })
    }

    fn kind(&self, expr: &PhysicalExprRef) -> Result<ExprKind, Reason> {
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            self.binary(expr, binary)
        } else if let Some(not) = expr.downcast_ref::<NotExpr>() {
            Ok(ExprKind::Not(self.boxed(not.arg())?))
        } else if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            Ok(ExprKind::Negative(self.boxed(negative.arg())?))
        } else if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            self.case(expr, case)
        } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            self.cast(expr, cast)
        } else if let Some(in_list) = expr.downcast_ref::<InListExpr>() {
            self.in_list(expr, in_list)
        } else if expr.is::<TryCastExpr>() {
            Err(Reason::Expression(format!("{expr}: TRY_CAST")))
        } else if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            Err(Reason::Expression(format!("{expr}: function {}", function.fun().name())))
        } else {
            Err(unsupported(expr))
        }
    }

    fn binary(&self, expr: &PhysicalExprRef, binary: &BinaryExpr) -> Result<ExprKind, Reason> {
        let plain = BinaryExpr::new(Arc::clone(binary.left()), *binary.op(), Arc::clone(binary.right()));
        if *binary != plain {
            return Err(Reason::Expression(format!("{expr} with an error on overflow")));
        }
        let (left, right) = (self.translate(binary.left())?, self.translate(binary.right())?);
        let decimals = is_decimal(&left.data_type) && is_decimal(&right.data_type);
        if left.data_type != right.data_type && !decimals {
            return Err(Reason::Expression(format!("{expr} on {} and {}", left.data_type, right.data_type)));
        }
        if let Some(op) = arithmetic_op(binary.op()) {
            let numeric = left.data_type.is_integer() || left.data_type.is_floating() || decimals;
            return if numeric {
                Ok(ExprKind::Arithmetic(op, Box::new(left), Box::new(right)))
            } else {
                Err(Reason::Expression(format!("{expr} on {}", left.data_type)))
            };
        }
        if is_string(&left.data_type) {
            return Err(Reason::Expression(format!("{expr} over strings of different columns")));
        }
        if let Some(op) = compare_op(binary.op()) {
            return Ok(ExprKind::Compare(op, Box::new(left), Box::new(right)));
        }
        match binary.op() {
            Operator::And => Ok(ExprKind::And(Box::new(left), Box::new(right))),
            Operator::Or => Ok(ExprKind::Or(Box::new(left), Box::new(right))),
            Operator::IsNotDistinctFrom => Ok(not_distinct(left, right)),
            Operator::IsDistinctFrom => Ok(ExprKind::Not(Box::new(boolean(not_distinct(left, right), false)))),
            _ => Err(unsupported(expr)),
        }
    }

    fn case(&self, expr: &PhysicalExprRef, case: &CaseExpr) -> Result<ExprKind, Reason> {
        let (result_type, _) = self.type_of(expr)?;
        let result = |value: &PhysicalExprRef| {
            let value = self.translate(value)?;
            if value.data_type == result_type { Ok(value) } else { Err(unsupported(expr)) }
        };
        let mut branches = Vec::with_capacity(case.when_then_expr().len());
        for (when, then) in case.when_then_expr() {
            let condition = match case.expr() {
                Some(operand) => {
                    let equal = BinaryExpr::new(Arc::clone(operand), Operator::Eq, Arc::clone(when));
                    self.translate(&(Arc::new(equal) as PhysicalExprRef))?
                }
                None => self.translate(when)?,
            };
            branches.push((condition, result(then)?));
        }
        let otherwise = case.else_expr().map(|value| result(value).map(Box::new)).transpose()?;
        Ok(ExprKind::Case { branches, otherwise })
    }

    fn cast(&self, expr: &PhysicalExprRef, cast: &CastExpr) -> Result<ExprKind, Reason> {
        if cast.cast_options().safe {
            return Err(Reason::Expression(format!("{expr}: a cast that gives null where it fails")));
        }
        let operand = self.translate(cast.expr())?;
        if &operand.data_type == cast.cast_type() {
            return Ok(operand.kind);
        }
        Ok(ExprKind::Cast(Box::new(operand)))
    }

    fn in_list(&self, expr: &PhysicalExprRef, in_list: &InListExpr) -> Result<ExprKind, Reason> {
        let operand = self.boxed(in_list.expr())?;
        let mut list = Vec::with_capacity(in_list.list().len());
        for item in in_list.list() {
            let mut columns = BTreeSet::new();
            column_indices(item, &mut columns);
            if !columns.is_empty() {
                return Err(Reason::Expression(format!("{expr}: a list of columns")));
            }
            let item = self.constant(item)?;
            let ExprKind::Literal(value) = item.kind else { return Err(unsupported(expr)) };
            if value != Scalar::Null && item.data_type != operand.data_type {
                return Err(Reason::Expression(format!("{expr} on {} and {}", operand.data_type, item.data_type)));
            }
            list.push(value);
        }
        let nullable = operand.nullable;
        let with_null = list.contains(&Scalar::Null);
        list.retain(|value| *value != Scalar::Null);
        let negated = in_list.negated();
        if !with_null {
            return Ok(ExprKind::InList { operand, list, negated });
        }
        // `x IN (1, NULL)` is true or null; NOT IN its negation: false or null.
        let member = boolean(ExprKind::InList { operand, list, negated: false }, nullable);
        let null = Expr::literal(Scalar::Null, DataType::Boolean);
        let either = ExprKind::Or(Box::new(member), Box::new(null));
        Ok(if negated { ExprKind::Not(Box::new(boolean(either, true))) } else { either })
    }
}

fn unsupported(expr: &PhysicalExprRef) -> Reason {
    Reason::Expression(expr.to_string())
}

fn boolean(kind: ExprKind, nullable: bool) -> Expr {
    Expr { kind, data_type: DataType::Boolean, nullable }
}

fn is_null(operand: Expr) -> Expr {
    boolean(ExprKind::IsNull(Box::new(operand)), false)
}

/// `IS NOT DISTINCT FROM`: null equals null, and nothing else. Never null itself.
fn not_distinct(left: Expr, right: Expr) -> ExprKind {
    let nullable = left.nullable || right.nullable;
    let both = |op: fn(Box<Expr>, Box<Expr>) -> ExprKind| {
        boolean(op(Box::new(is_null(left.clone())), Box::new(is_null(right.clone()))), false)
    };
    let (either_null, both_null) = (both(ExprKind::Or), both(ExprKind::And));
    let equal = boolean(ExprKind::Compare(CompareOp::Equal, Box::new(left), Box::new(right)), nullable);
    ExprKind::Case { branches: vec![(either_null, both_null)], otherwise: Some(Box::new(equal)) }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(_, _))
}

fn arithmetic_op(op: &Operator) -> Option<ArithmeticOp> {
    Some(match op {
        Operator::Plus => ArithmeticOp::Add,
        Operator::Minus => ArithmeticOp::Subtract,
        Operator::Multiply => ArithmeticOp::Multiply,
        Operator::Divide => ArithmeticOp::Divide,
        Operator::Modulo => ArithmeticOp::Modulo,
        _ => return None,
    })
}

fn compare_op(op: &Operator) -> Option<CompareOp> {
    Some(match op {
        Operator::Eq => CompareOp::Equal,
        Operator::NotEq => CompareOp::NotEqual,
        Operator::Lt => CompareOp::Less,
        Operator::LtEq => CompareOp::LessOrEqual,
        Operator::Gt => CompareOp::Greater,
        Operator::GtEq => CompareOp::GreaterOrEqual,
        _ => return None,
    })
}
