//! The module of radix partitions.

use warpjoin_device::ModuleSource;

use crate::Constants;

/// Counts the partitions of a second pass, after the first.
pub const COUNT_WITHIN: &str = "partition_count_within";
/// A pass over rows with a key in several words.
pub const PASS_MULTIPLE: &str = "partition_pass_multiple";
/// What brings answers back to where rows came from.
pub const RESTORE: &str = "restore_rows";

/// The entry of a pass over rows with a key in one word, of 8 bytes or of 4; where each row goes may be noted.
pub fn pass_entry(is_wide: bool, notes_places: bool) -> &'static str {
    match (is_wide, notes_places) {
        (false, false) => "partition_pass_4",
        (true, false) => "partition_pass_8",
        (false, true) => "partition_pass_noted_4",
        (true, true) => "partition_pass_noted_8",
    }
}

/// The kernels of radix partitions.
pub fn partition_module(hash_bits: u32) -> ModuleSource {
    let entries = [
        "partition_count",
        COUNT_WITHIN,
        "partition_scan",
        pass_entry(false, false),
        pass_entry(true, false),
        PASS_MULTIPLE,
        pass_entry(false, true),
        pass_entry(true, true),
        RESTORE,
        "match_items",
        "match_sample",
    ];
    Constants { hash_bits, ..Constants::USUAL }.module(warpjoin_kernels::PARTITION, entries)
}
