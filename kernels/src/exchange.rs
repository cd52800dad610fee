//! What `exchange/exchange.cu` shares with the host.

use crate::common::DEVICES_MAX;
use crate::params::{Ptr, params};

params! {
    /// Counts the rows of each owner, and gives each row its place among them.
    pub struct RouteParams<'a, B> for ["route_count", "route_assign"] {
        /// Rows.
        rows: u64,
        /// `rows` key words; of 4 bytes where they are not wide.
        keys: Ptr<'a, B, *const u64>,
        /// Devices.
        devices: u64,
        /// `DEVICES_MAX`, zeroed: rows of each owner; `route_assign` moves them on.
        counts: Ptr<'a, B, *mut u64>,
        /// Only of `route_assign`: the place of each row within the run of its owner, the owner in the top byte.
        positions: Ptr<'a, B, *mut u64>,
        /// Devices - 1, ascending: the least key of each device but the first; none: owners by hash.
        splitters: Option<Ptr<'a, B, *const u64>>,
        /// Key words of 8 bytes, instead of 4.
        is_wide: bool,
    }

    /// Writes a column to the owners of its rows.
    pub struct ScatterParams<'a, B> for ["scatter_1", "scatter_2", "scatter_4", "scatter_8", "scatter_16"] {
        /// Rows.
        rows: u64,
        /// `rows` values, of as many bytes as the kernel's name says.
        source: Ptr<'a, B, *const u8>,
        /// As `route_assign` gave them.
        positions: Ptr<'a, B, *const u64>,
        /// Where the run of each owner begins; none: there is no such device.
        targets: [Option<Ptr<'a, B, *mut u8>>; DEVICES_MAX],
    }
}
