//! Radix partitions on each device, and rows as words, of which they consist.
//!
//! Must not know what partitions are for (joins, group-bys, hash tables), nor about exchange between devices.

mod passes;
mod row_words;

pub(super) use passes::{Deferred, PartitionTarget, PartitionedRows, row_words};
pub(crate) use passes::{
    PARTITION_BITS_MAX, PartitionedShard, PassBits, TileLaunch, one_block, partition_launch, pointers,
};
pub(crate) use row_words::{RowWords, WordColumn};
