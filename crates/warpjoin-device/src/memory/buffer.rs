//! [`Buffer`]: memory of a device, or of the host where a device reaches it, that is freed on drop.
//!
//! Must not know how a backend allocates.

use crate::{Device, Stream};

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryPlace {
    /// In the memory of its device.
    Device,
    /// In pinned memory of the host, which kernels of all devices read and write over the bus.
    Host,
}

/// A range of bytes in the memory of one device, or of the host.
///
/// Freed on drop, in the order of the stream that allocated it: work enqueued there before the
/// drop may still use the memory. Work of *other* streams must have ended before the drop.
#[derive(Debug)]
pub struct Buffer {
    stream: Stream,
    address: u64,
    bytes: u64,
    place: MemoryPlace,
}

impl Buffer {
    pub(crate) fn new(stream: Stream, address: u64, bytes: u64, place: MemoryPlace) -> Self {
        Self { stream, address, bytes, place }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it lies.
    pub fn place(&self) -> MemoryPlace {
        self.place
    }

    /// Whether it lies in the host's memory.
    pub fn is_on_host(&self) -> bool {
        self.place == MemoryPlace::Host
    }

    /// The device that holds it, or that it was allocated for.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.stream.free(self.address, self.bytes, self.place);
    }
}
