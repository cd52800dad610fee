//! Copies concurrent with kernels: on their own stream, ordered with the kernels' stream where memory passes between
//! both.

use std::collections::VecDeque;

use warpjoin_device::{Event, Stream};

use crate::Result;

/// Copies concurrent with the kernels of a stream. Drop it before the memory that the copies use: dropping waits for
/// them.
pub struct CopyLane {
    kernels: Stream,
    copies: Stream,
}

impl CopyLane {
    pub fn new(kernels: &Stream) -> Result<Self> {
        Ok(Self { kernels: kernels.clone(), copies: kernels.device().create_stream()? })
    }

    /// Enqueues copies after the work enqueued so far on the kernels' stream, on which their memory was allocated. The
    /// event is reached when they have ended: [`Self::join`] it before that memory is freed or used on the kernels'
    /// stream.
    pub fn enqueue(&self, copy: impl FnOnce(&Stream) -> Result<()>) -> Result<Event> {
        let unfinished = Unfinished(Some(&self.copies));
        self.copies.wait(&self.kernels.record()?)?;
        copy(&self.copies)?;
        let ended = self.copies.record()?;
        unfinished.done();
        Ok(ended)
    }

    /// Makes later work on the kernels' stream wait for copies.
    pub fn join(&self, ended: &Event) -> Result<()> {
        let unfinished = Unfinished(Some(&self.copies));
        self.kernels.wait(ended)?;
        unfinished.done();
        Ok(())
    }

    /// Frees copied items, oldest first and each after its copies, until at most `count` remain in progress.
    pub fn retire<T>(&self, under_way: &mut VecDeque<(T, Event)>, count: usize) -> Result<()> {
        while under_way.len() > count
            && let Some((_, copied)) = under_way.front()
        {
            self.join(copied)?;
            under_way.pop_front();
        }
        Ok(())
    }

    /// The kernels' stream.
    pub fn kernels(&self) -> &Stream {
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
