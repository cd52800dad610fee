//! Threads for blocking work, which wait a while for more of it.
//!
//! A query's driver allocates a lot and calls the driver of its devices all the time. A thread that has done so before
//! has its allocator's pages and the devices' contexts at hand; a new one starts without them, at a cost that many
//! queries notice.
//!
//! ```text
//!            a job                    it ended
//!  idle -----------------> busy ------------------> idle, unless enough others are
//!   | IDLE_TIME without one          | it panicked
//!   v                                v
//!  gone                             gone
//! ```

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use warpjoin_device::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use warpjoin_device::sync::thread::{self, ThreadId};
use warpjoin_device::sync::{self, Mutex, MutexGuard};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for work at most, of all kinds.
const IDLE_MAX: usize = 16;
/// How long they wait.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Of a thread; the system gives as much of it as is used. Long expressions are walked over by functions that call themselves.
const STACK_BYTES: usize = 64 << 20;

/// Threads that wait: whoever takes one out of the list sends it one job.
#[derive(Default)]
pub(crate) struct Workers {
    idle: Mutex<Vec<Worker>>,
}

struct Worker {
    /// The thread's name: each kind of work has its own.
    kind: &'static str,
    jobs: Sender<Job>,
    id: ThreadId,
}

/// Runs `job` on a thread of this name, one that waits or else a new one. There may be any number of them.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn run(kind: &'static str, job: Job) -> io::Result<()> {
    static WORKERS: LazyLock<Arc<Workers>> = LazyLock::new(Arc::default);
    WORKERS.run(kind, job)
}

impl Workers {
    pub(crate) fn run(self: &Arc<Self>, kind: &'static str, job: Job) -> io::Result<()> {
        let mut job = job;
        while let Some(worker) = self.take(kind) {
            match worker.jobs.send(job) {
                Ok(()) => return Ok(()),
                // Cannot be while a thread in the list still waits; then there are other threads.
                Err(refused) => job = refused.0,
            }
        }
        let workers = Arc::clone(self);
        let thread = thread::Builder::new().name(kind.to_string()).stack_size(STACK_BYTES);
        thread.spawn(move || workers.work(kind, job))?;
        Ok(())
    }

    /// The thread that waited last, whose memory is the warmest.
    fn take(&self, kind: &str) -> Option<Worker> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|worker| worker.kind == kind)?;
        Some(idle.remove(at))
    }

    fn work(&self, kind: &'static str, first: Job) {
        let (sender, jobs) = channel();
        let mut job = first;
        loop {
            job();
            {
                let mut idle = self.idle();
                if idle.len() >= IDLE_MAX {
                    return;
                }
                idle.push(Worker { kind, jobs: sender.clone(), id: thread::current().id() });
            }
            match self.next(&jobs) {
                Some(next) => job = next,
                None => return,
            }
        }
    }

    /// The next job; `None`: there was none for long, and the thread is not in the list any more.
    fn next(&self, jobs: &Receiver<Job>) -> Option<Job> {
        match sync::receive_for(jobs, IDLE_TIME) {
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
        // Somebody has taken it out meanwhile, to send a job: it is there, or about to be.
        jobs.recv().ok()
    }

    /// Threads that wait.
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

    fn ran_on(workers: &Arc<Workers>, kind: &'static str) -> ThreadId {
        let (sender, receiver) = channel();
        workers.run(kind, Box::new(move || sender.send(current().id()).unwrap())).unwrap();
        receiver.recv().unwrap()
    }

    #[test]
    fn a_thread_that_waits_takes_the_next_job() {
        let workers = Arc::<Workers>::default();
        let first = ran_on(&workers, "test-again");
        while workers.waiting("test-again") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ran_on(&workers, "test-again"), first);
        assert_ne!(ran_on(&workers, "test-other"), first, "another kind has threads of its own");
    }

    #[test]
    fn jobs_at_the_same_time_have_a_thread_each() {
        let barrier = Arc::new(Barrier::new(5));
        for _ in 0..4 {
            let barrier = Arc::clone(&barrier);
            let wait = move || {
                barrier.wait();
            };
            run("test-many", Box::new(wait)).unwrap();
        }
        // Would wait forever if two of them had to share a thread.
        barrier.wait();
    }

    #[test]
    fn a_panic_ends_its_thread_only() {
        let (sender, receiver) = channel::<()>();
        run(
            "test-panic",
            Box::new(move || {
                let _dropped = sender;
                panic!("on purpose");
            }),
        )
        .unwrap();
        assert!(receiver.recv().is_err(), "what the job owned is gone");
        ran_on(&Arc::default(), "test-panic");
    }
}
