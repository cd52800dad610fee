//! A cache of threads for blocking work.
//!
//! A query's thread allocates a lot and calls the device driver often. A reused thread has a warm allocator and device
//! contexts; many short queries notice the cost of a new one. Must not know what jobs do.
//!
//! ```text
//!            a job                    it ended
//!  idle -----------------> busy ------------------> idle, or gone if IDLE_MAX are idle
//!   | idle_time without one          | it panicked
//!   v                                v
//!  gone                             gone
//! ```
//!
//! The last thread that ends after idling returns the free memory of the GPUs to the driver, for other processes.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use warpjoin_device::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use warpjoin_device::sync::thread::{self, ThreadId};
use warpjoin_device::sync::{self, Mutex, MutexGuard};
use warpjoin_device::trim_open_gpus;

type Job = Box<dyn FnOnce() + Send>;

/// Maximum idle threads, of all kinds.
const IDLE_MAX: usize = 16;
/// [`Workers::idle_time`] of the process's threads.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Stack of a thread, large because functions recurse over long expressions. The system commits only the pages in use.
const STACK_BYTES: usize = 64 << 20;

/// The idle threads. Taking a thread out of the list implies sending it one job.
pub(crate) struct Workers {
    idle: Mutex<Vec<Worker>>,
    /// Number of threads, busy or idle.
    threads: AtomicUsize,
    /// How long an idle thread waits for a job.
    idle_time: Duration,
    /// Called by the last thread that ends after idling.
    when_unused: Box<dyn Fn() + Send + Sync>,
}

impl Default for Workers {
    fn default() -> Self {
        Self::new(IDLE_TIME, trim_open_gpus)
    }
}

struct Worker {
    /// The thread's name. Each kind of work has its own threads.
    kind: &'static str,
    jobs: Sender<Job>,
    id: ThreadId,
}

/// Why a thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// No job came for [`Workers::idle_time`].
    AfterIdling,
    /// Enough other threads are idle.
    TooMany,
}

/// One of the threads of [`Workers`]; `None`: it has left.
struct Counted(Option<Arc<Workers>>);

impl Counted {
    fn new(workers: Arc<Workers>) -> Self {
        workers.threads.fetch_add(1, Ordering::Relaxed);
        Self(Some(workers))
    }

    /// Removes the thread from the count; returns whether it was the last one. Exactly one of several that leave
    /// together is.
    fn leave(&mut self) -> bool {
        self.0.take().is_some_and(|workers| workers.threads.fetch_sub(1, Ordering::Relaxed) == 1)
    }
}

impl Drop for Counted {
    /// After a panic.
    fn drop(&mut self) {
        self.leave();
    }
}

/// Runs `job` on an idle thread of this kind, or else on a new one. The number of busy threads is not limited.
///
/// # Errors
/// Returns an error if the system cannot start a thread.
pub(crate) fn run(kind: &'static str, job: Job) -> io::Result<()> {
    static WORKERS: LazyLock<Arc<Workers>> = LazyLock::new(Arc::default);
    WORKERS.run(kind, job)
}

impl Workers {
    fn new(idle_time: Duration, when_unused: impl Fn() + Send + Sync + 'static) -> Self {
        let when_unused = Box::new(when_unused);
        Self { idle: Mutex::default(), threads: AtomicUsize::new(0), idle_time, when_unused }
    }

    pub(crate) fn run(self: &Arc<Self>, kind: &'static str, job: Job) -> io::Result<()> {
        let mut job = job;
        while let Some(worker) = self.take(kind) {
            match worker.jobs.send(job) {
                Ok(()) => return Ok(()),
                // A thread leaves the list before it ends, so this should not happen; another thread takes the job.
                Err(refused) => job = refused.0,
            }
        }
        let workers = Arc::clone(self);
        let thread = thread::Builder::new().name(kind.to_string()).stack_size(STACK_BYTES);
        let mut counted = Counted::new(Arc::clone(&workers));
        thread.spawn(move || {
            let ended = workers.work(kind, job);
            if counted.leave() && ended == Ended::AfterIdling {
                (workers.when_unused)();
            }
        })?;
        Ok(())
    }

    /// Takes the thread that became idle last, because its memory is the warmest.
    fn take(&self, kind: &str) -> Option<Worker> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|worker| worker.kind == kind)?;
        Some(idle.remove(at))
    }

    fn work(&self, kind: &'static str, first: Job) -> Ended {
        let (sender, jobs) = channel();
        let mut job = first;
        loop {
            job();
            {
                let mut idle = self.idle();
                if idle.len() >= IDLE_MAX {
                    return Ended::TooMany;
                }
                idle.push(Worker { kind, jobs: sender.clone(), id: thread::current().id() });
            }
            match self.next(&jobs) {
                Some(next) => job = next,
                None => return Ended::AfterIdling,
            }
        }
    }

    /// The next job; `None` if none came within [`Self::idle_time`], in which case the thread has left the list.
    fn next(&self, jobs: &Receiver<Job>) -> Option<Job> {
        match sync::receive_for(jobs, self.idle_time) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let me = thread::current().id();
        let mut idle = self.idle();
        if let Some(at) = idle.iter().position(|worker| worker.id == me) {
            idle.remove(at);
            return None;
        }
        drop(idle);
        // Another thread has just taken this one out of the list, and sends it a job.
        jobs.recv().ok()
    }

    /// Number of idle threads of a kind.
    #[cfg(test)]
    pub(crate) fn waiting(&self, kind: &str) -> usize {
        self.idle().iter().filter(|worker| worker.kind == kind).count()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        sync::locked(&self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::thread::{ThreadId, current};
    use std::time::Instant;

    fn ran_on(workers: &Arc<Workers>, kind: &'static str) -> ThreadId {
        let (sender, receiver) = channel();
        workers.run(kind, Box::new(move || sender.send(current().id()).unwrap())).unwrap();
        receiver.recv().unwrap()
    }

    #[test]
    fn an_idle_thread_takes_the_next_job() {
        let workers = Arc::<Workers>::default();
        let first = ran_on(&workers, "test-again");
        while workers.waiting("test-again") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ran_on(&workers, "test-again"), first);
        assert_ne!(ran_on(&workers, "test-other"), first, "another kind has its own threads");
    }

    #[test]
    fn concurrent_jobs_have_a_thread_each() {
        let barrier = Arc::new(Barrier::new(5));
        for _ in 0..4 {
            let barrier = Arc::clone(&barrier);
            let wait = move || {
                barrier.wait();
            };
            run("test-many", Box::new(wait)).unwrap();
        }
        // Would wait forever if two jobs shared a thread.
        barrier.wait();
    }

    /// Waits until all threads have left.
    fn wait_for_end(workers: &Workers) {
        let start = Instant::now();
        while workers.threads.load(Ordering::Relaxed) > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "threads stay");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_last_thread_that_idles_out_trims_once() {
        for threads in [1, 2, 4, 8] {
            let (trims, all_started) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(threads + 1)));
            let (trimmed, count) = channel();
            let trim = {
                let trims = Arc::clone(&trims);
                move || {
                    trims.fetch_add(1, Ordering::Relaxed);
                    trimmed.send(()).unwrap();
                }
            };
            let workers = Arc::new(Workers::new(Duration::from_millis(20), trim));
            for _ in 0..threads {
                let all_started = Arc::clone(&all_started);
                // All begin to idle at about the same time.
                let job = move || {
                    all_started.wait();
                };
                workers.run("test-idle", Box::new(job)).unwrap();
            }
            all_started.wait();
            count.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{threads} threads: no trim"));
            wait_for_end(&workers);
            assert_eq!(trims.load(Ordering::Relaxed), 1, "{threads} threads");
        }
    }

    #[test]
    fn nothing_is_trimmed_while_a_thread_is_busy() {
        let trims = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&trims);
        let trim = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let workers = Arc::new(Workers::new(Duration::from_millis(5), trim));
        let (ends, end) = channel::<()>();
        workers.run("test-busy", Box::new(move || assert!(end.recv().is_err()))).unwrap();
        ran_on(&workers, "test-done");
        while workers.threads.load(Ordering::Relaxed) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(trims.load(Ordering::Relaxed), 0, "a query still runs");
        drop(ends);
        wait_for_end(&workers);
        while trims.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(trims.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_panic_ends_only_its_thread() {
        let (sender, receiver) = channel::<()>();
        run(
            "test-panic",
            Box::new(move || {
                let _dropped = sender;
                panic!("on purpose");
            }),
        )
        .unwrap();
        assert!(receiver.recv().is_err(), "the job's values are dropped");
        ran_on(&Arc::default(), "test-panic");
    }
}
