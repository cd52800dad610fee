//! Dates and timestamps: parts, truncation, intervals.
//!
//! Days count from 1970-01-01. Days outside of the years -262000 to 262000 raise a status bit: Arrow
//! gives null for some of them, and an error for others.

use arrow::datatypes::{DataType, TimeUnit};
use warpjoin_columns::function::date::Stride;
use warpjoin_columns::function::{DateFunction, DatePart, DateUnit, Function, Interval, zone_offset_seconds};
use warpjoin_columns::{Error, Reason, Result};

use super::arithmetic::{combine, int_range};
use super::cast::{DAY_SECONDS, Rounding, bounds_of, cast, per_second, quotient, ticks_per_day, times};
use super::fault::{CAST, Fault, OVERFLOW};
use super::operands::operands;
use crate::bind::{Binder, Value};
use crate::program::{Code, Function as Call, Op};
use crate::value::{CType, Kind, Range, RangeType};

/// Days of January 1st of -262000 and December 31st of 262000.
const CALENDAR: Range = Range { min: -96_413_158, max: 94_974_466 };
const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
/// Days whose midnight is an Int64 of nanoseconds.
const NANOSECOND_DAYS: Range = Range { min: -106_751, max: 106_751 };

/// Binds the function of these arguments.
pub(super) fn call(b: &mut Binder, function: DateFunction, arguments: &[Value], to: &DataType) -> Result<Value> {
    match function {
        DateFunction::Part(part) => {
            let [value] = operands(Function::Date(function), arguments)?;
            date_part(b, part, value, to)
        }
        DateFunction::Truncate(unit) => {
            let [value] = operands(Function::Date(function), arguments)?;
            truncate(b, unit, value)
        }
        DateFunction::AddInterval(interval) => {
            let [value] = operands(Function::Date(function), arguments)?;
            add_interval(b, interval, value)
        }
        DateFunction::Bin(bin) => {
            let [value] = operands(Function::Date(function), arguments)?;
            match bin.stride {
                Stride::Nanoseconds(stride) => bin_of_nanoseconds(b, stride, bin.origin, value),
                Stride::Months(stride) => bin_of_months(b, stride, bin.origin, value),
            }
        }
        DateFunction::DaysBetween => {
            let [later, earlier] = operands(Function::Date(function), arguments)?;
            days_between(b, later, earlier, to)
        }
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

/// A field.
fn date_part(b: &mut Binder, part: DatePart, value: &Value, to: &DataType) -> Result<Value> {
    if part == DatePart::Epoch {
        return epoch(b, value, to);
    }
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let days = days(b, value, ticks, offset)?;
    let (function, range) = match part {
        DatePart::Year => (Call::DateYear, years(int_range(&days)?)),
        DatePart::IsoYear => (Call::DateIsoYear, years(int_range(&days)?)),
        DatePart::Quarter => (Call::DateQuarter, Range::new(1, 4)),
        DatePart::Month => (Call::DateMonth, Range::new(1, 12)),
        DatePart::Week => (Call::DateWeek, Range::new(1, 53)),
        DatePart::Day => (Call::DateDay, Range::new(1, 31)),
        DatePart::DayOfYear => (Call::DateDayOfYear, Range::new(1, 366)),
        DatePart::DayOfWeek => (Call::DateDayOfWeek, Range::new(0, 6)),
        DatePart::IsoDayOfWeek => (Call::DateIsoDayOfWeek, Range::new(1, 7)),
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
    let rest = b.call(Call::FloorRemainder, &[b.code_as(&local, c_type), b.constant(ticks, c_type)]);
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

/// The beginning of a unit.
fn truncate(b: &mut Binder, unit: DateUnit, value: &Value) -> Result<Value> {
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let second = ticks / DAY_SECONDS;
    let (step, function) = match unit {
        DateUnit::Microsecond => (second / 1_000_000, None),
        DateUnit::Millisecond => (second / 1_000, None),
        DateUnit::Second => (second, None),
        DateUnit::Minute => (second * 60, None),
        DateUnit::Hour => (second * 3600, None),
        DateUnit::Day => (ticks, None),
        DateUnit::Week => (ticks, Some(Call::DateFirstOfWeek)),
        DateUnit::Month => (ticks, Some(Call::DateFirstOfMonth)),
        DateUnit::Quarter => (ticks, Some(Call::DateFirstOfQuarter)),
        DateUnit::Year => (ticks, Some(Call::DateFirstOfYear)),
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

/// A value moved by an interval.
fn add_interval(b: &mut Binder, interval: Interval, value: &Value) -> Result<Value> {
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
        let code = b.temporary(CType::I32, b.call(Call::DateAddMonths, &arguments));
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

/// Nanoseconds of a tick of a type, and of the unit in which a bin is found: the tick, if all of these are whole in it.
fn tick_and_unit(data_type: &DataType, nanoseconds: [i64; 2]) -> Result<(i128, i128)> {
    let ticks = ticks_per_day(data_type).ok_or_else(|| Error::from(Reason::Type(data_type.clone())))?;
    let tick = i128::from(DAY_NANOSECONDS) / ticks;
    let is_whole = nanoseconds.iter().all(|nanoseconds| i128::from(*nanoseconds) % tick == 0);
    Ok((tick, if is_whole { tick } else { 1 }))
}

/// What 64 bits of nanoseconds hold, in another unit.
fn bounds_in(unit: i128) -> Range {
    Range::new(i128::from(i64::MIN) / unit, i128::from(i64::MAX) / unit)
}

/// The value plus a number, which is a parameter.
fn plus_number(b: &mut Binder, value: &Value, number: i128) -> Result<Value> {
    if number == 0 {
        return Ok(value.clone());
    }
    let range = int_range(value)?;
    let range = Range::new(range.min + number, range.max + number);
    let c_type = range.union(int_range(value)?).union(bounds_in(1)).c_type();
    let number = b.number(number as i64);
    let sum = b.in_parens(b.code_as(value, c_type), Op::Add, number);
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), sum));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

/// The beginning of a bin of a fixed length.
fn bin_of_nanoseconds(b: &mut Binder, stride: i64, origin: i64, value: &Value) -> Result<Value> {
    let (tick, unit) = tick_and_unit(&value.data_type, [stride, origin])?;
    let (bounds, origin, stride) = (bounds_in(unit), i128::from(origin) / unit, i128::from(stride) / unit);
    let value = Fault::Null.within(b, value.clone(), bounds_in(tick));
    let value = times(b, &value, tick / unit, Fault::Null)?;
    let distance = plus_number(b, &value, -origin)?;
    let distance = Fault::Null.within(b, distance, bounds);
    let bins = quotient(b, &distance, stride, Rounding::Down)?;
    let begin = times(b, &bins, stride, Fault::Null)?;
    let begin = Fault::Null.within(b, begin, bounds);
    let begin = plus_number(b, &begin, origin)?;
    let begin = Fault::Null.within(b, begin, bounds);
    if tick == unit { Ok(begin) } else { quotient(b, &begin, tick, Rounding::TowardZero) }
}

/// The beginning of a bin of calendar months: the origin plus the months between it and the value, rounded down to whole bins,
/// or one bin less where that is after the value.
fn bin_of_months(b: &mut Binder, stride: i32, origin: i64, value: &Value) -> Result<Value> {
    let (tick, unit) = tick_and_unit(&value.data_type, [origin, 0])?;
    let ticks = i128::from(DAY_NANOSECONDS) / tick;
    let value = Fault::Null.within(b, value.clone(), bounds_in(tick));
    let day = quotient(b, &value, ticks, Rounding::Down)?;
    let range = int_range(&day)?;
    let (origin_day, origin_time) = (origin.div_euclid(DAY_NANOSECONDS), origin.rem_euclid(DAY_NANOSECONDS));
    let first = b.number(origin_day);
    let day = b.temporary(CType::I32, b.code_as(&day, CType::I32));
    let first = b.temporary(CType::I32, b.cast(CType::I32, first));
    let month = |b: &Binder, day: Code| {
        let year_months = b.binary(b.call(Call::DateYear, &[day]), Op::Multiply, b.whole(12));
        b.in_parens(year_months, Op::Add, b.call(Call::DateMonth, &[day]))
    };
    let months = b.temporary(CType::I32, b.binary(month(b, day), Op::Subtract, month(b, first)));
    let stride_months = b.whole(stride.into());
    let bins = b.call(Call::FloorDivide, &[months, stride_months]);
    let months = b.temporary(CType::I32, b.binary(bins, Op::Multiply, stride_months));
    let begin = b.temporary(CType::I32, b.call(Call::DateAddMonths, &[first, months]));
    let c_type = int_range(&value)?.union(Range::new(0, ticks)).c_type();
    let time = b.call(Call::FloorRemainder, &[b.code_as(&value, c_type), b.constant(ticks, c_type)]);
    let time = b.temporary(CType::I64, b.cast(CType::I64, time));
    // A time of whole ticks is before that of the origin if it is before the first tick from there on.
    let limit = b.number((i128::from(origin_time) + tick - 1).div_euclid(tick) as i64);
    let is_same_day = b.binary(begin, Op::Equal, day);
    let is_later_that_day = b.in_parens(is_same_day, Op::And, b.binary(time, Op::Less, limit));
    let is_later = b.binary(b.binary(begin, Op::Greater, day), Op::Or, is_later_that_day);
    let before = b.call(Call::DateAddMonths, &[first, b.binary(months, Op::Subtract, stride_months)]);
    let begin = b.temporary(CType::I32, b.select(is_later, before, begin));
    let range = Range::new(range.min - 31 * (i128::from(stride) + 1), range.max);
    let begin = Value { code: begin, kind: Kind::Int(range), ..value };
    let begin = times(b, &begin, i128::from(DAY_NANOSECONDS) / unit, Fault::Null)?;
    let begin = plus_number(b, &begin, i128::from(origin_time) / unit)?;
    let begin = Fault::Null.within(b, begin, bounds_in(unit));
    if tick == unit { Ok(begin) } else { quotient(b, &begin, tick, Rounding::TowardZero) }
}

/// Days from one date to another.
fn days_between(b: &mut Binder, later: &Value, earlier: &Value, to: &DataType) -> Result<Value> {
    let (ticks, _) = unit_and_offset(&later.data_type)?;
    let as_integer = |b: &mut Binder, value: &Value| {
        let stored = if ticks == 1 { DataType::Int32 } else { DataType::Int64 };
        let value = cast(b, value, &stored, CAST)?;
        cast(b, &value, &DataType::Int64, CAST)
    };
    let (later, earlier) = (as_integer(b, later)?, as_integer(b, earlier)?);
    let difference = combine(b, warpjoin_columns::expr::ArithmeticOp::Subtract, &later, &earlier, to)?;
    if ticks == 1 { Ok(difference) } else { quotient(b, &difference, ticks, Rounding::TowardZero) }
}
