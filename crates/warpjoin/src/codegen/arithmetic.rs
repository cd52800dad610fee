//! Arithmetic of integers, floats, decimals and times, with DataFusion's overflow and scale rules.
//!
//! Integer bounds travel with the values: arithmetic stays in 32 or 64 bits where they prove that
//! it can, and goes to 128 where not. What can't be excluded raises a status bit.

use arrow::datatypes::DataType;

use super::cast;
use super::emitter::Emitter;
use super::expr::{both_valid, where_valid};
use super::value::{CType, Kind, Range, Value, range_of_type, scale_of};
use crate::expr::ArithmeticOp;
use crate::{Error, Reason, Result};

/// Emits [`crate::expr::ExprKind::Arithmetic`].
pub(crate) fn arithmetic(
    emitter: &mut Emitter,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = both_valid(left, right);
    if let (Kind::F32 | Kind::F64, Kind::F32 | Kind::F64) = (left.kind, right.kind) {
        if op == ArithmeticOp::Modulo {
            return Err(Reason::Expression("% of floats".into()).into());
        }
        let code = emitter.temporary(left.c_type(), &format!("{} {op} {}", left.code, right.code));
        return Ok(Value::new(code, left.kind, data_type.clone()).with_valid(valid));
    }
    let target_scale = scale_of(data_type);
    match op {
        ArithmeticOp::Multiply => {
            if left.scale() + right.scale() != target_scale {
                return Err(Reason::Expression(format!("product of scale {target_scale}")).into());
            }
            combine(emitter, op, left, right, data_type)
        }
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let left = cast::rescale_up(left, target_scale)?;
            let right = cast::rescale_up(right, target_scale)?;
            combine(emitter, op, &left, &right, data_type)
        }
        ArithmeticOp::Divide => {
            // The left side is scaled so that the quotient has the target scale.
            let shift = target_scale - left.scale() + right.scale();
            let left = cast::rescale_up(left, left.scale() + shift.max(0))?;
            let right = cast::rescale_up(right, right.scale() + (-shift).max(0))?;
            divide(emitter, op, &left, &right, data_type)
        }
        ArithmeticOp::Modulo => {
            let scale = left.scale().max(right.scale());
            let left = cast::rescale_up(left, scale)?;
            let right = cast::rescale_up(right, scale)?;
            divide(emitter, op, &left, &right, data_type)
        }
    }
}

pub(crate) fn int_range(value: &Value) -> Result<Range> {
    value.range().ok_or_else(|| Error::internal(format!("{} is no integer", value.data_type)))
}

/// Bounds of a sum, difference or product; `None` when 128 bits may not do.
fn combined_range(op: ArithmeticOp, left: Range, right: Range) -> Option<Range> {
    match op {
        ArithmeticOp::Add => Some(Range::new(left.min.checked_add(right.min)?, left.max.checked_add(right.max)?)),
        ArithmeticOp::Subtract => Some(Range::new(left.min.checked_sub(right.max)?, left.max.checked_sub(right.min)?)),
        _ => {
            let mut corners = [0; 4];
            for (corner, (a, b)) in corners.iter_mut().zip([
                (left.min, right.min),
                (left.min, right.max),
                (left.max, right.min),
                (left.max, right.max),
            ]) {
                *corner = i128::checked_mul(a, b)?;
            }
            Some(Range::new(corners.into_iter().min()?, corners.into_iter().max()?))
        }
    }
}

/// Sum, difference or product of integers of one scale rule: wraps in integer types, and is
/// declined where a decimal could leave 128 bits.
fn combine(
    emitter: &mut Emitter,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = both_valid(left, right);
    let range = combined_range(op, int_range(left)?, int_range(right)?);
    let type_range = range_of_type(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let fits = range.is_some_and(|range| range.min >= type_range.min && range.max <= type_range.max);
    let (code, range) = match range {
        Some(range) if fits => {
            let c_type = range.c_type();
            (format!("{} {op} {}", left.code_as(c_type), right.code_as(c_type)), range)
        }
        Some(range) if data_type.is_decimal() => {
            let c_type = range.c_type();
            let code = emitter.temporary(c_type, &format!("{} {op} {}", left.code_as(c_type), right.code_as(c_type)));
            within_bounds(emitter, code, (range, type_range), &valid, "WJ_STATUS_OVERFLOW")
        }
        _ if data_type.is_decimal() => {
            return Err(Reason::Limit("decimal arithmetic that may leave 128 bits".into()).into());
        }
        _ => {
            let wrapped = wrapped_type_name(data_type);
            let name = type_range.c_type().name();
            let code = format!(
                "({name})({wrapped})((u64){} {op} (u64){})",
                left.code_as(CType::I64),
                right.code_as(CType::I64)
            );
            (code, type_range)
        }
    };
    let code = emitter.temporary(range.c_type(), &code);
    Ok(Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid))
}

/// A name of range `range`, kept within `bounds`, and its range then: values beyond are reported,
/// and replaced, for an address may be computed of them before the launch ends.
pub(crate) fn within_bounds(
    emitter: &mut Emitter,
    name: String,
    (range, bounds): (Range, Range),
    valid: &Option<String>,
    status: &str,
) -> (String, Range) {
    let mut tests = vec![];
    if range.max > bounds.max {
        tests.push(format!("{name} > {}", cast::constant(bounds.max, range.c_type())));
    }
    if range.min < bounds.min {
        tests.push(format!("{name} < {}", cast::constant(bounds.min, range.c_type())));
    }
    if tests.is_empty() {
        return (name, range);
    }
    let is_beyond = emitter.temporary(CType::Bool, &tests.join(" || "));
    emitter.raise_if(&where_valid(valid, &is_beyond), status);
    let clamped = |value: i128| value.clamp(bounds.min, bounds.max);
    let range = Range::new(clamped(range.min), clamped(range.max));
    let c_type = range.c_type();
    (format!("({is_beyond} ? {} : ({})({name}))", cast::constant(range.min, c_type), c_type.name()), range)
}

/// The C type in which values of an integer type wrap.
fn wrapped_type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int8 => "i8",
        DataType::Int16 => "i16",
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => "i32",
        DataType::UInt8 => "u8",
        DataType::UInt16 => "u16",
        DataType::UInt32 => "u32",
        DataType::UInt64 => "u64",
        _ => "i64",
    }
}

fn divide(emitter: &mut Emitter, op: ArithmeticOp, left: &Value, right: &Value, data_type: &DataType) -> Result<Value> {
    let valid = both_valid(left, right);
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
    let divisor = emitter.temporary(c_type, &right.code_as(c_type));
    emitter.raise_if(&where_valid(&valid, &format!("{divisor} == 0")), "WJ_STATUS_DIVISION");
    let function = if op == ArithmeticOp::Divide { "divide_or_zero" } else { "modulo_or_zero" };
    let code = emitter.temporary(c_type, &format!("{function}({}, {divisor})", left.code_as(c_type)));
    let type_range = range_of_type(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let (code, range) = within_bounds(emitter, code, (range, type_range), &valid, "WJ_STATUS_OVERFLOW");
    Ok(Value {
        code: format!("({})({code})", range.c_type().name()),
        valid,
        kind: Kind::Int(range),
        data_type: data_type.clone(),
        dictionary: None,
    })
}

/// Mean of a sum over a count; null where the count is 0.
pub(crate) fn average(emitter: &mut Emitter, sum: &Value, count: &Value, data_type: &DataType) -> Result<Value> {
    let some = format!("({} != 0)", count.code);
    let valid = Some(sum.valid.as_ref().map_or(some.clone(), |valid| format!("({valid} && {some})")));
    if let Kind::F64 = sum.kind {
        let code = emitter.temporary(CType::F64, &format!("{} / (f64){}", sum.code, count.code));
        return Ok(Value::new(code, Kind::F64, data_type.clone()).with_valid(valid));
    }
    let scaled = cast::rescale_up(sum, scale_of(data_type))?;
    let range = int_range(&scaled)?;
    let name = range.c_type().name();
    let code =
        emitter.temporary(range.c_type(), &format!("divide_or_zero(({name}){}, ({name}){})", scaled.code, count.code));
    Ok(Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid))
}

/// Emits [`crate::expr::ExprKind::Negative`].
pub(crate) fn negative(emitter: &mut Emitter, value: &Value) -> Result<Value> {
    if let Kind::F32 | Kind::F64 = value.kind {
        return Ok(Value { code: format!("(-{})", value.code), ..value.clone() });
    }
    let zero = Value::new("0", Kind::Int(Range::new(0, 0)), value.data_type.clone());
    combine(emitter, ArithmeticOp::Subtract, &zero, value, &value.data_type)
}

/// Product of two integers whose bounds stay within 128 bits.
pub(crate) fn multiply_exact(emitter: &mut Emitter, left: &Value, right: &Value) -> Result<Value> {
    let valid = both_valid(left, right);
    let range = combined_range(ArithmeticOp::Multiply, int_range(left)?, int_range(right)?)
        .ok_or_else(|| Reason::Limit("a product that may leave 128 bits".into()))?;
    let c_type = range.c_type();
    let code = emitter.temporary(c_type, &format!("{} * {}", left.code_as(c_type), right.code_as(c_type)));
    Ok(Value::new(code, Kind::Int(range), left.data_type.clone()).with_valid(valid))
}
