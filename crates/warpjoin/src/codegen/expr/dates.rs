//! Dates and timestamps: parts, truncation, intervals.
//!
//! Days count from 1970-01-01. Days outside of the years -262000 to 262000 raise a status bit: Arrow
//! gives null for some of them, and an error for others.

use arrow::datatypes::{DataType, TimeUnit};

use super::arithmetic::{combine, int_range};
use super::cast::{DAY_SECONDS, bounds_of, cast, constant, per_second, quotient, ticks_per_day, times};
use super::fault::{CAST, Fault, OVERFLOW};
use super::functions::operands;
use crate::codegen::emit::Emitter;
use crate::codegen::value::{CType, Kind, Range, Value};
use crate::column::zone_offset_seconds;
use crate::function::date::Stride;
use crate::function::{DateFunction, DatePart, DateUnit, Function, Interval};
use crate::{Error, Reason, Result};

/// Days of January 1st of -262000 and December 31st of 262000.
const CALENDAR: Range = Range { min: -96_413_158, max: 94_974_466 };
const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
/// Days whose midnight is an Int64 of nanoseconds.
const NANOSECOND_DAYS: Range = Range { min: -106_751, max: 106_751 };

/// Emits the function of these arguments.
pub(super) fn call(emitter: &mut Emitter, function: DateFunction, arguments: &[Value], to: &DataType) -> Result<Value> {
    match function {
        DateFunction::Part(part) => {
            let [value] = operands(Function::Date(function), arguments)?;
            date_part(emitter, part, value, to)
        }
        DateFunction::Truncate(unit) => {
            let [value] = operands(Function::Date(function), arguments)?;
            truncate(emitter, unit, value)
        }
        DateFunction::AddInterval(interval) => {
            let [value] = operands(Function::Date(function), arguments)?;
            add_interval(emitter, interval, value)
        }
        DateFunction::Bin(bin) => {
            let [value] = operands(Function::Date(function), arguments)?;
            match bin.stride {
                Stride::Nanoseconds(stride) => bin_of_nanoseconds(emitter, stride, bin.origin, value),
                Stride::Months(stride) => bin_of_months(emitter, stride, bin.origin, value),
            }
        }
        DateFunction::DaysBetween => {
            let [later, earlier] = operands(Function::Date(function), arguments)?;
            days_between(emitter, later, earlier, to)
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
fn plus(emitter: &mut Emitter, value: &Value, constant_value: i128) -> Result<Value> {
    let range = int_range(value)?;
    if constant_value == 0 {
        return Ok(value.clone());
    }
    // Constants of types and literals are far from the ends of 128 bits; so are times.
    let range = Range::new(range.min + constant_value, range.max + constant_value);
    let c_type = range.union(int_range(value)?).union(Range::of_literal(constant_value)).c_type();
    let code = format!("{} + {}", value.code_as(c_type), constant(constant_value, c_type));
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("({name})({code})"));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

/// The day, in the time zone of `offset` ticks, of a number of which `ticks` are a day.
pub(super) fn days(emitter: &mut Emitter, value: &Value, ticks: i128, offset: i128) -> Result<Value> {
    let local = plus(emitter, value, offset)?;
    let days = if ticks == 1 { local } else { quotient(emitter, &local, ticks, "floor_divide")? };
    Ok(CAST.within(emitter, days, CALENDAR))
}

/// A field.
fn date_part(emitter: &mut Emitter, part: DatePart, value: &Value, to: &DataType) -> Result<Value> {
    if part == DatePart::Epoch {
        return epoch(emitter, value, to);
    }
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let days = days(emitter, value, ticks, offset)?;
    let (function, range) = match part {
        DatePart::Year => ("date_year", years(int_range(&days)?)),
        DatePart::IsoYear => ("date_iso_year", years(int_range(&days)?)),
        DatePart::Quarter => ("date_quarter", Range::new(1, 4)),
        DatePart::Month => ("date_month", Range::new(1, 12)),
        DatePart::Week => ("date_week", Range::new(1, 53)),
        DatePart::Day => ("date_day", Range::new(1, 31)),
        DatePart::DayOfYear => ("date_day_of_year", Range::new(1, 366)),
        DatePart::DayOfWeek => ("date_day_of_week", Range::new(0, 6)),
        DatePart::IsoDayOfWeek => ("date_iso_day_of_week", Range::new(1, 7)),
        _ => return time_part(emitter, part, value, (ticks, offset), to),
    };
    let code = emitter.temporary(CType::I32, &format!("{function}({})", days.code_as(CType::I32)));
    Ok(Value::new(code, Kind::Int(range), to.clone()).with_valid(value.valid.clone()))
}

/// Bounds of the years, and of the ISO years, of some days.
fn years(days: Range) -> Range {
    // Never fewer days a year than this, on average, and never more.
    let floor = |days: i128| (days * 400).div_euclid(146_097) + 1970;
    Range::new(floor(days.min) - 1, floor(days.max) + 1)
}

/// Parts of the time of day.
fn time_part(
    emitter: &mut Emitter,
    part: DatePart,
    value: &Value,
    (ticks, offset): (i128, i128),
    to: &DataType,
) -> Result<Value> {
    let number = |code: String, max: i128| {
        Value::new(code, Kind::Int(Range::new(0, max)), to.clone()).with_valid(value.valid.clone())
    };
    if ticks < DAY_SECONDS {
        return Ok(number("0".into(), 0));
    }
    let second = ticks / DAY_SECONDS;
    let local = plus(emitter, value, offset)?;
    let c_type = int_range(&local)?.union(Range::new(0, ticks)).c_type();
    let code = format!("(i64)floor_remainder({}, {})", local.code_as(c_type), constant(ticks, c_type));
    let time = emitter.temporary(CType::I64, &code);
    // Ticks of the minute, in the part's unit.
    let of_minute = |unit: TimeUnit| {
        let wanted = per_second(unit);
        let minute = format!("{time} % {}", second * 60);
        let code = if wanted >= second {
            format!("{minute} * {}", wanted / second)
        } else {
            format!("{minute} / {}", second / wanted)
        };
        (code, 60 * wanted - 1)
    };
    let (code, max) = match part {
        DatePart::Hour => (format!("{time} / {}", second * 3600), 23),
        DatePart::Minute => (format!("{time} / {} % 60", second * 60), 59),
        DatePart::Second => of_minute(TimeUnit::Second),
        DatePart::Millisecond => of_minute(TimeUnit::Millisecond),
        DatePart::Microsecond => of_minute(TimeUnit::Microsecond),
        _ => of_minute(TimeUnit::Nanosecond),
    };
    let range = Range::new(0, max);
    let code = emitter.temporary(range.c_type(), &format!("({})({code})", range.c_type().name()));
    Ok(number(code, max))
}

fn epoch(emitter: &mut Emitter, value: &Value, to: &DataType) -> Result<Value> {
    let (ticks, _) = unit_and_offset(&value.data_type)?;
    let number = value.code_as(CType::F64);
    let code = match ticks {
        1 => format!("{number} * {DAY_SECONDS}.0"),
        DAY_SECONDS => number,
        _ => format!("{number} / {}.0", ticks / DAY_SECONDS),
    };
    let code = emitter.temporary(CType::F64, &code);
    Ok(Value::new(code, Kind::F64, to.clone()).with_valid(value.valid.clone()))
}

/// The beginning of a unit.
fn truncate(emitter: &mut Emitter, unit: DateUnit, value: &Value) -> Result<Value> {
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let second = ticks / DAY_SECONDS;
    let (step, function) = match unit {
        DateUnit::Microsecond => (second / 1_000_000, None),
        DateUnit::Millisecond => (second / 1_000, None),
        DateUnit::Second => (second, None),
        DateUnit::Minute => (second * 60, None),
        DateUnit::Hour => (second * 3600, None),
        DateUnit::Day => (ticks, None),
        DateUnit::Week => (ticks, Some("date_first_of_week")),
        DateUnit::Month => (ticks, Some("date_first_of_month")),
        DateUnit::Quarter => (ticks, Some("date_first_of_quarter")),
        DateUnit::Year => (ticks, Some("date_first_of_year")),
    };
    if step <= 1 {
        return Ok(value.clone());
    }
    // DataFusion goes through nanoseconds, where it does more than arithmetic in the unit itself.
    let has_zone = matches!(value.data_type, DataType::Timestamp(_, Some(_)));
    let value = if function.is_some() || has_zone && matches!(unit, DateUnit::Hour | DateUnit::Day) {
        let bound = i128::from(i64::MAX) * second / 1_000_000_000;
        CAST.within(emitter, value.clone(), Range::new(-bound, bound))
    } else {
        value.clone()
    };
    let local = plus(emitter, &value, offset)?;
    let mut whole = quotient(emitter, &local, step, "floor_divide")?;
    if let Some(function) = function {
        let days = CAST.within(emitter, whole, CALENDAR);
        let range = Range::new(int_range(&days)?.min - 366, int_range(&days)?.max);
        let code = emitter.temporary(CType::I32, &format!("{function}({})", days.code_as(CType::I32)));
        whole = CAST.within(emitter, Value { code, kind: Kind::Int(range), ..days }, NANOSECOND_DAYS);
    }
    let range = int_range(&whole)?;
    let range = Range::new(range.min * step, range.max * step);
    let c_type = range.union(Range::new(0, step)).c_type();
    let code = emitter.temporary(c_type, &format!("{} * {}", whole.code_as(c_type), constant(step, c_type)));
    let utc = plus(
        emitter,
        &Value { code: format!("(({}){code})", range.c_type().name()), kind: Kind::Int(range), ..whole },
        -offset,
    )?;
    Ok(CAST.within(emitter, utc, Range::new(i64::MIN.into(), i64::MAX.into())))
}

/// A value moved by an interval.
fn add_interval(emitter: &mut Emitter, interval: Interval, value: &Value) -> Result<Value> {
    let (ticks, offset) = unit_and_offset(&value.data_type)?;
    let (days_more, ticks_more) = if ticks == 1 {
        // What is less than a day is dropped.
        (i128::from(interval.days) + i128::from(interval.nanoseconds / DAY_NANOSECONDS), 0)
    } else {
        let tick_nanoseconds = i128::from(DAY_NANOSECONDS) / ticks;
        (i128::from(interval.days), i128::from(interval.nanoseconds).div_euclid(tick_nanoseconds))
    };
    let local = plus(emitter, value, offset)?;
    let day = days(emitter, &local, ticks, 0)?;
    let moved = if interval.months == 0 {
        local
    } else {
        let months = emitter.params.number(interval.months.into());
        let code = format!("date_add_months({}, (i32){months})", day.code_as(CType::I32));
        let code = emitter.temporary(CType::I32, &code);
        let months = i128::from(interval.months);
        let span = Range::new((months * 31).min(0) - 31, (months * 31).max(0) + 31);
        let range = Range::new(int_range(&day)?.min + span.min, int_range(&day)?.max + span.max);
        let later = CAST.within(emitter, Value { code, kind: Kind::Int(range), ..day.clone() }, CALENDAR);
        days_changed(emitter, &local, &day, &later, ticks)?
    };
    let moved = plus(emitter, &moved, days_more * ticks + ticks_more)?;
    // Wherever it comes to, Arrow's calendar must have it.
    let calendar = Range::new(CALENDAR.min * ticks, (CALENDAR.max + 1) * ticks - 1);
    let moved = CAST.within(emitter, moved, calendar);
    let utc = plus(emitter, &moved, -offset)?;
    let bounds = bounds_of(&value.data_type).ok_or_else(|| Reason::Type(value.data_type.clone()))?;
    Ok(OVERFLOW.within(emitter, utc, bounds))
}

/// The same time on another day.
fn days_changed(emitter: &mut Emitter, value: &Value, from: &Value, to: &Value, ticks: i128) -> Result<Value> {
    let (before, after) = (int_range(from)?, int_range(to)?);
    let range = int_range(value)?;
    // The time of day stays: the bounds are those of the days.
    let range = Range::new(range.min + (after.min - before.max) * ticks, range.max + (after.max - before.min) * ticks);
    let range = Range::new(range.min.max(after.min * ticks), range.max.min((after.max + 1) * ticks - 1));
    let c_type = range.union(int_range(value)?).union(Range::new(-ticks, ticks)).c_type();
    let name = c_type.name();
    let code = format!(
        "{} + (({name}){} - ({name}){}) * {}",
        value.code_as(c_type),
        to.code,
        from.code,
        constant(ticks, c_type)
    );
    let code = emitter.temporary(c_type, &code);
    let code = format!("(({}){code})", range.c_type().name());
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
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

/// The value and a number that a query may have otherwise.
fn plus_number(emitter: &mut Emitter, value: &Value, number: i128) -> Result<Value> {
    if number == 0 {
        return Ok(value.clone());
    }
    let range = int_range(value)?;
    let range = Range::new(range.min + number, range.max + number);
    let c_type = range.union(int_range(value)?).union(bounds_in(1)).c_type();
    let code = format!("{} + {}", value.code_as(c_type), emitter.params.number(number as i64));
    let code = emitter.temporary(range.c_type(), &format!("({})({code})", range.c_type().name()));
    Ok(Value { code, kind: Kind::Int(range), ..value.clone() })
}

/// The beginning of a bin of a fixed length.
fn bin_of_nanoseconds(emitter: &mut Emitter, stride: i64, origin: i64, value: &Value) -> Result<Value> {
    let (tick, unit) = tick_and_unit(&value.data_type, [stride, origin])?;
    let (bounds, origin, stride) = (bounds_in(unit), i128::from(origin) / unit, i128::from(stride) / unit);
    let value = Fault::Null.within(emitter, value.clone(), bounds_in(tick));
    let value = times(emitter, &value, tick / unit, Fault::Null)?;
    let distance = plus_number(emitter, &value, -origin)?;
    let distance = Fault::Null.within(emitter, distance, bounds);
    let bins = quotient(emitter, &distance, stride, "floor_divide")?;
    let begin = times(emitter, &bins, stride, Fault::Null)?;
    let begin = Fault::Null.within(emitter, begin, bounds);
    let begin = plus_number(emitter, &begin, origin)?;
    let begin = Fault::Null.within(emitter, begin, bounds);
    if tick == unit { Ok(begin) } else { quotient(emitter, &begin, tick, "/") }
}

/// The beginning of a bin of calendar months: so many months from the origin as the month of the value tells, or one bin less
/// where that is later.
fn bin_of_months(emitter: &mut Emitter, stride: i32, origin: i64, value: &Value) -> Result<Value> {
    let (tick, unit) = tick_and_unit(&value.data_type, [origin, 0])?;
    let ticks = i128::from(DAY_NANOSECONDS) / tick;
    let value = Fault::Null.within(emitter, value.clone(), bounds_in(tick));
    let day = quotient(emitter, &value, ticks, "floor_divide")?;
    let range = int_range(&day)?;
    let (origin_day, origin_time) = (origin.div_euclid(DAY_NANOSECONDS), origin.rem_euclid(DAY_NANOSECONDS));
    let first = emitter.params.number(origin_day);
    let day = emitter.temporary(CType::I32, &day.code_as(CType::I32));
    let month = |day: &str| format!("date_year({day}) * 12 + date_month({day})");
    let first = emitter.temporary(CType::I32, &format!("(i32){first}"));
    let months = emitter.temporary(CType::I32, &format!("{} - ({})", month(&day), month(&first)));
    let months = emitter.temporary(CType::I32, &format!("floor_divide({months}, {stride}) * {stride}"));
    let begin = emitter.temporary(CType::I32, &format!("date_add_months({first}, {months})"));
    let c_type = int_range(&value)?.union(Range::new(0, ticks)).c_type();
    let time = format!("(i64)floor_remainder({}, {})", value.code_as(c_type), constant(ticks, c_type));
    let time = emitter.temporary(CType::I64, &time);
    // A time of whole ticks is before that of the origin if it is before the first tick from there on.
    let limit = emitter.params.number((i128::from(origin_time) + tick - 1).div_euclid(tick) as i64);
    let is_later = format!("{begin} > {day} || ({begin} == {day} && {time} < {limit})");
    let before = format!("date_add_months({first}, {months} - {stride})");
    let begin = emitter.temporary(CType::I32, &format!("{is_later} ? {before} : {begin}"));
    let range = Range::new(range.min - 31 * (i128::from(stride) + 1), range.max);
    let begin = Value { code: begin, kind: Kind::Int(range), ..value };
    let begin = times(emitter, &begin, i128::from(DAY_NANOSECONDS) / unit, Fault::Null)?;
    let begin = plus_number(emitter, &begin, i128::from(origin_time) / unit)?;
    let begin = Fault::Null.within(emitter, begin, bounds_in(unit));
    if tick == unit { Ok(begin) } else { quotient(emitter, &begin, tick, "/") }
}

/// Days from one date to another.
fn days_between(emitter: &mut Emitter, later: &Value, earlier: &Value, to: &DataType) -> Result<Value> {
    let (ticks, _) = unit_and_offset(&later.data_type)?;
    let as_integer = |emitter: &mut Emitter, value: &Value| {
        let stored = if ticks == 1 { DataType::Int32 } else { DataType::Int64 };
        let value = cast(emitter, value, &stored, CAST)?;
        cast(emitter, &value, &DataType::Int64, CAST)
    };
    let (later, earlier) = (as_integer(emitter, later)?, as_integer(emitter, earlier)?);
    let difference = combine(emitter, crate::expr::ArithmeticOp::Subtract, &later, &earlier, to)?;
    if ticks == 1 { Ok(difference) } else { quotient(emitter, &difference, ticks, "/") }
}
