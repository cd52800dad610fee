//! Scalar functions of the device plan.
//!
//! Only functions whose results are the same bits on every device and on the CPU are here: integer
//! arithmetic, and the operations that IEEE 754 rounds correctly. Logarithms, powers and angles
//! differ in their last bit between a GPU and a C library, so they stay on the CPU. The sign of a
//! NaN is not among the bits: processors disagree on that of 0.0 / 0.0.

use std::fmt;

/// A function of values of one row. Null if an argument is, except where it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// The absolute value; the smallest signed integer is an error.
    Absolute,
    /// The smallest whole number that is not less; of floats and decimals.
    Ceil,
    /// The largest whole number that is not greater; of floats and decimals.
    Floor,
    /// Rounded half away from zero to so many decimal places, which may be negative.
    Round {
        /// Decimal places.
        places: i32,
    },
    /// Cut off behind so many decimal places. `None`: whole numbers, and never -0.0.
    Truncate {
        /// Decimal places.
        places: Option<i32>,
    },
    /// The square root of a float; of a negative number it is an error.
    SquareRoot,
    /// -1.0, 0.0, 1.0 or NaN, of a float.
    Sign,
    /// Whether a float is NaN.
    IsNan,
    /// Bits set in both integers.
    BitAnd,
    /// Bits set in either integer.
    BitOr,
    /// Bits set in one of the integers.
    BitXor,
    /// Bits moved up by the second integer modulo the type's bits.
    ShiftLeft,
    /// Bits moved down by the second integer modulo the type's bits, with the sign.
    ShiftRight,
    /// The greatest argument that is not null. Floats compare by IEEE total order.
    Greatest,
    /// The least argument that is not null.
    Least,
    /// A field of a date or timestamp.
    DatePart(DatePart),
    /// The timestamp at the beginning of the unit in which it lies.
    DateTruncate(DateUnit),
    /// A date or timestamp moved by an interval: months first (to the month's last day where the day
    /// does not exist), then days, then nanoseconds.
    AddInterval(Interval),
    /// Days from the second date to the first, rounded toward zero.
    DaysBetween,
}

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

/// What timestamps are cut off to.
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

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute => f.write_str("abs"),
            Self::Ceil => f.write_str("ceil"),
            Self::Floor => f.write_str("floor"),
            Self::Round { places } => write!(f, "round[{places}]"),
            Self::Truncate { places: None } => f.write_str("trunc"),
            Self::Truncate { places: Some(places) } => write!(f, "trunc[{places}]"),
            Self::SquareRoot => f.write_str("sqrt"),
            Self::Sign => f.write_str("signum"),
            Self::IsNan => f.write_str("isnan"),
            Self::BitAnd => f.write_str("bit_and"),
            Self::BitOr => f.write_str("bit_or"),
            Self::BitXor => f.write_str("bit_xor"),
            Self::ShiftLeft => f.write_str("shift_left"),
            Self::ShiftRight => f.write_str("shift_right"),
            Self::Greatest => f.write_str("greatest"),
            Self::Least => f.write_str("least"),
            Self::DatePart(part) => write!(f, "date_part[{part:?}]"),
            Self::DateTruncate(unit) => write!(f, "date_trunc[{unit:?}]"),
            Self::AddInterval(Interval { months, days, nanoseconds }) => {
                write!(f, "add[{months} months {days} days {nanoseconds} ns]")
            }
            Self::DaysBetween => f.write_str("days_between"),
        }
    }
}
