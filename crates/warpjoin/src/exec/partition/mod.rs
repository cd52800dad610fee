//! Radix partitions on each device, and the rows of words that they hold.
//!
//! Must not know what partitions are for (joins, group-bys, hash tables), nor about exchange between devices.

mod passes;
mod row_words;
mod spill;
mod spilled;

pub(crate) use crate::exec::launch::{TileLaunch, partition_launch};
pub(crate) use crate::exec::relation::{PARTITION_BITS_MAX, PartitionedShard, PassBits};
pub(super) use passes::PlannedPartition;
pub(crate) use passes::one_block;
pub(super) use passes::row_words;
pub(crate) use row_words::{RowWords, WordColumn};
pub(super) use spilled::{Inbound, PartitionRanges, SPILL_BITS, SpilledRows};
