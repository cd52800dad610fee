//! The seam: what a kind of device must provide. Everything above is written once.
//!
//! A backend may assume that the front end ([`crate::Device`], [`crate::Stream`]) has checked
//! bounds, budget and peer access. It must keep the order of work within a stream, and may run
//! work of different streams in any order that events allow.

use std::any::Any;
use std::sync::Arc;

use crate::{DeviceError, DeviceInfo, Launch, ModuleSource, Result};

/// Something only its own backend can look into: a kernel entry or an event.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// One device of some kind.
pub(crate) trait DeviceBackend: Send + Sync {
    /// Static facts.
    fn info(&self) -> &DeviceInfo;
    /// Makes a new in-order queue of work.
    fn create_stream(&self) -> Result<Arc<dyn StreamBackend>>;
    /// Compiles a module, or takes it from the disk cache; one handle for each of
    /// `source.entries`, in that order. The front end caches in memory.
    fn compile(&self, source: &ModuleSource) -> Result<Vec<Handle>>;
    /// Whether the disk cache has the module.
    fn is_stored(&self, source: &ModuleSource) -> bool;
    /// Lets kernels and copies of this device reach the memory of `peer`, a device of the same
    /// kind. Opening twice is no error.
    fn open_peer_access(&self, peer: &dyn DeviceBackend) -> Result<()>;
    /// Sets 8 aligned bytes of a live buffer to `value`, or at least the bits that are 1, at once: beside the work of all
    /// streams, kernels that run included. Returns when it is done.
    fn write_word(&self, address: u64, value: u64) -> Result<()>;
    /// Gives back what is kept and not in use.
    fn trim(&self) -> Result<()>;
    /// What is taken from the device, in use or kept; `None`: not known.
    fn held_bytes(&self) -> Option<u64>;
    /// What the device has left for anybody; `None`: not known.
    fn free_bytes(&self) -> Option<u64>;
    /// What streams keep of freed buffers. Asked for by each allocation.
    fn kept_bytes(&self) -> u64;
    /// For downcasting a peer to its own kind.
    fn as_any(&self) -> &dyn Any;
}

/// One in-order queue of work on one device. Calls enqueue and return, unless said otherwise.
pub(crate) trait StreamBackend: Send + Sync {
    /// Allocates `bytes` (> 0), aligned to 256, in stream order. The content is undefined.
    /// `Err(None)` when the device is out of memory.
    fn alloc(&self, bytes: u64) -> Result<u64, Option<DeviceError>>;
    /// The same, all bytes 0.
    fn alloc_cleared(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        alloc_and_clear(self, bytes)
    }
    /// Frees an allocation once the work enqueued so far has ended.
    fn free(&self, address: u64, bytes: u64);
    /// Makes buffers that this stream and idle ones keep for later available to all; waits for nothing.
    fn release_kept(&self) {}
    /// Copies host bytes to the device. The host bytes may be reused on return.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;
    /// Waits for the stream, and copies device bytes to the host.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()>;
    /// Waits for the stream, and copies several ranges of device bytes to the host.
    fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        parts.iter_mut().try_for_each(|(address, bytes)| self.read(*address, bytes))
    }
    /// Sets `bytes` bytes to `value`.
    fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()>;
    /// Copies between two addresses, each on this device or on an opened peer.
    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()>;
    /// Launches a kernel; `params` is its one argument, a struct of 8-byte fields.
    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()>;
    /// Enqueues an event that carries the time at which it is reached.
    fn record(&self) -> Result<Handle>;
    /// Holds later work of this stream back until `event`, of any device of the kind, is reached.
    fn wait(&self, event: &Handle) -> Result<()>;
    /// Waits for all work enqueued so far. Errors of earlier work come out here.
    fn synchronize(&self) -> Result<()>;
    /// Nanoseconds of device time from one reached event to another of the same device.
    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64>;
}

/// Allocates, and enqueues clearing.
pub(crate) fn alloc_and_clear<S: StreamBackend + ?Sized>(stream: &S, bytes: u64) -> Result<u64, Option<DeviceError>> {
    let address = stream.alloc(bytes)?;
    stream.fill(address, bytes, 0).map(|()| address).map_err(|error| {
        stream.free(address, bytes);
        Some(error)
    })
}
