//! The end of the process. Destructors of NVRTC and of the driver must not run while a thread compiles or loads a kernel.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{DeviceError, Result};

/// Maximum time that the end of the process waits. A kernel compiles in less.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Number of first uses after each of which the exit handler is registered again: libraries create some objects lazily,
/// mostly in their first uses.
const OFTEN: usize = 64;

static STATE: Mutex<State> = Mutex::new(State { uses: 0, ended: 0, is_ending: false });
static ENDED: Condvar = Condvar::new();

struct State {
    uses: usize,
    ended: usize,
    is_ending: bool,
}

fn locked() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Use of a library by a thread, for which the end of the process waits.
pub(super) struct LibraryInUse(());

impl LibraryInUse {
    /// # Errors
    /// Once the process ends.
    pub(super) fn begin() -> Result<Self> {
        let mut state = locked();
        if state.is_ending {
            let reason = "the process ends".into();
            return Err(DeviceError::Driver { device: "cuda".into(), call: "exit", reason });
        }
        state.uses += 1;
        Ok(Self(()))
    }
}

impl Drop for LibraryInUse {
    fn drop(&mut self) {
        let mut state = locked();
        state.uses -= 1;
        state.ended += 1;
        let has_new_ones = state.ended <= OFTEN || state.ended.is_power_of_two();
        drop(state);
        ENDED.notify_all();
        if has_new_ones {
            wait_at_exit();
        }
    }
}

/// Makes the end of the process wait for all uses, before the destructors of the libraries loaded so far: exit handlers
/// run in reverse order of registration.
pub(super) fn wait_at_exit() {
    // SAFETY: the function takes nothing, unwinds never, and stays as long as the process.
    if unsafe { libc::atexit(wait_for_uses) } != 0 {
        log::debug!("the end of the process will not wait for kernels that compile");
    }
}

extern "C" fn wait_for_uses() {
    let mut state = locked();
    state.is_ending = true;
    // A thread that never comes back must not keep the process.
    drop(ENDED.wait_timeout_while(state, WAIT_MAX, |state| state.uses > 0));
}
