//! The compiled modules of a device. Owns who compiles what; must not know how.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Module, ModuleSource, Result};

/// Modules in memory, and those that a thread is about to put there.
#[derive(Default)]
pub(crate) struct Modules {
    states: Mutex<HashMap<ModuleSource, State>>,
    /// A module stopped being under way.
    ended: Condvar,
}

/// ```text
/// absent --a thread compiles--> UnderWay --compiled--> Ready
///                                  '------failed-----> absent
/// ```
enum State {
    UnderWay,
    Ready(Module),
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
            match states.get(source) {
                Some(State::Ready(module)) => return Ok(module.clone()),
                Some(State::UnderWay) => {
                    states = self.ended.wait(states).unwrap_or_else(PoisonError::into_inner);
                }
                None => break,
            }
        }
        states.insert(source.clone(), State::UnderWay);
        drop(states);
        let claim = Claim { modules: self, source };
        let module = compile()?;
        self.locked().insert(source.clone(), State::Ready(module.clone()));
        drop(claim);
        Ok(module)
    }

    /// The module, if it is in memory.
    pub(crate) fn get(&self, source: &ModuleSource) -> Option<Module> {
        match self.locked().get(source) {
            Some(State::Ready(module)) => Some(module.clone()),
            _ => None,
        }
    }

    /// Whether a module is in memory.
    pub(crate) fn has(&self, source: &ModuleSource) -> bool {
        matches!(self.locked().get(source), Some(State::Ready(_)))
    }

    /// Modules in memory.
    pub(crate) fn len(&self) -> usize {
        self.locked().values().filter(|state| matches!(state, State::Ready(_))).count()
    }

    /// Sources of the modules in memory, in no order.
    pub(crate) fn sources(&self) -> Vec<ModuleSource> {
        let states = self.locked();
        let ready = states.iter().filter(|(_, state)| matches!(state, State::Ready(_)));
        ready.map(|(source, _)| source.clone()).collect()
    }

    /// A panic elsewhere leaves the map whole, so poison is ignored.
    fn locked(&self) -> MutexGuard<'_, HashMap<ModuleSource, State>> {
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
        if matches!(states.get(self.source), Some(State::UnderWay)) {
            states.remove(self.source);
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
