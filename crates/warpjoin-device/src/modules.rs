//! The compiled modules of a device. Owns who compiles what, and which stay in memory; must not know how.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Module, ModuleSource, Result};

/// Modules that stay in memory. A process may run any number of queries, and each module takes memory of its device, and
/// address space.
const MODULES_MAX: usize = 1024;

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
    /// tries by itself, and so has the message.
    pub(crate) fn get_or_compile(
        &self,
        source: &ModuleSource,
        compile: impl FnOnce() -> Result<Module>,
    ) -> Result<Module> {
        let mut states = self.locked();
        loop {
            match states.used(source) {
                Some(State::Ready { module, .. }) => return Ok(module.clone()),
                Some(State::UnderWay) => {
                    states = self.ended.wait(states).unwrap_or_else(PoisonError::into_inner);
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

    /// A panic elsewhere leaves the map whole, so poison is ignored.
    fn locked(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;
    use crate::DeviceError;

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
                    modules.get_or_compile(&source(), compile).map(|_| ()).unwrap();
                });
            }
        });
        assert_eq!((compiled.into_inner(), modules.len()), (1, 1));
    }

    #[test]
    fn what_was_not_used_for_long_goes() {
        let modules = Modules::default();
        let source = |number: usize| ModuleSource { text: number.to_string(), ..source() };
        let compile = |number: usize| drop(modules.get_or_compile(&source(number), || Ok(module())).unwrap());
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
                assert!(modules.get_or_compile(&source(), failing).is_err());
            });
            has_begun.recv().unwrap();
            assert!(!modules.has(&source()));
            assert!(modules.get_or_compile(&source(), || Ok(module())).is_ok());
        });
        assert!(modules.has(&source()));
    }

    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let modules = Modules::default();
        let panicking = std::panic::AssertUnwindSafe(|| {
            let _ = modules.get_or_compile(&source(), || panic!("for the test"));
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(modules.get_or_compile(&source(), || Ok(module())).is_ok());
    }
}
