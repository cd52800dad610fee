//! Functions of dates and timestamps: their specs, and their constants with the names in SQL.

use std::fmt;

use arrow::datatypes::DataType;

use super::spec::{Arguments, Constant, Function, FunctionSpec, ONE, Written};
use super::zone::zone_offset_seconds;

/// A function of dates and timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DateFunction {
    /// A field of a date or timestamp.
    Part(DatePart),
    /// The timestamp at the beginning of the unit in which it lies.
    Truncate(DateUnit),
    /// A date or timestamp moved by an interval: months first (to the month's last day where the day
    /// does not exist), then days, then nanoseconds.
    AddInterval(Interval),
    /// Days from the second date to the first, rounded toward zero.
    DaysBetween,
    /// The start of the bin that contains the timestamp, in UTC, truncated toward 1970 to a whole tick of the type. Null where it
    /// or the distance from the origin exceeds 64 bits of nanoseconds.
    Bin(Bin),
}

/// Days outside the calendar are errors.
const OF_DATES: FunctionSpec = FunctionSpec { may_fail: |_| true, ..ONE };

/// A field of a date or timestamp, as `date_part` counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatePart {
    /// Calendar year.
    Year,
    /// Year of the ISO week.
    IsoYear,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// ISO week, 1 to 53.
    Week,
    /// 1 to 31.
    Day,
    /// 1 to 366.
    DayOfYear,
    /// 0 (Sunday) to 6.
    DayOfWeek,
    /// 1 (Monday) to 7.
    IsoDayOfWeek,
    /// 0 to 23.
    Hour,
    /// 0 to 59.
    Minute,
    /// 0 to 59.
    Second,
    /// Milliseconds of the minute.
    Millisecond,
    /// Microseconds of the minute.
    Microsecond,
    /// Nanoseconds of the minute.
    Nanosecond,
    /// Seconds since 1970, as a Float64.
    Epoch,
}

/// Bins of time. One of them starts at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bin {
    /// Length of each bin.
    pub stride: Stride,
    /// Nanoseconds since 1970.
    pub origin: i64,
}

/// Length of a bin, which is positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stride {
    /// Nanoseconds.
    Nanoseconds(i64),
    /// Calendar months. A bin starts at the month's last day if the origin's day does not exist in it.
    Months(i32),
}

/// The unit to which timestamps are truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DateUnit {
    /// January 1st.
    Year,
    /// The quarter's first day.
    Quarter,
    /// The month's first day.
    Month,
    /// Monday.
    Week,
    /// Midnight.
    Day,
    /// The hour.
    Hour,
    /// The minute.
    Minute,
    /// The second.
    Second,
    /// The millisecond.
    Millisecond,
    /// The microsecond.
    Microsecond,
}

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Calendar months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

impl DatePart {
    /// All parts.
    pub const ALL: [Self; 16] = [
        Self::Year,
        Self::IsoYear,
        Self::Quarter,
        Self::Month,
        Self::Week,
        Self::Day,
        Self::DayOfYear,
        Self::DayOfWeek,
        Self::IsoDayOfWeek,
        Self::Hour,
        Self::Minute,
        Self::Second,
        Self::Millisecond,
        Self::Microsecond,
        Self::Nanosecond,
        Self::Epoch,
    ];

    /// The type of DataFusion's result.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Epoch => DataType::Float64,
            Self::Nanosecond => DataType::Int64,
            _ => DataType::Int32,
        }
    }

    /// The part with this name in DataFusion, in lower case.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "year" | "years" | "y" => Self::Year,
            "isoyear" => Self::IsoYear,
            "quarter" | "qtr" => Self::Quarter,
            "month" | "months" | "mon" => Self::Month,
            "week" | "weeks" | "w" => Self::Week,
            "day" | "days" | "d" => Self::Day,
            "doy" => Self::DayOfYear,
            "dow" => Self::DayOfWeek,
            "isodow" => Self::IsoDayOfWeek,
            "hour" | "hours" | "h" => Self::Hour,
            "minute" | "minutes" => Self::Minute,
            "second" | "seconds" | "s" => Self::Second,
            "millisecond" | "milliseconds" | "ms" => Self::Millisecond,
            "microsecond" | "microseconds" | "us" => Self::Microsecond,
            "nanosecond" | "nanoseconds" => Self::Nanosecond,
            "epoch" => Self::Epoch,
            _ => return None,
        })
    }
}

impl DateUnit {
    /// All units.
    pub const ALL: [Self; 10] = [
        Self::Year,
        Self::Quarter,
        Self::Month,
        Self::Week,
        Self::Day,
        Self::Hour,
        Self::Minute,
        Self::Second,
        Self::Millisecond,
        Self::Microsecond,
    ];

    /// The unit with this name in DataFusion, in lower case.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "year" => Self::Year,
            "quarter" => Self::Quarter,
            "month" => Self::Month,
            "week" => Self::Week,
            "day" => Self::Day,
            "hour" => Self::Hour,
            "minute" => Self::Minute,
            "second" => Self::Second,
            "millisecond" => Self::Millisecond,
            "microsecond" => Self::Microsecond,
            _ => return None,
        })
    }
}

impl DateFunction {
    /// All functions; those with parameters occur several times.
    pub fn samples() -> impl Iterator<Item = Self> {
        let spans = [(0, 0, 1), (0, -40, -90_000_000_000_000), (1, 0, 0), (-13, 3, 0)];
        let interval = |(months, days, nanoseconds)| Self::AddInterval(Interval { months, days, nanoseconds });
        let bins = [
            (Stride::Nanoseconds(900_000_000_000), 0),
            (Stride::Nanoseconds(1), 1_000_000_007),
            (Stride::Nanoseconds(1_500_000_000), -3_723_000_000_001),
            (Stride::Nanoseconds(259_200_000_000_000), 951_868_800_000_000_000),
            (Stride::Months(1), 946_713_607_000_000_000),
            (Stride::Months(12), 0),
            (Stride::Months(5), 949_320_000_000_000_001),
        ];
        (DatePart::ALL.map(Self::Part).into_iter())
            .chain(DateUnit::ALL.map(Self::Truncate))
            .chain(spans.map(interval))
            .chain([Self::DaysBetween])
            .chain(bins.map(|(stride, origin)| Self::Bin(Bin { stride, origin })))
    }

    /// The function's spec.
    pub(super) fn spec(self) -> FunctionSpec {
        match self {
            Self::Part(_) => FunctionSpec {
                name: "date_part",
                written: Written::CallWith { constants: &[0], bind: date_part },
                takes: |function, of, to| {
                    (is_date(of[0]) || is_timestamp_of_fixed_zone(of[0]))
                        && matches!(function, Function::Date(Self::Part(part)) if part.data_type() == *to)
                },
                ..OF_DATES
            },
            Self::Truncate(_) => FunctionSpec {
                name: "date_trunc",
                written: Written::CallWith { constants: &[0], bind: date_truncate },
                takes: |_, of, to| is_timestamp_of_fixed_zone(of[0]) && of[0] == to,
                ..OF_DATES
            },
            Self::AddInterval(_) => {
                FunctionSpec { name: "add", written: Written::Operator("+"), takes: takes_interval, ..OF_DATES }
            }
            Self::Bin(_) => FunctionSpec {
                name: "date_bin",
                written: Written::CallWith { constants: &[0, 2], bind: date_bin },
                takes: |_, of, to| matches!(of[0], DataType::Timestamp(..)) && of[0] == to,
                ..ONE
            },
            Self::DaysBetween => FunctionSpec {
                name: "days_between",
                written: Written::Operator("-"),
                arguments: Arguments::Exactly(2),
                takes: |_, of, to| is_date(of[0]) && of[0] == of[1] && *to == DataType::Int64,
                ..ONE
            },
        }
    }
}

impl fmt::Display for DateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().name)?;
        match self {
            Self::Part(part) => write!(f, "[{part:?}]"),
            Self::Truncate(unit) => write!(f, "[{unit:?}]"),
            Self::AddInterval(Interval { months, days, nanoseconds }) => {
                write!(f, "[{months} months {days} days {nanoseconds} ns]")
            }
            Self::Bin(Bin { stride, origin }) => write!(f, "[{stride:?} from {origin}]"),
            Self::DaysBetween => Ok(()),
        }
    }
}

fn is_date(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Date64)
}

fn is_timestamp_of_fixed_zone(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, zone) if zone_offset_seconds(zone.as_deref()).is_some())
}

/// Maximum months and days of an interval, so that the resulting day fits 32 bits.
const MONTHS_MAX: u32 = 12 * 262_000;
const DAYS_MAX: u32 = 200_000_000;

fn takes_interval(function: Function, of: &[&DataType], to: &DataType) -> bool {
    let Function::Date(DateFunction::AddInterval(Interval { months, days, .. })) = function else { return false };
    let is_small = months.unsigned_abs() <= MONTHS_MAX && days.unsigned_abs() <= DAYS_MAX;
    is_small && (*of[0] == DataType::Date32 || is_timestamp_of_fixed_zone(of[0])) && of[0] == to
}

fn date_part(constants: &[Constant]) -> Option<Function> {
    let [Constant::Text(name)] = constants else { return None };
    DatePart::named(name).map(DateFunction::Part).map(Function::Date)
}

fn date_truncate(constants: &[Constant]) -> Option<Function> {
    let [Constant::Text(name)] = constants else { return None };
    DateUnit::named(name).map(DateFunction::Truncate).map(Function::Date)
}

fn date_bin(constants: &[Constant]) -> Option<Function> {
    let (interval, origin) = match constants {
        [Constant::Interval(interval), Constant::Missing] => (*interval, 0),
        [Constant::Interval(interval), Constant::Timestamp(origin)] if *origin > i64::MIN => (*interval, *origin),
        _ => return None,
    };
    let stride = match interval {
        Interval { months: 0, days, nanoseconds } => {
            let days = i64::from(days).checked_mul(86_400_000_000_000)?;
            Stride::Nanoseconds(days.checked_add(nanoseconds).filter(|nanoseconds| *nanoseconds > 0)?)
        }
        Interval { months, days: 0, nanoseconds: 0 } if (1..=MONTHS_MAX.cast_signed()).contains(&months) => {
            Stride::Months(months)
        }
        _ => return None,
    };
    Some(Function::Date(DateFunction::Bin(Bin { stride, origin })))
}
