//! Group tables: the sink that aggregates, in registers, in a block's shared memory and in global memory; reading the groups;
//! merging and sending them; the sketch that estimates their number.
//!
//! Must not know where groups lie, nor how many there are.

mod aggregate;
mod columns;
mod front;
mod route;
mod sketch;
mod slots;

pub use aggregate::ROWS_PER_THREAD_BITS_MAX;
pub(super) use aggregate::{AggregateOutput, aggregate};
pub(super) use columns::group_columns;
pub(super) use front::{SKEWED_BLOCK_THREADS, TABLE_BLOCK_THREADS};
pub use front::{key_bytes, partition_slots};
pub(super) use route::route_groups;
pub(super) use sketch::sketch;
