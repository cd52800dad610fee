//! Work on the threads of rayon's pool, for a caller that goes on meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

/// Tasks under way. Few at a time: a caller that is faster than the threads waits, and keeps its next rows to itself.
#[derive(Default)]
pub(super) struct Tasks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    /// The first error that nobody has been told.
    error: Option<Error>,
}

/// Tasks under way for each thread: one runs, one waits.
const TASKS_PER_THREAD: usize = 2;

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until fewer than `running` tasks run.
    fn wait_for_fewer(&self, running: usize) -> Result<()> {
        let state = self.ended.wait_while(self.state(), |state| state.running >= running);
        state.unwrap_or_else(PoisonError::into_inner).error.take().map_or(Ok(()), Err)
    }
}

impl Tasks {
    /// Starts `work` on another thread, once few enough tasks run. On a thread of the pool it runs at once: waiting there
    /// could wait for itself.
    ///
    /// # Errors
    /// That of an earlier task, or of this one.
    pub(super) fn run(&self, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        if rayon::current_thread_index().is_some() {
            return work();
        }
        self.0.wait_for_fewer(TASKS_PER_THREAD * rayon::current_num_threads())?;
        self.0.state().running += 1;
        let shared = Arc::clone(&self.0);
        rayon::spawn(move || {
            // What the task holds is dropped before it counts as ended.
            let result = catch_unwind(AssertUnwindSafe(work));
            let result = result.unwrap_or_else(|_| Err(Error::internal("a thread that encodes rows panicked")));
            let mut state = shared.state();
            state.running -= 1;
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            drop(state);
            shared.ended.notify_all();
        });
        Ok(())
    }

    /// Waits for all tasks.
    ///
    /// # Errors
    /// The first one of a task.
    pub(super) fn wait(&self) -> Result<()> {
        self.0.wait_for_fewer(1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_tasks_have_run_after_a_wait() {
        let (tasks, count) = (Tasks::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let count = Arc::clone(&count);
            tasks
                .run(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .unwrap();
        }
        tasks.wait().unwrap();
        assert_eq!(Arc::into_inner(count).expect("tasks hold nothing").into_inner(), 100);
    }

    #[test]
    fn errors_and_panics_are_told_once() {
        let tasks = Tasks::default();
        tasks.run(|| Err(Error::Cancelled)).unwrap();
        assert!(matches!(tasks.wait(), Err(Error::Cancelled)));
        tasks.wait().unwrap();
        tasks.run(|| panic!("on purpose")).unwrap();
        assert!(tasks.wait().unwrap_err().to_string().contains("panicked"));
    }
}
