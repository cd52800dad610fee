//! Output targets of pipelines on one device, to which parameters of their kernels are bound.

use std::sync::Arc;

use warpjoin_columns::column::ColumnType;
use warpjoin_device::Buffer;

use crate::exec::relation::{GroupShard, IntermediateShard, TableColumns};

/// Where a pipeline's sink writes on one device.
pub(in crate::exec) enum Target<'a> {
    Rows {
        shard: &'a IntermediateShard,
        capacity: u64,
        /// The columns, if each output row has the position of its source row.
        in_place: Option<&'a [ColumnType]>,
    },
    Groups(&'a GroupTarget),
    Partition(&'a PartitionTarget),
    Sketch(&'a SketchTarget),
    /// Slots indexed by the packed key.
    Slots(&'a Buffer),
}

/// A group table that is filled on one device.
///
/// ```text
/// rows: slots (or appended rows) | the row of key word 0 | spilled rows, not cleared
/// ```
#[derive(Debug)]
pub(in crate::exec) struct GroupTarget {
    /// The rows to read at the end, without spilled rows.
    pub shard: GroupShard,
    /// Number of slots for keys, or of rows that may be appended.
    pub slots: u64,
    pub index: Option<Buffer>,
    pub index_slots: u64,
    pub steps_max: u64,
    pub grow_steps: u64,
    pub spill_rows: u64,
    /// See `group_counter`.
    pub counters: Buffer,
    /// The next iteration of each block, or positions of the work queue: accumulated rows are not read again after the
    /// table grows.
    pub cursors: Buffer,
    /// The pieces of cut rows.
    pub pieces: Option<GroupPieces>,
    /// Rows of a chunk that a block takes at a time, for partitioned or cut rows.
    pub chunk_rows: u64,
    /// The ends of cut rows whose key also occurs on other devices: `OPEN_FIRST`, `OPEN_LAST`.
    pub open_ends: u64,
    /// Prefetch distance, in steps.
    pub prefetch_steps: u64,
    /// Rows of finished groups, which are not in the table.
    pub finished: Option<Buffer>,
    pub finished_rows: u64,
}

/// Pieces of rows; no key is in two pieces.
#[derive(Debug)]
pub(in crate::exec) struct GroupPieces {
    /// Where each piece begins, and where the last one ends (pieces + 1 u32).
    pub offsets: Buffer,
    pub count: u64,
    /// The key columns, kept alive as long as the pieces are used.
    pub _columns: Arc<TableColumns>,
}

/// Buffers of a partition in progress on one device, to which the generated kernels write.
pub(in crate::exec) struct PartitionTarget {
    pub bits: u32,
    /// Bits of the hash above those of partitions.
    pub skipped_bits: u32,
    pub counts: Buffer,
    pub cursors: Buffer,
    pub words: Vec<Buffer>,
}

/// Buffers of a sketch on one device.
pub(in crate::exec) struct SketchTarget {
    pub set: Buffer,
    pub stride: u64,
}
