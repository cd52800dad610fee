//! The oracle of scalar functions: from what `function.rs` documents, and chrono's calendar.

use arrow::datatypes::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, TimeDelta, Timelike};
use warpjoin::function::date::{Bin, Stride};
use warpjoin::function::{DateFunction, DatePart, DateUnit, Function, Interval, Nulls};

use super::value::{V, decimal, fault, int_bounds, scale, wrap};

/// Days that devices know.
const CALENDAR: std::ops::RangeInclusive<i128> = -96_413_158..=94_974_466;

/// The function of these values; a fault bit where it is an error.
pub(crate) fn call(function: Function, values: &[V], types: &[DataType], to: &DataType) -> Result<V, u8> {
    let nulls = values.iter().filter(|value| value.is_null()).count();
    let is_null = match function.spec().nulls {
        Nulls::OfOne => nulls > 0,
        Nulls::OfAll => nulls == values.len(),
        Nulls::OfChosen => false,
    };
    if is_null {
        return Ok(V::Null);
    }
    let result = value(function, values, types, to);
    assert!(result.is_ok() || (function.spec().may_fail)(&types[0]), "{function} fails of {values:?}");
    result
}

fn value(function: Function, values: &[V], types: &[DataType], to: &DataType) -> Result<V, u8> {
    let known = values.iter().filter(|value| !value.is_null());
    match (function, values) {
        (Function::IfNan, [V::Float(x), other]) if x.is_nan() => Ok(other.clone()),
        (Function::IfNan, [value, _]) => Ok(value.clone()),
        (Function::Greatest, _) => Ok(known.max_by(|a, b| a.order(b)).cloned().unwrap_or(V::Null)),
        (Function::Least, _) => Ok(known.min_by(|a, b| a.order(b)).cloned().unwrap_or(V::Null)),
        (Function::Date(DateFunction::Part(part)), [V::Int(x)]) => date_part(part, *x, &types[0]),
        (Function::Date(DateFunction::Truncate(unit)), [V::Int(x)]) => truncate(unit, *x, &types[0]).map(V::Int),
        (Function::Date(DateFunction::AddInterval(interval)), [V::Int(x)]) => add(interval, *x, &types[0]).map(V::Int),
        (Function::Date(DateFunction::Bin(bin)), [V::Int(x)]) => Ok(binned(bin, *x, &types[0]).map_or(V::Null, V::Int)),
        (Function::Date(DateFunction::DaysBetween), [V::Int(x), V::Int(y)]) => {
            let wrapped = wrap(x - y, &DataType::Int64);
            Ok(V::Int(wrapped / ticks_per_day(&types[0])))
        }
        (_, [V::Int(x), V::Int(y)]) => Ok(V::Int(bits(function, *x, *y, to))),
        (_, [V::Float(x)]) => float(function, *x, to),
        (_, [V::Int(x)]) => integer(function, *x, &types[0], to).map(V::Int),
        other => panic!("the oracle has no {other:?}"),
    }
}

fn float(function: Function, x: f64, to: &DataType) -> Result<V, u8> {
    let single = *to == DataType::Float32;
    let step = |x: f64| if single { f64::from(x as f32) } else { x };
    let scaled = |round: fn(f64) -> f64, places: i32| {
        let factor = step(10f64.powi(places));
        step(round(step(x * factor)) / factor)
    };
    Ok(V::Float(match function {
        Function::Absolute => x.abs(),
        Function::Ceil => x.ceil(),
        Function::Floor => x.floor(),
        Function::Round { places } => scaled(f64::round, places),
        Function::Truncate { places: Some(places) } => scaled(f64::trunc, places),
        Function::Truncate { places: None } if x == 0.0 => 0.0,
        Function::Truncate { places: None } => x.trunc(),
        Function::SquareRoot if x < 0.0 => return Err(fault::CAST),
        Function::SquareRoot => step(x.sqrt()),
        Function::Sign if x == 0.0 => 0.0,
        Function::Sign => x.signum(),
        Function::IsNan => return Ok(V::Bool(x.is_nan())),
        other => panic!("the oracle has no {other} of floats"),
    }))
}

fn integer(function: Function, x: i128, from: &DataType, to: &DataType) -> Result<i128, u8> {
    let power = |exponent: i8| 10i128.checked_pow(exponent.max(0) as u32);
    let whole = power(scale(from)).unwrap_or(1);
    let result = match function {
        Function::Absolute => x.checked_abs(),
        Function::Floor => x.div_euclid(whole).checked_mul(whole),
        Function::Ceil => (-x).div_euclid(whole).checked_mul(-whole),
        Function::Truncate { places } => {
            let factor = power(scale(from) - places.unwrap_or(0) as i8);
            factor.map_or(Some(0), |factor| (x / factor).checked_mul(factor))
        }
        Function::Round { places } => round(x, places as i8, from, to),
        other => panic!("the oracle has no {other} of integers"),
    };
    let (min, max) = match (function, decimal(to)) {
        (Function::Absolute | Function::Truncate { .. }, _) | (_, None) => {
            int_bounds(to).unwrap_or((i128::MIN, i128::MAX))
        }
        (_, Some((precision, _))) => (1 - 10i128.pow(precision.into()), 10i128.pow(precision.into()) - 1),
    };
    result.filter(|value| (min..=max).contains(value)).ok_or(fault::OVERFLOW)
}

fn round(x: i128, places: i8, from: &DataType, to: &DataType) -> Option<i128> {
    let steps = scale(from) - places;
    if steps <= 0 {
        return Some(x);
    }
    let digits = match decimal(from) {
        Some((precision, scale)) => precision as i8 - scale,
        None => int_bounds(from)?.1.ilog10() as i8,
    };
    if places < 0 && -places > digits {
        return Some(0);
    }
    let factor = 10i128.pow(steps as u32);
    let carry = if (x % factor).abs() >= factor / 2 { x.signum() } else { 0 };
    (x / factor + carry).checked_mul(10i128.pow((scale(to) - places) as u32))
}

fn bits(function: Function, x: i128, y: i128, to: &DataType) -> i128 {
    let (min, max) = int_bounds(to).unwrap_or_default();
    let width = (max - min).ilog2() + 1;
    let shift = y & i128::from(width - 1);
    match function {
        Function::BitAnd => x & y,
        Function::BitOr => x | y,
        Function::BitXor => x ^ y,
        Function::ShiftLeft => wrap(x << shift, to),
        Function::ShiftRight => x >> shift,
        other => panic!("the oracle has no {other}"),
    }
}

/// What a day is in numbers of the type.
pub(crate) fn ticks_per_day(data_type: &DataType) -> i128 {
    86_400
        * match data_type {
            DataType::Date32 => return 1,
            DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000,
            DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => 1_000_000_000,
            _ => 1,
        }
}

/// Ticks that the type's zone is ahead of UTC.
pub(crate) fn offset(data_type: &DataType) -> i128 {
    match data_type {
        DataType::Timestamp(_, Some(zone)) if zone.as_ref() == "+05:30" => 330 * 60 * ticks_per_day(data_type) / 86_400,
        _ => 0,
    }
}

fn date_time(x: i128, data_type: &DataType) -> Result<NaiveDateTime, u8> {
    let ticks = ticks_per_day(data_type);
    let local = x + offset(data_type);
    if !CALENDAR.contains(&local.div_euclid(ticks)) {
        return Err(fault::CAST);
    }
    let nanoseconds = local.rem_euclid(ticks) * (86_400_000_000_000 / ticks);
    let seconds = local.div_euclid(ticks) * 86_400 + nanoseconds / 1_000_000_000;
    let moment = DateTime::from_timestamp(seconds as i64, (nanoseconds % 1_000_000_000) as u32);
    Ok(moment.expect("within the calendar").naive_utc())
}

fn date_part(part: DatePart, x: i128, data_type: &DataType) -> Result<V, u8> {
    if part == DatePart::Epoch {
        let per_second = (ticks_per_day(data_type) / 86_400) as f64;
        let seconds = if *data_type == DataType::Date32 { x as f64 * 86_400.0 } else { x as f64 / per_second };
        return Ok(V::Float(seconds));
    }
    let at = date_time(x, data_type)?;
    let (second, nanosecond) = (i128::from(at.second()), i128::from(at.nanosecond()));
    Ok(V::Int(match part {
        DatePart::Year => at.year().into(),
        DatePart::IsoYear => at.iso_week().year().into(),
        DatePart::Quarter => at.quarter().into(),
        DatePart::Month => at.month().into(),
        DatePart::Week => at.iso_week().week().into(),
        DatePart::Day => at.day().into(),
        DatePart::DayOfYear => at.ordinal().into(),
        DatePart::DayOfWeek => at.weekday().num_days_from_sunday().into(),
        DatePart::IsoDayOfWeek => at.weekday().number_from_monday().into(),
        DatePart::Hour => at.hour().into(),
        DatePart::Minute => at.minute().into(),
        DatePart::Second => second,
        DatePart::Millisecond => second * 1_000 + nanosecond / 1_000_000,
        DatePart::Microsecond => second * 1_000_000 + nanosecond / 1_000,
        DatePart::Nanosecond => second * 1_000_000_000 + nanosecond,
        DatePart::Epoch => 0,
    }))
}

fn first_day(unit: DateUnit, date: NaiveDate) -> NaiveDate {
    let first = |month| NaiveDate::from_ymd_opt(date.year(), month, 1).expect("a day");
    match unit {
        DateUnit::Year => first(1),
        DateUnit::Quarter => first(date.month0() / 3 * 3 + 1),
        DateUnit::Month => first(date.month()),
        _ => date - Days::new(date.weekday().num_days_from_monday().into()),
    }
}

fn truncate(unit: DateUnit, x: i128, data_type: &DataType) -> Result<i128, u8> {
    let (ticks, offset) = (ticks_per_day(data_type), offset(data_type));
    let second = ticks / 86_400;
    let step = match unit {
        DateUnit::Microsecond => second / 1_000_000,
        DateUnit::Millisecond => second / 1_000,
        DateUnit::Second => second,
        DateUnit::Minute => second * 60,
        DateUnit::Hour => second * 3600,
        _ => ticks,
    };
    if step <= 1 {
        return Ok(x);
    }
    let is_calendar = matches!(unit, DateUnit::Year | DateUnit::Quarter | DateUnit::Month | DateUnit::Week);
    let has_zone = matches!(data_type, DataType::Timestamp(_, Some(_)));
    if is_calendar || has_zone && matches!(unit, DateUnit::Hour | DateUnit::Day) {
        i64::try_from(x * (1_000_000_000 / second)).map_err(|_| fault::CAST)?;
    }
    let mut whole = (x + offset).div_euclid(step) * step;
    if is_calendar {
        let date = date_time(x, data_type)?.date();
        let days = first_day(unit, date).signed_duration_since(NaiveDate::default()).num_days();
        if days.abs() > 106_751 {
            return Err(fault::CAST);
        }
        whole = i128::from(days) * ticks;
    }
    i64::try_from(whole - offset).map(Into::into).map_err(|_| fault::CAST)
}

fn add(interval: Interval, x: i128, data_type: &DataType) -> Result<i128, u8> {
    let ticks = ticks_per_day(data_type);
    let at = date_time(x, data_type)?;
    let months = Months::new(interval.months.unsigned_abs());
    let later = |at: NaiveDateTime| {
        let at = if interval.months < 0 { at.checked_sub_months(months) } else { at.checked_add_months(months) };
        at?.checked_add_signed(TimeDelta::days(interval.days.into()))
    };
    let mut at = later(at).ok_or(fault::CAST)?;
    if *data_type == DataType::Date32 {
        at += TimeDelta::days(TimeDelta::nanoseconds(interval.nanoseconds).num_days());
    } else {
        at += TimeDelta::nanoseconds(interval.nanoseconds);
    }
    let seconds = i128::from(at.and_utc().timestamp());
    if !CALENDAR.contains(&seconds.div_euclid(86_400)) {
        return Err(fault::CAST);
    }
    let moved = if ticks == 1 {
        seconds.div_euclid(86_400)
    } else {
        seconds * (ticks / 86_400) + i128::from(at.nanosecond()) / (86_400_000_000_000 / ticks)
    };
    let bounds = int_bounds(data_type).unwrap_or_default();
    let moved = moved - offset(data_type);
    if (bounds.0..=bounds.1).contains(&moved) { Ok(moved) } else { Err(fault::OVERFLOW) }
}

/// The beginning of a bin, by nanoseconds; `None` where 64 bits do not hold one on the way.
fn binned(bin: Bin, x: i128, data_type: &DataType) -> Option<i128> {
    let held = |nanoseconds: i128| i64::try_from(nanoseconds).ok();
    let tick = 86_400_000_000_000 / ticks_per_day(data_type);
    let at = held(x * tick)?;
    let begin = match bin.stride {
        Stride::Nanoseconds(stride) => {
            let distance = held(i128::from(at) - i128::from(bin.origin))?;
            let begin = held(i128::from(distance.div_euclid(stride)) * i128::from(stride))?;
            held(i128::from(bin.origin) + i128::from(begin))?
        }
        Stride::Months(stride) => {
            let (at, origin) = (DateTime::from_timestamp_nanos(at), DateTime::from_timestamp_nanos(bin.origin));
            // From a bin that is later on, one after the other.
            let mut bins = ((at.year() - origin.year()) * 12 / stride) + 20;
            let bin_of = |bins: i32| {
                let months = Months::new((bins * stride).unsigned_abs());
                if bins < 0 { origin.checked_sub_months(months) } else { origin.checked_add_months(months) }
            };
            while bin_of(bins)? > at {
                bins -= 1;
            }
            bin_of(bins)?.timestamp_nanos_opt()?
        }
    };
    Some(i128::from(begin) / tick)
}
