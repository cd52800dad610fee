//! Rows of words by partition.

use std::sync::Arc;

use warpjoin_codegen::RowShape;
use warpjoin_device::Buffer;
use warpjoin_plan::optimize::costs::PASS_BITS_MAX;

/// Maximum bits of a partition that is counted at once: a block has counters of all partitions in shared memory.
pub(crate) const PARTITION_BITS_MAX: u32 = 15;
/// Maximum bits of a partition whose second pass is counted after the first.
pub(crate) const LONG_PARTITION_BITS_MAX: u32 = 18;

/// Rows of words by partition, on every device.
#[derive(Debug)]
pub(crate) struct PartitionedRows {
    pub shape: Arc<RowShape>,
    /// Bound of the rows over all devices.
    pub rows_max: u64,
    pub shards: Vec<PartitionedShard>,
}

/// Rows of words by partition, on one device.
#[derive(Debug)]
pub(crate) struct PartitionedShard {
    /// Bound of the rows; the last offset is their number.
    pub rows_max: u64,
    /// A column a word.
    pub words: Vec<Buffer>,
    /// u32 a partition, and one more: where each begins.
    pub offsets: Buffer,
}

/// Rows of words on the only device, in no order: some partitions of spilled rows.
#[derive(Debug)]
pub(crate) struct RowSlice {
    pub shape: Arc<RowShape>,
    /// Bound of the rows of all slices, so that all slices share code.
    pub rows_max: u64,
    pub rows: u64,
    /// A column a word.
    pub words: Vec<Buffer>,
}

impl PartitionedShard {
    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> u64 {
        self.offsets.bytes() / 4 - 1
    }
}

/// Bits of the first pass, and of the second if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassBits {
    pub first: u32,
    pub second: u32,
}

impl PassBits {
    /// Splits bits into one pass if possible, else two.
    pub(crate) fn of(bits: u32) -> Self {
        if bits <= PASS_BITS_MAX { Self { first: bits, second: 0 } } else { Self::halves(bits) }
    }

    /// Splits bits into two passes.
    pub(crate) fn halves(bits: u32) -> Self {
        Self { first: bits.div_ceil(2), second: bits / 2 }
    }

    pub(crate) fn total(self) -> u32 {
        self.first + self.second
    }
}

impl PassBits {
    pub(in crate::exec) fn describe(self) -> String {
        if self.second == 0 { format!("{} bits", self.first) } else { format!("{} + {} bits", self.first, self.second) }
    }
}

/// How rows are partitioned for a group-by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct PartitionChoice {
    pub bits: PassBits,
    /// Resident blocks of a multiprocessor; a single block can have a larger table.
    pub table_blocks: u32,
    pub is_skewed: bool,
}
