//! A pool of OS threads that run the blocks of a launch.
//!
//! Must not know what a launch is made of.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::launch::LaunchRun;

/// A pool of threads. They start with the first launch of more than one block, and end with the pool.
pub(super) struct Pool {
    threads: usize,
    shared: Arc<Shared>,
    helpers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work_available: Condvar,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    /// One entry for each helper that a launch needs.
    calls: VecDeque<Arc<LaunchRun>>,
    /// Number of helpers that run a launch.
    busy: usize,
    closed: bool,
}

impl Pool {
    /// A pool that runs launches on `threads` threads, including the caller's.
    pub(super) fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), shared: Arc::default(), helpers: Mutex::default() }
    }

    /// Runs a launch of `blocks` blocks, and returns when it has ended. One launch at a time.
    pub(super) fn run(&self, launch: &Arc<LaunchRun>, blocks: u32) {
        let helpers = self.start_helpers((self.threads - 1).min(blocks as usize - 1));
        if helpers > 0 {
            self.shared.state().calls.extend(std::iter::repeat_n(launch.clone(), helpers));
            self.shared.work_available.notify_all();
        }
        launch.work();
        if helpers > 0 {
            let mut state = self.shared.state();
            // Helpers that have not started by now are no longer needed.
            state.calls.clear();
            while state.busy > 0 {
                state = self.shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Starts helpers until there are `wanted`. Returns how many of them exist.
    fn start_helpers(&self, wanted: usize) -> usize {
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        while helpers.len() < wanted {
            let shared = self.shared.clone();
            match std::thread::Builder::new().name("wj-sim".into()).spawn(move || shared.help()) {
                Ok(helper) => helpers.push(helper),
                Err(error) => {
                    log::warn!("simulated device: {error}; it runs on {} threads", helpers.len() + 1);
                    break;
                }
            }
        }
        wanted.min(helpers.len())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn help(&self) {
        let mut state = self.state();
        while !state.closed {
            let Some(launch) = state.calls.pop_front() else {
                state = self.work_available.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy += 1;
            drop(state);
            launch.work();
            drop(launch);
            state = self.state();
            state.busy -= 1;
            self.finished.notify_all();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.work_available.notify_all();
        let helpers = self.helpers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for helper in helpers.drain(..) {
            // A panic of a helper is ignored: nothing is left to clean up.
            drop(helper.join());
        }
    }
}
