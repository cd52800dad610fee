//! Scalar functions of numbers, and where those of dates are bound.

use arrow::datatypes::DataType;
use warpjoin_columns::column::{bits, holds_strings};
use warpjoin_columns::function::Function;
use warpjoin_columns::{Error, Reason, Result};

use super::arithmetic::{combine, int_range, wrapped_type};
use super::cast::{Rounding, bounds_of, divide_rounding, power_of_ten, quotient, times};
use super::compare::ordered;
use super::dates;
use super::fault::OVERFLOW;
use super::operands::operands;
use crate::bind::{Binder, Value};
use crate::lookup;
use crate::program::{Binding, Function as Call, Op, Status, Type};
use crate::value::{CType, Kind, Range, RangeType, range_of_type, scale_of};

/// Binds [`warpjoin_columns::expr::ExprKind::Function`] of these arguments.
pub(super) fn call(b: &mut Binder, function: Function, arguments: &[Value], to: &DataType) -> Result<Value> {
    match function {
        Function::Greatest | Function::Least => extremum(b, function, arguments, to),
        Function::Date(function) => dates::call(b, function, arguments, to),
        Function::IfNan => {
            let [value, other] = operands(function, arguments)?;
            Ok(if_nan(b, value, other, to))
        }
        Function::BitAnd | Function::BitOr | Function::BitXor | Function::ShiftLeft | Function::ShiftRight => {
            let [left, right] = operands(function, arguments)?;
            bitwise(b, function, left, right, to)
        }
        Function::Absolute
        | Function::Ceil
        | Function::Floor
        | Function::Round { .. }
        | Function::Truncate { .. }
        | Function::SquareRoot
        | Function::Sign
        | Function::IsNan => {
            let [value] = operands(function, arguments)?;
            let is_float = matches!(value.kind, Kind::F32 | Kind::F64);
            let bind = if is_float { of_float } else { of_integer };
            bind(b, function, value, to)
        }
    }
}

/// Functions of floats, in their own precision.
fn of_float(b: &mut Binder, function: Function, value: &Value, to: &DataType) -> Result<Value> {
    let c_type = value.c_type();
    let x = b.temporary(c_type, value.code);
    let scaled = |b: &mut Binder, function, places: i32| {
        let factor = 10f64.powi(places);
        let factor = if c_type == CType::F32 { f64::from(factor as f32) } else { factor };
        let factor = b.params.add(Type::Value(CType::F64), Binding::Word(factor.to_bits()));
        let factor = b.cast(c_type, b.field(factor));
        b.binary(b.call(function, &[b.binary(x, Op::Multiply, factor)]), Op::Divide, factor)
    };
    let zero = b.whole(0);
    let code = match function {
        Function::Absolute => b.call(Call::Fabs, &[x]),
        Function::Ceil => b.call(Call::Ceil, &[x]),
        Function::Floor => b.call(Call::Floor, &[x]),
        Function::Round { places } => scaled(b, Call::Round, places),
        Function::Truncate { places: Some(places) } => scaled(b, Call::Trunc, places),
        Function::Truncate { places: None } => {
            let is_zero = b.binary(x, Op::Equal, zero);
            b.select(is_zero, b.cast(c_type, zero), b.call(Call::Trunc, &[x]))
        }
        Function::SquareRoot => {
            let is_negative = b.binary(x, Op::Less, zero);
            let fails = value.valid.map_or(is_negative, |valid| b.binary(valid, Op::And, is_negative));
            b.raise_if(fails, Status::Cast);
            b.call(Call::Sqrt, &[x])
        }
        Function::Sign => b.call(Call::FloatSign, &[x]),
        Function::IsNan => {
            let code = b.temporary(CType::Bool, b.binary(x, Op::NotEqual, x));
            return Ok(Value::new(code, Kind::Bool, to.clone()).with_valid(value.valid));
        }
        other => return Err(Error::internal(format!("{other} of a float"))),
    };
    let code = b.temporary(c_type, code);
    Ok(Value::new(code, value.kind, to.clone()).with_valid(value.valid))
}

/// The value of a float, or of another one where that is NaN.
fn if_nan(b: &mut Binder, value: &Value, other: &Value, to: &DataType) -> Value {
    let c_type = value.c_type();
    let x = b.temporary(c_type, value.code);
    let is_nan = b.temporary(CType::Bool, b.binary(x, Op::NotEqual, x));
    // The other value counts only where the first one is NaN.
    let valid = other.valid.map_or(value.valid, |other| {
        let is_unused_or_valid = b.binary(b.not(is_nan), Op::Or, other);
        Some(b.temporary(CType::Bool, b.where_valid(value.valid, is_unused_or_valid)))
    });
    let code = b.temporary(c_type, b.select(is_nan, b.code_as(other, c_type), x));
    Value::new(code, value.kind, to.clone()).with_valid(valid)
}

/// Functions of integers and decimals.
fn of_integer(b: &mut Binder, function: Function, value: &Value, to: &DataType) -> Result<Value> {
    let value = match function {
        Function::Absolute => absolute(b, value)?,
        Function::Round { places } => return round(b, value, places, to),
        Function::Truncate { places } => {
            let steps = i32::from(value.scale()) - places.unwrap_or(0);
            multiple(b, value, steps, Rounding::TowardZero)?
        }
        Function::Floor => multiple(b, value, value.scale().into(), Rounding::Down)?,
        Function::Ceil => {
            let zero = Value::new(b.whole(0), Kind::Int(Range::new(0, 0)), value.data_type.clone());
            let negate = |b: &mut Binder, value: &Value| {
                combine(b, warpjoin_columns::expr::ArithmeticOp::Subtract, &zero, value, &value.data_type)
            };
            let negative = negate(b, value)?;
            let floor = multiple(b, &negative, value.scale().into(), Rounding::Down)?;
            negate(b, &floor)?
        }
        other => return Err(Error::internal(format!("{other} of an integer"))),
    };
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    // Only what DataFusion checks: other functions can't leave the type.
    let is_checked = matches!(function, Function::Ceil | Function::Floor);
    Ok(if is_checked { OVERFLOW.within(b, value, bounds) } else { value })
}

fn absolute(b: &mut Binder, value: &Value) -> Result<Value> {
    let type_range = range_of_type(&value.data_type).ok_or_else(|| Reason::Type(value.data_type.clone()))?;
    let value = OVERFLOW.within(b, value.clone(), Range::new(-type_range.max, type_range.max));
    let range = int_range(&value)?;
    let above = Range::new(if range.min >= 0 { range.min } else { 0 }, range.max.max(-range.min));
    let c_type = range.union(above).c_type();
    let code = b.temporary(c_type, b.code_as(&value, c_type));
    let is_negative = b.binary(code, Op::Less, b.whole(0));
    let magnitude = b.parens(b.select(is_negative, b.negate(code), code));
    let code = b.temporary(above.c_type(), b.cast(above.c_type(), magnitude));
    Ok(Value { code, kind: Kind::Int(above), ..value })
}

/// Rounds to a multiple of 10^`steps`.
fn multiple(b: &mut Binder, value: &Value, steps: i32, rounding: Rounding) -> Result<Value> {
    if steps <= 0 {
        return Ok(value.clone());
    }
    if steps > 37 {
        return Err(Reason::Limit("rounding to more than 37 places".into()).into());
    }
    let factor = power_of_ten(steps.unsigned_abs())?;
    let quotient = quotient(b, value, factor, rounding)?;
    times(b, &quotient, factor, OVERFLOW)
}

/// Half away from zero, as DataFusion's `round` of integers and decimals.
fn round(b: &mut Binder, value: &Value, places: i32, to: &DataType) -> Result<Value> {
    let steps = i32::from(value.scale()) - places;
    let typed = |value: Value| Value { data_type: to.clone(), ..value };
    if steps <= 0 {
        return Ok(typed(value.clone()));
    }
    let (precision, is_decimal) = match value.data_type {
        DataType::Decimal32(precision, _) | DataType::Decimal64(precision, _) | DataType::Decimal128(precision, _) => {
            (i32::from(precision), true)
        }
        // The largest power of ten of the type.
        _ => (range_of_type(to).map_or(0, |range| range.max.ilog10()).cast_signed(), false),
    };
    let integer_digits = precision - i32::from(value.scale());
    if places < 0 && -places > integer_digits {
        let zero = Value::new(b.whole(0), Kind::Int(Range::new(0, 0)), to.clone());
        return Ok(zero.with_valid(value.valid));
    }
    let rounded = divide_rounding(b, value, power_of_ten(steps.unsigned_abs())?)?;
    let up = if is_decimal { i32::from(scale_of(to)) - places } else { -places };
    let factor = power_of_ten(u32::try_from(up).unwrap_or(0))?;
    let product = typed(times(b, &rounded, factor, OVERFLOW)?);
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    Ok(OVERFLOW.within(b, product, bounds))
}

/// Functions of the bits of two integers of one type.
fn bitwise(b: &mut Binder, function: Function, left: &Value, right: &Value, to: &DataType) -> Result<Value> {
    let (l, r) = (int_range(left)?, int_range(right)?);
    let type_range = range_of_type(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let valid = b.both_valid(left, right);
    let c_type = type_range.c_type();
    let (l_code, r_code) = (b.code_as(left, c_type), b.code_as(right, c_type));
    let is_positive = l.min >= 0 && r.min >= 0;
    let below = |value: i128| Range::new(0, (1i128 << bits(value)) - 1);
    let width = match bits(type_range.max).next_power_of_two() {
        width @ (8 | 16 | 32 | 64) => width,
        other => return Err(Error::internal(format!("an integer of {other} bits"))),
    };
    let steps = |b: &Binder| b.in_parens(b.cast(CType::U32, r_code), Op::BitAnd, b.whole(i64::from(width) - 1));
    let (code, range) = match function {
        Function::BitAnd => {
            let range = if is_positive { Range::new(0, l.max.min(r.max)) } else { type_range };
            (b.binary(l_code, Op::BitAnd, r_code), range)
        }
        Function::BitOr | Function::BitXor => {
            let op = if function == Function::BitOr { Op::BitOr } else { Op::BitXor };
            (b.binary(l_code, op, r_code), if is_positive { below(l.max.max(r.max)) } else { type_range })
        }
        Function::ShiftLeft => {
            let shifted = b.in_parens(b.cast(CType::U64, l_code), Op::ShiftLeft, steps(b));
            (b.cast(c_type, b.cast(wrapped_type(to), shifted)), type_range)
        }
        _ => (b.binary(l_code, Op::ShiftRight, steps(b)), Range::new(l.min.min(0), l.max.max(0))),
    };
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), b.parens(code)));
    Ok(Value::new(code, Kind::Int(range), to.clone()).with_valid(valid))
}

/// The greatest or least argument; null where all are.
fn extremum(b: &mut Binder, function: Function, arguments: &[Value], to: &DataType) -> Result<Value> {
    let arguments = if holds_strings(to) { lookup::unify(b, arguments)? } else { arguments.to_vec() };
    if arguments.iter().any(|value| value.dictionary.as_ref().is_some_and(|dictionary| !dictionary.is_sorted())) {
        return Err(Reason::Limit(format!("{function} of strings without an order")).into());
    }
    let mut values = arguments.into_iter();
    let mut best = values.next().ok_or_else(|| Error::internal("greatest of nothing"))?;
    let op = if function == Function::Greatest { Op::Greater } else { Op::Less };
    for next in values {
        let kind = match (best.kind, next.kind) {
            (Kind::Int(a), Kind::Int(b)) => Kind::Int(a.union(b)),
            (kind, _) => kind,
        };
        let c_type = kind.c_type();
        let [best_code, next_code] = [&best, &next].map(|value| b.temporary(c_type, b.code_as(value, c_type)));
        let of = |code| ordered(b, &Value::new(code, kind, to.clone()));
        let mut is_better = b.binary(of(next_code), op, of(best_code));
        if let Some(valid) = best.valid {
            is_better = b.binary(b.not(valid), Op::Or, is_better);
        }
        is_better = b.where_valid(next.valid, is_better);
        let valid = match (best.valid, next.valid) {
            (Some(own), Some(other)) => Some(b.temporary(CType::Bool, b.binary(own, Op::Or, other))),
            _ => None,
        };
        let code = b.temporary(c_type, b.select(b.parens(is_better), next_code, best_code));
        best = Value { code, kind, valid, dictionary: next.dictionary.or(best.dictionary), data_type: to.clone() };
    }
    Ok(best)
}
