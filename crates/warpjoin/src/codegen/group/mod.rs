//! Group tables: the sink that aggregates, in registers, in a block's shared memory and in global memory; reading the groups;
//! merging and sending them; the sketch that estimates their number.
//!
//! Must not know where groups lie, nor how many there are.

mod aggregate;
mod block;
mod columns;
mod regroup;
mod route;
mod sketch;
mod slot;
mod walk;

pub(crate) use aggregate::ROWS_PER_THREAD_BITS_MAX;
pub(super) use aggregate::aggregate;
pub(super) use block::TABLE_BLOCK_THREADS;
pub(crate) use block::{key_bytes, partition_slots};
pub(super) use columns::group_columns;
pub(crate) use regroup::regroup;
pub(super) use route::route_groups;
pub(super) use sketch::sketch;
pub(super) use walk::SKEWED_BLOCK_THREADS;
pub(crate) use walk::{PLACES_EACH, PLACES_HEAD};
