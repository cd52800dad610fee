//! Scalar functions of the device plan.
//!
//! Only functions whose results are the same bits on every device and on the CPU are here: integer
//! arithmetic, and the operations that IEEE 754 rounds correctly. Logarithms, powers and angles
//! differ in their last bit between a GPU and a C library, so they stay on the CPU. The sign of a
//! NaN is not among the bits: processors disagree on that of 0.0 / 0.0.

mod date;
mod spec;

use std::fmt;

pub use date::{DateFunction, DatePart, DateUnit, Interval};
pub use spec::{Arguments, Constant, Function, FunctionSpec, Nulls, Written};

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().name)?;
        match self {
            Self::Round { places } | Self::Truncate { places: Some(places) } => write!(f, "[{places}]"),
            Self::Date(DateFunction::Part(part)) => write!(f, "[{part:?}]"),
            Self::Date(DateFunction::Truncate(unit)) => write!(f, "[{unit:?}]"),
            Self::Date(DateFunction::AddInterval(Interval { months, days, nanoseconds })) => {
                write!(f, "[{months} months {days} days {nanoseconds} ns]")
            }
            _ => Ok(()),
        }
    }
}
