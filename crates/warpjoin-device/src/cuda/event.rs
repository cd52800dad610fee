//! Events of the driver.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUresult, CUstream};

use super::context::Context;
use crate::{DeviceError, Result};

/// An event, destroyed on drop.
#[derive(Debug)]
pub(super) struct CudaEvent {
    raw: CUevent,
    context: Arc<Context>,
}

// SAFETY: an event handle may be used by any number of threads; the driver locks.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// An event that carries the time.
    pub(super) fn with_time(context: &Arc<Context>) -> Result<Self> {
        Self::new(context, CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event for ordering alone: cheaper.
    pub(super) fn without_time(context: &Arc<Context>) -> Result<Self> {
        Self::new(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new(context: &Arc<Context>, flags: CUevent_flags) -> Result<Self> {
        context.make_current()?;
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current; `raw` outlives the call; `drop` destroys once.
        context.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags as u32) })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// The handle; valid while `self` lives.
    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Moves the event to the end of what is enqueued on `stream`, a stream of the same context.
    pub(super) fn record(&self, stream: CUstream) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: event and stream are alive and of one context.
        self.context.check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream) })
    }

    /// Whether the event has been reached, or never recorded. An error counts as reached: it comes
    /// out of the next call on the stream.
    pub(super) fn is_reached(&self) -> bool {
        // SAFETY: the event is alive.
        self.context.make_current().is_err() || unsafe { sys::cuEventQuery(self.raw) } != CUresult::CUDA_ERROR_NOT_READY
    }

    /// Waits on the host until the event is reached.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the event is alive.
        self.context.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Nanoseconds from `earlier`, an event of the same GPU, to `self`. Both must carry the time.
    pub(super) fn elapsed_ns(&self, earlier: &Self) -> Result<u64> {
        type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
        static FUNCTION: OnceLock<Result<ElapsedTime, String>> = OnceLock::new();
        self.context.make_current()?;
        // cudarc binds only `cuEventElapsedTime_v2`, which drivers before 12.8 lack; the first
        // version is in all of them. Looked up once: the library stays.
        let function = FUNCTION.get_or_init(|| {
            // SAFETY: the library is loaded, and the type is the function's own.
            let found = unsafe { sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime\0") };
            found.map(|function| *function).map_err(|error| error.to_string())
        });
        let function =
            function.as_ref().map_err(|error| DeviceError::Invalid(format!("cuEventElapsedTime: {error}")))?;
        let mut elapsed_ms = 0_f32;
        // SAFETY: both events are alive; `elapsed_ms` outlives the call.
        self.context.check("cuEventElapsedTime", unsafe { function(&mut elapsed_ms, earlier.raw, self.raw) })?;
        // Negative when the caller has the two the wrong way round; the conversion makes that 0.
        Ok((f64::from(elapsed_ms) * 1e6).round() as u64)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: made once in `new`. Work that waits for the event keeps what it needs of it.
            self.context.note("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.raw) });
        }
    }
}
