//! What all kernels share with the host: the control block, hashes, shapes of blocks. And what `common/validity.cu` takes.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_":
    /// Threads of a block in the kernels that are not generated.
    pub const BLOCK_THREADS: u32 = 256;
    /// Maximum number of devices that work together: those of one host.
    pub const DEVICES_MAX: usize = 8;
    /// Bytes of shared memory for a `BlockReservation`.
    pub const RESERVATION_BYTES: u32 = 8 + 32 * 4;
    /// Values of shared memory for sums over a block.
    pub const BLOCK_SUMS: u32 = 33;
    /// Rows of a tile of a scan that one thread takes.
    pub const SCAN_ITEMS: u32 = 8;
}

/// Bytes of shared memory for a scan of values of `width_bytes` each: those of 32 warps and the carry, 32 flags and the tile, in whole
/// values.
pub const fn scan_shared_bytes(width_bytes: u64) -> u32 {
    (33 * width_bytes + 33 * 4).next_multiple_of(16) as u32
}

/// Words of a control block, and what they hold.
pub mod control {
    crate::constants::constants! { "WJ_CONTROL_":
        /// Status bits.
        pub const STATUS: usize = 0;
        /// Rows put out, list places taken, or rows appended.
        pub const ROWS: usize = 1;
        /// Lookups in tables of joins, where they are counted.
        pub const PROBES: usize = 2;
        /// Rows that runtime filters dropped, where they are counted.
        pub const PRUNED: usize = 3;
        /// Length of a control block.
        pub const WORDS: usize = 4;
    }
    /// Bytes of a control block.
    pub const BYTES: u64 = WORDS as u64 * 8;
}

/// Status bits of a control block.
pub mod status {
    crate::constants::constants! { "WJ_STATUS_":
        /// A table has no room for a key.
        pub const FULL: u64 = 1;
        /// A build key occurs twice.
        pub const DUPLICATE: u64 = 2;
        /// Decimal or integer overflow.
        pub const OVERFLOW: u64 = 4;
        /// Division by zero.
        pub const DIVISION: u64 = 8;
        /// A value that a cast can't represent.
        pub const CAST: u64 = 16;
        /// A group table has little room left: blocks stop, and go on once it is larger.
        pub const GROW: u64 = 32;
        /// The query is cancelled. Set by the first thread that sees it.
        pub const CANCELLED: u64 = 64;
        /// Bytes that are not what they are said to be.
        pub const DAMAGED: u64 = 128;
        /// More room does not help: the query ends.
        pub const ERRORS: u64 = OVERFLOW | DIVISION | CAST | CANCELLED;
        /// After these bits the rest of the launch is not needed.
        pub const ABORT: u64 = FULL | DUPLICATE | ERRORS;
    }
}

/// Multipliers of hashes: odd, with bits spread evenly (from the fractional parts of the golden ratio and of the square roots
/// of 2 and 3).
pub mod hash_multiplier {
    crate::constants::constants! { "WJ_HASH_MULTIPLIER_":
        /// Of the first round.
        pub const A: u64 = 0x9e37_79b9_7f4a_7c15;
        /// Of the second round.
        pub const B: u64 = 0x6a09_e667_f3bc_c909;
        /// Of a further word.
        pub const C: u64 = 0xbb67_ae85_84ca_a73b;
    }
}

pub(crate) fn all_defines() -> String {
    [defines(), control::defines(), status::defines(), hash_multiplier::defines()].concat()
}

params! {
    /// Packs validity bytes into a bitmap, and counts the nulls.
    pub struct PackValidityParams<'a, B> for ["pack_validity"] {
        /// Rows.
        rows: u64,
        /// `rows` bytes; 0: null.
        bytes: Ptr<'a, B, *const u8>,
        /// A bit a row.
        words: Ptr<'a, B, *mut u32>,
        /// The control block; its rows are the nulls.
        control: Ptr<'a, B, *mut u64>,
    }
}
