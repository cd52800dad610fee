//! Events of the driver.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUresult, CUstream};

use super::context::Context;
use crate::{DeviceError, Result};

/// An event. On drop it is destroyed, or goes back to where it came from.
#[derive(Debug)]
pub(super) struct CudaEvent {
    raw: CUevent,
    context: Arc<Context>,
    home: Option<Arc<Events>>,
}

/// Events with the time that are in no use: to make and destroy one takes 3 us.
#[derive(Debug)]
pub(super) struct Events {
    kept: Mutex<Vec<CUevent>>,
    context: Arc<Context>,
}

/// Events that are kept.
const EVENTS_MAX: usize = 256;

// SAFETY: event handles may be used by any number of threads; the driver locks.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

impl Events {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { kept: Mutex::default(), context }
    }

    /// An event that carries the time.
    pub(super) fn take(self: &Arc<Self>) -> Result<CudaEvent> {
        let kept = self.locked().pop();
        let mut event = match kept {
            Some(raw) => CudaEvent { raw, context: self.context.clone(), home: None },
            None => CudaEvent::new(&self.context, CUevent_flags::CU_EVENT_DEFAULT)?,
        };
        event.home = Some(self.clone());
        Ok(event)
    }

    fn locked(&self) -> MutexGuard<'_, Vec<CUevent>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            for raw in self.locked().drain(..) {
                // SAFETY: in no use, and taken out of the list.
                self.context.note("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(raw) });
            }
        }
    }
}

// SAFETY: an event handle may be used by any number of threads; the driver locks.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// An event for ordering alone: cheaper.
    pub(super) fn without_time(context: &Arc<Context>) -> Result<Self> {
        Self::new(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new(context: &Arc<Context>, flags: CUevent_flags) -> Result<Self> {
        context.make_current()?;
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current; `raw` outlives the call; `drop` destroys once.
        context.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags as u32) })?;
        Ok(Self { raw, context: context.clone(), home: None })
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
        if let Some(home) = &self.home {
            let mut events = home.locked();
            if events.len() < EVENTS_MAX {
                // Work that waits for it has taken what it needs; recording again is a new beginning.
                events.push(self.raw);
                return;
            }
        }
        if self.context.make_current().is_ok() {
            // SAFETY: made once in `new`, and in no list. Work that waits for the event keeps what it needs of it.
            self.context.note("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.raw) });
        }
    }
}
