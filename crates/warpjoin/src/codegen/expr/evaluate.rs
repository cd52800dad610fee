//! Which kind of expression is emitted where; columns.

use arrow::datatypes::DataType;

use super::literal::literal;
use super::{arithmetic, case, cast, compare, fault, functions, moments, order};
use crate::codegen::emit::{Cell, Emitter, Environment};
use crate::codegen::lookup;
use crate::codegen::value::{Kind, Value};
use crate::expr::{Expr, ExprKind};
use crate::{Error, Result};

/// Emits `expr` over `environment` into the current section.
#[recursive::recursive]
pub(in crate::codegen) fn evaluate(emitter: &mut Emitter, expr: &Expr, environment: &Environment) -> Result<Value> {
    match &expr.kind {
        ExprKind::Column(index) => emitter.column(environment, *index),
        ExprKind::Literal(scalar) => literal(emitter, scalar, &expr.data_type),
        ExprKind::Deferred(scalar) => literal(emitter, &scalar.value()?, &expr.data_type),
        ExprKind::Arithmetic(op, left, right) => {
            let left = evaluate(emitter, left, environment)?;
            let right = evaluate(emitter, right, environment)?;
            arithmetic::arithmetic(emitter, *op, &left, &right, &expr.data_type)
        }
        ExprKind::Compare(op, left, right) => {
            let left = evaluate(emitter, left, environment)?;
            let right = evaluate(emitter, right, environment)?;
            compare::compare(emitter, *op, &left, &right)
        }
        ExprKind::And(left, right) => compare::logic(emitter, left, right, environment, true),
        ExprKind::Or(left, right) => compare::logic(emitter, left, right, environment, false),
        ExprKind::Not(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            Ok(Value { code: format!("(!{})", value.code), ..value })
        }
        ExprKind::IsNull(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            let code = value.valid.map_or("false".into(), |valid| format!("(!{valid})"));
            Ok(Value::new(code, Kind::Bool, DataType::Boolean))
        }
        ExprKind::Negative(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            arithmetic::negative(emitter, &value)
        }
        ExprKind::Case { branches, otherwise } => {
            case::case(emitter, branches, otherwise.as_deref(), &expr.data_type, environment)
        }
        ExprKind::Cast(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            cast::cast(emitter, &value, &expr.data_type, fault::CAST)
        }
        ExprKind::TryCast(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            cast::cast(emitter, &value, &expr.data_type, fault::Fault::Null)
        }
        ExprKind::Function(function, arguments) => {
            let values: Vec<Value> =
                arguments.iter().map(|argument| evaluate(emitter, argument, environment)).collect::<Result<_>>()?;
            functions::call(emitter, *function, &values, &expr.data_type)
        }
        ExprKind::InList { operand, list, negated } => {
            let value = evaluate(emitter, operand, environment)?;
            compare::in_list(emitter, &value, list, *negated)
        }
        ExprKind::Tabulated { operands, function } => {
            let values: Vec<Value> =
                operands.iter().map(|operand| evaluate(emitter, operand, environment)).collect::<Result<_>>()?;
            lookup::tabulated(emitter, &values, function)
        }
        ExprKind::Average(sum, count) => {
            let sum = evaluate(emitter, sum, environment)?;
            let count = evaluate(emitter, count, environment)?;
            arithmetic::average(emitter, &sum, &count, &expr.data_type)
        }
        ExprKind::OrderWord { keys, word } => order::word(emitter, environment, keys, *word),
        ExprKind::RowNumber { max } => Ok(order::row_number(emitter, *max)),
        ExprKind::Moment { moment, scale, sums } => {
            let sums: Vec<Value> = sums.iter().map(|sum| evaluate(emitter, sum, environment)).collect::<Result<_>>()?;
            moments::moment(emitter, *moment, *scale, &sums)
        }
    }
}

impl Emitter {
    /// Column `index` of `environment`, loaded or computed on first use.
    pub(in crate::codegen) fn column(&mut self, environment: &Environment, index: usize) -> Result<Value> {
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
