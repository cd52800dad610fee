//! [`Event`]: a point in the work of a stream.
//!
//! Must not know which kind of device records it.

use crate::backend::Handle;
use crate::{Result, Stream, span};

/// A point in the work of a stream, with the device time at which it was reached.
#[derive(Clone)]
pub struct Event {
    stream: Stream,
    handle: Handle,
}

impl Event {
    pub(crate) fn new(stream: Stream, handle: Handle) -> Self {
        Self { stream, handle }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Device time in nanoseconds from `earlier`, an event of the same device, to this one.
    /// Both must have been reached: synchronize first.
    ///
    /// # Errors
    /// When one of them has not been reached.
    pub fn elapsed_ns(&self, earlier: &Event) -> Result<u64> {
        let _span = span(|| "elapsed");
        self.stream.backend().elapsed_ns(&earlier.handle, &self.handle)
    }
}
