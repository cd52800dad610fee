//! Radix partitions on each device, and rows as words, of which they consist.
//!
//! Must not know what partitions are for (joins, group-bys, hash tables), nor about exchange between devices.

mod passes;
mod row_words;
mod table;

pub(super) use passes::{Deferred, PartitionTarget, PartitionedRows, row_words};
pub(crate) use passes::{
    PARTITION_BITS_MAX, PassBits, RESTORE, TileLaunch, one_block, partition_launch, partition_module, pass_entry,
    pointers,
};
pub(crate) use row_words::{RowWords, WordColumn};
pub use table::{PartitionedTable, PartitionedTableShard, kernel_definitions, partition_table};
