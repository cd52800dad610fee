//! Copies beside kernels: on a stream of their own, in order with those of the kernels' stream where memory changes hands.

use std::collections::VecDeque;

use warpjoin_device::{Event, Stream};

use crate::Result;

/// Copies beside the kernels of a stream. Dropped before the memory that they use: it waits for them.
pub(crate) struct CopyLane {
    kernels: Stream,
    copies: Stream,
}

impl CopyLane {
    pub(crate) fn new(kernels: &Stream) -> Result<Self> {
        Ok(Self { kernels: kernels.clone(), copies: kernels.device().create_stream()? })
    }

    /// Enqueues copies behind what is enqueued on the kernels' stream by now, on which their memory was allocated. The event is
    /// when they have ended: [`Self::join`] it before that memory is freed or used there.
    pub(crate) fn enqueue(&self, copy: impl FnOnce(&Stream) -> Result<()>) -> Result<Event> {
        let unfinished = Unfinished(Some(&self.copies));
        self.copies.wait(&self.kernels.record()?)?;
        copy(&self.copies)?;
        let ended = self.copies.record()?;
        unfinished.done();
        Ok(ended)
    }

    /// Has what follows on the kernels' stream wait for copies.
    pub(crate) fn join(&self, ended: &Event) -> Result<()> {
        let unfinished = Unfinished(Some(&self.copies));
        self.kernels.wait(ended)?;
        unfinished.done();
        Ok(())
    }

    /// Frees what was copied, the oldest first and behind its copies, until at most `count` are under way.
    pub(crate) fn retire<T>(&self, under_way: &mut VecDeque<(T, Event)>, count: usize) -> Result<()> {
        while under_way.len() > count
            && let Some((_, copied)) = under_way.front()
        {
            self.join(copied)?;
            under_way.pop_front();
        }
        Ok(())
    }

    /// The kernels' stream.
    pub(crate) fn kernels(&self) -> &Stream {
        &self.kernels
    }
}

impl Drop for CopyLane {
    fn drop(&mut self) {
        drop(Unfinished(Some(&self.copies)));
    }
}

/// Copies that nobody waits for yet: if that stays so, they end here.
struct Unfinished<'s>(Option<&'s Stream>);

impl Unfinished<'_> {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.map(Stream::synchronize) {
            log::debug!("copies of a device that fails: {error}");
        }
    }
}
