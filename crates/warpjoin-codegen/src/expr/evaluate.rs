//! Which kind of expression is bound where; columns.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::{Error, Result};

use super::literal::literal;
use super::{arithmetic, case, cast, compare, fault, functions, moments, order};
use crate::bind::{Binder, Cell, Environment, Value};
use crate::lookup;
use crate::value::Kind;

/// Binds `expr` over `environment` into the current section.
#[recursive::recursive]
pub(crate) fn evaluate(b: &mut Binder, expr: &Expr, environment: &Environment) -> Result<Value> {
    match &expr.kind {
        ExprKind::Column(index) => b.column(environment, *index),
        ExprKind::Literal(scalar) => literal(b, scalar, &expr.data_type),
        ExprKind::Deferred(scalar) => literal(b, &scalar.value()?, &expr.data_type),
        ExprKind::Arithmetic(op, left, right) => {
            let left = evaluate(b, left, environment)?;
            let right = evaluate(b, right, environment)?;
            arithmetic::arithmetic(b, *op, &left, &right, &expr.data_type)
        }
        ExprKind::Compare(op, left, right) => {
            let left = evaluate(b, left, environment)?;
            let right = evaluate(b, right, environment)?;
            compare::compare(b, *op, &left, &right)
        }
        ExprKind::And(left, right) => compare::logic(b, left, right, environment, true),
        ExprKind::Or(left, right) => compare::logic(b, left, right, environment, false),
        ExprKind::Not(operand) => {
            let value = evaluate(b, operand, environment)?;
            Ok(Value { code: b.parens(b.not(value.code)), ..value })
        }
        ExprKind::IsNull(operand) => {
            let value = evaluate(b, operand, environment)?;
            let code = value.valid.map_or_else(|| b.truth(false), |valid| b.parens(b.not(valid)));
            Ok(Value::new(code, Kind::Bool, DataType::Boolean))
        }
        ExprKind::Negative(operand) => {
            let value = evaluate(b, operand, environment)?;
            arithmetic::negative(b, &value)
        }
        ExprKind::Case { branches, otherwise } => {
            case::case(b, branches, otherwise.as_deref(), &expr.data_type, environment)
        }
        ExprKind::Cast(operand) => {
            let value = evaluate(b, operand, environment)?;
            cast::cast(b, &value, &expr.data_type, fault::CAST)
        }
        ExprKind::TryCast(operand) => {
            let value = evaluate(b, operand, environment)?;
            cast::cast(b, &value, &expr.data_type, fault::Fault::Null)
        }
        ExprKind::Function(function, arguments) => {
            let values: Vec<Value> =
                arguments.iter().map(|argument| evaluate(b, argument, environment)).collect::<Result<_>>()?;
            functions::call(b, *function, &values, &expr.data_type)
        }
        ExprKind::InList { operand, list, negated } => {
            let value = evaluate(b, operand, environment)?;
            compare::in_list(b, &value, list, *negated)
        }
        ExprKind::Tabulated { operands, function } => {
            let values: Vec<Value> =
                operands.iter().map(|operand| evaluate(b, operand, environment)).collect::<Result<_>>()?;
            lookup::tabulated(b, &values, function)
        }
        ExprKind::Average(sum, count) => {
            let sum = evaluate(b, sum, environment)?;
            let count = evaluate(b, count, environment)?;
            arithmetic::average(b, &sum, &count, &expr.data_type)
        }
        ExprKind::OrderWord(parts) => order::word(b, environment, parts),
        ExprKind::RowNumber { max } => Ok(order::row_number(b, *max)),
        ExprKind::Moment { moment, scale, sums } => {
            let sums: Vec<Value> = sums.iter().map(|sum| evaluate(b, sum, environment)).collect::<Result<_>>()?;
            moments::moment(b, *moment, *scale, &sums)
        }
    }
}

impl Binder {
    /// Column `index` of `environment`, loaded or computed on first use.
    pub(crate) fn column(&mut self, environment: &Environment, index: usize) -> Result<Value> {
        let value = match environment.cell(index)? {
            Cell::Ready(value) => return Ok(value),
            Cell::Load(value) => value,
            Cell::Absent => return Err(Error::internal(format!("column {index} was dropped"))),
            Cell::Source(column) => self.source_column(column)?,
            Cell::Payload { join, column } => self.payload_column(join, column)?,
            Cell::Computed(expr, inner) => evaluate(self, &expr, &inner)?,
            Cell::Fetched { step, column, input } => {
                let row = self.column(&input, step.row)?;
                self.fetched_column(&step, column, &row)?
            }
        };
        let value = self.hoist(value);
        environment.set(index, value.clone());
        Ok(value)
    }
}
