//! [`Buffer`]: device memory that is freed on drop.
//!
//! Must not know how a backend allocates.

use crate::{Device, Stream};

/// A range of bytes in the memory of one device.
///
/// Freed on drop, in the order of the stream that allocated it: work enqueued there before the
/// drop may still use the memory. Work of *other* streams must have ended before the drop.
#[derive(Debug)]
pub struct Buffer {
    stream: Stream,
    address: u64,
    bytes: u64,
}

impl Buffer {
    pub(crate) fn new(stream: Stream, address: u64, bytes: u64) -> Self {
        Self { stream, address, bytes }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.stream.free(self.address, self.bytes);
    }
}
