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
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for work at most, of all kinds.
const IDLE_MAX: usize = 16;
/// How long they wait.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Of a thread; the system gives as much of it as is used. Long expressions are walked over by functions that call themselves.
const STACK_BYTES: usize = 64 << 20;

/// Threads that wait: whoever takes one out of the list sends it one job.
static IDLE: Mutex<Vec<Worker>> = Mutex::new(vec![]);

struct Worker {
    /// The thread's name: each kind of work has its own.
    kind: &'static str,
    jobs: Sender<Job>,
    id: std::thread::ThreadId,
}

/// Runs `job` on a thread of this name, one that waits or else a new one. There may be any number of them.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn run(kind: &'static str, job: Job) -> io::Result<()> {
    let mut job = job;
    while let Some(worker) = take(kind) {
        match worker.jobs.send(job) {
            Ok(()) => return Ok(()),
            // Cannot be while a thread in the list still waits; then there are other threads.
            Err(refused) => job = refused.0,
        }
    }
    let thread = std::thread::Builder::new().name(kind.to_string()).stack_size(STACK_BYTES);
    thread.spawn(move || work(kind, job))?;
    Ok(())
}

/// The thread that waited last, whose memory is the warmest.
fn take(kind: &str) -> Option<Worker> {
    let mut idle = idle();
    let at = idle.iter().rposition(|worker| worker.kind == kind)?;
    Some(idle.remove(at))
}

fn work(kind: &'static str, first: Job) {
    let (sender, jobs) = channel();
    let mut job = first;
    loop {
        job();
        {
            let mut idle = idle();
            if idle.len() >= IDLE_MAX {
                return;
            }
            idle.push(Worker { kind, jobs: sender.clone(), id: std::thread::current().id() });
        }
        match next(&jobs) {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// The next job; `None`: there was none for long, and the thread is not in the list any more.
fn next(jobs: &Receiver<Job>) -> Option<Job> {
    match jobs.recv_timeout(IDLE_TIME) {
        Ok(job) => return Some(job),
        Err(RecvTimeoutError::Disconnected) => return None,
        Err(RecvTimeoutError::Timeout) => {}
    }
    let me = std::thread::current().id();
    let mut idle = idle();
    if let Some(at) = idle.iter().position(|worker| worker.id == me) {
        idle.remove(at);
        return None;
    }
    drop(idle);
    // Somebody has taken it out meanwhile, to send a job: it is there, or about to be.
    jobs.recv().ok()
}

fn idle() -> MutexGuard<'static, Vec<Worker>> {
    // A panic elsewhere leaves the list whole.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};
    use std::thread::{ThreadId, current};

    fn ran_on(kind: &'static str) -> ThreadId {
        let (sender, receiver) = channel();
        run(kind, Box::new(move || sender.send(current().id()).unwrap())).unwrap();
        receiver.recv().unwrap()
    }

    /// Waits until a thread of `kind` is in the list.
    fn wait_idle(kind: &str) {
        for _ in 0..10_000 {
            if idle().iter().any(|worker| worker.kind == kind) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no thread came back");
    }

    #[test]
    fn a_thread_that_waits_takes_the_next_job() {
        let first = ran_on("test-again");
        wait_idle("test-again");
        assert_eq!(ran_on("test-again"), first);
        assert_ne!(ran_on("test-other"), first, "another kind has threads of its own");
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
        ran_on("test-panic");
    }
}
