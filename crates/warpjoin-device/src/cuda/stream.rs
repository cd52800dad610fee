//! Streams of the driver: the CUDA half of [`StreamBackend`].
//!
//! The front end has checked bounds, budget and peer access; see [`crate::Stream`].

use std::mem::ManuallyDrop;
use std::sync::{Arc, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUresult};

use super::blocks::{Blocks, SLAB_BYTES};
use super::context::Context;
use super::event::CudaEvent;
use super::module::CudaKernel;
use super::shared::{Lane, SCRATCH_BYTES, Scratch, Shared};
use super::staging::Staging;
use crate::backend::{Handle, StreamBackend, alloc_and_clear};
use crate::{DeviceError, Launch, Result};

/// Copies of more bytes go through pinned chunks. The driver takes smaller ones along with the
/// command, without waiting for the stream.
const STAGED_BYTES_MIN: usize = 64 << 10;

/// A stream of one GPU.
#[derive(Debug)]
pub(super) struct CudaStream {
    /// Taken out on drop.
    lane: ManuallyDrop<Lane>,
    shared: Arc<Shared>,
}

impl CudaStream {
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self> {
        Ok(Self { lane: ManuallyDrop::new(shared.take_lane()?), shared })
    }

    /// The context, made current.
    fn context(&self) -> Result<&Arc<Context>> {
        self.shared.context.make_current()?;
        Ok(&self.shared.context)
    }

    fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        self.shared.context.check(call, result)
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.lane.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of the pool; if there is none, also that which streams keep without using it.
    fn alloc_new(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        match self.shared.pool.alloc(bytes, self.lane.raw) {
            Err(None) => {
                self.release_kept();
                self.shared.pool.alloc(bytes, self.lane.raw)
            }
            result => result,
        }
    }

    /// Copies a few bytes to the host by way of pinned memory; false, and nothing, where there is none.
    fn read_few(&self, address: u64, bytes: &mut [u8]) -> Result<bool> {
        let mut scratch = self.lane.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.is_none() {
            *scratch = self.shared.take_scratch();
        }
        let Some(Scratch(scratch)) = &*scratch else { return Ok(false) };
        // SAFETY: the front end has checked that the range lies in a live buffer; the scratch is as long, and locked
        // until the wait below is over.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(scratch.cast(), address, bytes.len(), self.lane.raw) };
        let waited = self.synchronize();
        self.check("cuMemcpyDtoHAsync", result)?;
        waited?;
        // SAFETY: the copy has ended, and both are as long.
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
            self.shared.pool.free(slab, self.lane.raw);
            return Err(Some(error));
        }
        let mut blocks = self.blocks();
        blocks.add_slab(slab);
        blocks.take_cleared().ok_or_else(|| Some(DeviceError::Invalid("a new slab without room".into())))
    }

    fn release_kept(&self) {
        self.shared.trim(&self.lane);
        self.shared.trim_idle();
    }

    fn free(&self, address: u64, bytes: u64) {
        let returned = self.blocks().put(address, bytes);
        for address in returned {
            self.shared.pool.free(address, self.lane.raw);
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.context()?;
        if bytes.len() > STAGED_BYTES_MIN {
            // SAFETY: the front end has checked that the range lies in a live buffer.
            return unsafe { self.shared.staging.write(address, bytes, self.lane.raw) };
        }
        // SAFETY: target as above; pageable host bytes of this size have been taken over when the
        // call returns, so that they may go away.
        self.check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.lane.raw)
        })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.context()?;
        if bytes.len() > STAGED_BYTES_MIN {
            // SAFETY: the front end has checked that the range lies in a live buffer.
            return unsafe { self.shared.staging.read(address, bytes, self.lane.raw) };
        }
        if bytes.len() <= SCRATCH_BYTES && self.read_few(address, bytes)? {
            return Ok(());
        }
        // SAFETY: source as above; `bytes` is borrowed until the wait below is over.
        let result =
            unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), self.lane.raw) };
        // Waited for even if that failed: nothing may write to `bytes` after the return.
        let waited = self.synchronize();
        self.check("cuMemcpyDtoHAsync", result)?;
        waited
    }

    fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        if Staging::fits_chunk(parts.iter().map(|(_, bytes)| bytes.len())) {
            // SAFETY: the front end has checked that the ranges lie in live buffers.
            return unsafe { self.shared.staging.read_all(parts, self.lane.raw) };
        }
        parts.iter_mut().try_for_each(|(address, bytes)| self.read(*address, bytes))
    }

    fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.context()?;
        let length = usize::try_from(bytes).map_err(|_| DeviceError::Invalid(format!("fill of {bytes} bytes")))?;
        if address.is_multiple_of(4) && length.is_multiple_of(4) {
            let word = u32::from_ne_bytes([value; 4]);
            // SAFETY: an aligned range of a live buffer, as checked by the front end.
            return self
                .check("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(address, word, length / 4, self.lane.raw) });
        }
        // SAFETY: a range of a live buffer, as checked by the front end.
        self.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, value, length, self.lane.raw) })
    }

    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.context()?;
        let length = usize::try_from(bytes).map_err(|_| DeviceError::Invalid(format!("copy of {bytes} bytes")))?;
        // SAFETY: ranges of live buffers of this device or of peers opened to it, as checked by the
        // front end; addresses are unified, so the driver knows whose they are.
        self.check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(target, source, length, self.lane.raw) })
    }

    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()> {
        let kernel = kernel
            .downcast_ref::<CudaKernel>()
            .ok_or_else(|| DeviceError::Invalid("a kernel of another kind of device".into()))?;
        kernel.launch(self.context()?, launch, params, self.lane.raw)
    }

    fn record(&self) -> Result<Handle> {
        let event = self.shared.events.take()?;
        event.record(self.lane.raw)?;
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &Handle) -> Result<()> {
        let event = cuda_event(event)?;
        self.context()?;
        // SAFETY: both are alive. The event may be of another GPU, and may be destroyed while the
        // stream waits.
        self.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.lane.raw, event.raw(), 0) })
    }

    fn synchronize(&self) -> Result<()> {
        self.context()?;
        // SAFETY: the stream is alive.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.lane.raw) })
    }

    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64> {
        cuda_event(to)?.elapsed_ns(cuda_event(from)?)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: not touched again.
        self.shared.put_lane(unsafe { ManuallyDrop::take(&mut self.lane) });
    }
}

fn cuda_event(event: &Handle) -> Result<&CudaEvent> {
    event.downcast_ref().ok_or_else(|| DeviceError::Invalid("an event of another kind of device".into()))
}
