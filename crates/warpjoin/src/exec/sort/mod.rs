//! Orders rows: all of them, a range of them, or partitions of a window.
//!
//! Must not know the types of keys: a pipeline has packed them into words (`codegen/output/sort.rs`).

mod kernels;
mod order;
mod ranges;

pub(super) use ranges::ByRanges;
