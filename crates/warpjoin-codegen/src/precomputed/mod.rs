//! What a pipeline reads that was computed before it runs: results of functions and tests for all values of their operands, and
//! codes of one dictionary for those of another.
//!
//! Owns how the host evaluates functions and remembers results. Must not know the code that reads them.

mod lookup;
mod prefixes;
mod remembered;
mod tabulation;

pub(super) use lookup::plain_statistics;
pub use lookup::{DictionaryTest, Lookup, LookupColumn};
pub(super) use prefixes::Prefixes;
pub use remembered::forget;
pub(super) use remembered::{Made, remembered, remembered_union};
pub(super) use tabulation::{Axis, AxisValues, Tabulations, encoded};
