//! Casts between types that are stored as integers or floats, as Arrow's casts do them.

use arrow::datatypes::{DataType, TimeUnit};

use super::dates;
use super::evaluate::literal;
use super::fault::Fault;
use crate::codegen::emit::{Binding, Emitter};
use crate::codegen::value::{CType, Kind, Range, Value, range_of_type, scale_of};
use crate::column::zone_offset_seconds;
use crate::{Error, Reason, Result};

/// C literal of a constant.
pub(super) fn constant(value: i128, c_type: CType) -> String {
    match c_type {
        CType::I128 => format!("((i128)((u128){}ULL << 64 | {}ULL))", (value >> 64) as u64, value as u64),
        _ => format!("(({}){}ULL)", c_type.name(), value as u64),
    }
}

pub(super) fn power_of_ten(exponent: u32) -> Result<i128> {
    10i128.checked_pow(exponent).ok_or_else(|| Reason::Limit("decimal scale beyond 38".into()).into())
}

/// A value times a positive constant; a fault where the product leaves 128 bits.
pub(super) fn times(emitter: &mut Emitter, value: &Value, factor: i128, fault: Fault) -> Result<Value> {
    if factor == 1 {
        return Ok(value.clone());
    }
    let bound = i128::MAX / factor;
    let value = fault.within(emitter, value.clone(), Range::new(-bound, bound));
    let range = value.range().ok_or_else(|| Error::internal("a float times an integer"))?;
    let range = Range::new(range.min * factor, range.max * factor);
    let c_type = range.union(Range::new(0, factor)).c_type();
    let mut code = format!("({} * {})", value.code_as(c_type), constant(factor, c_type));
    if c_type != range.c_type() {
        code = format!("(({}){code})", range.c_type().name());
    }
    Ok(Value { code, kind: Kind::Int(range), ..value })
}

/// The value times a power of ten, so that it has this scale (at least its own).
pub(super) fn rescale_up(emitter: &mut Emitter, value: &Value, scale: i8, fault: Fault) -> Result<Value> {
    let steps = i32::from(scale) - i32::from(value.scale());
    if steps == 0 {
        return Ok(value.clone());
    }
    let steps = u32::try_from(steps).map_err(|_| Error::internal(format!("rescale {} to {scale}", value.data_type)))?;
    let scaled = times(emitter, value, power_of_ten(steps)?, fault)?;
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
pub(crate) fn check(from: &DataType, to: &DataType) -> Result<(), Reason> {
    if *from == DataType::Null {
        return Ok(());
    }
    match route(from, to) {
        Some(Route::Through(middle)) => check(from, &middle).and_then(|()| check(&middle, to)),
        Some(_) => Ok(()),
        None => Err(Reason::Expression(format!("CAST({from} AS {to})"))),
    }
}

/// Emits a cast; a value that does not fit is a fault.
pub(super) fn cast(emitter: &mut Emitter, value: &Value, to: &DataType, fault: Fault) -> Result<Value> {
    if value.data_type == *to {
        return Ok(value.clone());
    }
    check(&value.data_type, to)?;
    if value.valid.as_deref() == Some("false") {
        return literal(emitter, &crate::expr::Scalar::Null, to);
    }
    let route =
        route(&value.data_type, to).ok_or_else(|| Reason::Expression(format!("CAST({} AS {to})", value.data_type)))?;
    let typed = |value: Value| Value { data_type: to.clone(), ..value };
    match route {
        Route::Stored => bounded(emitter, typed(value.clone()), to, fault),
        Route::Through(middle) => {
            let value = cast(emitter, value, &middle, fault)?;
            cast(emitter, &value, to, fault)
        }
        Route::Rescale if scale_of(to) < value.scale() => {
            let scaled = rescale_down(emitter, value, to)?;
            bounded(emitter, typed(scaled), to, fault)
        }
        Route::Rescale => {
            let scaled = rescale_up(emitter, value, scale_of(to), fault)?;
            bounded(emitter, typed(scaled), to, fault)
        }
        Route::ToFloat => to_float(emitter, value, to),
        Route::ToBoolean => {
            let code = format!("({} != 0)", value.code);
            Ok(Value::new(code, Kind::Bool, to.clone()).with_valid(value.valid.clone()))
        }
        Route::FloatToInteger => float_to_integer(emitter, value, to, fault),
        Route::FloatToDecimal => float_to_decimal(emitter, value, to, fault),
        Route::Times(factor) => {
            let product = times(emitter, value, factor, fault)?;
            bounded(emitter, typed(product), to, fault)
        }
        Route::Quotient(divisor) => {
            let quotient = quotient(emitter, value, divisor, "/")?;
            bounded(emitter, typed(quotient), to, fault)
        }
        // Arrow reports a day out of its calendar even where other casts give null.
        Route::Day(ticks, offset) => Ok(typed(dates::days(emitter, value, ticks, offset)?)),
    }
}

/// Division by a positive constant: `/` toward zero, or a function of two integers.
pub(super) fn quotient(emitter: &mut Emitter, value: &Value, divisor: i128, function: &str) -> Result<Value> {
    let range = value.range().ok_or_else(|| Error::internal("quotient of a float"))?;
    let c_type = range.union(Range::new(0, divisor)).c_type();
    let (left, right) = (value.code_as(c_type), constant(divisor, c_type));
    let (code, range) = match function {
        "/" => (format!("{left} / {right}"), Range::new(range.min / divisor, range.max / divisor)),
        _ => {
            let range = Range::new(range.min.div_euclid(divisor), range.max.div_euclid(divisor));
            (format!("{function}({left}, {right})"), range)
        }
    };
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("({name})({code})"));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

/// Largest unscaled value of a decimal's precision, or the bounds of another type.
pub(super) fn bounds_of(to: &DataType) -> Option<Range> {
    match to {
        DataType::Decimal32(precision, _) | DataType::Decimal64(precision, _) | DataType::Decimal128(precision, _) => {
            let bound = 10i128.checked_pow(u32::from(*precision))? - 1;
            Some(Range::new(-bound, bound))
        }
        _ => range_of_type(to),
    }
}

/// The value, with a fault where it leaves the type's bounds.
fn bounded(emitter: &mut Emitter, value: Value, to: &DataType, fault: Fault) -> Result<Value> {
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let value = if value.kind == Kind::Bool && *to != DataType::Boolean {
        Value { code: format!("((i32){})", value.code), kind: Kind::Int(Range::new(0, 1)), ..value }
    } else {
        value
    };
    Ok(fault.within(emitter, value, bounds))
}

/// Division by a power of ten: a decimal target rounds half away from zero, an integer truncates.
fn rescale_down(emitter: &mut Emitter, value: &Value, to: &DataType) -> Result<Value> {
    let steps = i32::from(value.scale()) - i32::from(scale_of(to));
    let factor = power_of_ten(u32::try_from(steps).unwrap_or(0))?;
    if class_of(to) == Some(Class::Decimal) {
        divide_rounding(emitter, value, factor)
    } else {
        quotient(emitter, value, factor, "/")
    }
}

/// Division by a power of ten, rounded half away from zero.
pub(super) fn divide_rounding(emitter: &mut Emitter, value: &Value, factor: i128) -> Result<Value> {
    let range = value.range().ok_or_else(|| Error::internal("rescale of a float"))?;
    let c_type = range.union(Range::new(-factor, factor)).c_type();
    let operand = emitter.temporary(c_type, &value.code_as(c_type));
    let (divisor, half) = (constant(factor, c_type), constant(factor / 2, c_type));
    let carry = format!("({operand} % {divisor} >= {half} ? 1 : ({operand} % {divisor} <= -{half} ? -1 : 0))");
    let range = Range::new(range.min / factor - 1, range.max / factor + 1);
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("({name})({operand} / {divisor} + {carry})"));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

fn to_float(emitter: &mut Emitter, value: &Value, to: &DataType) -> Result<Value> {
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

/// Truncation toward zero; NaN and values beyond the type do not fit.
fn float_to_integer(emitter: &mut Emitter, value: &Value, to: &DataType, fault: Fault) -> Result<Value> {
    let bounds = range_of_type(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let code = emitter.temporary(CType::F64, &value.code_as(CType::F64));
    // Bounds are powers of two (or one less): exact as doubles, the upper one excluded.
    let fits = if bounds.min == i128::from(i64::MIN) {
        format!("({code} >= {}.0 && {code} < {}.0)", bounds.min, bounds.max + 1)
    } else {
        format!("({code} > {}.0 - 1.0 && {code} < {}.0)", bounds.min, bounds.max + 1)
    };
    let fits = emitter.temporary(CType::Bool, &fits);
    let valid = fault.at(emitter, &format!("!{fits}"), value.valid.clone());
    let c_type = bounds.c_type();
    let code = emitter.temporary(c_type, &format!("{fits} ? ({}){code} : 0", c_type.name()));
    Ok(Value::new(code, Kind::Int(bounds), to.clone()).with_valid(valid))
}

/// Times a power of ten in double precision, then rounded half away from zero.
fn float_to_decimal(emitter: &mut Emitter, value: &Value, to: &DataType, fault: Fault) -> Result<Value> {
    let bounds = bounds_of(to).ok_or_else(|| Reason::Type(to.clone()))?;
    let factor = emitter.params.add("f64", Binding::Word(10f64.powi(scale_of(to).into()).to_bits()));
    let code = emitter.temporary(CType::F64, &format!("round({factor} * {})", value.code_as(CType::F64)));
    // A double below 2^127; what is beyond the precision is seen once it is an integer.
    let limit = if matches!(to, DataType::Decimal64(..)) { i64::MAX.into() } else { i128::MAX };
    let fits = format!("(fabs({code}) < {}.0)", (limit as f64) as u128);
    let fits = emitter.temporary(CType::Bool, &fits);
    let valid = fault.at(emitter, &format!("!{fits}"), value.valid.clone());
    let range = Range::new(-limit, limit);
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("{fits} ? ({name})wide_of_double({code}) : ({name})0"));
    let value = Value::new(code, Kind::Int(range), to.clone()).with_valid(valid);
    Ok(fault.within(emitter, value, bounds))
}
