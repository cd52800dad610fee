//! The translation of each kind of expression.

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
use warpjoin::function::{DateFunction, Function};

use super::precompute::Operands;
use super::{Scope, Translation, functions, is_string, literal};
use crate::kept::parameter::is_parameter;

type PhysicalExprRef = Arc<dyn PhysicalExpr>;

/// Translates `expr` to a device expression.
///
/// # Errors
/// Returns the reason if devices do not support it.
pub(crate) fn translate(expr: &PhysicalExprRef, scope: Scope<'_>) -> Result<Expr, Reason> {
    if depth(expr) > DEPTH_MAX {
        return Err(Reason::Expression(format!("nested more than {DEPTH_MAX} deep")));
    }
    if is_volatile(expr) {
        return Err(Reason::Expression(format!("{expr} is volatile")));
    }
    if any(expr, &|node| node.is::<DynamicFilterPhysicalExpr>()) {
        return Err(Reason::Expression("of a dynamic filter, which changes while the query runs".to_string()));
    }
    Translation::new(scope).translate(expr)
}

/// Replaces each column of `expr` by the expression at its position.
///
/// # Errors
/// Returns an error if a position is not in `exprs`, or an expression does not accept its new operands.
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
            // The replacement refers to other columns, so do not visit it.
            Ok(Transformed::new(with, true, TreeNodeRecursion::Jump))
        })
        .data();
    replaced.map_err(|error| Reason::Expression(format!("{expr}: {}", error.strip_backtrace())))
}

/// Maximum depth of a supported expression: functions that traverse expressions are recursive, and run on threads with
/// small stacks, too.
const DEPTH_MAX: usize = 400;

pub(super) fn depth(expr: &PhysicalExprRef) -> usize {
    let (mut deepest, mut waiting) = (0, vec![(expr, 1)]);
    while let Some((expr, depth)) = waiting.pop() {
        deepest = deepest.max(depth);
        waiting.extend(expr.children().into_iter().map(|child| (child, depth + 1)));
    }
    deepest
}

fn any(expr: &PhysicalExprRef, is_it: &impl Fn(&PhysicalExprRef) -> bool) -> bool {
    is_it(expr) || expr.children().into_iter().any(|child| any(child, is_it))
}

pub(super) fn column_indices(expr: &PhysicalExprRef, indices: &mut BTreeSet<usize>) {
    if let Some(column) = expr.downcast_ref::<Column>() {
        indices.insert(column.index());
    }
    for child in expr.children() {
        column_indices(child, indices);
    }
}

impl Translation<'_> {
    #[recursive::recursive]
    pub(super) fn translate(&self, expr: &PhysicalExprRef) -> Result<Expr, Reason> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return self.column(column.index()).ok_or_else(|| unsupported(expr));
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
            && is_string(self.scope.schema.field(column).data_type())
        {
            return self.over_string_column(expr);
        }
        if let Some(function) = self.over_computed_string(expr)? {
            return Ok(function);
        }
        match self.kind(expr) {
            Ok(kind) => {
                let (data_type, nullable) = self.type_of(expr)?;
                Ok(Expr { kind, data_type, nullable })
            }
            Err(reason) => self.precomputed(expr).ok_or(reason),
        }
    }

    /// The device expression of a column.
    pub(super) fn column(&self, column: usize) -> Option<Expr> {
        let field = self.scope.schema.fields().get(column)?;
        Some(Expr::column(column, field.data_type().clone(), field.is_nullable()))
    }

    fn boxed(&self, expr: &PhysicalExprRef) -> Result<Box<Expr>, Reason> {
        self.translate(expr).map(Box::new)
    }

    pub(super) fn type_of(&self, expr: &PhysicalExprRef) -> Result<(DataType, bool), Reason> {
        let data_type = expr.data_type(self.scope.schema).map_err(|_| unsupported(expr))?;
        let nullable = expr.nullable(self.scope.schema).map_err(|_| unsupported(expr))?;
        check_type(&data_type)?;
        Ok((data_type, nullable))
    }

    fn constant(&self, expr: &PhysicalExprRef) -> Result<Expr, Reason> {
        if any(expr, &|node| node.is::<ScalarSubqueryExpr>() || is_parameter(node)) {
            let (data_type, nullable) = self.type_of(expr)?;
            let kind = ExprKind::Deferred(Arc::new(literal::Deferred::new(expr, data_type.clone())));
            return Ok(Expr { kind, data_type, nullable });
        }
        let value = match expr.downcast_ref::<Literal>() {
            Some(literal) => literal.value().clone(),
            None => literal::evaluate(expr)?,
        };
        check_type(&value.data_type())?;
        Ok(Expr::literal(literal::scalar(&value)?, value.data_type()))
    }

    /// IS NULL and IS NOT NULL. They read only validity, so strings need no dictionary lookup.
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

    /// An expression whose only column is a string. The host evaluates it for each distinct value.
    fn over_string_column(&self, expr: &PhysicalExprRef) -> Result<Expr, Reason> {
        let mut operands = Operands::default();
        let rewritten = self.over_operands(expr, &mut operands, &|_| None).ok_or_else(|| unsupported(expr))?;
        self.by_host(expr, rewritten, operands)
    }

    /// An expression of constants and one string that is computed from several columns. The host evaluates it for each
    /// distinct value of the string. `None` for other expressions.
    fn over_computed_string(&self, expr: &PhysicalExprRef) -> Result<Option<Expr>, Reason> {
        let children = expr.children();
        let mut variable = children.iter().enumerate().filter(|(_, child)| !is_constant(child));
        let (Some((at, operand)), None) = (variable.next(), variable.next()) else { return Ok(None) };
        if !operand.data_type(self.scope.schema).is_ok_and(|data_type| is_string(&data_type)) {
            return Ok(None);
        }
        let mut operands = Operands::default();
        let column = operands.column_of(self.translate(operand)?, self.field_of(operand)?);
        let children: Vec<PhysicalExprRef> = children
            .iter()
            .enumerate()
            .map(|(position, child)| Arc::clone(if position == at { &column } else { child }))
            .collect();
        let rewritten = Arc::clone(expr).with_new_children(children).map_err(|_| unsupported(expr))?;
        self.by_host(expr, rewritten, operands).map(Some)
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
            self.cast(cast)
        } else if let Some(in_list) = expr.downcast_ref::<InListExpr>() {
            self.in_list(expr, in_list)
        } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
            self.try_cast(cast.expr(), cast.cast_type())
        } else if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            self.function(expr, function)
        } else {
            Err(unsupported(expr))
        }
    }

    fn binary(&self, expr: &PhysicalExprRef, binary: &BinaryExpr) -> Result<ExprKind, Reason> {
        let plain = BinaryExpr::new(Arc::clone(binary.left()), *binary.op(), Arc::clone(binary.right()));
        if *binary != plain {
            return Err(Reason::Expression(format!("{expr} that fails on overflow")));
        }
        if let Some(sum) = self.with_interval(binary)? {
            return Ok(sum);
        }
        let (left, right) = (self.translate(binary.left())?, self.translate(binary.right())?);
        let decimals = left.data_type.is_decimal() && right.data_type.is_decimal();
        let dates = left.data_type == right.data_type && matches!(left.data_type, DataType::Date32 | DataType::Date64);
        match (arithmetic_op(binary.op()), bitwise_op(binary.op())) {
            (Some(ArithmeticOp::Subtract), _) if dates => {
                return Ok(ExprKind::Function(Function::Date(DateFunction::DaysBetween), vec![left, right]));
            }
            // The check of the plan node checks the types.
            (Some(op), _) => return Ok(ExprKind::Arithmetic(op, Box::new(left), Box::new(right))),
            (_, Some(function)) => return Ok(ExprKind::Function(function, vec![left, right])),
            _ => {}
        }
        if left.data_type != right.data_type && !decimals {
            return Err(Reason::Expression(format!("{expr} on {} and {}", left.data_type, right.data_type)));
        }
        if let Some(op) = compare_op(binary.op()) {
            return Ok(ExprKind::Compare(op, Box::new(left), Box::new(right)));
        }
        match binary.op() {
            Operator::And => Ok(ExprKind::And(Box::new(left), Box::new(right))),
            Operator::Or => Ok(ExprKind::Or(Box::new(left), Box::new(right))),
            Operator::IsNotDistinctFrom => not_distinct(left, right),
            Operator::IsDistinctFrom => Ok(ExprKind::Not(Box::new(boolean(not_distinct(left, right)?, false)))),
            _ => Err(unsupported(expr)),
        }
    }

    /// A date or timestamp plus or minus a constant interval; `None` for other operations.
    fn with_interval(&self, binary: &BinaryExpr) -> Result<Option<ExprKind>, Reason> {
        let (moment, span) = match binary.op() {
            Operator::Plus if is_constant(binary.left()) => (binary.right(), binary.left()),
            Operator::Plus | Operator::Minus if is_constant(binary.right()) => (binary.left(), binary.right()),
            _ => return Ok(None),
        };
        let is_moment = moment.data_type(self.scope.schema).is_ok_and(|data_type| functions::is_moment(&data_type));
        let is_span =
            span.data_type(self.scope.schema).is_ok_and(|data_type| matches!(data_type, DataType::Interval(_)));
        if !is_moment || !is_span {
            return Ok(None);
        }
        let value = literal::evaluate(span)?;
        let interval = functions::interval(&value, *binary.op() == Operator::Minus)
            .ok_or_else(|| Reason::Expression(format!("{binary}: interval {value}")))?;
        Ok(Some(ExprKind::Function(Function::Date(DateFunction::AddInterval(interval)), vec![self.translate(moment)?])))
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
                    let mut equal = self.translate(&(Arc::new(equal) as PhysicalExprRef))?;
                    // Unlike `=`, CASE with an operand distinguishes -0.0 from 0.0.
                    if let ExprKind::Compare(op @ CompareOp::Equal, ..) = &mut equal.kind {
                        *op = CompareOp::Identical;
                    }
                    equal
                }
                None => self.translate(when)?,
            };
            branches.push((condition, result(then)?));
        }
        let otherwise = case.else_expr().map(|value| result(value).map(Box::new)).transpose()?;
        Ok(ExprKind::Case { branches, otherwise })
    }

    fn cast(&self, cast: &CastExpr) -> Result<ExprKind, Reason> {
        if cast.cast_options().safe {
            return self.try_cast(cast.expr(), cast.cast_type());
        }
        let operand = self.cast_operand(cast.expr(), cast.cast_type())?;
        if &operand.data_type == cast.cast_type() {
            return Ok(operand.kind);
        }
        Ok(ExprKind::Cast(Box::new(operand)))
    }

    fn try_cast(&self, operand: &PhysicalExprRef, to: &DataType) -> Result<ExprKind, Reason> {
        let operand = self.cast_operand(operand, to)?;
        Ok(if operand.data_type == *to { operand.kind } else { ExprKind::TryCast(Box::new(operand)) })
    }

    /// The operand of a cast. Devices cannot cast to strings.
    fn cast_operand(&self, operand: &PhysicalExprRef, to: &DataType) -> Result<Expr, Reason> {
        let operand = self.translate(operand)?;
        if is_string(to) && !is_string(&operand.data_type) && operand.data_type != DataType::Null {
            return Err(Reason::Expression(format!("CAST({} AS {to})", operand.data_type)));
        }
        Ok(operand)
    }

    fn in_list(&self, expr: &PhysicalExprRef, in_list: &InListExpr) -> Result<ExprKind, Reason> {
        if !in_list.list().iter().all(is_constant) {
            return self.in_list_of_columns(expr, in_list);
        }
        let operand = self.boxed(in_list.expr())?;
        let mut list = Vec::with_capacity(in_list.list().len());
        for item in in_list.list() {
            let item = self.constant(item)?;
            let value = match item.kind {
                ExprKind::Literal(value) => value,
                ExprKind::Deferred(value) if value.parameter().is_some() => Scalar::Deferred(value),
                _ => return self.in_list_of_columns(expr, in_list),
            };
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
        // `x IN (1, NULL)` is true or null, and its negation NOT IN is false or null.
        let member = boolean(ExprKind::InList { operand, list, negated: false }, nullable);
        let null = Expr::literal(Scalar::Null, DataType::Boolean);
        let either = ExprKind::Or(Box::new(member), Box::new(null));
        Ok(if negated { ExprKind::Not(Box::new(boolean(either, true))) } else { either })
    }

    /// A comparison for each item, combined by OR.
    fn in_list_of_columns(&self, expr: &PhysicalExprRef, in_list: &InListExpr) -> Result<ExprKind, Reason> {
        let mut any: Option<Expr> = None;
        for item in in_list.list() {
            let equal = BinaryExpr::new(Arc::clone(in_list.expr()), Operator::Eq, Arc::clone(item));
            let equal = self.translate(&(Arc::new(equal) as PhysicalExprRef))?;
            any = Some(match any {
                Some(any) => boolean(ExprKind::Or(Box::new(any), Box::new(equal)), true),
                None => equal,
            });
        }
        let any = any.ok_or_else(|| unsupported(expr))?;
        Ok(if in_list.negated() { ExprKind::Not(Box::new(any)) } else { any.kind })
    }
}

pub(super) fn unsupported(expr: &PhysicalExprRef) -> Reason {
    Reason::Expression(expr.to_string())
}

pub(super) fn boolean(kind: ExprKind, nullable: bool) -> Expr {
    Expr { kind, data_type: DataType::Boolean, nullable }
}

fn is_null(operand: Expr) -> Expr {
    boolean(ExprKind::IsNull(Box::new(operand)), false)
}

/// `IS NOT DISTINCT FROM`: null equals only null, and the result is never null.
fn not_distinct(left: Expr, right: Expr) -> Result<ExprKind, Reason> {
    let nullable = left.nullable || right.nullable;
    if !(left.nullable && right.nullable) {
        // At most one side is nullable. If it is null, the conjunction is false.
        let nullable_side = [&left, &right].into_iter().find(|side| side.nullable).cloned();
        let equal = ExprKind::Compare(CompareOp::Equal, Box::new(left), Box::new(right));
        let Some(nullable_side) = nullable_side else { return Ok(equal) };
        check_copied(&nullable_side)?;
        let is_valid = boolean(ExprKind::Not(Box::new(is_null(nullable_side))), false);
        return Ok(ExprKind::And(Box::new(is_valid), Box::new(boolean(equal, true))));
    }
    check_copied(&left)?;
    check_copied(&right)?;
    let both = |op: fn(Box<Expr>, Box<Expr>) -> ExprKind| {
        boolean(op(Box::new(is_null(left.clone())), Box::new(is_null(right.clone()))), false)
    };
    let (either_null, both_null) = (both(ExprKind::Or), both(ExprKind::And));
    let equal = boolean(ExprKind::Compare(CompareOp::Equal, Box::new(left), Box::new(right)), nullable);
    Ok(ExprKind::Case { branches: vec![(either_null, both_null)], otherwise: Some(Box::new(equal)) })
}

/// Maximum parts of an expression that is copied. Nested copies grow exponentially.
const COPIED_PARTS_MAX: usize = 256;

/// Checks that an expression is short enough to be copied.
pub(super) fn check_copied(expr: &Expr) -> Result<(), Reason> {
    let mut parts = 0usize;
    expr.visit(&mut |_| parts += 1);
    if parts <= COPIED_PARTS_MAX {
        return Ok(());
    }
    Err(Reason::Expression(format!("NULLIF or IS DISTINCT FROM of an expression of {parts} parts")))
}

/// Whether the expression has no column.
pub(super) fn is_constant(expr: &PhysicalExprRef) -> bool {
    !any(expr, &|node| node.is::<Column>())
}

fn bitwise_op(op: &Operator) -> Option<Function> {
    Some(match op {
        Operator::BitwiseAnd => Function::BitAnd,
        Operator::BitwiseOr => Function::BitOr,
        Operator::BitwiseXor => Function::BitXor,
        Operator::BitwiseShiftLeft => Function::ShiftLeft,
        Operator::BitwiseShiftRight => Function::ShiftRight,
        _ => return None,
    })
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

/// The comparison of an operator; `None` for other operators.
pub(super) fn compare_op(op: &Operator) -> Option<CompareOp> {
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
