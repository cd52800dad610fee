//! The modules of hash tables.

use warpjoin_device::ModuleSource;

use crate::Constants;

/// What a slot holds. The kernels' `WJ_KEY_BYTES` and `WJ_VALUE_BYTES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotForm {
    /// 4 or 8; 0: the number of a stored row, which has keys and values.
    pub key_bytes: u32,
    /// 0, 4 (with 4-byte keys) or 8.
    pub value_bytes: u32,
}

impl SlotForm {
    /// Slots with the number of a stored row and some bits of the hash.
    pub const ROW_NUMBERS: Self = Self { key_bytes: 0, value_bytes: 0 };

    /// Size of a slot.
    #[inline]
    pub fn slot_bytes(self) -> u32 {
        if self.key_bytes == 0 { 8 } else { self.key_bytes + self.value_bytes }
    }

    /// Whether it is [`Self::ROW_NUMBERS`].
    #[inline]
    pub fn holds_rows(self) -> bool {
        self == Self::ROW_NUMBERS
    }
}

/// Size of a bucket, and the lanes that look at it together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BucketShape {
    pub bytes: u32,
    pub lanes: u32,
    /// The table is larger than the cache.
    pub streams: bool,
}

/// The kernels of a table with such slots and buckets.
pub(super) fn table_module(form: SlotForm, shape: BucketShape, hash_bits: u32) -> ModuleSource {
    let mut entries = vec!["insert_rows", "find_rows", "erase_rows", "export_slots"];
    if form.key_bytes > 0 {
        entries.extend(["build_segments", "claim_rows", "find_bins", "probe_rows"]);
    }
    let mut module = Constants { hash_bits, lanes: shape.lanes }.module(warpjoin_kernels::HASH_TABLE, entries);
    module.defines.extend([
        format!("WJ_KEY_BYTES={}", form.key_bytes),
        format!("WJ_VALUE_BYTES={}", form.value_bytes),
        format!("WJ_BUCKET_BYTES={}", shape.bytes),
        format!("WJ_TABLE_STREAMS={}", u8::from(shape.streams)),
    ]);
    module
}

/// The kernels between columns and words.
pub(super) fn words_module() -> ModuleSource {
    Constants::USUAL.module(warpjoin_kernels::WORDS, ["pack_rows", "unpack_column", "gather_words"])
}

/// The kernels of lists.
pub(super) fn lists_module() -> ModuleSource {
    let entries = [
        "count_places",
        "list_offsets",
        "fill_lists",
        "take_lists",
        "live_rows",
        "count_rows",
        "tile_sums",
        "scan_sums",
        "row_offsets",
        "emit_matches",
    ];
    Constants::USUAL.module(warpjoin_kernels::HASH_LISTS, entries)
}
