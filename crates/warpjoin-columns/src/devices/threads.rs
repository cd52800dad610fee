//! Threads that drive the devices of a session.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder, Yield};

/// Threads of a session for each device but the first: as many queries as this drive a device without waiting for each other.
const THREADS_EACH: usize = 4;
/// How long a thread looks for work before it sleeps. To wake it takes as long as a short pipeline.
const AWAKE: Duration = Duration::from_micros(500);
/// How long the thread of the query looks whether the others are done before it sleeps until they are.
const PATIENCE: Duration = Duration::from_millis(5);
/// Pauses between two looks.
const PAUSES: u32 = 16;

/// Threads that drive the devices of a session but the first, which the thread of the query drives. They are made when they
/// are first wanted, and stay awake for a while after each piece of work.
#[derive(Default)]
pub(crate) struct DeviceThreads {
    pool: OnceLock<Option<ThreadPool>>,
    /// Threads that look for work.
    awake: Arc<AtomicUsize>,
}

impl DeviceThreads {
    /// Runs all of `work` at the same time, the first of it on the caller's thread; one after the other where no thread can be made.
    pub(crate) fn run<T: Send>(&self, work: Vec<impl FnOnce() -> T + Send>, devices: usize) -> Vec<T> {
        let Some(pool) = self.pool(devices).filter(|_| work.len() > 1) else {
            return work.into_iter().map(|work| work()).collect();
        };
        let others = work.len() - 1;
        let mut work = work.into_iter();
        let first = work.next();
        let mut outcomes: Vec<Option<T>> = (0..others).map(|_| None).collect();
        let done = AtomicUsize::new(0);
        let of_first = pool.in_place_scope(|scope| {
            for (work, outcome) in work.zip(&mut outcomes) {
                let done = &done;
                scope.spawn(move |_| {
                    *outcome = Some(work());
                    done.fetch_add(1, Ordering::Release);
                    self.stay_awake(others);
                });
            }
            let of_first = first.map(|work| work());
            let began = Instant::now();
            while done.load(Ordering::Acquire) < others && began.elapsed() < PATIENCE {
                std::hint::spin_loop();
            }
            of_first
        });
        of_first.into_iter().chain(outcomes.into_iter().flatten()).collect()
    }

    fn pool(&self, devices: usize) -> Option<&ThreadPool> {
        let make = || {
            let threads = THREADS_EACH * devices.checked_sub(1).filter(|&others| others > 0)?;
            let builder = ThreadPoolBuilder::new().num_threads(threads);
            let pool = builder.thread_name(|index| format!("warpjoin-device-{index}")).build();
            pool.inspect_err(|error| log::warn!("one thread drives all devices: {error}")).ok()
        };
        self.pool.get_or_init(make).as_ref()
    }

    /// The calling thread of the pool looks for work for a while, unless `threads` do so.
    fn stay_awake(&self, threads: usize) {
        let awake = Arc::clone(&self.awake);
        if awake.fetch_add(1, Ordering::Relaxed) >= threads {
            awake.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        rayon::spawn(move || {
            let mut idle_since = Instant::now();
            while idle_since.elapsed() < AWAKE {
                match rayon::yield_now() {
                    Some(Yield::Executed) => idle_since = Instant::now(),
                    _ => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
                }
            }
            awake.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
