//! Arithmetic of integers, floats, decimals and times, with DataFusion's overflow and scale rules.
//!
//! Integer bounds travel with the values: arithmetic stays in 32 or 64 bits where they prove that
//! it can, and goes to 128 where not. What can't be excluded raises a status bit.

use arrow::datatypes::DataType;

use super::cast;
use super::fault::OVERFLOW;
use super::validity::{both_valid, where_valid};
use crate::codegen::emit::Emitter;
use crate::codegen::value::{CType, Kind, Range, Value, range_of_type, scale_of};
use crate::expr::ArithmeticOp;
use crate::{Error, Reason, Result};

/// Emits [`crate::expr::ExprKind::Arithmetic`].
pub(super) fn arithmetic(
    emitter: &mut Emitter,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = both_valid(left, right);
    if let (Kind::F32 | Kind::F64, Kind::F32 | Kind::F64) = (left.kind, right.kind) {
        let code = match op {
            // Exact, so that the remainder of single-precision numbers is one of them.
            ArithmeticOp::Modulo => format!("({})fmod((f64){}, (f64){})", left.c_type().name(), left.code, right.code),
            _ => format!("{} {op} {}", left.code, right.code),
        };
        let code = emitter.temporary(left.c_type(), &code);
        return Ok(Value::new(code, left.kind, data_type.clone()).with_valid(valid));
    }
    let target_scale = scale_of(data_type);
    // What is scaled for a null overflows for nobody.
    let (left, right) = (&left.clone().with_valid(valid.clone()), &right.clone().with_valid(valid));
    match op {
        ArithmeticOp::Multiply => {
            if left.scale() + right.scale() != target_scale {
                return Err(Reason::Expression(format!("product of scale {target_scale}")).into());
            }
            combine(emitter, op, left, right, data_type)
        }
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let left = cast::rescale_up(emitter, left, target_scale, OVERFLOW)?;
            let right = cast::rescale_up(emitter, right, target_scale, OVERFLOW)?;
            combine(emitter, op, &left, &right, data_type)
        }
        ArithmeticOp::Divide => {
            // The left side is scaled so that the quotient has the target scale.
            let shift = target_scale - left.scale() + right.scale();
            let left = cast::rescale_up(emitter, left, left.scale() + shift.max(0), OVERFLOW)?;
            let right = cast::rescale_up(emitter, right, right.scale() + (-shift).max(0), OVERFLOW)?;
            divide(emitter, op, &left, &right, data_type)
        }
        ArithmeticOp::Modulo => {
            let scale = left.scale().max(right.scale());
            let left = cast::rescale_up(emitter, left, scale, OVERFLOW)?;
            let right = cast::rescale_up(emitter, right, scale, OVERFLOW)?;
            divide(emitter, op, &left, &right, data_type)
        }
    }
}

pub(super) fn int_range(value: &Value) -> Result<Range> {
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

/// Sum, difference or product of integers of one scale rule: wraps in integer types, and reports
/// overflow in the others.
pub(super) fn combine(
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
        Some(range) if reports_overflow(data_type) => {
            let c_type = range.c_type();
            let code = emitter.temporary(c_type, &format!("{} {op} {}", left.code_as(c_type), right.code_as(c_type)));
            let value = Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid);
            return Ok(OVERFLOW.within(emitter, value, type_range));
        }
        None if reports_overflow(data_type) => {
            let value = combine_wide(emitter, op, left, right);
            return Ok(OVERFLOW.within(emitter, Value { data_type: data_type.clone(), ..value }, type_range));
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

/// The same of two integers of any size.
fn combine_wide(emitter: &mut Emitter, op: ArithmeticOp, left: &Value, right: &Value) -> Value {
    let [left_name, right_name] = [left, right].map(|side| emitter.temporary(CType::I128, &side.code_as(CType::I128)));
    let test = match op {
        ArithmeticOp::Add => "wide_sum_overflows",
        ArithmeticOp::Subtract => "wide_difference_overflows",
        _ => "wide_product_overflows",
    };
    let is_beyond = emitter.temporary(CType::Bool, &format!("{test}({left_name}, {right_name})"));
    let valid = OVERFLOW.at(emitter, &is_beyond, both_valid(left, right));
    let code = format!("{is_beyond} ? (i128)0 : (i128)((u128){left_name} {op} (u128){right_name})");
    let code = emitter.temporary(CType::I128, &code);
    Value::new(code, Kind::Int(Range::new(i128::MIN, i128::MAX)), left.data_type.clone()).with_valid(valid)
}

/// Whether arithmetic of the type reports overflow instead of wrapping.
fn reports_overflow(data_type: &DataType) -> bool {
    data_type.is_decimal() || matches!(data_type, DataType::Timestamp(..) | DataType::Duration(_))
}

/// The C type in which values of an integer type wrap.
pub(super) fn wrapped_type_name(data_type: &DataType) -> &'static str {
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
    let code = if c_type == range.c_type() { code } else { format!("(({})({code}))", range.c_type().name()) };
    let value = Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid);
    Ok(OVERFLOW.within(emitter, value, type_range))
}

/// Mean of a sum over a count; null where the count is 0.
pub(super) fn average(emitter: &mut Emitter, sum: &Value, count: &Value, data_type: &DataType) -> Result<Value> {
    let some = format!("({} != 0)", count.code);
    let valid = Some(sum.valid.as_ref().map_or(some.clone(), |valid| format!("({valid} && {some})")));
    if let Kind::F64 = sum.kind {
        let code = emitter.temporary(CType::F64, &format!("{} / (f64){}", sum.code, count.code));
        return Ok(Value::new(code, Kind::F64, data_type.clone()).with_valid(valid));
    }
    let scaled = cast::rescale_up(emitter, sum, scale_of(data_type), OVERFLOW)?;
    let range = int_range(&scaled)?;
    let name = range.c_type().name();
    let code =
        emitter.temporary(range.c_type(), &format!("divide_or_zero(({name}){}, ({name}){})", scaled.code, count.code));
    let mean = Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid);
    let bounds = cast::bounds_of(data_type).ok_or_else(|| Error::internal(format!("a mean of type {data_type}")))?;
    Ok(OVERFLOW.within(emitter, mean, bounds))
}

/// Emits [`crate::expr::ExprKind::Negative`].
pub(super) fn negative(emitter: &mut Emitter, value: &Value) -> Result<Value> {
    if let Kind::F32 | Kind::F64 = value.kind {
        return Ok(Value { code: format!("(-{})", value.code), ..value.clone() });
    }
    let zero = Value::new("0", Kind::Int(Range::new(0, 0)), value.data_type.clone());
    combine(emitter, ArithmeticOp::Subtract, &zero, value, &value.data_type)
}
