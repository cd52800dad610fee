//! Casts between types that are stored as integers or floats, as Arrow's checked casts do them.

use arrow::datatypes::{DataType, TimeUnit};

use super::emitter::Emitter;
use super::value::{CType, Kind, Range, Value, range_of_type, scale_of};
use crate::{Error, Reason, Result};

/// C literal of a constant.
pub(crate) fn constant(value: i128, c_type: CType) -> String {
    match c_type {
        CType::I128 => format!("((i128)((u128){}ULL << 64 | {}ULL))", (value >> 64) as u64, value as u64),
        _ => format!("(({}){}ULL)", c_type.name(), value as u64),
    }
}

fn power_of_ten(exponent: u32) -> Result<i128> {
    10i128.checked_pow(exponent).ok_or_else(|| Reason::Limit("decimal scale beyond 38".into()).into())
}

/// The value times a power of ten, so that it has this scale (at least its own).
pub(crate) fn rescale_up(value: &Value, scale: i8) -> Result<Value> {
    let steps = i32::from(scale) - i32::from(value.scale());
    if steps == 0 {
        return Ok(value.clone());
    }
    let steps = u32::try_from(steps).map_err(|_| Error::internal(format!("rescale {} to {scale}", value.data_type)))?;
    let factor = power_of_ten(steps)?;
    let range = value.range().ok_or_else(|| Error::internal("rescale of a float"))?;
    let beyond = || Reason::Limit("decimal rescaling that may leave 128 bits".into());
    let range = Range::new(
        range.min.checked_mul(factor).ok_or_else(beyond)?,
        range.max.checked_mul(factor).ok_or_else(beyond)?,
    );
    let c_type = range.union(Range::new(0, factor)).c_type();
    let code = format!("({} * {})", value.code_as(c_type), constant(factor, c_type));
    let data_type = DataType::Decimal128(38, scale);
    let mut scaled = Value::new(code, Kind::Int(range), data_type).with_valid(value.valid.clone());
    if c_type != range.c_type() {
        scaled.code = format!("(({}){})", range.c_type().name(), scaled.code);
    }
    Ok(scaled)
}

/// What a type is for casting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Boolean,
    /// A number of scale 0.
    Integer,
    Decimal,
    Float,
    /// Dates and times: only a few casts keep the stored number.
    Time,
}

fn class_of(data_type: &DataType) -> Option<Class> {
    Some(match data_type {
        DataType::Boolean => Class::Boolean,
        DataType::Float32 | DataType::Float64 => Class::Float,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => Class::Decimal,
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => Class::Time,
        _ if data_type.is_integer() => Class::Integer,
        _ => return None,
    })
}

/// Whether a cast is supported.
pub(crate) fn check(from: &DataType, to: &DataType) -> Result<(), Reason> {
    use Class::{Boolean, Decimal, Float, Integer, Time};
    let unsupported = || Reason::Expression(format!("CAST({from} AS {to})"));
    if from == to || *from == DataType::Null {
        return Ok(());
    }
    match (class_of(from).ok_or_else(unsupported)?, class_of(to).ok_or_else(unsupported)?) {
        (Boolean | Integer, Integer | Float) | (Integer, Decimal) | (Decimal, Decimal | Float) => Ok(()),
        (Float, Float | Integer) | (Integer, Boolean) => Ok(()),
        (Decimal, Integer) => Ok(()),
        (Time, Time) if time_factor(from, to).is_some() => Ok(()),
        _ => Err(unsupported()),
    }
}

/// Factor by which the stored number of a finer time type is larger; `None` where a cast between
/// the two does more than multiply.
fn time_factor(from: &DataType, to: &DataType) -> Option<i128> {
    let seconds = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    match (from, to) {
        (DataType::Date32, DataType::Date64) => Some(86_400_000),
        (DataType::Date32, DataType::Timestamp(unit, None)) => Some(86_400 * seconds(unit)),
        (DataType::Timestamp(a, None), DataType::Timestamp(b, None)) if seconds(b) >= seconds(a) => {
            Some(seconds(b) / seconds(a))
        }
        _ => None,
    }
}

/// Emits a cast; a value that does not fit raises WJ_STATUS_CAST.
pub(crate) fn cast(emitter: &mut Emitter, value: &Value, to: &DataType) -> Result<Value> {
    check(&value.data_type, to)?;
    if value.data_type == *to {
        return Ok(value.clone());
    }
    if value.valid.as_deref() == Some("false") {
        return super::expr::literal(emitter, &crate::expr::Scalar::Null, to);
    }
    let typed = |value: Value| Value { data_type: to.clone(), ..value };
    let from_float = matches!(value.kind, Kind::F32 | Kind::F64);
    match to {
        DataType::Float32 | DataType::Float64 => {
            let kind = if *to == DataType::Float32 { Kind::F32 } else { Kind::F64 };
            let c_type = kind.c_type();
            let mut code = value.code_as(c_type);
            if value.scale() != 0 {
                // Arrow divides in double precision.
                let divisor = format!("{}.0", power_of_ten(value.scale().unsigned_abs().into())?);
                let op = if value.scale() > 0 { "/" } else { "*" };
                code = format!("({})({} {op} {divisor})", c_type.name(), value.code_as(CType::F64));
            }
            let code = emitter.temporary(c_type, &code);
            Ok(Value::new(code, kind, to.clone()).with_valid(value.valid.clone()))
        }
        DataType::Boolean => {
            let code = format!("({} != 0)", value.code);
            Ok(Value::new(code, Kind::Bool, to.clone()).with_valid(value.valid.clone()))
        }
        _ if from_float => float_to_integer(emitter, value, to),
        _ if class_of(to) == Some(Class::Time) => {
            let factor = time_factor(&value.data_type, to).unwrap_or(1);
            let factor = Value::new(constant(factor, CType::I64), Kind::Int(Range::new(factor, factor)), to.clone());
            let product = super::arithmetic::multiply_exact(emitter, value, &factor)?;
            bounded(emitter, typed(product), to)
        }
        _ => {
            let scale = scale_of(to);
            let scaled =
                if scale >= value.scale() { rescale_up(value, scale)? } else { rescale_down(emitter, value, to)? };
            bounded(emitter, typed(scaled), to)
        }
    }
}

/// Largest unscaled value of a decimal's precision, or the bounds of another type.
fn bounds_of(to: &DataType) -> Option<Range> {
    match to {
        DataType::Decimal32(precision, _) | DataType::Decimal64(precision, _) | DataType::Decimal128(precision, _) => {
            let bound = 10i128.checked_pow(u32::from(*precision))? - 1;
            Some(Range::new(-bound, bound))
        }
        _ => range_of_type(to),
    }
}

/// The value, with an error where it leaves the type's bounds.
fn bounded(emitter: &mut Emitter, value: Value, to: &DataType) -> Result<Value> {
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let value = if value.kind == Kind::Bool {
        Value { code: format!("((i32){})", value.code), kind: Kind::Int(Range::new(0, 1)), ..value }
    } else {
        value
    };
    let range = value.range().ok_or_else(|| Error::internal("bounds of a float"))?;
    if range.min >= bounds.min && range.max <= bounds.max {
        return Ok(value);
    }
    let name = emitter.temporary(value.c_type(), &value.code);
    let (code, range) =
        super::arithmetic::within_bounds(emitter, name, (range, bounds), &value.valid, "WJ_STATUS_CAST");
    let code = emitter.temporary(range.c_type(), &code);
    Ok(Value { code, kind: Kind::Int(range), ..value })
}

/// Division by a power of ten: a decimal target rounds half away from zero, an integer truncates.
fn rescale_down(emitter: &mut Emitter, value: &Value, to: &DataType) -> Result<Value> {
    let steps = i32::from(value.scale()) - i32::from(scale_of(to));
    let factor = power_of_ten(u32::try_from(steps).unwrap_or(0))?;
    let range = value.range().ok_or_else(|| Error::internal("rescale of a float"))?;
    let c_type = range.union(Range::new(-factor, factor)).c_type();
    let operand = emitter.temporary(c_type, &value.code_as(c_type));
    let divisor = constant(factor, c_type);
    let mut code = format!("{operand} / {divisor}");
    if class_of(to) == Some(Class::Decimal) {
        let half = constant(factor / 2, c_type);
        code = format!("{code} + ({operand} % {divisor} >= {half} ? 1 : ({operand} % {divisor} <= -{half} ? -1 : 0))");
    }
    let range = Range::new(range.min / factor - 1, range.max / factor + 1);
    let code = emitter.temporary(range.c_type(), &format!("({})({code})", range.c_type().name()));
    Ok(Value::new(code, Kind::Int(range), to.clone()).with_valid(value.valid.clone()))
}

/// Truncation toward zero; NaN and values beyond the type are errors.
fn float_to_integer(emitter: &mut Emitter, value: &Value, to: &DataType) -> Result<Value> {
    let bounds = range_of_type(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let code = emitter.temporary(CType::F64, &value.code_as(CType::F64));
    // Bounds are powers of two (or one less): exact as doubles, the upper one excluded.
    let fits = format!("({code} > {}.0 - 1.0 && {code} < {}.0)", bounds.min, bounds.max + 1);
    let fits = if bounds.min == i128::from(i64::MIN) {
        format!("({code} >= {}.0 && {code} < {}.0)", bounds.min, bounds.max + 1)
    } else {
        fits
    };
    let valid = value.valid.as_ref().map(|v| format!("{v} && ")).unwrap_or_default();
    emitter.raise_if(&format!("{valid}!{fits}"), "WJ_STATUS_CAST");
    let c_type = bounds.c_type();
    let code = emitter.temporary(c_type, &format!("{fits} ? ({}){code} : 0", c_type.name()));
    Ok(Value::new(code, Kind::Int(bounds), to.clone()).with_valid(value.valid.clone()))
}
