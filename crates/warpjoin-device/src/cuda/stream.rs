//! Streams of the driver: the CUDA half of [`StreamBackend`].
//!
//! The front end has checked bounds, budget and peer access; see [`crate::Stream`].

use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult, CUstream};

use super::context::Context;
use super::event::CudaEvent;
use super::module::CudaKernel;
use super::pool::Pool;
use super::staging::Staging;
use crate::backend::{Handle, StreamBackend};
use crate::{DeviceError, Launch, Result};

/// Copies of more bytes go through pinned chunks. The driver takes smaller ones along with the
/// command, without waiting for the stream.
const STAGED_BYTES_MIN: usize = 64 << 10;

/// What the streams of one GPU share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) context: Arc<Context>,
    pub(super) pool: Pool,
    pub(super) staging: Staging,
}

/// A stream that does not synchronise with the null stream.
#[derive(Debug)]
pub(super) struct CudaStream {
    raw: CUstream,
    shared: Arc<Shared>,
}

// SAFETY: a stream handle may be used by any number of threads; the driver locks.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self> {
        shared.context.make_current()?;
        let mut raw: CUstream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `raw` outlives the call; `drop` destroys once.
        shared.context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self { raw, shared })
    }

    /// The context, made current.
    fn context(&self) -> Result<&Arc<Context>> {
        self.shared.context.make_current()?;
        Ok(&self.shared.context)
    }

    fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        self.shared.context.check(call, result)
    }
}

impl StreamBackend for CudaStream {
    fn alloc(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        self.shared.pool.alloc(bytes, self.raw)
    }

    fn free(&self, address: u64, _bytes: u64) {
        self.shared.pool.free(address, self.raw);
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.context()?;
        if bytes.len() > STAGED_BYTES_MIN {
            // SAFETY: the front end has checked that the range lies in a live buffer.
            return unsafe { self.shared.staging.write(address, bytes, self.raw) };
        }
        // SAFETY: target as above; pageable host bytes of this size have been taken over when the
        // call returns, so that they may go away.
        self.check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.raw)
        })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.context()?;
        if bytes.len() > STAGED_BYTES_MIN {
            // SAFETY: the front end has checked that the range lies in a live buffer.
            return unsafe { self.shared.staging.read(address, bytes, self.raw) };
        }
        // SAFETY: source as above; `bytes` is borrowed until the wait below is over.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), self.raw) };
        // Waited for even if that failed: nothing may write to `bytes` after the return.
        let waited = self.synchronize();
        self.check("cuMemcpyDtoHAsync", result)?;
        waited
    }

    fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        if Staging::fits_chunk(parts.iter().map(|(_, bytes)| bytes.len())) {
            // SAFETY: the front end has checked that the ranges lie in live buffers.
            return unsafe { self.shared.staging.read_all(parts, self.raw) };
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
                .check("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(address, word, length / 4, self.raw) });
        }
        // SAFETY: a range of a live buffer, as checked by the front end.
        self.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, value, length, self.raw) })
    }

    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.context()?;
        let length = usize::try_from(bytes).map_err(|_| DeviceError::Invalid(format!("copy of {bytes} bytes")))?;
        // SAFETY: ranges of live buffers of this device or of peers opened to it, as checked by the
        // front end; addresses are unified, so the driver knows whose they are.
        self.check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(target, source, length, self.raw) })
    }

    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()> {
        let kernel = kernel
            .downcast_ref::<CudaKernel>()
            .ok_or_else(|| DeviceError::Invalid("a kernel of another kind of device".into()))?;
        kernel.launch(self.context()?, launch, params, self.raw)
    }

    fn record(&self) -> Result<Handle> {
        let event = CudaEvent::with_time(&self.shared.context)?;
        event.record(self.raw)?;
        Ok(Arc::new(event))
    }

    fn wait(&self, event: &Handle) -> Result<()> {
        let event = cuda_event(event)?;
        self.context()?;
        // SAFETY: both are alive. The event may be of another GPU, and may be destroyed while the
        // stream waits.
        self.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw(), 0) })
    }

    fn synchronize(&self) -> Result<()> {
        self.context()?;
        // SAFETY: the stream is alive.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64> {
        cuda_event(to)?.elapsed_ns(cuda_event(from)?)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.shared.context.make_current().is_ok() {
            // SAFETY: made once in `new`. The driver finishes enqueued work first; buffers allocated
            // here held the stream, so all are freed by now.
            self.shared.context.note("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}

fn cuda_event(event: &Handle) -> Result<&CudaEvent> {
    event.downcast_ref().ok_or_else(|| DeviceError::Invalid("an event of another kind of device".into()))
}
