//! A stream of one GPU: the CUDA implementation of [`StreamBackend`].
//!
//! Owns the choice of how memory is allocated and copied. Must not check bounds, budget and peer access: the front end
//! ([`crate::Stream`]) has checked them.

use std::mem::ManuallyDrop;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::blocks::{Blocks, SLAB_BYTES};
use super::context::Context;
use super::event::CudaEvent;
use super::functions::{self, Code};
use super::module::CudaKernel;
use super::pinned::{self, Staging};
use super::shared::{RawStream, SCRATCH_BYTES, Scratch, Shared};
use crate::backend::{Handle, StreamBackend, alloc_and_clear};
use crate::{DeviceError, Launch, Result};

/// Larger copies are staged through pinned chunks. For smaller copies to the device, the driver takes
/// the bytes with the command, without waiting for the stream, unless [`Context::reads_late`].
const STAGED_BYTES_MIN: usize = 64 << 10;

/// A stream of one GPU.
#[derive(Debug)]
pub(super) struct CudaStream {
    /// Taken on drop.
    stream: ManuallyDrop<RawStream>,
    shared: Arc<Shared>,
}

impl CudaStream {
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self> {
        Ok(Self { stream: ManuallyDrop::new(shared.take_stream()?), shared })
    }

    /// The context, made current.
    fn context(&self) -> Result<&Arc<Context>> {
        self.shared.context.make_current()?;
        Ok(&self.shared.context)
    }

    fn check(&self, call: &'static str, result: Code) -> Result<()> {
        self.shared.context.check(call, result)
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.stream.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates from the pool. If the pool has no memory, first returns free memory of streams to it.
    fn alloc_new(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        match self.shared.pool.alloc(bytes, self.stream.raw) {
            Err(None) => {
                self.release_kept();
                self.shared.pool.alloc(bytes, self.stream.raw)
            }
            result => result,
        }
    }

    /// Copies a few bytes to the host through pinned memory. Returns false, and copies nothing, if there is no pinned
    /// memory.
    fn read_small(&self, address: u64, bytes: &mut [u8]) -> Result<bool> {
        let mut scratch = self.stream.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.is_none() {
            *scratch = self.shared.take_scratch();
        }
        let Some(Scratch(scratch)) = &*scratch else { return Ok(false) };
        // SAFETY: the front end has checked that the range is within a live buffer; the scratch is at least as long, and
        // locked until the wait below is over.
        let result = unsafe { functions::cuMemcpyDtoHAsync_v2(scratch.cast(), address, bytes.len(), self.stream.raw) };
        let waited = self.synchronize();
        self.check("cuMemcpyDtoHAsync", result)?;
        waited?;
        // SAFETY: the copy has ended; the scratch is at least as long as `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(*scratch, bytes.as_mut_ptr(), bytes.len()) };
        Ok(true)
    }
}

impl StreamBackend for CudaStream {
    fn alloc(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        if let Some(address) = self.blocks().take(bytes) {
            return Ok(address);
        }
        self.alloc_new(Blocks::size(bytes))
    }

    fn alloc_cleared(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        if !Blocks::is_piece(bytes) {
            return alloc_and_clear(self, bytes);
        }
        if let Some(address) = self.blocks().take_cleared() {
            return Ok(address);
        }
        let unused = self.blocks().unused_slab();
        let slab = match unused {
            Some(address) => address,
            None => self.alloc_new(SLAB_BYTES)?,
        };
        if let Err(error) = self.fill(slab, SLAB_BYTES, 0) {
            self.shared.pool.free(slab, self.stream.raw);
            return Err(Some(error));
        }
        let mut blocks = self.blocks();
        blocks.add_slab(slab);
        blocks.take_cleared().ok_or_else(|| Some(DeviceError::Invalid("a new slab has no free piece".into())))
    }

    fn release_kept(&self) {
        self.shared.trim_streams();
    }

    fn free(&self, address: u64, bytes: u64) {
        let returned = self.blocks().put(address, bytes);
        for address in returned {
            self.shared.pool.free(address, self.stream.raw);
        }
    }

    fn alloc_host(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        self.shared.host_buffers.take(bytes)
    }

    fn free_host(&self, address: u64, _: u64) {
        self.shared.host_buffers.put(address, self.stream.raw);
    }

    fn write_host(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.synchronize()?;
        // SAFETY: the front end has checked that the range is within a live buffer; all work of the stream has ended.
        unsafe { pinned::copy_in(address, bytes) }
    }

    fn read_host(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.synchronize()?;
        // SAFETY: as above.
        unsafe { pinned::copy_out(address, bytes) }
    }

    fn fill_host(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.synchronize()?;
        // SAFETY: as above.
        unsafe { pinned::fill(address, bytes, value) }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.context()?;
        if bytes.len() > STAGED_BYTES_MIN {
            // SAFETY: the front end has checked that the range is within a live buffer.
            return unsafe { self.shared.staging.write(address, bytes, self.stream.raw) };
        }
        // SAFETY: target as above. The driver has copied pageable host bytes of this size when the call returns. It reads
        // others later, and `bytes` is borrowed until the wait below is over.
        let result =
            unsafe { functions::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.stream.raw) };
        let waited = if self.shared.context.reads_late(bytes) { self.synchronize() } else { Ok(()) };
        self.check("cuMemcpyHtoDAsync", result)?;
        waited
    }

    fn write_all(&self, address: u64, parts: &[(usize, &[u8])]) -> Result<()> {
        self.context()?;
        // SAFETY: the front end has checked that all parts are within a live buffer, in ascending order.
        unsafe { self.shared.staging.write_all(address, parts, self.stream.raw) }
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.context()?;
        if bytes.len() > STAGED_BYTES_MIN {
            // SAFETY: the front end has checked that the range is within a live buffer.
            return unsafe { self.shared.staging.read(address, bytes, self.stream.raw) };
        }
        if bytes.len() <= SCRATCH_BYTES && self.read_small(address, bytes)? {
            return Ok(());
        }
        // SAFETY: source as above; `bytes` is borrowed until the wait below is over.
        let result = unsafe {
            functions::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), self.stream.raw)
        };
        // Waits even if the copy failed, since nothing may write to `bytes` after the return.
        let waited = self.synchronize();
        self.check("cuMemcpyDtoHAsync", result)?;
        waited
    }

    fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        if Staging::fits_chunk(parts.iter().map(|(_, bytes)| bytes.len())) {
            // SAFETY: the front end has checked that the ranges are within live buffers.
            return unsafe { self.shared.staging.read_all(parts, self.stream.raw) };
        }
        parts.iter_mut().try_for_each(|(address, bytes)| self.read(*address, bytes))
    }

    fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.context()?;
        let length = usize::try_from(bytes).map_err(|_| DeviceError::Invalid(format!("fill of {bytes} bytes")))?;
        if address.is_multiple_of(4) && length.is_multiple_of(4) {
            let word = u32::from_ne_bytes([value; 4]);
            // SAFETY: an aligned range of a live buffer, as checked by the front end.
            return self.check("cuMemsetD32Async", unsafe {
                functions::cuMemsetD32Async(address, word, length / 4, self.stream.raw)
            });
        }
        // SAFETY: a range of a live buffer, as checked by the front end.
        self.check("cuMemsetD8Async", unsafe { functions::cuMemsetD8Async(address, value, length, self.stream.raw) })
    }

    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.context()?;
        let length = usize::try_from(bytes).map_err(|_| DeviceError::Invalid(format!("copy of {bytes} bytes")))?;
        // SAFETY: ranges of live buffers of this device or of opened peers, as checked by the front
        // end. Addresses are unified, so the driver knows the device of each.
        self.check("cuMemcpyAsync", unsafe { functions::cuMemcpyAsync(target, source, length, self.stream.raw) })
    }

    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()> {
        cuda_kernel(kernel)?.launch(self.context()?, launch, params, self.stream.raw)
    }

    fn resident_blocks(&self, kernel: &Handle, launch: Launch) -> Result<Option<u32>> {
        self.context()?;
        cuda_kernel(kernel)?.resident_blocks(launch.block_threads, launch.shared_bytes).map(Some)
    }

    fn record(&self) -> Result<Handle> {
        let event = self.shared.events.take()?;
        event.record(self.stream.raw)?;
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &Handle) -> Result<()> {
        let event = cuda_event(event)?;
        self.context()?;
        // SAFETY: both are alive. The event may belong to another GPU, and may be destroyed while the
        // stream waits.
        self.check("cuStreamWaitEvent", unsafe { functions::cuStreamWaitEvent(self.stream.raw, event.raw(), 0) })
    }

    fn synchronize(&self) -> Result<()> {
        self.context()?;
        // SAFETY: the stream is alive.
        self.check("cuStreamSynchronize", unsafe { functions::cuStreamSynchronize(self.stream.raw) })
    }

    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64> {
        cuda_event(to)?.elapsed_ns(cuda_event(from)?)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: `stream` is not used again.
        self.shared.put_stream(unsafe { ManuallyDrop::take(&mut self.stream) });
    }
}

fn cuda_kernel(kernel: &Handle) -> Result<&CudaKernel> {
    let other = || DeviceError::Invalid("the kernel belongs to another kind of device".into());
    kernel.downcast_ref::<CudaKernel>().ok_or_else(other)
}

fn cuda_event(event: &Handle) -> Result<&CudaEvent> {
    event.downcast_ref().ok_or_else(|| DeviceError::Invalid("the event belongs to another kind of device".into()))
}
