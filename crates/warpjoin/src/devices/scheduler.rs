//! Which query launches next on the devices of a session, where several run at once.
//!
//! A query takes a turn when it launches a kernel, and gives it back once it has waited for all that it launched: at the end
//! of each pipeline, and inside those that look at results on the way. Only so many turns are taken at once. Of the queries
//! that wait for one, the query that has used the devices least goes first, so that a short query need not wait until long
//! ones have ended. Must not know what is launched.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpjoin_device::sync::{self, Condvar, Mutex, MutexGuard};
use warpjoin_device::{Cancellation, DeviceError, Pacer};

/// Turns of a session.
const TURNS_DEFAULT: usize = 4;

/// How often a query that waits for a turn looks whether it was cancelled.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Hands out the turns of a session.
pub(crate) struct Scheduler {
    turns_max: usize,
    state: Mutex<State>,
    /// A turn was given back, or a query does not wait any more.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Turns that are taken.
    taken: usize,
    /// Queries that wait for a turn, in the order in which they came.
    waiting: Vec<u64>,
    /// How long each open query has had turns, in ns; from the least of the others on when it was opened.
    used_ns: HashMap<u64, u64>,
    opened: u64,
}

impl State {
    /// The query that goes next.
    fn next(&self) -> Option<u64> {
        // The first of those that have used the same.
        self.waiting.iter().copied().min_by_key(|query| self.used_ns.get(query))
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new(TURNS_DEFAULT)
    }
}

impl Scheduler {
    pub(crate) fn new(turns_max: usize) -> Self {
        Self { turns_max, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Opens a query, which takes turns until it is dropped.
    pub(crate) fn open(self: &Arc<Self>, cancel: &Arc<Cancellation>) -> Turns {
        let mut state = self.locked();
        state.opened += 1;
        let query = state.opened;
        let least = state.used_ns.values().min().copied().unwrap_or(0);
        state.used_ns.insert(query, least);
        drop(state);
        let shared = Shared {
            scheduler: Arc::clone(self),
            query,
            cancel: Arc::clone(cancel),
            busy: Mutex::default(),
            waited_ns: AtomicU64::new(0),
        };
        Turns { shared: Arc::new(shared) }
    }

    /// Whether no query is open.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.locked();
        state.taken == 0 && state.waiting.is_empty() && state.used_ns.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        sync::locked(&self.state)
    }

    fn take(&self, query: u64, cancel: &Cancellation) -> Result<(), DeviceError> {
        let mut state = self.locked();
        if state.taken < self.turns_max && state.waiting.is_empty() {
            state.taken += 1;
            return Ok(());
        }
        state.waiting.push(query);
        loop {
            let is_cancelled = cancel.is_cancelled();
            let has_turn = state.taken < self.turns_max && state.next() == Some(query);
            if is_cancelled || has_turn {
                state.waiting.retain(|&waiting| waiting != query);
                state.taken += usize::from(!is_cancelled);
                // The next one may go, too.
                self.changed.notify_all();
                return if is_cancelled { Err(DeviceError::Cancelled) } else { Ok(()) };
            }
            state = sync::wait_for(&self.state, &self.changed, state, LOOKS_EVERY);
        }
    }

    fn give_back(&self, query: u64, used: Duration) {
        let mut state = self.locked();
        state.taken -= 1;
        if let Some(used_ns) = state.used_ns.get_mut(&query) {
            *used_ns = used_ns.saturating_add(used.as_nanos() as u64);
        }
        if !state.waiting.is_empty() {
            self.changed.notify_all();
        }
    }
}

/// The turns of one query. Streams that outlive it, with its results, are not held up.
#[must_use]
pub(crate) struct Turns {
    shared: Arc<Shared>,
}

struct Shared {
    scheduler: Arc<Scheduler>,
    query: u64,
    cancel: Arc<Cancellation>,
    busy: Mutex<Busy>,
    waited_ns: AtomicU64,
}

#[derive(Default)]
struct Busy {
    /// A bit a device with kernels that nobody has waited for.
    devices: u32,
    /// When the turn was taken.
    since: Option<Instant>,
    /// The query has ended.
    is_closed: bool,
}

impl Turns {
    /// What paces the query's stream of a device.
    pub(crate) fn pacer(&self, device: usize) -> Arc<dyn Pacer> {
        Arc::new(DevicePacer { shared: Arc::clone(&self.shared), device })
    }

    /// How long it has waited for turns.
    pub(crate) fn waited_ns(&self) -> u64 {
        self.shared.waited_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let Shared { scheduler, query, busy, .. } = &*self.shared;
        let mut busy = sync::locked(busy);
        busy.is_closed = true;
        if let Some(since) = busy.since.take() {
            scheduler.give_back(*query, since.elapsed());
        }
        scheduler.locked().used_ns.remove(query);
    }
}

struct DevicePacer {
    shared: Arc<Shared>,
    device: usize,
}

impl Pacer for DevicePacer {
    fn before_launch(&self) -> Result<(), DeviceError> {
        let Shared { scheduler, query, cancel, busy, waited_ns } = &*self.shared;
        let mut busy = sync::locked(busy);
        if busy.is_closed {
            return Ok(());
        }
        if busy.since.is_none() {
            let begun = Instant::now();
            scheduler.take(*query, cancel)?;
            let now = Instant::now();
            waited_ns.fetch_add((now - begun).as_nanos() as u64, Ordering::Relaxed);
            busy.since = Some(now);
        }
        busy.devices |= 1 << self.device;
        Ok(())
    }

    fn after_wait(&self) {
        let Shared { scheduler, query, busy, .. } = &*self.shared;
        let mut busy = sync::locked(busy);
        busy.devices &= !(1 << self.device);
        if busy.devices == 0
            && let Some(since) = busy.since.take()
        {
            scheduler.give_back(*query, since.elapsed());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn open(scheduler: &Arc<Scheduler>) -> Turns {
        scheduler.open(&Arc::default())
    }

    #[test]
    fn a_turn_lasts_until_all_devices_were_waited_for() {
        let scheduler = Arc::new(Scheduler::new(1));
        let query = open(&scheduler);
        let pacers = [query.pacer(0), query.pacer(1)];
        pacers.iter().for_each(|pacer| pacer.before_launch().unwrap());
        assert_eq!(scheduler.locked().taken, 1);
        pacers[0].after_wait();
        assert_eq!(scheduler.locked().taken, 1);
        pacers[1].after_wait();
        pacers[1].after_wait();
        assert_eq!(scheduler.locked().taken, 0);
    }

    #[test]
    fn a_query_that_ends_leaves_nothing() {
        let scheduler = Arc::new(Scheduler::new(1));
        let query = open(&scheduler);
        let pacer = query.pacer(0);
        pacer.before_launch().unwrap();
        drop(query);
        assert!(scheduler.is_idle());
        // A stream of its result.
        pacer.before_launch().unwrap();
        assert!(scheduler.is_idle());
        pacer.after_wait();
        assert!(scheduler.is_idle());
    }

    #[test]
    fn the_query_that_has_used_least_goes_first() {
        let scheduler = Arc::new(Scheduler::new(1));
        let queries: Vec<Turns> = (0..3).map(|_| open(&scheduler)).collect();
        let used = [50, 30, 40];
        for (query, used_ms) in queries.iter().zip(used) {
            scheduler.locked().taken += 1;
            scheduler.give_back(query.shared.query, Duration::from_millis(used_ms));
        }
        let busy = open(&scheduler);
        assert_eq!(scheduler.locked().used_ns[&busy.shared.query], 30_000_000, "as the least of the others");
        busy.pacer(0).before_launch().unwrap();
        let (ended, order) = mpsc::channel();
        thread::scope(|scope| {
            for (at, query) in queries.iter().enumerate() {
                let (pacer, ended) = (query.pacer(0), ended.clone());
                scope.spawn(move || {
                    pacer.before_launch().unwrap();
                    ended.send(at).unwrap();
                    pacer.after_wait();
                });
            }
            while scheduler.locked().waiting.len() < queries.len() {
                thread::yield_now();
            }
            busy.pacer(0).after_wait();
        });
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 2, 0]);
        assert!(queries.iter().all(|query| query.waited_ns() > 0));
    }

    #[test]
    fn a_cancelled_query_stops_waiting() {
        let scheduler = Arc::new(Scheduler::new(1));
        let (busy, cancel) = (open(&scheduler), Arc::new(Cancellation::default()));
        busy.pacer(0).before_launch().unwrap();
        let query = scheduler.open(&cancel);
        let waits = thread::spawn({
            let pacer = query.pacer(0);
            move || pacer.before_launch()
        });
        while scheduler.locked().waiting.is_empty() {
            thread::yield_now();
        }
        cancel.cancel();
        assert!(matches!(waits.join().unwrap(), Err(DeviceError::Cancelled)));
        assert!(scheduler.locked().waiting.is_empty());
    }
}
