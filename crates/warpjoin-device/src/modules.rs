//! The compiled modules of a device. Owns who compiles what, and which stay in memory; must not know how.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sync::{self, Condvar, Mutex, MutexGuard};
use crate::{DeviceError, Module, ModuleSource, Result};

/// Modules that stay in memory. A process may run any number of queries, and each module takes memory of its device, and
/// address space.
const MODULES_MAX: usize = 1024;

/// How often somebody who waits looks whether that is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Modules in memory, and those that a thread is about to put there.
#[derive(Default)]
pub(crate) struct Modules {
    states: Mutex<States>,
    /// A module stopped being under way.
    ended: Condvar,
}

/// ```text
/// absent --a thread compiles--> UnderWay --compiled--> Ready
///                                  '------failed-----> absent
/// ```
enum State {
    UnderWay,
    Ready { module: Module, last_use: u64 },
}

#[derive(Default)]
struct States {
    of: HashMap<ModuleSource, State>,
    /// Counts uses.
    uses: u64,
}

impl States {
    /// The state of a module, which is used now.
    fn used(&mut self, source: &ModuleSource) -> Option<&State> {
        let state = self.of.get_mut(source)?;
        if let State::Ready { last_use, .. } = state {
            self.uses += 1;
            *last_use = self.uses;
        }
        Some(state)
    }

    fn ready(&self) -> impl Iterator<Item = (&ModuleSource, u64)> {
        self.of.iter().filter_map(|(source, state)| match state {
            State::Ready { last_use, .. } => Some((source, *last_use)),
            State::UnderWay => None,
        })
    }

    /// Takes out a quarter of the modules if there are too many: those that were used longest ago.
    fn take_oldest(&mut self) -> Vec<State> {
        let mut uses: Vec<u64> = self.ready().map(|(_, last_use)| last_use).collect();
        if uses.len() <= MODULES_MAX {
            return vec![];
        }
        let (_, &mut newest, _) = uses.select_nth_unstable(MODULES_MAX / 4 - 1);
        let is_old = |state: &State| matches!(state, State::Ready { last_use, .. } if *last_use <= newest);
        self.of.extract_if(|_, state| is_old(state)).map(|(_, state)| state).collect()
    }
}

impl Modules {
    /// The module, from memory or of `compile`. Where another thread compiles it, this one waits; if that fails, this one
    /// tries by itself, and so has the message. Once `cancel` is set, nothing is waited for or begun.
    pub(crate) fn get_or_compile(
        &self,
        source: &ModuleSource,
        cancel: Option<&AtomicBool>,
        compile: impl FnOnce() -> Result<Module>,
    ) -> Result<Module> {
        let is_cancelled = || cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        let mut states = self.locked();
        loop {
            match states.used(source) {
                Some(State::Ready { module, .. }) => return Ok(module.clone()),
                _ if is_cancelled() => return Err(DeviceError::Cancelled),
                Some(State::UnderWay) => {
                    states = sync::wait_for(&self.states, &self.ended, states, LOOK_EVERY);
                }
                None => break,
            }
        }
        states.of.insert(source.clone(), State::UnderWay);
        drop(states);
        let claim = Claim { modules: self, source };
        let module = compile()?;
        let mut states = self.locked();
        states.of.insert(source.clone(), State::Ready { module: module.clone(), last_use: 0 });
        states.used(source);
        let oldest = states.take_oldest();
        drop(states);
        drop(claim);
        // Not under the lock: unloading waits for the device. Queries that use one keep it.
        drop(oldest);
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
    pub(crate) fn has(&self, source: &ModuleSource) -> bool {
        matches!(self.locked().of.get(source), Some(State::Ready { .. }))
    }

    /// Modules in memory.
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

/// A module that this thread compiles: whatever becomes of it, nobody waits for it afterwards.
struct Claim<'a> {
    modules: &'a Modules,
    source: &'a ModuleSource,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut states = self.modules.locked();
        if matches!(states.of.get(self.source), Some(State::UnderWay)) {
            states.of.remove(self.source);
        }
        drop(states);
        self.modules.ended.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Barrier, mpsc};

    use super::*;

    fn source() -> ModuleSource {
        ModuleSource { name: "m".into(), text: "t".into(), entries: vec![], defines: vec![] }
    }

    fn module() -> Module {
        Module::new(&source(), vec![])
    }

    #[test]
    fn threads_that_want_one_module_compile_it_once() {
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
    fn what_was_not_used_for_long_goes() {
        let modules = Modules::default();
        let source = |number: usize| ModuleSource { text: number.to_string(), ..source() };
        let compile = |number: usize| drop(modules.get_or_compile(&source(number), None, || Ok(module())).unwrap());
        for number in 0..MODULES_MAX {
            compile(number);
        }
        assert!(modules.get(&source(0)).is_some() && modules.len() == MODULES_MAX);
        compile(MODULES_MAX);
        assert_eq!(modules.len(), MODULES_MAX + 1 - MODULES_MAX / 4);
        let gone: Vec<usize> = (0..=MODULES_MAX).filter(|&number| !modules.has(&source(number))).collect();
        assert_eq!(gone, (1..=MODULES_MAX / 4).collect::<Vec<_>>());
        compile(1);
        assert!(modules.has(&source(1)));
    }

    #[test]
    fn who_waited_for_what_failed_tries_by_itself() {
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
            assert!(!modules.has(&source()));
            assert!(modules.get_or_compile(&source(), None, || Ok(module())).is_ok());
        });
        assert!(modules.has(&source()));
    }

    #[test]
    fn who_gives_up_waits_for_nobody() {
        let (modules, cancel) = (Modules::default(), AtomicBool::new(false));
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
            let waits = scope.spawn(|| modules.get_or_compile(&source(), Some(&cancel), || panic!("not by this one")));
            cancel.store(true, Ordering::Relaxed);
            assert!(matches!(waits.join().unwrap().map(|_| ()), Err(DeviceError::Cancelled)));
            end.wait();
        });
        assert!(modules.get_or_compile(&source(), Some(&cancel), || panic!("it is there")).is_ok());
    }

    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let modules = Modules::default();
        let panicking = std::panic::AssertUnwindSafe(|| {
            let _ = modules.get_or_compile(&source(), None, || panic!("for the test"));
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(modules.get_or_compile(&source(), None, || Ok(module())).is_ok());
    }
}
