//! What may be in use of memory, and where what is made should lie: on a device, or in the host's memory where a device should
//! keep room.

use warpjoin_device::{MemoryPlace, Stream};

/// The part of a device's budget that stays free for the state of queries, where the host has room for columns and rows: one
/// in so many.
const RESERVED_DIVISOR: u64 = 8;

/// What may be in use of the memory of each device and of the host for more to be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Of each device, in bytes.
    pub device_bytes: u64,
    /// Of the host by buffers of all devices, in bytes.
    pub host_bytes: u64,
}

impl MemoryBudget {
    /// The budgets of the devices themselves.
    pub const OF_DEVICES: Self = Self { device_bytes: u64::MAX, host_bytes: u64::MAX };
}

/// Where so many bytes should lie that a device reads or writes in order. Caches free memory of the device first.
pub(crate) fn place_of(stream: &Stream, bytes: u64) -> MemoryPlace {
    let reserved = stream.budget_bytes() / RESERVED_DIVISOR;
    if stream.free_host_bytes() < bytes || stream.make_room(bytes.saturating_add(reserved)) {
        MemoryPlace::Device
    } else {
        MemoryPlace::Host
    }
}
