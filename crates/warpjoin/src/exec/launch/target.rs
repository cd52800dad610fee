//! Where the sinks of pipelines write on one device: what parameters of their kernels are bound to.

use std::sync::Arc;

use warpjoin_device::Buffer;

use crate::column::ColumnType;
use crate::exec::relation::{GroupShard, IntermediateShard, TableColumns};

/// Where a pipeline's sink writes on one device.
pub(in crate::exec) enum Target<'a> {
    Rows {
        shard: &'a IntermediateShard,
        capacity: u64,
        /// The columns, where rows lie as those of the source do.
        in_place: Option<&'a [ColumnType]>,
    },
    Groups(&'a GroupTarget),
    Partition(&'a PartitionTarget),
    Sketch(&'a SketchTarget),
    /// Slots indexed by the packed key.
    Slots(&'a Buffer),
}

/// A group table being filled on one device.
///
/// ```text
/// rows: slots (or appended rows) | the row of key word 0 | spilled rows, not cleared
/// ```
#[derive(Debug)]
pub(in crate::exec) struct GroupTarget {
    /// The rows to read once all are in: spilled ones excluded.
    pub shard: GroupShard,
    /// Rows that keys are placed in, or that may be appended.
    pub slots: u64,
    pub index: Option<Buffer>,
    pub index_slots: u64,
    pub steps_max: u64,
    pub grow_steps: u64,
    pub spill_rows: u64,
    /// See `group_counter`.
    pub counters: Buffer,
    /// The next turn of each block, or the places of a walk: what was accumulated stays when the table grows.
    pub cursors: Buffer,
    /// The pieces of rows that are cut.
    pub pieces: Option<GroupPieces>,
    /// Rows that a block takes at a time where they lie by partition, or are cut.
    pub chunk_rows: u64,
    /// Which ends of rows that are cut share their key with other devices: `OPEN_FIRST`, `OPEN_LAST`.
    pub open_ends: u64,
    /// How many steps ahead of the rows at hand a block asks for rows.
    pub prefetch_steps: u64,
    /// Rows of groups that are finished, which no table holds.
    pub finished: Option<Buffer>,
    pub finished_rows: u64,
}

/// Pieces of rows with no key in two of them.
#[derive(Debug)]
pub(in crate::exec) struct GroupPieces {
    /// u32 a piece, and one more: where each begins.
    pub offsets: Buffer,
    pub count: u64,
    /// The keys may be read as long as pieces are.
    pub _columns: Arc<TableColumns>,
}

/// Buffers of a partition under way on one device, and what the generated kernels write to.
pub(in crate::exec) struct PartitionTarget {
    pub bits: u32,
    /// Bits of the hash above those of partitions.
    pub skipped_bits: u32,
    pub counts: Buffer,
    pub cursors: Buffer,
    pub words: Vec<Buffer>,
}

/// Where a sketch is made on a device.
pub(in crate::exec) struct SketchTarget {
    pub set: Buffer,
    pub stride: u64,
}
