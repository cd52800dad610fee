//! Casts between types that are stored as integers or floats, as Arrow's casts do them.

use arrow::datatypes::{DataType, TimeUnit};
use warpjoin_columns::function::zone_offset_seconds;
use warpjoin_columns::{Error, Reason, Result};

use super::dates;
use super::fault::Fault;
use super::literal::literal;
use crate::bind::{Binder, Value};
use crate::program::{Binding, Function, Op, Type};
use crate::value::{CType, Kind, Range, RangeType, range_of_type, scale_of};

pub(super) use warpjoin_columns::column::bounds_of;
pub(super) fn power_of_ten(exponent: u32) -> Result<i128> {
    10i128.checked_pow(exponent).ok_or_else(|| Reason::Limit("decimal scale beyond 38".into()).into())
}

/// A value times a positive constant; a fault where the product leaves 128 bits.
pub(super) fn times(b: &mut Binder, value: &Value, factor: i128, fault: Fault) -> Result<Value> {
    if factor == 1 {
        return Ok(value.clone());
    }
    let bound = i128::MAX / factor;
    let value = fault.within(b, value.clone(), Range::new(-bound, bound));
    let range = value.range().ok_or_else(|| Error::internal("a float times an integer"))?;
    let range = Range::new(range.min * factor, range.max * factor);
    let c_type = range.union(Range::new(0, factor)).c_type();
    let mut code = b.in_parens(b.code_as(&value, c_type), Op::Multiply, b.constant(factor, c_type));
    if c_type != range.c_type() {
        code = b.cast_in_parens(range.c_type(), code);
    }
    Ok(Value { code, kind: Kind::Int(range), ..value })
}

/// The value times a power of ten, so that it has this scale (at least its own).
pub(super) fn rescale_up(b: &mut Binder, value: &Value, scale: i8, fault: Fault) -> Result<Value> {
    let steps = i32::from(scale) - i32::from(value.scale());
    if steps == 0 {
        return Ok(value.clone());
    }
    let steps = u32::try_from(steps).map_err(|_| Error::internal(format!("rescale {} to {scale}", value.data_type)))?;
    let scaled = times(b, value, power_of_ten(steps)?, fault)?;
    Ok(Value { data_type: DataType::Decimal128(38, scale), ..scaled })
}

/// What a type is for casting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Boolean,
    /// A number of scale 0.
    Integer,
    Decimal,
    Float,
    Date,
    Time,
    Timestamp,
    Duration,
}

fn class_of(data_type: &DataType) -> Option<Class> {
    Some(match data_type {
        DataType::Boolean => Class::Boolean,
        DataType::Float32 | DataType::Float64 => Class::Float,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => Class::Decimal,
        DataType::Date32 | DataType::Date64 => Class::Date,
        DataType::Time32(_) | DataType::Time64(_) => Class::Time,
        DataType::Timestamp(..) => Class::Timestamp,
        DataType::Duration(_) => Class::Duration,
        _ if data_type.is_integer() => Class::Integer,
        _ => return None,
    })
}

/// How a cast is done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    /// The stored number stays, if it fits.
    Stored,
    /// First to another type.
    Through(DataType),
    /// Between integers, booleans and decimals, by their scales.
    Rescale,
    ToFloat,
    ToBoolean,
    FloatToInteger,
    FloatToDecimal,
    /// To a unit of time so many times finer.
    Times(i128),
    /// To a coarser unit, toward zero.
    Quotient(i128),
    /// To the day, with so many ticks a day, in the time zone of this offset in ticks.
    Day(i128, i128),
}

/// Ticks of a second in a unit.
pub(super) fn per_second(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

pub(super) const DAY_SECONDS: i128 = 86_400;

/// What a day is in the numbers of a date, time, timestamp or duration.
pub(super) fn ticks_per_day(data_type: &DataType) -> Option<i128> {
    match data_type {
        DataType::Date32 => Some(1),
        DataType::Date64 => Some(DAY_SECONDS * 1_000),
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Timestamp(unit, _) | DataType::Duration(unit) => {
            Some(DAY_SECONDS * per_second(*unit))
        }
        _ => None,
    }
}

fn route(from: &DataType, to: &DataType) -> Option<Route> {
    use Class::{Boolean, Date, Decimal, Duration, Float, Integer, Time, Timestamp};
    if from == to {
        return Some(Route::Stored);
    }
    let through = |data_type: DataType| Some(Route::Through(data_type));
    match (class_of(from)?, class_of(to)?) {
        (Boolean | Integer, Integer) | (Integer | Decimal, Decimal) | (Decimal, Integer) => Some(Route::Rescale),
        (Boolean | Integer | Decimal | Float, Float) => Some(Route::ToFloat),
        (Integer | Float, Boolean) => Some(Route::ToBoolean),
        (Float, Integer) => Some(Route::FloatToInteger),
        (Float, Decimal) if !matches!(to, DataType::Decimal32(..)) => Some(Route::FloatToDecimal),
        (Integer | Decimal | Float, Timestamp | Duration) if *from != DataType::Int64 => through(DataType::Int64),
        (Integer, Timestamp | Duration) => Some(Route::Stored),
        (Timestamp | Duration, Integer | Decimal | Float) if *to != DataType::Int64 => through(DataType::Int64),
        (Timestamp | Duration, Integer) => Some(Route::Stored),
        (Date | Time, Integer) | (Integer, Date | Time) => match (from, to) {
            (DataType::Int32, DataType::Date32 | DataType::Time32(_))
            | (DataType::Date32 | DataType::Time32(_), DataType::Int32)
            | (DataType::Int64, DataType::Date64 | DataType::Time64(_))
            | (DataType::Date64 | DataType::Time64(_), DataType::Int64) => Some(Route::Stored),
            (DataType::Int32, DataType::Date64) => through(DataType::Date32),
            (DataType::Int64, DataType::Date32) | (DataType::Date32 | DataType::Time32(_), DataType::Int64) => {
                through(DataType::Int32)
            }
            (DataType::Date64, DataType::Int32) => through(DataType::Int64),
            _ => None,
        },
        (Date | Timestamp, Date | Timestamp) | (Time, Time) | (Duration, Duration) => time_route(from, to),
        _ => None,
    }
}

/// Between types that count time in different units.
fn time_route(from: &DataType, to: &DataType) -> Option<Route> {
    let (from_ticks, to_ticks) = (ticks_per_day(from)?, ticks_per_day(to)?);
    match (from, to) {
        (DataType::Timestamp(unit, zone), DataType::Date32) => {
            let offset = zone_offset_seconds(zone.as_deref())? * per_second(*unit);
            return Some(Route::Day(from_ticks, offset));
        }
        // Local time is taken for that of the zone; from another zone, the moment stays.
        (DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None), DataType::Timestamp(_, zone))
            if zone_offset_seconds(zone.as_deref()) != Some(0) =>
        {
            return None;
        }
        _ => {}
    }
    let is_coarser = to_ticks < from_ticks;
    Some(if is_coarser { Route::Quotient(from_ticks / to_ticks) } else { Route::Times(to_ticks / from_ticks) })
}

/// Whether a cast is supported.
pub fn check(from: &DataType, to: &DataType) -> Result<(), Reason> {
    if *from == DataType::Null {
        return Ok(());
    }
    match route(from, to) {
        Some(Route::Through(middle)) => check(from, &middle).and_then(|()| check(&middle, to)),
        Some(_) => Ok(()),
        None => Err(Reason::Expression(format!("CAST({from} AS {to})"))),
    }
}

/// Binds a cast; a value that does not fit is a fault.
pub(super) fn cast(b: &mut Binder, value: &Value, to: &DataType, fault: Fault) -> Result<Value> {
    if value.data_type == *to {
        return Ok(value.clone());
    }
    check(&value.data_type, to)?;
    if b.is_null(value) {
        return literal(b, &warpjoin_columns::expr::Scalar::Null, to);
    }
    let route =
        route(&value.data_type, to).ok_or_else(|| Reason::Expression(format!("CAST({} AS {to})", value.data_type)))?;
    let typed = |value: Value| Value { data_type: to.clone(), ..value };
    match route {
        Route::Stored => bounded(b, typed(value.clone()), to, fault),
        Route::Through(middle) => {
            let value = cast(b, value, &middle, fault)?;
            cast(b, &value, to, fault)
        }
        Route::Rescale if scale_of(to) < value.scale() => {
            let scaled = rescale_down(b, value, to)?;
            bounded(b, typed(scaled), to, fault)
        }
        Route::Rescale => {
            let scaled = rescale_up(b, value, scale_of(to), fault)?;
            bounded(b, typed(scaled), to, fault)
        }
        Route::ToFloat => to_float(b, value, to),
        Route::ToBoolean => {
            let code = b.in_parens(value.code, Op::NotEqual, b.whole(0));
            Ok(Value::new(code, Kind::Bool, to.clone()).with_valid(value.valid))
        }
        Route::FloatToInteger => float_to_integer(b, value, to, fault),
        Route::FloatToDecimal => float_to_decimal(b, value, to, fault),
        Route::Times(factor) => {
            let product = times(b, value, factor, fault)?;
            bounded(b, typed(product), to, fault)
        }
        Route::Quotient(divisor) => {
            let quotient = quotient(b, value, divisor, Rounding::TowardZero)?;
            bounded(b, typed(quotient), to, fault)
        }
        // Arrow reports a day out of its calendar even where other casts give null.
        Route::Day(ticks, offset) => Ok(typed(dates::days(b, value, ticks, offset)?)),
    }
}

/// What becomes of the rest of a division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    TowardZero,
    Down,
}

/// Division by a positive constant.
pub(super) fn quotient(b: &mut Binder, value: &Value, divisor: i128, rounding: Rounding) -> Result<Value> {
    let range = value.range().ok_or_else(|| Error::internal("quotient of a float"))?;
    let c_type = range.union(Range::new(0, divisor)).c_type();
    let (left, right) = (b.code_as(value, c_type), b.constant(divisor, c_type));
    let (code, range) = match rounding {
        Rounding::TowardZero => {
            (b.binary(left, Op::Divide, right), Range::new(range.min / divisor, range.max / divisor))
        }
        Rounding::Down => {
            let range = Range::new(range.min.div_euclid(divisor), range.max.div_euclid(divisor));
            (b.call(Function::FloorDivide, &[left, right]), range)
        }
    };
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), b.parens(code)));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

/// The value, with a fault where it leaves the type's bounds.
fn bounded(b: &mut Binder, value: Value, to: &DataType, fault: Fault) -> Result<Value> {
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let value = if value.kind == Kind::Bool && *to != DataType::Boolean {
        Value { code: b.cast_in_parens(CType::I32, value.code), kind: Kind::Int(Range::new(0, 1)), ..value }
    } else {
        value
    };
    Ok(fault.within(b, value, bounds))
}

/// Division by a power of ten: a decimal target rounds half away from zero, an integer truncates.
fn rescale_down(b: &mut Binder, value: &Value, to: &DataType) -> Result<Value> {
    let steps = i32::from(value.scale()) - i32::from(scale_of(to));
    let factor = power_of_ten(u32::try_from(steps).unwrap_or(0))?;
    if class_of(to) == Some(Class::Decimal) {
        divide_rounding(b, value, factor)
    } else {
        quotient(b, value, factor, Rounding::TowardZero)
    }
}

/// Division by a power of ten, rounded half away from zero.
pub(super) fn divide_rounding(b: &mut Binder, value: &Value, factor: i128) -> Result<Value> {
    let range = value.range().ok_or_else(|| Error::internal("rescale of a float"))?;
    let c_type = range.union(Range::new(-factor, factor)).c_type();
    let operand = b.temporary(c_type, b.code_as(value, c_type));
    let (divisor, half) = (b.constant(factor, c_type), b.constant(factor / 2, c_type));
    let rest = b.binary(operand, Op::Remainder, divisor);
    let is_half = |op, half, carry, otherwise| b.select(b.binary(rest, op, half), b.whole(carry), otherwise);
    let down = b.parens(is_half(Op::LessOrEqual, b.negate(half), -1, b.whole(0)));
    let carry = b.parens(is_half(Op::GreaterOrEqual, half, 1, down));
    let range = Range::new(range.min / factor - 1, range.max / factor + 1);
    let rounded = b.in_parens(b.binary(operand, Op::Divide, divisor), Op::Add, carry);
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), rounded));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

fn to_float(b: &mut Binder, value: &Value, to: &DataType) -> Result<Value> {
    let kind = if *to == DataType::Float32 { Kind::F32 } else { Kind::F64 };
    let c_type = kind.c_type();
    let code = match value.scale() {
        0 => b.code_as(value, c_type),
        // Arrow divides in double precision.
        scale => {
            let exponent = scale.unsigned_abs().into();
            power_of_ten(exponent)?;
            let op = if scale > 0 { Op::Divide } else { Op::Multiply };
            b.cast(c_type, b.in_parens(b.code_as(value, CType::F64), op, b.ten_to_the(exponent)))
        }
    };
    let code = b.temporary(c_type, code);
    Ok(Value::new(code, kind, to.clone()).with_valid(value.valid))
}

/// Truncation toward zero; NaN and values beyond the type do not fit.
fn float_to_integer(b: &mut Binder, value: &Value, to: &DataType, fault: Fault) -> Result<Value> {
    let bounds = range_of_type(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let code = b.temporary(CType::F64, b.code_as(value, CType::F64));
    // Bounds are powers of two (or one less): exact as doubles, the upper one excluded.
    let least = b.double(bounds.min as f64);
    let is_below = b.binary(code, Op::Less, b.double((bounds.max + 1) as f64));
    let is_above = if bounds.min == i128::from(i64::MIN) {
        b.binary(code, Op::GreaterOrEqual, least)
    } else {
        b.binary(code, Op::Greater, b.binary(least, Op::Subtract, b.double(1.0)))
    };
    let fits = b.temporary(CType::Bool, b.in_parens(is_above, Op::And, is_below));
    let valid = fault.at(b, b.not(fits), value.valid);
    let c_type = bounds.c_type();
    let code = b.temporary(c_type, b.select(fits, b.cast(c_type, code), b.whole(0)));
    Ok(Value::new(code, Kind::Int(bounds), to.clone()).with_valid(valid))
}

/// Times a power of ten in double precision, then rounded half away from zero.
fn float_to_decimal(b: &mut Binder, value: &Value, to: &DataType, fault: Fault) -> Result<Value> {
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let factor = 10f64.powi(scale_of(to).into()).to_bits();
    let factor = b.params.add(Type::Value(CType::F64), Binding::Word(factor));
    let product = b.binary(b.field(factor), Op::Multiply, b.code_as(value, CType::F64));
    let code = b.temporary(CType::F64, b.call(Function::Round, &[product]));
    // A double below 2^127; what is beyond the precision is seen once it is an integer.
    let limit = if matches!(to, DataType::Decimal64(..)) { i64::MAX.into() } else { i128::MAX };
    let magnitude = b.call(Function::Fabs, &[code]);
    let fits = b.temporary(CType::Bool, b.in_parens(magnitude, Op::Less, b.double(limit as f64)));
    let valid = fault.at(b, b.not(fits), value.valid);
    let range = Range::new(-limit, limit);
    let c_type = range.c_type();
    let whole = b.cast(c_type, b.call(Function::WideOfDouble, &[code]));
    let code = b.temporary(c_type, b.select(fits, whole, b.cast(c_type, b.whole(0))));
    let value = Value::new(code, Kind::Int(range), to.clone()).with_valid(valid);
    Ok(fault.within(b, value, bounds))
}
