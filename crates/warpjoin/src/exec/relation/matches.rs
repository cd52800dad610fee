//! The two sides of a partitioned join, which are matched partition by partition.

use warpjoin_codegen::{MatchForm, RowShape, match_threads, shared_row_bytes};
use warpjoin_device::{Buffer, DeviceInfo};

use super::partitioned::PartitionedRows;

/// Two relations that are partitioned by the same bits, to be matched.
#[derive(Debug)]
pub(crate) struct Matches {
    pub build: PartitionedRows,
    pub probe: PartitionedRows,
    /// Whether each probe row is output at most once (semi join).
    pub is_semi: bool,
    pub bits: u32,
    /// Build rows of a work item.
    pub capacity: u32,
    /// Bits of the hash that choose a chain.
    pub chain_bits: u32,
    /// Probe rows of a work item.
    pub chunk_rows: u32,
    /// For each device: the number of work items before each partition.
    pub items: Vec<Buffer>,
}

impl Matches {
    /// Columns of both sides.
    pub(crate) fn width(&self) -> usize {
        self.build.shape.field_of.len() + self.probe.shape.field_of.len()
    }

    /// The table of a work item in shared memory.
    pub(crate) fn table(&self, form: MatchForm) -> ItemTable {
        item_table(&self.build.shape, form, self.chain_bits, self.capacity)
    }

    /// Bound of the matches.
    pub(crate) fn rows_max(&self) -> u64 {
        if self.is_semi {
            return self.probe.rows_max;
        }
        self.build.rows_max.max(1).saturating_mul(self.probe.rows_max)
    }
}

/// The table of a work item in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemTable {
    /// Bits of the hash that choose a chain or a slot.
    pub heads_bits: u32,
    pub shared_bytes: u32,
}

pub(in crate::exec) fn item_table(build: &RowShape, form: MatchForm, chain_bits: u32, capacity: u32) -> ItemTable {
    let (row_bytes, other_bytes) = shared_row_bytes(build, form);
    // Slots of open addressing are more than keys.
    let heads_bits = if form == MatchForm::Lists { bits_for(u64::from(capacity) * 5 / 4) } else { chain_bits };
    ItemTable { heads_bits, shared_bytes: (4 << heads_bits) + capacity * row_bytes + other_bytes }
}

/// Threads of a block that joins a work item. Lists take most of the shared memory: if two such blocks fit on a
/// multiprocessor, one builds while the other writes.
pub(in crate::exec) fn threads_of(info: &DeviceInfo, form: MatchForm, shared_bytes: u32) -> u32 {
    let threads = match_threads(form);
    let fits_twice = 2 * (shared_bytes + 1024) <= info.shared_bytes_per_block_max;
    info.block_threads(if form == MatchForm::Lists && fits_twice { threads / 2 } else { threads })
}

/// Minimum bits for `count` numbers.
pub(in crate::exec) fn bits_for(count: u64) -> u32 {
    64 - count.max(1).saturating_sub(1).leading_zeros()
}
