//! Sinks that write rows as they are, or with the words by which they will be sorted.
//!
//! Owns how rows get their places and how columns are stored. Must not know joins and group-bys, whose sinks write rows with it.

mod sort;
mod store;

pub(super) use sort::sort;
pub use store::common_columns;
pub(super) use store::{conform, in_place, materialise, reserve, word, write};
