//! Which table a block has in shared memory in front of the group table.

use warpjoin_plan::options::GroupByForm;

use crate::program::Slot;
use crate::shapes::{GroupLimits, GroupMode, Packing, PreAggregation};
use crate::value::CType;

/// Threads of a block with a table: two such blocks fill a multiprocessor at up to 42 registers a thread.
pub(crate) const TABLE_BLOCK_THREADS: u32 = 768;
/// Threads of a block that has a multiprocessor to itself.
pub(super) const LONE_BLOCK_THREADS: u32 = 1024;
/// Threads of a block that adds up rows of a warp: they need more registers.
pub(crate) const SKEWED_BLOCK_THREADS: u32 = 640;
/// Most slots: more groups meet a larger table elsewhere.
const SLOTS_MAX: u32 = 8192;
/// The same where the groups of a partition are to fit: their number is chosen by that.
const PARTITION_SLOTS_MAX: u32 = 1 << 14;
/// Slots of a table that is indexed by the packed key, unless there are more keys.
const KEYED_SLOTS: u32 = 1024;

/// Whether the table in front is worth its shared memory, and which one.
pub(super) fn choose_front(
    mode: GroupMode,
    packing: &Packing,
    slots: &[Slot],
    limits: GroupLimits,
    is_partitioned: bool,
) -> PreAggregation {
    if limits.form == Some(GroupByForm::Global) || matches!(mode, GroupMode::Global | GroupMode::Wide) {
        return PreAggregation::None;
    }
    let words = block_words(slots);
    let slots_max = if is_partitioned {
        partition_slots(limits.shared_bytes_max, limits.table_blocks, key_bytes(packing), words)
    } else {
        (table_bytes_max(limits.shared_bytes_max, 2) / (key_bytes(packing) + 8 * words)).min(SLOTS_MAX) & !1
    };
    let bits = packing.single_word_bits().unwrap_or(64);
    let keyed = 1u32.checked_shl(bits).filter(|_| bits < 31).unwrap_or(u32::MAX);
    if mode == GroupMode::Dense && keyed <= slots_max && limits.form != Some(GroupByForm::BlockTable) {
        let mut replica_bits = 0;
        while replica_bits < 5 && keyed << (replica_bits + 1) <= KEYED_SLOTS.min(slots_max) {
            replica_bits += 1;
        }
        return PreAggregation::Keyed { slots: keyed << replica_bits, replica_bits };
    }
    let slots = limits.block_slots.map_or(slots_max, |slots| {
        slots.clamp(PreAggregation::SLOTS_MIN, slots_max.max(PreAggregation::SLOTS_MIN)) & !1
    });
    if slots < PreAggregation::SLOTS_MIN { PreAggregation::None } else { PreAggregation::Hashed { slots } }
}

/// Slots of a block's table for a partition, if `table_blocks` blocks share a multiprocessor. A slot has a key, accumulators, and
/// a place in the list of groups.
pub fn partition_slots(shared_bytes_max: u32, table_blocks: u32, key_bytes: u32, words: u32) -> u32 {
    (table_bytes_max(shared_bytes_max, table_blocks) / (key_bytes + 8 * words + 2)).min(PARTITION_SLOTS_MAX) & !1
}

/// Bytes of a key in a block's table.
pub fn key_bytes(packing: &Packing) -> u32 {
    if packing.single_word_bits().is_some_and(|bits| bits <= 32) { 4 } else { 8 }
}

/// C type of a key in a block's table.
pub(super) fn key_type(packing: &Packing) -> CType {
    CType::unsigned(key_bytes(packing))
}

/// What a block's table may take: a multiprocessor keeps 1 KiB a block for itself.
fn table_bytes_max(shared_bytes_max: u32, table_blocks: u32) -> u32 {
    (shared_bytes_max / table_blocks).saturating_sub(2048)
}

/// Words of all accumulators in a slot.
fn block_words(slots: &[Slot]) -> u32 {
    slots.iter().map(Slot::block_words).sum::<usize>() as u32
}
