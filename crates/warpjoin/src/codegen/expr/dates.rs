//! Dates and timestamps: parts, truncation, intervals.
//!
//! Days count from 1970-01-01. Days outside of the years -262000 to 262000 raise a status bit: Arrow
//! gives null for some of them, and an error for others.

use arrow::datatypes::{DataType, TimeUnit};

use super::arithmetic::{combine, int_range};
use super::cast::{DAY_SECONDS, Rounding, bounds_of, cast, per_second, quotient, ticks_per_day, zone_offset_seconds};
use super::fault::{CAST, OVERFLOW};
use crate::codegen::bind::{Binder, Value};
use crate::codegen::program::{Code, Function, Op};
use crate::codegen::value::{CType, Kind, Range};
use crate::function::{DatePart, DateUnit, Interval};
use crate::{Error, Reason, Result};

/// Days of January 1st of -262000 and December 31st of 262000.
const CALENDAR: Range = Range { min: -96_413_158, max: 94_974_466 };
/// Most months and days of an interval: with them, no day leaves 32 bits.
const MONTHS_MAX: u32 = 12 * 262_000;
const DAYS_MAX: u32 = 200_000_000;
/// Days whose midnight is an Int64 of nanoseconds.
const NANOSECOND_DAYS: Range = Range { min: -106_751, max: 106_751 };

/// Whether a part of values of this type is supported.
pub(super) fn check_part(part: DatePart, data_type: &DataType) -> Result<(), Reason> {
    match data_type {
        DataType::Date32 | DataType::Date64 => Ok(()),
        DataType::Timestamp(_, zone) if zone_offset_seconds(zone.as_deref()).is_some() => Ok(()),
        _ => Err(Reason::Expression(format!("date_part {part:?} of {data_type}"))),
    }
}

/// Whether values of this type can be cut off.
pub(super) fn check_truncate(unit: DateUnit, data_type: &DataType) -> Result<(), Reason> {
    match data_type {
        DataType::Timestamp(_, zone) if zone_offset_seconds(zone.as_deref()).is_some() => Ok(()),
        _ => Err(Reason::Expression(format!("date_trunc to {unit:?} of {data_type}"))),
    }
}

/// Whether an interval can be added to values of this type.
pub(super) fn check_interval(interval: Interval, data_type: &DataType) -> Result<(), Reason> {
    let is_small = interval.months.unsigned_abs() <= MONTHS_MAX && interval.days.unsigned_abs() <= DAYS_MAX;
    match data_type {
        DataType::Date32 if is_small => Ok(()),
        DataType::Timestamp(_, zone) if is_small && zone_offset_seconds(zone.as_deref()).is_some() => Ok(()),
        _ => Err(Reason::Expression(format!("an interval of {interval:?} and {data_type}"))),
    }
}

fn unit_and_offset(data_type: &DataType) -> Result<(i128, i128)> {
    let declined = || Error::from(Reason::Type(data_type.clone()));
    let ticks = ticks_per_day(data_type).ok_or_else(declined)?;
    let offset = match data_type {
        DataType::Timestamp(_, zone) => zone_offset_seconds(zone.as_deref()).ok_or_else(declined)?,
        _ => 0,
    };
    Ok((ticks, offset * ticks / DAY_SECONDS))
}

/// A constant more.
fn plus(b: &mut Binder, value: &Value, constant_value: i128) -> Result<Value> {
    let range = int_range(value)?;
    if constant_value == 0 {
        return Ok(value.clone());
    }
    // Constants of types and literals are far from the ends of 128 bits; so are times.
    let range = Range::new(range.min + constant_value, range.max + constant_value);
    let c_type = range.union(int_range(value)?).union(Range::of_literal(constant_value)).c_type();
    let sum = b.in_parens(b.code_as(value, c_type), Op::Add, b.constant(constant_value, c_type));
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), sum));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

/// The day, in the time zone of `offset` ticks, of a number of which `ticks` are a day.
pub(super) fn days(b: &mut Binder, value: &Value, ticks: i128, offset: i128) -> Result<Value> {
    let local = plus(b, value, offset)?;
    let days = if ticks == 1 { local } else { quotient(b, &local, ticks, Rounding::Down)? };
    Ok(CAST.within(b, days, CALENDAR))
}

/// Binds [`crate::function::Function::DatePart`].
pub(super) fn date_part(b: &mut Binder, part: DatePart, value: &Value, to: &DataType) -> Result<Value> {
    if part == DatePart::Epoch {
        return epoch(b, value, to);
    }
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let days = days(b, value, ticks, offset)?;
    let (function, range) = match part {
        DatePart::Year => (Function::DateYear, years(int_range(&days)?)),
        DatePart::IsoYear => (Function::DateIsoYear, years(int_range(&days)?)),
        DatePart::Quarter => (Function::DateQuarter, Range::new(1, 4)),
        DatePart::Month => (Function::DateMonth, Range::new(1, 12)),
        DatePart::Week => (Function::DateWeek, Range::new(1, 53)),
        DatePart::Day => (Function::DateDay, Range::new(1, 31)),
        DatePart::DayOfYear => (Function::DateDayOfYear, Range::new(1, 366)),
        DatePart::DayOfWeek => (Function::DateDayOfWeek, Range::new(0, 6)),
        DatePart::IsoDayOfWeek => (Function::DateIsoDayOfWeek, Range::new(1, 7)),
        _ => return time_part(b, part, value, (ticks, offset), to),
    };
    let code = b.temporary(CType::I32, b.call(function, &[b.code_as(&days, CType::I32)]));
    Ok(Value::new(code, Kind::Int(range), to.clone()).with_valid(value.valid))
}

/// Bounds of the years, and of the ISO years, of some days.
fn years(days: Range) -> Range {
    // Never fewer days a year than this, on average, and never more.
    let floor = |days: i128| (days * 400).div_euclid(146_097) + 1970;
    Range::new(floor(days.min) - 1, floor(days.max) + 1)
}

/// Parts of the time of day.
fn time_part(
    b: &mut Binder,
    part: DatePart,
    value: &Value,
    (ticks, offset): (i128, i128),
    to: &DataType,
) -> Result<Value> {
    let number =
        |code: Code, max: i128| Value::new(code, Kind::Int(Range::new(0, max)), to.clone()).with_valid(value.valid);
    if ticks < DAY_SECONDS {
        return Ok(number(b.whole(0), 0));
    }
    let second = (ticks / DAY_SECONDS) as i64;
    let local = plus(b, value, offset)?;
    let c_type = int_range(&local)?.union(Range::new(0, ticks)).c_type();
    let rest = b.call(Function::FloorRemainder, &[b.code_as(&local, c_type), b.constant(ticks, c_type)]);
    let time = b.temporary(CType::I64, b.cast(CType::I64, rest));
    let by = |code, op, number: i64| b.binary(code, op, b.whole(number));
    // Ticks of the minute, in the part's unit.
    let of_minute = |unit: TimeUnit| {
        let wanted = per_second(unit) as i64;
        let minute = by(time, Op::Remainder, second * 60);
        let code = if wanted >= second {
            by(minute, Op::Multiply, wanted / second)
        } else {
            by(minute, Op::Divide, second / wanted)
        };
        (code, 60 * i128::from(wanted) - 1)
    };
    let (code, max) = match part {
        DatePart::Hour => (by(time, Op::Divide, second * 3600), 23),
        DatePart::Minute => (by(by(time, Op::Divide, second * 60), Op::Remainder, 60), 59),
        DatePart::Second => of_minute(TimeUnit::Second),
        DatePart::Millisecond => of_minute(TimeUnit::Millisecond),
        DatePart::Microsecond => of_minute(TimeUnit::Microsecond),
        _ => of_minute(TimeUnit::Nanosecond),
    };
    let c_type = Range::new(0, max).c_type();
    let code = b.temporary(c_type, b.cast(c_type, b.parens(code)));
    Ok(number(code, max))
}

fn epoch(b: &mut Binder, value: &Value, to: &DataType) -> Result<Value> {
    let (ticks, _) = unit_and_offset(&value.data_type)?;
    let number = b.code_as(value, CType::F64);
    let code = match ticks {
        1 => b.binary(number, Op::Multiply, b.double(DAY_SECONDS as f64)),
        DAY_SECONDS => number,
        _ => b.binary(number, Op::Divide, b.double((ticks / DAY_SECONDS) as f64)),
    };
    let code = b.temporary(CType::F64, code);
    Ok(Value::new(code, Kind::F64, to.clone()).with_valid(value.valid))
}

/// Binds [`crate::function::Function::DateTruncate`].
pub(super) fn truncate(b: &mut Binder, unit: DateUnit, value: &Value) -> Result<Value> {
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let second = ticks / DAY_SECONDS;
    let (step, function) = match unit {
        DateUnit::Microsecond => (second / 1_000_000, None),
        DateUnit::Millisecond => (second / 1_000, None),
        DateUnit::Second => (second, None),
        DateUnit::Minute => (second * 60, None),
        DateUnit::Hour => (second * 3600, None),
        DateUnit::Day => (ticks, None),
        DateUnit::Week => (ticks, Some(Function::DateFirstOfWeek)),
        DateUnit::Month => (ticks, Some(Function::DateFirstOfMonth)),
        DateUnit::Quarter => (ticks, Some(Function::DateFirstOfQuarter)),
        DateUnit::Year => (ticks, Some(Function::DateFirstOfYear)),
    };
    if step <= 1 {
        return Ok(value.clone());
    }
    // DataFusion goes through nanoseconds, where it does more than arithmetic in the unit itself.
    let has_zone = matches!(value.data_type, DataType::Timestamp(_, Some(_)));
    let value = if function.is_some() || has_zone && matches!(unit, DateUnit::Hour | DateUnit::Day) {
        let bound = i128::from(i64::MAX) * second / 1_000_000_000;
        CAST.within(b, value.clone(), Range::new(-bound, bound))
    } else {
        value.clone()
    };
    let local = plus(b, &value, offset)?;
    let mut whole = quotient(b, &local, step, Rounding::Down)?;
    if let Some(function) = function {
        let days = CAST.within(b, whole, CALENDAR);
        let range = Range::new(int_range(&days)?.min - 366, int_range(&days)?.max);
        let code = b.temporary(CType::I32, b.call(function, &[b.code_as(&days, CType::I32)]));
        whole = CAST.within(b, Value { code, kind: Kind::Int(range), ..days }, NANOSECOND_DAYS);
    }
    let range = int_range(&whole)?;
    let range = Range::new(range.min * step, range.max * step);
    let c_type = range.union(Range::new(0, step)).c_type();
    let ticks = b.binary(b.code_as(&whole, c_type), Op::Multiply, b.constant(step, c_type));
    let code = b.temporary(c_type, ticks);
    let code = b.cast_in_parens(range.c_type(), code);
    let utc = plus(b, &Value { code, kind: Kind::Int(range), ..whole }, -offset)?;
    Ok(CAST.within(b, utc, Range::new(i64::MIN.into(), i64::MAX.into())))
}

/// Binds [`crate::function::Function::AddInterval`].
pub(super) fn add_interval(b: &mut Binder, interval: Interval, value: &Value) -> Result<Value> {
    const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let (days_more, ticks_more) = if ticks == 1 {
        // What is less than a day is dropped.
        (i128::from(interval.days) + i128::from(interval.nanoseconds / DAY_NANOSECONDS), 0)
    } else {
        let tick_nanoseconds = i128::from(DAY_NANOSECONDS) / ticks;
        (i128::from(interval.days), i128::from(interval.nanoseconds).div_euclid(tick_nanoseconds))
    };
    let local = plus(b, value, offset)?;
    let day = days(b, &local, ticks, 0)?;
    let moved = if interval.months == 0 {
        local
    } else {
        let months = b.number(interval.months.into());
        let arguments = [b.code_as(&day, CType::I32), b.cast(CType::I32, months)];
        let code = b.temporary(CType::I32, b.call(Function::DateAddMonths, &arguments));
        let months = i128::from(interval.months);
        let span = Range::new((months * 31).min(0) - 31, (months * 31).max(0) + 31);
        let range = Range::new(int_range(&day)?.min + span.min, int_range(&day)?.max + span.max);
        let later = CAST.within(b, Value { code, kind: Kind::Int(range), ..day.clone() }, CALENDAR);
        days_changed(b, &local, &day, &later, ticks)?
    };
    let moved = plus(b, &moved, days_more * ticks + ticks_more)?;
    // Wherever it comes to, Arrow's calendar must have it.
    let calendar = Range::new(CALENDAR.min * ticks, (CALENDAR.max + 1) * ticks - 1);
    let moved = CAST.within(b, moved, calendar);
    let utc = plus(b, &moved, -offset)?;
    let bounds = bounds_of(&value.data_type).ok_or_else(|| Reason::Type(value.data_type.clone()))?;
    Ok(OVERFLOW.within(b, utc, bounds))
}

/// The same time on another day.
fn days_changed(b: &mut Binder, value: &Value, from: &Value, to: &Value, ticks: i128) -> Result<Value> {
    let (before, after) = (int_range(from)?, int_range(to)?);
    let range = int_range(value)?;
    // The time of day stays: the bounds are those of the days.
    let range = Range::new(range.min + (after.min - before.max) * ticks, range.max + (after.max - before.min) * ticks);
    let range = Range::new(range.min.max(after.min * ticks), range.max.min((after.max + 1) * ticks - 1));
    let c_type = range.union(int_range(value)?).union(Range::new(-ticks, ticks)).c_type();
    let days = b.in_parens(b.cast(c_type, to.code), Op::Subtract, b.cast(c_type, from.code));
    let ticks_more = b.binary(days, Op::Multiply, b.constant(ticks, c_type));
    let code = b.temporary(c_type, b.binary(b.code_as(value, c_type), Op::Add, ticks_more));
    Ok(Value { code: b.cast_in_parens(range.c_type(), code), kind: Kind::Int(range), ..value.clone() })
}

/// Binds [`crate::function::Function::DaysBetween`].
pub(super) fn days_between(b: &mut Binder, later: &Value, earlier: &Value, to: &DataType) -> Result<Value> {
    let (ticks, _) = unit_and_offset(&later.data_type)?;
    let as_integer = |b: &mut Binder, value: &Value| {
        let stored = if ticks == 1 { DataType::Int32 } else { DataType::Int64 };
        let value = cast(b, value, &stored, CAST)?;
        cast(b, &value, &DataType::Int64, CAST)
    };
    let (later, earlier) = (as_integer(b, later)?, as_integer(b, earlier)?);
    let difference = combine(b, crate::expr::ArithmeticOp::Subtract, &later, &earlier, to)?;
    if ticks == 1 { Ok(difference) } else { quotient(b, &difference, ticks, Rounding::TowardZero) }
}
