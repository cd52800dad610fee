//! What may be in use of memory, and where what is made should lie: on a device, or in the host's memory where a device should
//! keep room.

use warpjoin_device::{Buffer, Cause, MemoryPlace, Stream};

use crate::Result;

/// An eighth of a device's budget stays free for the state of queries, where the host has room for columns and rows.
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

    /// The same queue, whose allocations keep this budget.
    pub(crate) fn of_stream(self, stream: Stream) -> Stream {
        stream.within(self.device_bytes).within_host(self.host_bytes)
    }
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

/// Memory that a device reads or writes in order, where [`place_of`] says.
pub(crate) fn alloc_in_order(stream: &Stream, bytes: u64) -> Result<Buffer> {
    if place_of(stream, bytes) == MemoryPlace::Device {
        return Ok(stream.alloc(bytes)?);
    }
    match stream.alloc_host(bytes) {
        // The budget allowed it, the host does not.
        Err(error) if error.cause() == Cause::OutOfMemory => Ok(stream.alloc(bytes)?),
        made => Ok(made?),
    }
}
