//! The wait that work ends with, on every path: errors and panics included.
//!
//! A buffer is freed in the order of its own stream, so work of other streams that uses it must have ended before. Must
//! not know what the work is.

use warpjoin_device::Stream;

use crate::{Error, Result};

/// Waits for streams when dropped. Locals are dropped in reverse order: declare it after the buffers that other streams
/// use, so that it is dropped before them.
#[derive(Default)]
#[must_use]
pub struct Waits {
    /// None once they were waited for.
    streams: Vec<Stream>,
}

impl Waits {
    pub fn of(streams: &[Stream]) -> Self {
        Self { streams: streams.to_vec() }
    }

    /// Waits now for all streams, even after one has failed; returns the first error.
    pub fn end(&mut self) -> Result<()> {
        let outcomes: Vec<_> = self.streams.iter().map(Stream::synchronize).collect();
        self.streams.clear();
        outcomes.into_iter().collect::<Result<(), _>>().map_err(Error::from)
    }

    /// Ends without waiting: the buffers of unfinished work have another owner, which waits.
    pub fn leave(mut self) {
        self.streams.clear();
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::debug!("a stream that is waited for after an error: {error}");
        }
    }
}
