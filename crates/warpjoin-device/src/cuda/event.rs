//! Events of the driver, and a cache of unused events.
//!
//! Must not know which work they order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUevent, CUevent_flags, CUresult, CUstream};

use super::context::Context;
use super::functions;
use crate::Result;

/// An event. On drop it returns to its cache, or is destroyed.
#[derive(Debug)]
pub(super) struct CudaEvent {
    raw: CUevent,
    context: Arc<Context>,
    cache: Option<Arc<EventCache>>,
}

/// Unused events with timing. Creating and destroying one takes 3 us.
#[derive(Debug)]
pub(super) struct EventCache {
    unused: Mutex<Vec<CUevent>>,
    context: Arc<Context>,
}

/// Maximum number of cached events.
const EVENTS_MAX: usize = 256;

// SAFETY: event handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for EventCache {}
// SAFETY: as above.
unsafe impl Sync for EventCache {}

impl EventCache {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { unused: Mutex::default(), context }
    }

    /// An event with timing.
    pub(super) fn take(self: &Arc<Self>) -> Result<CudaEvent> {
        let unused = self.locked().pop();
        let mut event = match unused {
            Some(raw) => CudaEvent { raw, context: self.context.clone(), cache: None },
            None => CudaEvent::new(&self.context, CUevent_flags::CU_EVENT_DEFAULT)?,
        };
        event.cache = Some(self.clone());
        Ok(event)
    }

    fn locked(&self) -> MutexGuard<'_, Vec<CUevent>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EventCache {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            for raw in self.locked().drain(..) {
                // SAFETY: the event is not in use, and was removed from the list.
                self.context.log_failure("cuEventDestroy", unsafe { functions::cuEventDestroy_v2(raw) });
            }
        }
    }
}

// SAFETY: event handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// An event for ordering only, which is cheaper.
    pub(super) fn without_time(context: &Arc<Context>) -> Result<Self> {
        Self::new(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new(context: &Arc<Context>, flags: CUevent_flags) -> Result<Self> {
        context.make_current()?;
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current; `raw` outlives the call; `drop` destroys once.
        context.check("cuEventCreate", unsafe { functions::cuEventCreate(&mut raw, flags as u32) })?;
        Ok(Self { raw, context: context.clone(), cache: None })
    }

    /// The handle, valid while `self` lives.
    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Records the event after the work enqueued so far on `stream`, a stream of the same context.
    pub(super) fn record(&self, stream: CUstream) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: event and stream are alive and of one context.
        self.context.check("cuEventRecord", unsafe { functions::cuEventRecord(self.raw, stream) })
    }

    /// Whether the event has been reached or was never recorded. An error counts as reached, since
    /// the next call on the stream returns it.
    pub(super) fn is_reached(&self) -> bool {
        // SAFETY: the event is alive.
        self.context.make_current().is_err()
            || unsafe { functions::cuEventQuery(self.raw) } != CUresult::CUDA_ERROR_NOT_READY
    }

    /// Waits on the host until the event is reached.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the event is alive.
        self.context.check("cuEventSynchronize", unsafe { functions::cuEventSynchronize(self.raw) })
    }

    /// Nanoseconds from `earlier`, an event of the same GPU, to `self`. Both must have timing.
    pub(super) fn elapsed_ns(&self, earlier: &Self) -> Result<u64> {
        self.context.make_current()?;
        let mut elapsed_ms = 0_f32;
        // SAFETY: both events are alive; `elapsed_ms` outlives the call.
        let result = unsafe { functions::cuEventElapsedTime(&mut elapsed_ms, earlier.raw, self.raw) };
        self.context.check("cuEventElapsedTime", result)?;
        // Negative if the events are in the wrong order; the conversion makes that 0.
        Ok((f64::from(elapsed_ms) * 1e6).round() as u64)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if let Some(cache) = &self.cache {
            let mut unused = cache.locked();
            if unused.len() < EVENTS_MAX {
                // Reuse is safe: work that waits for the event has captured its state.
                unused.push(self.raw);
                return;
            }
        }
        if self.context.make_current().is_ok() {
            // SAFETY: created once in `new`, and in no list. Work that waits for the event has captured its state.
            self.context.log_failure("cuEventDestroy", unsafe { functions::cuEventDestroy_v2(self.raw) });
        }
    }
}
