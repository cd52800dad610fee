//! Synchronization primitives: the standard library's, or shuttle's with the feature `shuttle`.
//!
//! Tests run shuttle's under thousands of schedules (`schedules.rs` of each crate). Code that these tests cover must take
//! its primitives from here.

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

/// Takes the lock. Ignores poison: a panic cannot leave the data half-changed.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until woken. May wake spuriously.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], for at most `time`. Shuttle has no clock: the schedule decides when the time is over.
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

/// Receives from a channel, waiting for at most `time`.
///
/// # Errors
/// When the time is over, or all senders are gone.
#[cfg(not(feature = "shuttle"))]
pub fn receive_for<T>(receiver: &mpsc::Receiver<T>, time: Duration) -> Result<T, mpsc::RecvTimeoutError> {
    receiver.recv_timeout(time)
}

/// Receives from a channel. The schedule decides when the time is over.
///
/// # Errors
/// When the time is over, or all senders are gone.
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

/// Whether a thread is known to have ended. Always false under shuttle.
pub fn has_ended<T>(thread: &thread::JoinHandle<T>) -> bool {
    #[cfg(not(feature = "shuttle"))]
    return thread.is_finished();
    #[cfg(feature = "shuttle")]
    {
        let _ = thread;
        false
    }
}

/// Runs a test under `WARPJOIN_SCHEDULES` (default 1,000) schedules: half of them random, half of shuttle's PCT scheduler,
/// which uses few thread switches. The seed is `WARPJOIN_SCHEDULE_SEED` (default 0).
///
/// # Panics
/// When the test panics or deadlocks under a schedule. The message tells how to replay it.
#[cfg(feature = "shuttle")]
pub fn under_schedules(test: fn()) {
    under_fair_schedules(test);
    let (seed, schedules, config) = settings();
    let scheduler = shuttle::scheduler::PctScheduler::new_from_seed(seed, 3, schedules);
    shuttle::Runner::new(scheduler, config).run(test);
}

/// As [`under_schedules`] with the random half only, for threads that poll.
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
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")),
        Err(_) => default,
    }
}

/// The seed, the number of schedules of each half, and shuttle's configuration.
#[cfg(feature = "shuttle")]
fn settings() -> (u64, usize, shuttle::Config) {
    let (seed, schedules) = (setting("WARPJOIN_SCHEDULE_SEED", 0), setting("WARPJOIN_SCHEDULES", 1000));
    let mut config = shuttle::Config::default();
    config.stack_size = 1 << 20;
    (seed, usize::try_from(schedules.div_ceil(2)).unwrap_or(usize::MAX), config)
}
