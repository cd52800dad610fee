//! Translates window frames to those of device plans.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use warpjoin::Reason;
use warpjoin::plan::SortKey;
use warpjoin::window::{Distance, Frame, FrameBound};

const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// The device plan's frame.
pub(super) fn frame_of(frame: &WindowFrame, order_by: &[SortKey]) -> Result<Frame, Reason> {
    let bound = |bound: &WindowFrameBound, is_end: bool| {
        // `is_unbounded` is also true for a distance that does not fit its type. Only on this side does that mean the
        // partition's end.
        let is_open = match bound {
            WindowFrameBound::Preceding(_) => !is_end,
            WindowFrameBound::Following(_) => is_end,
            WindowFrameBound::CurrentRow => false,
        };
        if bound.is_unbounded() && is_open {
            return Ok(FrameBound::Partition);
        }
        let (value, is_following) = match (bound, frame.units) {
            (WindowFrameBound::CurrentRow, WindowFrameUnits::Rows) => return Ok(FrameBound::Rows(0)),
            (WindowFrameBound::CurrentRow, _) => return Ok(FrameBound::Groups(0)),
            (WindowFrameBound::Preceding(value), _) => (value, false),
            (WindowFrameBound::Following(value), _) => (value, true),
        };
        match (frame.units, value) {
            (WindowFrameUnits::Rows, ScalarValue::UInt64(Some(rows))) => {
                Ok(FrameBound::Rows(moved(*rows, is_following)))
            }
            (WindowFrameUnits::Groups, ScalarValue::UInt64(Some(groups))) => {
                Ok(FrameBound::Groups(moved(*groups, is_following)))
            }
            (WindowFrameUnits::Range, value) => {
                let distance = match order_by {
                    [key] => distance_of(value, key, is_following),
                    _ => None,
                };
                let declined = || Reason::Aggregate(format!("of a frame with a distance of {value}"));
                Ok(FrameBound::Range { is_following, distance: distance.ok_or_else(declined)? })
            }
            _ => Err(Reason::Aggregate(format!("of a frame with a bound of {value}"))),
        }
    };
    Ok(Frame { start: bound(&frame.start_bound, false)?, end: bound(&frame.end_bound, true)? })
}

fn moved(places: u64, is_following: bool) -> i64 {
    let places = i64::try_from(places).unwrap_or(i64::MAX);
    if is_following { places } else { -places }
}

/// The distance of a RANGE bound; `None` if devices cannot add it to the key as DataFusion does.
fn distance_of(value: &ScalarValue, key: &SortKey, is_following: bool) -> Option<Distance> {
    let data_type = &key.expr.data_type;
    match (data_type, value) {
        (_, ScalarValue::IntervalMonthDayNano(Some(interval))) => {
            let (months, days) = (u32::try_from(interval.months).ok()?, u32::try_from(interval.days).ok()?);
            let nanos = u64::try_from(interval.nanoseconds).ok()?;
            let total = i128::from(days) * NANOS_PER_DAY + i128::from(nanos);
            match data_type {
                DataType::Date32 => {
                    // Dates ignore parts of days.
                    let days = u32::try_from(total / NANOS_PER_DAY).ok()?;
                    Some(if months == 0 { Distance::Units(days.into()) } else { Distance::Months(months, days) })
                }
                // Adding months does not keep the order of timestamps: days are clamped to the end of the month, times are
                // not. Days of a time zone may have 23 or 25 hours.
                DataType::Timestamp(unit, zone) if months == 0 && (days == 0 || is_fixed(zone.as_deref())) => {
                    let adds = is_following != key.descending;
                    let tick = nanos_of(*unit);
                    // DataFusion rounds the sum to whole units.
                    let units = if adds { total.div_euclid(tick) } else { -(-total).div_euclid(tick) };
                    Some(Distance::Units(units))
                }
                _ => None,
            }
        }
        (data_type, value) if value.data_type() != *data_type => None,
        (_, ScalarValue::Decimal32(Some(units), ..)) => Some(Distance::Units((*units).into())),
        (_, ScalarValue::Decimal64(Some(units), ..)) => Some(Distance::Units((*units).into())),
        (_, ScalarValue::Decimal128(Some(units), ..)) => Some(Distance::Units(*units)),
        (_, ScalarValue::Float32(Some(value))) => Some(Distance::Double(f64::from(*value).to_bits())),
        (_, ScalarValue::Float64(Some(value))) => Some(Distance::Double(value.to_bits())),
        (DataType::UInt64, ScalarValue::UInt64(Some(units))) => Some(Distance::Units((*units).into())),
        (data_type, value) if data_type.is_integer() => match value.cast_to(&DataType::Int64).ok()? {
            ScalarValue::Int64(Some(units)) => Some(Distance::Units(units.into())),
            _ => None,
        },
        _ => None,
    }
}

/// Whether every day of a time zone has 24 hours.
fn is_fixed(zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| zone == "UTC" || zone.starts_with(['+', '-']))
}

fn nanos_of(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}
