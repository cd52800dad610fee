//! Restores the process-wide state that NVRTC changes: the stack limit and signal handlers.
//!
//! NVRTC saves and restores this state itself, under a lock of the library. With several copies, one could save a state
//! that another one has changed, and restore it permanently. Must not know what is compiled.

use std::sync::{Mutex, MutexGuard, PoisonError};

static STATE: Mutex<State> = Mutex::new(State { compilations: 0, stack: None });
static FIRST: Mutex<()> = Mutex::new(());

/// The state before the first of several overlapping compilations, restored after the last one.
struct State {
    compilations: usize,
    stack: Option<limits::Limit>,
}

/// A running compilation. NVRTC raises the stack limit during a compilation. A limit that the application sets meanwhile is lost,
/// as with a single library.
pub(super) struct CompilationGuard(());

impl CompilationGuard {
    pub(super) fn begin() -> Self {
        let mut state = locked(&STATE);
        if state.compilations == 0 {
            state.stack = limits::of_stack();
        }
        state.compilations += 1;
        Self(())
    }
}

impl Drop for CompilationGuard {
    fn drop(&mut self) {
        let mut state = locked(&STATE);
        state.compilations -= 1;
        if state.compilations == 0
            && let Some(saved) = state.stack.take()
        {
            limits::restore(&saved);
        }
    }
}

/// Held during the first compilation of a library, in which NVRTC installs handlers of SIGINT, SIGTERM and SIGXFSZ until the text
/// is parsed. These handlers end the process, so the first compilation is kept short.
pub(super) fn first_compilation() -> MutexGuard<'static, ()> {
    locked(&FIRST)
}

fn locked<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
mod limits {
    pub(super) type Limit = libc::rlimit;

    /// The stack limit, if known.
    pub(super) fn of_stack() -> Option<Limit> {
        let mut limit = Limit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call.
        (unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0).then_some(limit)
    }

    pub(super) fn restore(saved: &Limit) {
        if of_stack().is_some_and(|now| (now.rlim_cur, now.rlim_max) == (saved.rlim_cur, saved.rlim_max)) {
            return;
        }
        // SAFETY: `saved` outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_STACK, saved) } != 0 {
            log::debug!("cannot restore the stack limit: {}", std::io::Error::last_os_error());
        }
    }
}

#[cfg(not(unix))]
mod limits {
    pub(super) type Limit = ();

    pub(super) fn of_stack() -> Option<Limit> {
        None
    }

    pub(super) fn restore((): &Limit) {}
}

/// The process's stack limit and its handlers of SIGINT and SIGTERM, read while nothing compiles.
#[cfg(all(test, unix))]
pub(super) fn idle_state() -> (Option<(u64, u64)>, [usize; 2]) {
    loop {
        let (_guard, state) = (first_compilation(), locked(&STATE));
        if state.compilations == 0 {
            let handlers = [libc::SIGINT, libc::SIGTERM].map(|signal| {
                // SAFETY: all zeros are a valid `sigaction`; `action` outlives the call.
                unsafe {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    libc::sigaction(signal, std::ptr::null(), &mut action);
                    action.sa_sigaction
                }
            });
            return (limits::of_stack().map(|limit| (limit.rlim_cur, limit.rlim_max)), handlers);
        }
        drop(state);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
