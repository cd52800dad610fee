//! Arithmetic of integers, floats, decimals and times, with DataFusion's overflow and scale rules.
//!
//! Integer bounds travel with the values: arithmetic stays in 32 or 64 bits where they prove that
//! it can, and goes to 128 where not. What can't be excluded raises a status bit.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::ArithmeticOp;
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_plan::plan::bounds::combined_range;

use super::cast;
use super::fault::OVERFLOW;
use crate::bind::{Binder, Value};
use crate::program::{Function, Op, Status};
use crate::value::{CType, Kind, Range, RangeType, range_of_type, scale_of};

/// Binds [`warpjoin_columns::expr::ExprKind::Arithmetic`].
pub(super) fn arithmetic(
    b: &mut Binder,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = b.both_valid(left, right);
    if let (Kind::F32 | Kind::F64, Kind::F32 | Kind::F64) = (left.kind, right.kind) {
        let code = match op {
            // Exact, so that the remainder of single-precision numbers is one of them.
            ArithmeticOp::Modulo => {
                let sides = [left, right].map(|side| b.cast(CType::F64, side.code));
                b.cast(left.c_type(), b.call(Function::Fmod, &sides))
            }
            _ => b.binary(left.code, operator(op), right.code),
        };
        let code = b.temporary(left.c_type(), code);
        return Ok(Value::new(code, left.kind, data_type.clone()).with_valid(valid));
    }
    let target_scale = scale_of(data_type);
    // What is scaled for a null overflows for nobody.
    let (left, right) = (&left.clone().with_valid(valid), &right.clone().with_valid(valid));
    match op {
        ArithmeticOp::Multiply => {
            if left.scale() + right.scale() != target_scale {
                return Err(Reason::Expression(format!("product of scale {target_scale}")).into());
            }
            combine(b, op, left, right, data_type)
        }
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let left = cast::rescale_up(b, left, target_scale, OVERFLOW)?;
            let right = cast::rescale_up(b, right, target_scale, OVERFLOW)?;
            combine(b, op, &left, &right, data_type)
        }
        ArithmeticOp::Divide => {
            // The left side is scaled so that the quotient has the target scale.
            let shift = target_scale - left.scale() + right.scale();
            let left = cast::rescale_up(b, left, left.scale() + shift.max(0), OVERFLOW)?;
            let right = cast::rescale_up(b, right, right.scale() + (-shift).max(0), OVERFLOW)?;
            divide(b, op, &left, &right, data_type)
        }
        ArithmeticOp::Modulo => {
            let scale = left.scale().max(right.scale());
            let left = cast::rescale_up(b, left, scale, OVERFLOW)?;
            let right = cast::rescale_up(b, right, scale, OVERFLOW)?;
            divide(b, op, &left, &right, data_type)
        }
    }
}

fn operator(op: ArithmeticOp) -> Op {
    match op {
        ArithmeticOp::Add => Op::Add,
        ArithmeticOp::Subtract => Op::Subtract,
        ArithmeticOp::Multiply => Op::Multiply,
        ArithmeticOp::Divide => Op::Divide,
        ArithmeticOp::Modulo => Op::Remainder,
    }
}

pub(super) fn int_range(value: &Value) -> Result<Range> {
    value.range().ok_or_else(|| Error::internal(format!("{} is no integer", value.data_type)))
}

/// Sum, difference or product of integers of one scale rule: wraps in integer types, and reports
/// overflow in the others.
pub(super) fn combine(
    b: &mut Binder,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = b.both_valid(left, right);
    let range = combined_range(op, int_range(left)?, int_range(right)?);
    let type_range = range_of_type(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let fits = range.is_some_and(|range| range.min >= type_range.min && range.max <= type_range.max);
    let combined = |b: &Binder, c_type| b.binary(b.code_as(left, c_type), operator(op), b.code_as(right, c_type));
    let (code, range) = match range {
        Some(range) if fits => (combined(b, range.c_type()), range),
        Some(range) if reports_overflow(data_type) => {
            let code = b.temporary(range.c_type(), combined(b, range.c_type()));
            let value = Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid);
            return Ok(OVERFLOW.within(b, value, type_range));
        }
        None if reports_overflow(data_type) => {
            let value = combine_wide(b, op, left, right);
            return Ok(OVERFLOW.within(b, Value { data_type: data_type.clone(), ..value }, type_range));
        }
        _ => {
            let [left, right] = [left, right].map(|side| b.cast(CType::U64, b.code_as(side, CType::I64)));
            let wrapped = b.cast(wrapped_type(data_type), b.in_parens(left, operator(op), right));
            (b.cast(type_range.c_type(), wrapped), type_range)
        }
    };
    let code = b.temporary(range.c_type(), code);
    Ok(Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid))
}

/// The same of two integers of any size.
fn combine_wide(b: &mut Binder, op: ArithmeticOp, left: &Value, right: &Value) -> Value {
    let sides = [left, right].map(|side| b.temporary(CType::I128, b.code_as(side, CType::I128)));
    let test = match op {
        ArithmeticOp::Add => Function::WideSumOverflows,
        ArithmeticOp::Subtract => Function::WideDifferenceOverflows,
        _ => Function::WideProductOverflows,
    };
    let is_beyond = b.temporary(CType::Bool, b.call(test, &sides));
    let valid = OVERFLOW.at(b, is_beyond, b.both_valid(left, right));
    let [left_wide, right_wide] = sides.map(|side| b.cast(CType::U128, side));
    let wrapped = b.cast(CType::I128, b.in_parens(left_wide, operator(op), right_wide));
    let code = b.temporary(CType::I128, b.select(is_beyond, b.cast(CType::I128, b.whole(0)), wrapped));
    Value::new(code, Kind::Int(Range::new(i128::MIN, i128::MAX)), left.data_type.clone()).with_valid(valid)
}

/// Whether arithmetic of the type reports overflow instead of wrapping.
fn reports_overflow(data_type: &DataType) -> bool {
    data_type.is_decimal() || matches!(data_type, DataType::Timestamp(..) | DataType::Duration(_))
}

/// The C type in which values of an integer type wrap.
pub(super) fn wrapped_type(data_type: &DataType) -> CType {
    match data_type {
        DataType::Int8 => CType::I8,
        DataType::Int16 => CType::I16,
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => CType::I32,
        DataType::UInt8 => CType::U8,
        DataType::UInt16 => CType::U16,
        DataType::UInt32 => CType::U32,
        DataType::UInt64 => CType::U64,
        _ => CType::I64,
    }
}

fn divide(b: &mut Binder, op: ArithmeticOp, left: &Value, right: &Value, data_type: &DataType) -> Result<Value> {
    let valid = b.both_valid(left, right);
    let (l, r) = (int_range(left)?, int_range(right)?);
    let magnitude = |range: Range| range.min.unsigned_abs().max(range.max.unsigned_abs());
    let mut bound =
        i128::try_from(magnitude(l)).map_err(|_| Reason::Limit("division that may leave 128 bits".into()))?;
    if op == ArithmeticOp::Modulo {
        bound = bound.min(i128::try_from(magnitude(r)).unwrap_or(i128::MAX));
    }
    // A remainder has the sign of the left side.
    let is_negative = l.min < 0 || op == ArithmeticOp::Divide && r.min < 0;
    let range = Range::new(if is_negative { -bound } else { 0 }, bound);
    let c_type = l.union(r).union(range).c_type();
    let divisor = b.temporary(c_type, b.code_as(right, c_type));
    let is_zero = b.binary(divisor, Op::Equal, b.whole(0));
    b.raise_if(b.where_valid(valid, is_zero), Status::Division);
    let function = if op == ArithmeticOp::Divide { Function::DivideOrZero } else { Function::ModuloOrZero };
    let code = b.temporary(c_type, b.call(function, &[b.code_as(left, c_type), divisor]));
    let type_range = range_of_type(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let code = if c_type == range.c_type() { code } else { b.cast_in_parens(range.c_type(), b.parens(code)) };
    let value = Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid);
    Ok(OVERFLOW.within(b, value, type_range))
}

/// Mean of a sum over a count; null where the count is 0.
pub(super) fn average(b: &mut Binder, sum: &Value, count: &Value, data_type: &DataType) -> Result<Value> {
    let has_values = b.in_parens(count.code, Op::NotEqual, b.whole(0));
    let valid = Some(b.both(sum.valid, has_values));
    if let Kind::F64 = sum.kind {
        let code = b.temporary(CType::F64, b.binary(sum.code, Op::Divide, b.cast(CType::F64, count.code)));
        return Ok(Value::new(code, Kind::F64, data_type.clone()).with_valid(valid));
    }
    let scaled = cast::rescale_up(b, sum, scale_of(data_type), OVERFLOW)?;
    let range = int_range(&scaled)?;
    let c_type = range.c_type();
    let quotient = b.call(Function::DivideOrZero, &[b.cast(c_type, scaled.code), b.cast(c_type, count.code)]);
    let code = b.temporary(c_type, quotient);
    let mean = Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid);
    let bounds = cast::bounds_of(data_type).ok_or_else(|| Error::internal(format!("a mean of type {data_type}")))?;
    Ok(OVERFLOW.within(b, mean, bounds))
}

/// Binds [`warpjoin_columns::expr::ExprKind::Negative`].
pub(super) fn negative(b: &mut Binder, value: &Value) -> Result<Value> {
    if let Kind::F32 | Kind::F64 = value.kind {
        return Ok(Value { code: b.parens(b.negate(value.code)), ..value.clone() });
    }
    let zero = Value::new(b.whole(0), Kind::Int(Range::new(0, 0)), value.data_type.clone());
    combine(b, ArithmeticOp::Subtract, &zero, value, &value.data_type)
}
