//! The queues of all streams, and the choice of the next work.
//!
//! Must not know how work is executed.
//!
//! States of a piece of work:
//!
//! ```text
//! enqueued --> taken --> executed
//! ```
//!
//! It can be taken when its stream has executed all earlier work, no other work is being executed, and, if it is a wait,
//! its event is reached. The schedule draws one of the streams whose next work can be taken.

use std::collections::{BTreeMap, VecDeque};

use super::races::Before;
use super::random::Random;
use super::work::{StreamError, Work};

/// The queue of one stream.
#[derive(Default)]
pub(super) struct Queue {
    /// Work, each with what the host had waited for when it enqueued it.
    work: VecDeque<(Work, Before)>,
    enqueued: u64,
    executed: u64,
    /// The first error. Later work is skipped, and every `synchronize` returns this error.
    error: Option<StreamError>,
    /// The stream's handle was dropped: the queue is removed when it is empty.
    closed: bool,
}

/// The queues of all streams of all devices of a simulation.
pub(super) struct Schedule {
    /// In order of creation, since the choice must not depend on addresses.
    queues: BTreeMap<u64, Queue>,
    streams: u64,
    random: Random,
    /// Whether a thread executes work.
    executing: bool,
    pending: u64,
    pending_host_bytes: u64,
}

/// What a thread does next to make a stream reach a point; the result of [`Schedule::next`].
pub(super) enum Next {
    /// Nothing: the stream has reached the point.
    Reached,
    /// Wait for the thread that executes work.
    Busy,
    /// Execute this work of this stream, then call [`Schedule::executed`].
    Execute(u64, Work, Before),
    /// Report a deadlock: no stream has work that can be taken.
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

    /// The stream's handle was dropped. Its remaining work is still executed.
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

    /// Number of pieces of work ever enqueued on a stream.
    pub(super) fn enqueued(&self, stream: u64) -> u64 {
        self.queues.get(&stream).map_or(0, |queue| queue.enqueued)
    }

    /// Number of pieces of work in all queues, and the host bytes that they hold.
    pub(super) fn pending(&self) -> (u64, u64) {
        (self.pending, self.pending_host_bytes)
    }

    pub(super) fn error(&self, stream: u64) -> Option<StreamError> {
        self.queues.get(&stream).and_then(|queue| queue.error.clone())
    }

    /// What to do next so that `stream` executes `target` pieces of work.
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

    /// The work taken from `stream` has ended, with this error if it failed.
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

    /// Takes all work that was not executed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Work> {
        std::mem::take(&mut self.queues).into_values().flat_map(|queue| queue.work).map(|(work, _)| work)
    }

    fn remove_if_done(&mut self, stream: u64) {
        if self.queues.get(&stream).is_some_and(|queue| queue.closed && queue.executed == queue.enqueued) {
            self.queues.remove(&stream);
        }
    }
}
