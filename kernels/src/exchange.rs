//! What `exchange/exchange.cu` shares with the host.

use crate::common::DEVICES_MAX;
use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_EXCHANGE_":
    /// Rows of a tile that one thread takes.
    pub const ITEMS: u32 = 16;
    /// Columns, or validities, that a launch takes.
    pub const COLUMNS: usize = 24;
}

/// Addresses that a launch writes its columns to.
pub const TARGETS: usize = COLUMNS * DEVICES_MAX;

/// Bytes of shared memory of a block of `threads` that ranks rows: the rows of an owner in a tile, their number in each run of 32 rows
/// and in all, and a first row of each owner.
pub const fn rank_shared_bytes(threads: u32) -> u32 {
    threads * ITEMS * 2 + (threads / 32 * ITEMS + 1) * 4 + DEVICES_MAX as u32 * 8
}

pub(crate) fn all_defines() -> String {
    defines()
}

params! {
    /// Rows of a device, and who owns them.
    pub struct Route<'a, B> {
        /// Rows.
        rows: u64,
        /// Rows of a block.
        rows_each: u64,
        /// `rows` key words; of 4 bytes where they are not wide.
        keys: Ptr<'a, B, *const u64>,
        /// Key words of 8 bytes, instead of 4.
        is_wide: bool,
        /// Of each device the least and the greatest key word that it owns: none, one or several devices own a row. None: by
        /// splitters.
        ranges: Option<Ptr<'a, B, *const u64>>,
        /// Devices - 1, ascending: the least key of each device but the first. None: owners by hash.
        splitters: Option<Ptr<'a, B, *const u64>>,
        /// Devices.
        devices: u64,
        /// `devices` for each block: its rows of each owner.
        counts: Ptr<'a, B, *mut u64>,
    }

    /// Columns, and where they go.
    pub struct Columns<'a, B> {
        /// Columns.
        count: u64,
        /// Values of each.
        sources: [Option<Ptr<'a, B, *const u8>>; COLUMNS],
        /// Bytes of a value of each: 1, 2, 4, 8 or 16.
        widths: [u64; COLUMNS],
        /// Of each, `DEVICES_MAX`: where the rows of this source begin on each device; none: they don't go there.
        targets: [Option<Ptr<'a, B, *mut u8>>; TARGETS],
    }

    /// Counts the rows of each owner.
    pub struct CountParams<'a, B> for ["exchange_count"] {
        /// The rows.
        route: Route<'a, B>,
    }

    /// Writes columns to the owners of their rows.
    pub struct RowsParams<'a, B> for ["exchange_rows"] {
        /// The rows, counted by as many blocks.
        route: Route<'a, B>,
        /// Their columns.
        columns: Columns<'a, B>,
    }

    /// Writes columns to devices as they lie.
    pub struct CopyParams<'a, B> for ["exchange_copy"] {
        /// Rows.
        rows: u64,
        /// Their columns.
        columns: Columns<'a, B>,
    }
}
