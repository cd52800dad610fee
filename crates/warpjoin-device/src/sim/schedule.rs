//! Which stream goes next: queues of work, and what may be taken from them.
//!
//! Must not know how work is executed.
//!
//! The life of a piece of work:
//!
//! ```text
//! enqueued --(its stream has executed all before it; if it is a wait, its event is reached;
//!             no other work is being executed; the draw falls on its stream)--> taken --> executed
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::races::Before;
use super::random::Random;
use super::work::{StreamError, Work};

/// The queue of one stream.
#[derive(Default)]
pub(super) struct Queue {
    /// Each with what the host had waited for when it enqueued it.
    work: VecDeque<(Work, Before)>,
    enqueued: u64,
    executed: u64,
    /// The first error: what comes after it is skipped, and every `synchronize` tells it.
    error: Option<StreamError>,
    /// No handle is left: the queue goes when it is empty.
    closed: bool,
}

/// The queues of all streams of all devices of a simulation.
pub(super) struct Schedule {
    /// In order of creation: the draw must not depend on addresses.
    queues: BTreeMap<u64, Queue>,
    streams: u64,
    random: Random,
    /// Someone executes work.
    executing: bool,
    pending: u64,
    pending_host_bytes: u64,
}

/// What [`Schedule::next`] found for one who wants a stream to come to some point.
pub(super) enum Next {
    /// The stream is there.
    Reached,
    /// Another thread executes work: wait for it.
    Busy,
    /// Execute this, of that stream, then call [`Schedule::executed`].
    Execute(u64, Work, Before),
    /// Nothing can go on.
    Stuck,
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        Self { queues: BTreeMap::new(), streams: 0, random, executing: false, pending: 0, pending_host_bytes: 0 }
    }

    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    pub(super) fn open(&mut self) -> u64 {
        self.streams += 1;
        self.queues.insert(self.streams, Queue::default());
        self.streams
    }

    /// The stream's handle is gone; its work is still done.
    pub(super) fn close(&mut self, stream: u64) {
        if let Some(queue) = self.queues.get_mut(&stream) {
            queue.closed = true;
        }
        self.remove_if_done(stream);
    }

    pub(super) fn enqueue(&mut self, stream: u64, work: Work, before: Before) {
        if let Some(queue) = self.queues.get_mut(&stream) {
            self.pending += 1;
            self.pending_host_bytes += work.host_bytes();
            queue.enqueued += 1;
            queue.work.push_back((work, before));
        }
    }

    /// How much was ever enqueued on a stream: the point at which all of that is done.
    pub(super) fn enqueued(&self, stream: u64) -> u64 {
        self.queues.get(&stream).map_or(0, |queue| queue.enqueued)
    }

    /// Work and host bytes that wait.
    pub(super) fn pending(&self) -> (u64, u64) {
        (self.pending, self.pending_host_bytes)
    }

    pub(super) fn error(&self, stream: u64) -> Option<StreamError> {
        self.queues.get(&stream).and_then(|queue| queue.error.clone())
    }

    /// What to do so that `stream` has executed `target` pieces of work.
    pub(super) fn next(&mut self, stream: u64, target: u64) -> Next {
        if self.queues.get(&stream).is_none_or(|queue| queue.executed >= target) {
            return Next::Reached;
        }
        if self.executing {
            return Next::Busy;
        }
        let is_ready = |queue: &Queue| queue.work.front().is_some_and(|(work, _)| !work.is_blocked());
        let ready: Vec<u64> = self.queues.iter().filter(|(_, queue)| is_ready(queue)).map(|(&id, _)| id).collect();
        if ready.is_empty() {
            return Next::Stuck;
        }
        let chosen = ready[self.random.below(ready.len())];
        match self.queues.get_mut(&chosen).and_then(|queue| queue.work.pop_front()) {
            Some((work, before)) => {
                self.executing = true;
                self.pending -= 1;
                self.pending_host_bytes -= work.host_bytes();
                Next::Execute(chosen, work, before)
            }
            None => Next::Stuck,
        }
    }

    /// The work taken from `stream` has ended, and how.
    pub(super) fn executed(&mut self, stream: u64, error: Option<StreamError>) {
        self.executing = false;
        if let Some(queue) = self.queues.get_mut(&stream) {
            queue.executed += 1;
            if queue.error.is_none() {
                queue.error = error;
            }
        }
        self.remove_if_done(stream);
    }

    /// Takes all work that was never executed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Work> {
        std::mem::take(&mut self.queues).into_values().flat_map(|queue| queue.work).map(|(work, _)| work)
    }

    fn remove_if_done(&mut self, stream: u64) {
        if self.queues.get(&stream).is_some_and(|queue| queue.closed && queue.executed == queue.enqueued) {
            self.queues.remove(&stream);
        }
    }
}
