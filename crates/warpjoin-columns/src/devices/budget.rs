//! Limits on memory in use, and placement of new buffers: on a device, or in host memory where the device should keep
//! room.

use warpjoin_device::{Buffer, Cause, MemoryPlace, Stream};

use crate::Result;

/// An eighth of a device's budget stays free for query state while the host has room for columns and rows.
const RESERVED_DIVISOR: u64 = 8;

/// Limits on the device and host memory in use, checked before each allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Limit of each device, in bytes.
    pub device_bytes: u64,
    /// Limit of host memory in buffers of all devices together, in bytes.
    pub host_bytes: u64,
}

impl MemoryBudget {
    /// No limits beyond those of the devices themselves.
    pub const OF_DEVICES: Self = Self { device_bytes: u64::MAX, host_bytes: u64::MAX };

    /// The same stream; its allocations stay within this budget.
    #[doc(hidden)]
    pub fn of_stream(self, stream: Stream) -> Stream {
        stream.within(self.device_bytes).within_host(self.host_bytes)
    }
}

/// Where to allocate `bytes` that a device reads or writes in order. Caches free device memory first.
pub fn place_of(stream: &Stream, bytes: u64) -> MemoryPlace {
    let reserved = stream.budget_bytes() / RESERVED_DIVISOR;
    if stream.free_host_bytes() < bytes || stream.make_room(bytes.saturating_add(reserved)) {
        MemoryPlace::Device
    } else {
        MemoryPlace::Host
    }
}

/// Allocates memory that a device reads or writes in order, in the place that [`place_of`] chooses.
pub fn alloc_in_order(stream: &Stream, bytes: u64) -> Result<Buffer> {
    if place_of(stream, bytes) == MemoryPlace::Device {
        return Ok(stream.alloc(bytes)?);
    }
    match stream.alloc_host(bytes) {
        // The budget allowed it, the host does not.
        Err(error) if error.cause() == Cause::OutOfMemory => Ok(stream.alloc(bytes)?),
        made => Ok(made?),
    }
}
