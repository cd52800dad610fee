//! Scalar functions of numbers, and where those of dates are emitted.

use arrow::datatypes::DataType;

use super::arithmetic::{combine, int_range, wrapped_type_name};
use super::cast::{bounds_of, divide_rounding, power_of_ten, quotient, times};
use super::compare::ordered;
use super::dates;
use super::evaluate::both_valid;
use super::fault::OVERFLOW;
use crate::codegen::emit::{Binding, Emitter};
use crate::codegen::lookup;
use crate::codegen::value::{CType, Kind, Range, Value, bits, range_of_type, scale_of};
use crate::column::holds_strings;
use crate::function::Function;
use crate::{Error, Reason, Result};

/// Emits [`crate::expr::ExprKind::Function`] of these arguments.
pub(super) fn call(emitter: &mut Emitter, function: Function, arguments: &[Value], to: &DataType) -> Result<Value> {
    match function {
        Function::Greatest | Function::Least => extremum(emitter, function, arguments, to),
        Function::Date(function) => dates::call(emitter, function, arguments, to),
        Function::IfNan => {
            let [value, other] = operands(function, arguments)?;
            Ok(if_nan(emitter, value, other, to))
        }
        Function::BitAnd | Function::BitOr | Function::BitXor | Function::ShiftLeft | Function::ShiftRight => {
            let [left, right] = operands(function, arguments)?;
            bitwise(emitter, function, left, right, to)
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
            let emit = if is_float { of_float } else { of_integer };
            emit(emitter, function, value, to)
        }
    }
}

pub(super) fn operands<const COUNT: usize>(function: Function, arguments: &[Value]) -> Result<&[Value; COUNT]> {
    arguments.try_into().map_err(|_| Error::internal(format!("{function} of {} arguments", arguments.len())))
}

/// Functions of floats, in their own precision.
fn of_float(emitter: &mut Emitter, function: Function, value: &Value, to: &DataType) -> Result<Value> {
    let (suffix, name) = if value.kind == Kind::F32 { ("f", "f32") } else { ("", "f64") };
    let x = emitter.temporary(value.c_type(), &value.code);
    let mut scaled = |function: &str, places: i32| {
        let factor = 10f64.powi(places);
        let factor = if value.kind == Kind::F32 { f64::from(factor as f32) } else { factor };
        let factor = format!("({name}){}", emitter.params.add("f64", Binding::Word(factor.to_bits())));
        format!("{function}{suffix}({x} * {factor}) / {factor}")
    };
    let code = match function {
        Function::Absolute => format!("fabs{suffix}({x})"),
        Function::Ceil => format!("ceil{suffix}({x})"),
        Function::Floor => format!("floor{suffix}({x})"),
        Function::Round { places } => scaled("round", places),
        Function::Truncate { places: Some(places) } => scaled("trunc", places),
        Function::Truncate { places: None } => format!("{x} == 0 ? ({name})0 : trunc{suffix}({x})"),
        Function::SquareRoot => {
            let valid = value.valid.as_ref().map(|valid| format!("{valid} && ")).unwrap_or_default();
            emitter.raise_if(&format!("{valid}{x} < 0"), "WJ_STATUS_CAST");
            format!("sqrt{suffix}({x})")
        }
        Function::Sign => format!("float_sign({x})"),
        Function::IsNan => {
            let code = emitter.temporary(CType::Bool, &format!("{x} != {x}"));
            return Ok(Value::new(code, Kind::Bool, to.clone()).with_valid(value.valid.clone()));
        }
        other => return Err(Error::internal(format!("{other} of a float"))),
    };
    let code = emitter.temporary(value.c_type(), &code);
    Ok(Value::new(code, value.kind, to.clone()).with_valid(value.valid.clone()))
}

/// The value of a float, or of another one where that is NaN.
fn if_nan(emitter: &mut Emitter, value: &Value, other: &Value, to: &DataType) -> Value {
    let c_type = value.c_type();
    let x = emitter.temporary(c_type, &value.code);
    let is_nan = emitter.temporary(CType::Bool, &format!("{x} != {x}"));
    let valid = match (&value.valid, &other.valid) {
        (own, None) => own.clone(),
        (None, Some(other)) => Some(emitter.temporary(CType::Bool, &format!("!{is_nan} || {other}"))),
        (Some(own), Some(other)) => Some(emitter.temporary(CType::Bool, &format!("{own} && (!{is_nan} || {other})"))),
    };
    let code = emitter.temporary(c_type, &format!("{is_nan} ? {} : {x}", other.code_as(c_type)));
    Value::new(code, value.kind, to.clone()).with_valid(valid)
}

/// Functions of integers and decimals.
fn of_integer(emitter: &mut Emitter, function: Function, value: &Value, to: &DataType) -> Result<Value> {
    let value = match function {
        Function::Absolute => absolute(emitter, value)?,
        Function::Round { places } => return round(emitter, value, places, to),
        Function::Truncate { places } => {
            let steps = i32::from(value.scale()) - places.unwrap_or(0);
            multiple(emitter, value, steps, "/")?
        }
        Function::Floor => multiple(emitter, value, value.scale().into(), "floor_divide")?,
        Function::Ceil => {
            let zero = Value::new("0", Kind::Int(Range::new(0, 0)), value.data_type.clone());
            let negate = |emitter: &mut Emitter, value: &Value| {
                combine(emitter, crate::expr::ArithmeticOp::Subtract, &zero, value, &value.data_type)
            };
            let negative = negate(emitter, value)?;
            let floor = multiple(emitter, &negative, value.scale().into(), "floor_divide")?;
            negate(emitter, &floor)?
        }
        other => return Err(Error::internal(format!("{other} of an integer"))),
    };
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    // Only what DataFusion checks: other functions can't leave the type.
    let is_checked = matches!(function, Function::Ceil | Function::Floor);
    Ok(if is_checked { OVERFLOW.within(emitter, value, bounds) } else { value })
}

fn absolute(emitter: &mut Emitter, value: &Value) -> Result<Value> {
    let type_range = range_of_type(&value.data_type).ok_or_else(|| Reason::Type(value.data_type.clone()))?;
    let value = OVERFLOW.within(emitter, value.clone(), Range::new(-type_range.max, type_range.max));
    let range = int_range(&value)?;
    let above = Range::new(if range.min >= 0 { range.min } else { 0 }, range.max.max(-range.min));
    let c_type = range.union(above).c_type();
    let code = emitter.temporary(c_type, &value.code_as(c_type));
    let name = above.c_type().name();
    let code = emitter.temporary(above.c_type(), &format!("({name})({code} < 0 ? -{code} : {code})"));
    Ok(Value { code, kind: Kind::Int(above), ..value })
}

/// Down to a multiple of ten to so many `steps`; `/` toward zero.
fn multiple(emitter: &mut Emitter, value: &Value, steps: i32, function: &str) -> Result<Value> {
    if steps <= 0 {
        return Ok(value.clone());
    }
    if steps > 37 {
        return Err(Reason::Limit("rounding to more than 37 places".into()).into());
    }
    let factor = power_of_ten(steps.unsigned_abs())?;
    let quotient = quotient(emitter, value, factor, function)?;
    times(emitter, &quotient, factor, OVERFLOW)
}

/// Half away from zero, as DataFusion's `round` of integers and decimals.
fn round(emitter: &mut Emitter, value: &Value, places: i32, to: &DataType) -> Result<Value> {
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
        let zero = Value::new("0", Kind::Int(Range::new(0, 0)), to.clone());
        return Ok(zero.with_valid(value.valid.clone()));
    }
    let rounded = divide_rounding(emitter, value, power_of_ten(steps.unsigned_abs())?)?;
    let up = if is_decimal { i32::from(scale_of(to)) - places } else { -places };
    let factor = power_of_ten(u32::try_from(up).unwrap_or(0))?;
    let product = typed(times(emitter, &rounded, factor, OVERFLOW)?);
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    Ok(OVERFLOW.within(emitter, product, bounds))
}

/// Functions of the bits of two integers of one type.
fn bitwise(emitter: &mut Emitter, function: Function, left: &Value, right: &Value, to: &DataType) -> Result<Value> {
    let (l, r) = (int_range(left)?, int_range(right)?);
    let type_range = range_of_type(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let valid = both_valid(left, right);
    let c_type = type_range.c_type();
    let (a, b) = (left.code_as(c_type), right.code_as(c_type));
    let is_positive = l.min >= 0 && r.min >= 0;
    let below = |value: i128| Range::new(0, (1i128 << bits(value)) - 1);
    let width = match bits(type_range.max).next_power_of_two() {
        width @ (8 | 16 | 32 | 64) => width,
        other => return Err(Error::internal(format!("an integer of {other} bits"))),
    };
    let (code, range) = match function {
        Function::BitAnd if is_positive => (format!("{a} & {b}"), Range::new(0, l.max.min(r.max))),
        Function::BitAnd => (format!("{a} & {b}"), type_range),
        Function::BitOr | Function::BitXor => {
            let operator = if function == Function::BitOr { "|" } else { "^" };
            (format!("{a} {operator} {b}"), if is_positive { below(l.max.max(r.max)) } else { type_range })
        }
        Function::ShiftLeft => {
            let wrapped = wrapped_type_name(to);
            (format!("({})({wrapped})((u64){a} << ((u32){b} & {}))", c_type.name(), width - 1), type_range)
        }
        _ => (format!("{a} >> ((u32){b} & {})", width - 1), Range::new(l.min.min(0), l.max.max(0))),
    };
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("({name})({code})"));
    Ok(Value::new(code, Kind::Int(range), to.clone()).with_valid(valid))
}

/// The greatest or least argument; null where all are.
fn extremum(emitter: &mut Emitter, function: Function, arguments: &[Value], to: &DataType) -> Result<Value> {
    let arguments = if holds_strings(to) { lookup::unify(emitter, arguments)? } else { arguments.to_vec() };
    if arguments.iter().any(|value| value.dictionary.as_ref().is_some_and(|dictionary| !dictionary.is_sorted())) {
        return Err(Reason::Limit(format!("{function} of strings without an order")).into());
    }
    let mut values = arguments.into_iter();
    let mut best = values.next().ok_or_else(|| Error::internal("greatest of nothing"))?;
    let op = if function == Function::Greatest { ">" } else { "<" };
    for next in values {
        let kind = match (best.kind, next.kind) {
            (Kind::Int(a), Kind::Int(b)) => Kind::Int(a.union(b)),
            (kind, _) => kind,
        };
        let c_type = kind.c_type();
        let [best_code, next_code] = [&best, &next].map(|value| emitter.temporary(c_type, &value.code_as(c_type)));
        let of = |code: &str| Value::new(code, kind, to.clone());
        let mut is_better = format!("{} {op} {}", ordered(&of(&next_code)), ordered(&of(&best_code)));
        if let Some(valid) = &best.valid {
            is_better = format!("!{valid} || {is_better}");
        }
        if let Some(valid) = &next.valid {
            is_better = format!("{valid} && ({is_better})");
        }
        let valid = match (&best.valid, &next.valid) {
            (Some(a), Some(b)) => Some(emitter.temporary(CType::Bool, &format!("{a} || {b}"))),
            _ => None,
        };
        let code = emitter.temporary(c_type, &format!("({is_better}) ? {next_code} : {best_code}"));
        best = Value { code, kind, valid, dictionary: next.dictionary.or(best.dictionary), data_type: to.clone() };
    }
    Ok(best)
}
