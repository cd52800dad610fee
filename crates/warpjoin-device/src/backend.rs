//! The backend traits: what each kind of device must provide. All code above them is shared.
//!
//! A backend may assume that the front end ([`crate::Device`], [`crate::Stream`]) has checked
//! bounds, budget and peer access. It must keep the order of work within a stream, and may run
//! work of different streams in any order that events allow. It must not know columns or queries.

use std::any::Any;
use std::sync::Arc;

use crate::cancellation::HostWord;
use crate::{DeviceError, DeviceInfo, Launch, ModuleSource, Result};

/// An opaque kernel entry or event. Only the backend that made it can downcast it.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// One device of some kind.
pub(crate) trait DeviceBackend: Send + Sync {
    /// Static properties.
    fn info(&self) -> &DeviceInfo;
    /// Creates an in-order queue of work.
    fn create_stream(&self) -> Result<Arc<dyn StreamBackend>>;
    /// Compiles a module, or loads it from the disk cache. Returns one handle for each of
    /// `source.entries`, in that order. The front end caches in memory.
    fn compile(&self, source: &ModuleSource) -> Result<Vec<Handle>>;
    /// Whether the disk cache has the module, or the prebuilt kernels.
    fn is_stored(&self, source: &ModuleSource) -> bool;
    /// Whether it compiles modules that are not stored.
    fn can_compile(&self) -> bool {
        true
    }
    /// Lets kernels and copies of this device reach the memory of `peer`, a device of the same
    /// kind. Opening twice is not an error.
    fn open_peer_access(&self, peer: &dyn DeviceBackend) -> Result<()>;
    /// A word of host memory, 0 at first, which kernels of this device may read while the host writes it.
    fn host_word(&self) -> Result<Arc<dyn HostWord>>;
    /// Returns cached memory that is not in use to the driver.
    fn trim(&self) -> Result<()>;
    /// Bytes allocated from the device, in use or cached; `None` if unknown.
    fn held_bytes(&self) -> Option<u64>;
    /// Free bytes of the device, for any process; `None` if unknown.
    fn free_bytes(&self) -> Option<u64>;
    /// Bytes of freed buffers that streams cache. Read by each allocation.
    fn kept_bytes(&self) -> u64;
    /// For downcasting a peer to its own kind.
    fn as_any(&self) -> &dyn Any;
}

/// One in-order queue of work on one device. Calls enqueue and return, unless stated otherwise.
pub(crate) trait StreamBackend: Send + Sync {
    /// Allocates `bytes` (> 0), aligned to 256, in stream order. The content is undefined.
    /// `Err(None)` when the device is out of memory.
    fn alloc(&self, bytes: u64) -> Result<u64, Option<DeviceError>>;
    /// As [`Self::alloc`], with all bytes 0.
    fn alloc_cleared(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        alloc_and_clear(self, bytes)
    }
    /// Frees an allocation once the work enqueued so far has ended.
    fn free(&self, address: u64, bytes: u64);
    /// Allocates `bytes` (> 0) of host memory that kernels of all devices of this kind reach, aligned to 256. The content is
    /// undefined. `Err(None)` when the host is out of memory.
    fn alloc_host(&self, bytes: u64) -> Result<u64, Option<DeviceError>>;
    /// Frees an allocation of [`Self::alloc_host`] once the work enqueued so far has ended.
    fn free_host(&self, address: u64, bytes: u64);
    /// As [`Self::write`], to host memory.
    fn write_host(&self, address: u64, bytes: &[u8]) -> Result<()>;
    /// As [`Self::read`], from host memory.
    fn read_host(&self, address: u64, bytes: &mut [u8]) -> Result<()>;
    /// As [`Self::fill`], of host memory.
    fn fill_host(&self, address: u64, bytes: u64, value: u8) -> Result<()>;
    /// Makes the buffers that this stream and idle streams cache available to all streams, without waiting.
    fn release_kept(&self) {}
    /// Copies host bytes to the device. The host bytes may be reused on return.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;
    /// As [`Self::write`], for several parts in ascending order. Each part gives its distance from `address`. Bytes
    /// between two parts become 0 or stay unchanged.
    fn write_all(&self, address: u64, parts: &[(usize, &[u8])]) -> Result<()> {
        let mut parts = parts.iter().filter(|(_, bytes)| !bytes.is_empty());
        parts.try_for_each(|(start, bytes)| self.write(address + *start as u64, bytes))
    }
    /// Waits for the stream, then copies device bytes to the host.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()>;
    /// Waits for the stream, then copies several ranges of device bytes to the host.
    fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        parts.iter_mut().try_for_each(|(address, bytes)| self.read(*address, bytes))
    }
    /// Sets `bytes` bytes to `value`.
    fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()>;
    /// Copies between two addresses. Each is on this device, on an opened peer, or of [`Self::alloc_host`].
    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()>;
    /// Launches a kernel. `params` is its single argument, a struct of 8-byte fields.
    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()>;
    /// Blocks of this many threads and bytes of shared memory that a multiprocessor holds at once; `None` if unknown.
    fn resident_blocks(&self, _kernel: &Handle, _launch: Launch) -> Result<Option<u32>> {
        Ok(None)
    }
    /// Enqueues an event that records the time at which it is reached.
    fn record(&self) -> Result<Handle>;
    /// Delays later work of this stream until `event` is reached. `event` may be of any device of the same kind.
    fn wait(&self, event: &Handle) -> Result<()>;
    /// Waits for all work enqueued so far, and returns its errors.
    fn synchronize(&self) -> Result<()>;
    /// Nanoseconds of device time from one reached event to another of the same device.
    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64>;
}

/// Allocates, and enqueues a fill with zeros.
pub(crate) fn alloc_and_clear<S: StreamBackend + ?Sized>(stream: &S, bytes: u64) -> Result<u64, Option<DeviceError>> {
    let address = stream.alloc(bytes)?;
    stream.fill(address, bytes, 0).map(|()| address).map_err(|error| {
        stream.free(address, bytes);
        Some(error)
    })
}
