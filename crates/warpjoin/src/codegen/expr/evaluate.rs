//! Which kind of expression is emitted where; columns, constants, and validity.

use arrow::datatypes::DataType;

use super::{arithmetic, case, cast, compare, fault, functions, moments, order};
use crate::codegen::emit::{Binding, Cell, Emitter, Environment};
use crate::codegen::lookup;
use crate::codegen::value::{CType, Kind, Range, Value};
use crate::column::holds_strings;
use crate::expr::{Expr, ExprKind, Scalar};
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

/// Kind of null and of other values of a type whose bounds nobody knows.
fn empty_kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::Float32 => Kind::F32,
        DataType::Float64 => Kind::F64,
        _ => Kind::Int(Range::new(0, 0)),
    }
}

/// A constant, as a field of the parameter struct.
pub(super) fn literal(emitter: &mut Emitter, scalar: &Scalar, data_type: &DataType) -> Result<Value> {
    Ok(match scalar {
        Scalar::Null => {
            let value = Value::new("0", empty_kind(data_type), data_type.clone());
            let dictionary = holds_strings(data_type).then(|| lookup::dictionary_of(data_type, None)).transpose()?;
            Value { valid: Some("false".into()), dictionary, ..value }
        }
        Scalar::Parameter(number) => return Err(crate::Error::internal(format!("constant {number} is not bound"))),
        Scalar::Bytes(bytes) => {
            let dictionary = lookup::dictionary_of(data_type, Some(bytes))?;
            Value { dictionary: Some(dictionary), ..Value::new("0", empty_kind(data_type), data_type.clone()) }
        }
        Scalar::Boolean(value) => Value::new(value.to_string(), Kind::Bool, data_type.clone()),
        Scalar::Int(value) => {
            let range = Range::of_literal(*value);
            let c_type = range.c_type();
            let code = if c_type == CType::I128 {
                emitter.params.wide_number(*value)
            } else {
                format!("(({}){})", c_type.name(), emitter.params.number(*value as i64))
            };
            Value::new(code, Kind::Int(range), data_type.clone())
        }
        Scalar::Float(value) => {
            let field = emitter.params.add("f64", Binding::Word(value.to_bits()));
            if *data_type == DataType::Float32 {
                Value::new(format!("((f32){field})"), Kind::F32, data_type.clone())
            } else {
                Value::new(field, Kind::F64, data_type.clone())
            }
        }
    })
}

/// Validity of an operation that is null when an operand is.
pub(super) fn both_valid(left: &Value, right: &Value) -> Option<String> {
    match (&left.valid, &right.valid) {
        (None, None) => None,
        (Some(valid), None) | (None, Some(valid)) => Some(valid.clone()),
        // Else a chain of operations, whose sides both have the nulls of all before, would grow by powers of two.
        (Some(left), Some(right)) if left == right => Some(left.clone()),
        (Some(left), Some(right)) => Some(format!("({left} && {right})")),
    }
}

/// `condition`, only where `valid` holds.
pub(super) fn where_valid(valid: &Option<String>, condition: &str) -> String {
    valid.as_ref().map_or(condition.into(), |valid| format!("{valid} && ({condition})"))
}
