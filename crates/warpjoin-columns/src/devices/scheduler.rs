//! Launch permits: which of the concurrent queries launches next on the devices of a session.
//!
//! A query takes a permit when it launches a kernel, and returns it when it has waited for everything that it launched:
//! at the end of each pipeline, and inside pipelines where the host reads results. A session has `PERMITS_DEFAULT`
//! permits. Among waiting queries, the one with the least attained service is next, so that short queries do not wait
//! until long ones have ended. A new query starts with the average service of the open queries, so that no query waits
//! forever. Must not know what is launched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpjoin_device::sync::atomic::{AtomicU64, Ordering};
use warpjoin_device::sync::{self, Condvar, Mutex, MutexGuard};
use warpjoin_device::{Cancellation, DeviceError, Pacer};

/// Permits of a session: enough to keep a GPU busy.
const PERMITS_DEFAULT: usize = 4;

/// How often a waiting query checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The permits of a session.
pub struct Scheduler {
    permits: usize,
    state: Mutex<State>,
    /// A permit was given back, or a query waits no more.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: usize,
    /// Waiting queries, in the order in which they came.
    waiting: Vec<u64>,
    /// Attained service of each open query, in ns: the time in which it had a permit, from a start on.
    service_ns: HashMap<u64, u64>,
    /// Service that an open query has had on average. Never goes back.
    average_ns: u64,
    opened: u64,
}

impl State {
    /// The query that gets the next permit: the first of those with the least service.
    fn next(&self) -> Option<u64> {
        self.waiting.iter().copied().min_by_key(|query| self.service_ns.get(query))
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new(PERMITS_DEFAULT)
    }
}

impl Scheduler {
    pub fn new(permits: usize) -> Self {
        Self { permits, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Opens a query, until the permits are dropped.
    pub fn open(self: &Arc<Self>, cancel: &Arc<Cancellation>) -> LaunchPermits {
        let mut state = self.locked();
        state.opened += 1;
        let (query, average_ns) = (state.opened, state.average_ns);
        state.service_ns.insert(query, average_ns);
        drop(state);
        let shared = Shared {
            scheduler: Arc::clone(self),
            query,
            cancel: Arc::clone(cancel),
            held: Mutex::default(),
            waited_ns: AtomicU64::new(0),
        };
        LaunchPermits { shared: Arc::new(shared) }
    }

    /// Whether no query is open.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.locked();
        state.taken == 0 && state.waiting.is_empty() && state.service_ns.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        sync::locked(&self.state)
    }

    fn take(&self, query: u64, cancel: &Cancellation) -> Result<(), DeviceError> {
        let mut state = self.locked();
        if state.taken < self.permits && state.waiting.is_empty() {
            state.taken += 1;
            return Ok(());
        }
        state.waiting.push(query);
        loop {
            let is_cancelled = cancel.is_cancelled();
            let is_next = state.taken < self.permits && state.next() == Some(query);
            if is_cancelled || is_next {
                state.waiting.retain(|&waiting| waiting != query);
                state.taken += usize::from(!is_cancelled);
                // There may be a permit for the next query, too.
                self.changed.notify_all();
                return if is_cancelled { Err(DeviceError::Cancelled) } else { Ok(()) };
            }
            state = sync::wait_for(&self.state, &self.changed, state, POLL_INTERVAL);
        }
    }

    fn give_back(&self, query: u64, since: Instant) {
        // Schedules that are replayed must not depend on time.
        let service_ns = if cfg!(feature = "shuttle") { 1000 } else { since.elapsed().as_nanos() as u64 };
        let mut state = self.locked();
        state.taken -= 1;
        state.average_ns += service_ns / (state.service_ns.len() as u64).max(1);
        if let Some(attained_ns) = state.service_ns.get_mut(&query) {
            *attained_ns += service_ns;
        }
        if !state.waiting.is_empty() {
            self.changed.notify_all();
        }
    }
}

/// The permits that one query takes. Streams that outlive the query, with its results, launch without one.
#[must_use]
pub struct LaunchPermits {
    shared: Arc<Shared>,
}

struct Shared {
    scheduler: Arc<Scheduler>,
    query: u64,
    cancel: Arc<Cancellation>,
    held: Mutex<Held>,
    waited_ns: AtomicU64,
}

#[derive(Default)]
struct Held {
    /// A bit for each device with kernels that nobody has waited for.
    devices: u32,
    /// When the permit was taken; `None`: the query has none.
    since: Option<Instant>,
    /// [`KeptPermit`]s.
    keepers: usize,
    /// The query has ended.
    is_closed: bool,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        sync::locked(&self.held)
    }

    /// Takes a permit, unless the query has one.
    fn take(&self, held: &mut Held) -> Result<(), DeviceError> {
        if held.is_closed || held.since.is_some() {
            return Ok(());
        }
        let begun = Instant::now();
        self.scheduler.take(self.query, &self.cancel)?;
        let now = Instant::now();
        self.waited_ns.fetch_add((now - begun).as_nanos() as u64, Ordering::Relaxed);
        held.since = Some(now);
        Ok(())
    }

    fn give_back(&self, held: &mut Held) {
        if let Some(since) = held.since.take() {
            self.scheduler.give_back(self.query, since);
        }
    }
}

impl LaunchPermits {
    /// What paces the query's stream of a device.
    pub(crate) fn pacer(&self, device: usize) -> Arc<dyn Pacer> {
        Arc::new(DevicePacer { shared: Arc::clone(&self.shared), device })
    }

    /// Takes a permit, and keeps it whatever is waited for. Threads that several queries share must not wait for a permit:
    /// the thread of the query takes it for them.
    ///
    /// # Errors
    /// [`DeviceError::Cancelled`] when the query is cancelled while it waits.
    pub fn keep(&self) -> Result<KeptPermit<'_>, DeviceError> {
        let mut held = self.shared.held();
        self.shared.take(&mut held)?;
        held.keepers += 1;
        Ok(KeptPermit { shared: &self.shared })
    }

    /// Gives the permit back before the query waits for something other than its kernels. Those that run go on.
    pub fn release(&self) {
        let mut held = self.shared.held();
        if held.keepers == 0 {
            self.shared.give_back(&mut held);
        }
    }

    /// How long the query has waited for permits, in ns.
    pub fn waited_ns(&self) -> u64 {
        self.shared.waited_ns.load(Ordering::Relaxed)
    }
}

impl Drop for LaunchPermits {
    fn drop(&mut self) {
        let Shared { scheduler, query, .. } = &*self.shared;
        let mut held = self.shared.held();
        held.is_closed = true;
        self.shared.give_back(&mut held);
        scheduler.locked().service_ns.remove(query);
    }
}

/// A permit that a query keeps until this is dropped.
#[must_use]
pub struct KeptPermit<'p> {
    shared: &'p Shared,
}

impl Drop for KeptPermit<'_> {
    fn drop(&mut self) {
        let mut held = self.shared.held();
        held.keepers -= 1;
        if held.keepers == 0 && held.devices == 0 {
            self.shared.give_back(&mut held);
        }
    }
}

struct DevicePacer {
    shared: Arc<Shared>,
    device: usize,
}

impl Pacer for DevicePacer {
    fn before_launch(&self) -> Result<(), DeviceError> {
        let mut held = self.shared.held();
        self.shared.take(&mut held)?;
        held.devices |= 1 << self.device;
        Ok(())
    }

    fn after_wait(&self) {
        let mut held = self.shared.held();
        held.devices &= !(1 << self.device);
        if held.devices == 0 && held.keepers == 0 {
            self.shared.give_back(&mut held);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn open(scheduler: &Arc<Scheduler>) -> LaunchPermits {
        scheduler.open(&Arc::default())
    }

    fn taken(scheduler: &Scheduler) -> usize {
        scheduler.locked().taken
    }

    #[test]
    fn a_permit_lasts_until_all_devices_were_waited_for() {
        let scheduler = Arc::new(Scheduler::new(1));
        let query = open(&scheduler);
        let pacers = [query.pacer(0), query.pacer(1)];
        pacers.iter().for_each(|pacer| pacer.before_launch().unwrap());
        assert_eq!(taken(&scheduler), 1);
        pacers[0].after_wait();
        assert_eq!(taken(&scheduler), 1);
        pacers[1].after_wait();
        pacers[1].after_wait();
        assert_eq!(taken(&scheduler), 0);
    }

    #[test]
    fn a_kept_permit_outlasts_waits() {
        let scheduler = Arc::new(Scheduler::new(1));
        let query = open(&scheduler);
        let pacer = query.pacer(0);
        let kept = query.keep().unwrap();
        pacer.before_launch().unwrap();
        pacer.after_wait();
        query.release();
        assert_eq!(taken(&scheduler), 1);
        drop(kept);
        assert_eq!(taken(&scheduler), 0);
    }

    #[test]
    fn a_released_permit_is_taken_again_for_the_next_launch() {
        let scheduler = Arc::new(Scheduler::new(1));
        let (query, other) = (open(&scheduler), open(&scheduler));
        query.pacer(0).before_launch().unwrap();
        query.release();
        // Another query launches meanwhile.
        other.pacer(0).before_launch().unwrap();
        other.pacer(0).after_wait();
        query.pacer(0).before_launch().unwrap();
        assert_eq!(taken(&scheduler), 1);
        query.pacer(0).after_wait();
        assert_eq!(taken(&scheduler), 0);
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
    fn the_query_with_the_least_service_goes_first() {
        let scheduler = Arc::new(Scheduler::new(1));
        let queries: Vec<LaunchPermits> = (0..3).map(|_| open(&scheduler)).collect();
        for (query, service_ns) in queries.iter().zip([50, 30, 40]) {
            scheduler.locked().service_ns.insert(query.shared.query, service_ns);
        }
        let busy = open(&scheduler);
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

    /// New queries one after the other do not keep a query waiting that has had more service than they.
    #[test]
    fn no_query_waits_for_ever() {
        let scheduler = Arc::new(Scheduler::new(1));
        let query = open(&scheduler);
        let attained_ns = 100_000_000;
        scheduler.locked().service_ns.insert(query.shared.query, attained_ns);
        let short = Duration::from_millis(10);
        let mut newcomers = 0;
        while scheduler.locked().average_ns < attained_ns {
            let newcomer = open(&scheduler);
            scheduler.locked().taken += 1;
            scheduler.give_back(newcomer.shared.query, Instant::now() - short);
            newcomers += 1;
            assert!(newcomers < 100, "they start with less service than the query, however many there were");
        }
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
