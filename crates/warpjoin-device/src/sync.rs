//! What threads share: the standard library's, or, with the feature `shuttle`, shuttle's, which tests run under thousands
//! of chosen schedules. Taken from here by what such tests look at (`schedules.rs` of each crate).

#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread,
};

#[cfg(feature = "shuttle")]
pub use shuttle::{
    self,
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread,
};

use std::sync::PoisonError;
use std::time::Duration;

/// The lock; a panic of another thread is no matter here, as the data stay whole.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until it is woken; as everywhere, perhaps without a reason.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], for `time` at most. Shuttle has no time: every schedule decides anew when it is over.
pub fn wait_for<'a, T>(
    mutex: &'a Mutex<T>,
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    #[cfg(not(feature = "shuttle"))]
    {
        let _ = mutex;
        condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
    }
    #[cfg(feature = "shuttle")]
    {
        let _ = (condvar, time);
        drop(guard);
        thread::yield_now();
        locked(mutex)
    }
}

/// The next of a channel, for `time` at most.
///
/// # Errors
/// When the time is over, or nobody can send any more.
#[cfg(not(feature = "shuttle"))]
pub fn receive_for<T>(receiver: &mpsc::Receiver<T>, time: Duration) -> Result<T, mpsc::RecvTimeoutError> {
    receiver.recv_timeout(time)
}

/// The next of a channel, for some time at most: every schedule decides anew when it is over.
///
/// # Errors
/// When the time is over, or nobody can send any more.
#[cfg(feature = "shuttle")]
pub fn receive_for<T>(receiver: &mpsc::Receiver<T>, _time: Duration) -> Result<T, mpsc::RecvTimeoutError> {
    use mpsc::{RecvTimeoutError, TryRecvError};
    use shuttle::rand::Rng;
    loop {
        match receiver.try_recv() {
            Ok(received) => return Ok(received),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) if shuttle::rand::thread_rng().gen_ratio(1, 4) => {
                return Err(RecvTimeoutError::Timeout);
            }
            Err(TryRecvError::Empty) => thread::yield_now(),
        }
    }
}

/// Whether a thread has ended, as far as is known.
pub fn has_ended<T>(thread: &thread::JoinHandle<T>) -> bool {
    #[cfg(not(feature = "shuttle"))]
    return thread.is_finished();
    #[cfg(feature = "shuttle")]
    {
        let _ = thread;
        false
    }
}

/// Runs a test under `WARPJOIN_SCHEDULES` (1,000) schedules: half at random, half with few, well chosen switches of threads.
/// The seed is `WARPJOIN_SCHEDULE_SEED` (0).
///
/// # Panics
/// When the test does under one of them, or comes to a standstill; with what replays it.
#[cfg(feature = "shuttle")]
pub fn under_schedules(test: fn()) {
    under_fair_schedules(test);
    let (seed, schedules, config) = settings();
    let scheduler = shuttle::scheduler::PctScheduler::new_from_seed(seed, 3, schedules);
    shuttle::Runner::new(scheduler, config).run(test);
}

/// The same with the half at random alone, for threads that wait by looking again and again.
///
/// # Panics
/// As [`under_schedules`].
#[cfg(feature = "shuttle")]
pub fn under_fair_schedules(test: fn()) {
    let (seed, schedules, config) = settings();
    let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(seed, schedules);
    shuttle::Runner::new(scheduler, config).run(test);
}

#[cfg(feature = "shuttle")]
fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")),
        Err(_) => default,
    }
}

/// The seed, the number of schedules, and what threads get.
#[cfg(feature = "shuttle")]
fn settings() -> (u64, usize, shuttle::Config) {
    let (seed, schedules) = (setting("WARPJOIN_SCHEDULE_SEED", 0), setting("WARPJOIN_SCHEDULES", 1000));
    let mut config = shuttle::Config::default();
    config.stack_size = 1 << 20;
    (seed, usize::try_from(schedules.div_ceil(2)).unwrap_or(usize::MAX), config)
}
