//! Scalar functions of the device plan.
//!
//! Only functions whose results are the same bits on every device and on the CPU are here: integer
//! arithmetic, and the operations that IEEE 754 rounds correctly. Logarithms, powers and angles
//! differ in their last bit between a GPU and a C library, so they stay on the CPU. The sign of a
//! NaN is not among the bits: processors disagree on that of 0.0 / 0.0.

pub mod date;
mod spec;
mod zone;

use std::fmt;

pub use date::{DateFunction, DatePart, DateUnit, Interval};
pub use spec::{Arguments, Constant, Function, FunctionSpec, Nulls, Written};
pub use zone::zone_offset_seconds;

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.spec().name;
        match self {
            Self::Date(function) => write!(f, "{function}"),
            Self::Round { places } | Self::Truncate { places: Some(places) } => write!(f, "{name}[{places}]"),
            _ => f.write_str(name),
        }
    }
}
