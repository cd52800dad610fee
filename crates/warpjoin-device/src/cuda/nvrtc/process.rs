//! What NVRTC changes of the whole process, and how it is there again afterwards.
//!
//! NVRTC keeps what it found and puts that back, under a lock of the library. Of several copies, each would put back what
//! it found of another one: a process would be left with the wrong handlers and limits, for good.

use std::sync::{Mutex, MutexGuard, PoisonError};

static STATE: Mutex<State> = Mutex::new(State { compilations: 0, stack: None });
static FIRST: Mutex<()> = Mutex::new(());

/// What is found when the first of several compilations begins, and put back when the last one ends.
struct State {
    compilations: usize,
    stack: Option<limits::Limit>,
}

/// A compilation under way. Each lifts the limit of the stack for a while; a limit that the application sets meanwhile is lost, as
/// it is with one library.
pub(super) struct Compiling(());

impl Compiling {
    pub(super) fn begin() -> Self {
        let mut state = locked(&STATE);
        if state.compilations == 0 {
            state.stack = limits::of_stack();
        }
        state.compilations += 1;
        Self(())
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        let mut state = locked(&STATE);
        state.compilations -= 1;
        if state.compilations == 0
            && let Some(found) = state.stack.take()
        {
            limits::put_back(&found);
        }
    }
}

/// Held through the first compilation of a library, which handles SIGINT, SIGTERM and SIGXFSZ by itself until its text is parsed. It
/// ends the process then: so that first one is short.
pub(super) fn first_compilation() -> MutexGuard<'static, ()> {
    locked(&FIRST)
}

fn locked<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
mod limits {
    pub(super) type Limit = libc::rlimit;

    /// That of the stack, if the system tells.
    pub(super) fn of_stack() -> Option<Limit> {
        let mut limit = Limit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call.
        (unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0).then_some(limit)
    }

    pub(super) fn put_back(found: &Limit) {
        if of_stack().is_some_and(|now| (now.rlim_cur, now.rlim_max) == (found.rlim_cur, found.rlim_max)) {
            return;
        }
        // SAFETY: `found` outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_STACK, found) } != 0 {
            log::debug!("the limit of the stack stays lifted: {}", std::io::Error::last_os_error());
        }
    }
}

#[cfg(not(unix))]
mod limits {
    pub(super) type Limit = ();

    pub(super) fn of_stack() -> Option<Limit> {
        None
    }

    pub(super) fn put_back((): &Limit) {}
}

/// The process's stack limit and handlers of SIGINT and SIGTERM, while nothing compiles.
#[cfg(all(test, unix))]
pub(super) fn at_rest() -> (Option<(u64, u64)>, [usize; 2]) {
    loop {
        let (_alone, state) = (first_compilation(), locked(&STATE));
        if state.compilations == 0 {
            let handlers = [libc::SIGINT, libc::SIGTERM].map(|signal| {
                // SAFETY: all zeros are a value of the type; it outlives the call.
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
