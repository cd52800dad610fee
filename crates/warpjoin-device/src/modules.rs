//! The compiled modules of a device.
//!
//! Owns which thread compiles a module, and which modules stay in memory. Must not know how modules are compiled.

use std::collections::HashMap;
use std::time::Duration;

use crate::sync::{self, Condvar, Mutex, MutexGuard, thread};
use crate::{Cancellation, DeviceError, Module, ModuleSource, Result};

/// Maximum number of modules in memory. Each takes device memory and address space, and a process may run any number of
/// queries.
const MODULES_MAX: usize = 1024;

/// How often a waiting thread checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Modules in memory or being compiled.
#[derive(Default)]
pub(crate) struct Modules {
    states: Mutex<States>,
    /// A compilation ended.
    ended: Condvar,
}

/// ```text
/// absent --a thread claims it--> Compiling --compiled--> Ready
///                                    '-------failed----> absent
/// ```
enum State {
    Compiling,
    Ready { module: Module, last_use: u64 },
}

#[derive(Default)]
struct States {
    by_source: HashMap<ModuleSource, State>,
    /// Number of uses so far: the clock of `last_use`.
    uses: u64,
}

impl States {
    /// The state of a module. Counts as a use.
    fn used(&mut self, source: &ModuleSource) -> Option<&State> {
        let state = self.by_source.get_mut(source)?;
        if let State::Ready { last_use, .. } = state {
            self.uses += 1;
            *last_use = self.uses;
        }
        Some(state)
    }

    fn ready(&self) -> impl Iterator<Item = (&ModuleSource, u64)> {
        self.by_source.iter().filter_map(|(source, state)| match state {
            State::Ready { last_use, .. } => Some((source, *last_use)),
            State::Compiling => None,
        })
    }

    /// If there are too many modules, removes the least recently used quarter.
    fn evict(&mut self) -> Vec<State> {
        let mut uses: Vec<u64> = self.ready().map(|(_, last_use)| last_use).collect();
        if uses.len() <= MODULES_MAX {
            return vec![];
        }
        let (_, &mut newest, _) = uses.select_nth_unstable(MODULES_MAX / 4 - 1);
        let is_old = |state: &State| matches!(state, State::Ready { last_use, .. } if *last_use <= newest);
        self.by_source.extract_if(|_, state| is_old(state)).map(|(_, state)| state).collect()
    }
}

impl Modules {
    /// The module, from memory or from `compile`. If another thread is compiling it, this thread waits. If that compilation
    /// fails, this thread compiles the module too, to get the error. Once it is cancelled, it neither waits nor compiles.
    pub(crate) fn get_or_compile(
        &self,
        source: &ModuleSource,
        cancel: Option<&Cancellation>,
        compile: impl FnOnce() -> Result<Module>,
    ) -> Result<Module> {
        let is_cancelled = || cancel.is_some_and(Cancellation::is_cancelled);
        let mut states = self.locked();
        loop {
            match states.used(source) {
                Some(State::Ready { module, .. }) => return Ok(module.clone()),
                _ if is_cancelled() => return Err(DeviceError::Cancelled),
                Some(State::Compiling) => {
                    states = sync::wait_for(&self.states, &self.ended, states, POLL_INTERVAL);
                }
                None => break,
            }
        }
        states.by_source.insert(source.clone(), State::Compiling);
        drop(states);
        let claim = Claim { modules: self, source };
        let module = compile()?;
        let mut states = self.locked();
        states.by_source.insert(source.clone(), State::Ready { module: module.clone(), last_use: 0 });
        states.used(source);
        let evicted = states.evict();
        drop(states);
        drop(claim);
        unload(evicted);
        Ok(module)
    }

    /// The module, if it is in memory.
    pub(crate) fn get(&self, source: &ModuleSource) -> Option<Module> {
        match self.locked().used(source) {
            Some(State::Ready { module, .. }) => Some(module.clone()),
            _ => None,
        }
    }

    /// Whether a module is in memory.
    pub(crate) fn contains(&self, source: &ModuleSource) -> bool {
        matches!(self.locked().by_source.get(source), Some(State::Ready { .. }))
    }

    /// Number of modules in memory.
    pub(crate) fn len(&self) -> usize {
        self.locked().ready().count()
    }

    /// Sources of the modules in memory, in no order.
    pub(crate) fn sources(&self) -> Vec<ModuleSource> {
        self.locked().ready().map(|(source, _)| source.clone()).collect()
    }

    fn locked(&self) -> MutexGuard<'_, States> {
        sync::locked(&self.states)
    }
}

/// Drops modules on a thread of their own, since unloading waits for the device. Queries that use an evicted module keep it alive.
fn unload(modules: Vec<State>) {
    if modules.is_empty() {
        return;
    }
    // Without a thread, the closure is dropped here, and the modules with it.
    if let Err(error) = thread::Builder::new().name("warpjoin-unload".into()).spawn(move || drop(modules)) {
        log::debug!("no thread to unload kernels: {error}");
    }
}

/// A module that this thread compiles. Its drop wakes the waiting threads on every path, panics included.
struct Claim<'a> {
    modules: &'a Modules,
    source: &'a ModuleSource,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut states = self.modules.locked();
        if matches!(states.by_source.get(self.source), Some(State::Compiling)) {
            states.by_source.remove(self.source);
        }
        drop(states);
        self.modules.ended.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;

    fn source() -> ModuleSource {
        ModuleSource { name: "m".into(), text: "t".into(), entries: vec![], defines: vec![] }
    }

    fn module() -> Module {
        Module::new(&source(), vec![])
    }

    #[test]
    fn concurrent_requests_compile_a_module_once() {
        let (modules, compiled, barrier) = (Modules::default(), AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let compile = || {
                        compiled.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(module())
                    };
                    modules.get_or_compile(&source(), None, compile).map(|_| ()).unwrap();
                });
            }
        });
        assert_eq!((compiled.into_inner(), modules.len()), (1, 1));
    }

    #[test]
    fn least_recently_used_modules_are_evicted() {
        let modules = Modules::default();
        let source = |number: usize| ModuleSource { text: number.to_string(), ..source() };
        let compile = |number: usize| drop(modules.get_or_compile(&source(number), None, || Ok(module())).unwrap());
        for number in 0..MODULES_MAX {
            compile(number);
        }
        assert!(modules.get(&source(0)).is_some() && modules.len() == MODULES_MAX);
        compile(MODULES_MAX);
        assert_eq!(modules.len(), MODULES_MAX + 1 - MODULES_MAX / 4);
        let evicted: Vec<usize> = (0..=MODULES_MAX).filter(|&number| !modules.contains(&source(number))).collect();
        assert_eq!(evicted, (1..=MODULES_MAX / 4).collect::<Vec<_>>());
        compile(1);
        assert!(modules.contains(&source(1)));
    }

    #[test]
    fn a_waiting_thread_compiles_after_a_failure() {
        let modules = Modules::default();
        let (begun, has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let failing = || {
                    begun.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    Err(DeviceError::NoNvrtc)
                };
                assert!(modules.get_or_compile(&source(), None, failing).is_err());
            });
            has_begun.recv().unwrap();
            assert!(!modules.contains(&source()));
            assert!(modules.get_or_compile(&source(), None, || Ok(module())).is_ok());
        });
        assert!(modules.contains(&source()));
    }

    #[test]
    fn a_cancelled_thread_stops_waiting() {
        let (modules, cancel) = (Modules::default(), Cancellation::default());
        let (begun, has_begun) = mpsc::channel();
        let end = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let compile = || {
                    begun.send(()).unwrap();
                    end.wait();
                    Ok(module())
                };
                assert!(modules.get_or_compile(&source(), None, compile).is_ok());
            });
            has_begun.recv().unwrap();
            let waits = scope
                .spawn(|| modules.get_or_compile(&source(), Some(&cancel), || panic!("another thread compiles it")));
            cancel.cancel();
            assert!(matches!(waits.join().unwrap().map(|_| ()), Err(DeviceError::Cancelled)));
            end.wait();
        });
        assert!(modules.get_or_compile(&source(), Some(&cancel), || panic!("it is in memory")).is_ok());
    }

    #[test]
    fn a_panic_ends_the_claim() {
        let modules = Modules::default();
        let panicking = std::panic::AssertUnwindSafe(|| {
            let _ = modules.get_or_compile(&source(), None, || panic!("for the test"));
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(modules.get_or_compile(&source(), None, || Ok(module())).is_ok());
    }
}
