//! Several copies of libnvrtc in one process, for parallel compilation.
//!
//! NVRTC may be called by any thread, but holds a lock of the library during part of each compilation: 16 threads on 16
//! cores compile no faster than 4. The loader treats each copy of the file as a separate library, with its own lock. Copies
//! are loaded in the background once two compilations overlap.
//!
//! Owns the loaded libraries. Must not know what is compiled.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use cudarc::nvrtc::sys::nvrtcResult;

use super::library::{Library, Outcome, describe};
use super::process::first_compilation;
use crate::ModuleSource;
use crate::cuda::exit::LibraryInUse;

/// Cores that one library can use: a fifth of a compilation holds its lock.
const CORES_EACH: usize = 4;
const LIBRARIES_MAX: usize = 8;

/// The first library, and its copies.
#[derive(Debug)]
pub(super) struct Copies {
    libraries: Mutex<Vec<Arc<SharedLibrary>>>,
    /// Intended number of libraries.
    max: usize,
    loading: Mutex<Loading>,
}

/// The threads that load copies.
#[derive(Debug, Default)]
struct Loading {
    has_begun: bool,
    threads: Vec<JoinHandle<()>>,
}

/// A library, and the number of compilations that run in it.
#[derive(Debug)]
struct SharedLibrary {
    library: Library,
    running: AtomicUsize,
}

/// The use of a library for one compilation.
pub(super) struct LibraryUse(Arc<SharedLibrary>);

impl std::ops::Deref for LibraryUse {
    type Target = Library;

    fn deref(&self) -> &Library {
        &self.0.library
    }
}

impl Drop for LibraryUse {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Copies {
    /// As many libraries as the cores can use. Runs the first compilation of `first`.
    pub(super) fn for_cores(first: Library) -> Self {
        if let Err(error) = compile_first(&first) {
            log::debug!("NVRTC's first compilation: {error}");
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::new(first, cores.div_ceil(CORES_EACH).min(LIBRARIES_MAX))
    }

    fn new(first: Library, max: usize) -> Self {
        let first = SharedLibrary { library: first, running: AtomicUsize::new(0) };
        Self { libraries: Mutex::new(vec![Arc::new(first)]), max, loading: Mutex::default() }
    }

    /// Takes the library with the fewest running compilations. If it is busy, starts loading copies of `file`.
    pub(super) fn take(&'static self, file: impl FnOnce() -> Option<PathBuf>) -> LibraryUse {
        let libraries = self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |library: &&Arc<SharedLibrary>| library.running.load(Ordering::Relaxed);
        let least = libraries.iter().min_by_key(load).unwrap_or(&libraries[0]).clone();
        // The count is increased only under the lock.
        let is_busy = least.running.fetch_add(1, Ordering::Relaxed) > 0;
        drop(libraries);
        if is_busy {
            self.load_copies(file);
        }
        LibraryUse(least)
    }

    /// Starts one thread per copy to load it, on the first call only.
    fn load_copies(&'static self, file: impl FnOnce() -> Option<PathBuf>) {
        let mut loading = self.loading();
        if std::mem::replace(&mut loading.has_begun, true) {
            return;
        }
        let Some(file) = file() else { return };
        for _ in 1..self.max {
            let file = file.clone();
            let load = move || match LibraryInUse::begin().map_err(Into::into).and_then(|_use| load_copy(&file)) {
                Ok(library) => {
                    let copy = SharedLibrary { library, running: AtomicUsize::new(0) };
                    self.libraries.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(copy));
                }
                Err(reason) => log::debug!("cannot load a copy of {}: {reason}", file.display()),
            };
            match thread::Builder::new().name("warpjoin-nvrtc".into()).spawn(load) {
                Ok(thread) => loading.threads.push(thread),
                Err(error) => log::debug!("cannot start a thread to load a copy of NVRTC: {error}"),
            }
        }
    }

    /// Waits until all copies are loaded. Nothing may run in a library when the process ends.
    pub(super) fn wait(&self) {
        let threads = std::mem::take(&mut self.loading().threads);
        for thread in threads {
            if thread.join().is_err() {
                log::debug!("a thread that loaded a copy of NVRTC panicked");
            }
        }
    }

    fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.libraries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Loads a copy of the file, deletes the copy's file, and checks that it compiles, since the library must find its other files.
fn load_copy(file: &Path) -> Result<Library, Box<dyn std::error::Error + Send + Sync>> {
    let copy = tempfile::Builder::new().prefix("warpjoin-nvrtc-").suffix(".so").tempfile()?.into_temp_path();
    std::fs::copy(file, &copy)?;
    // SAFETY: loading libnvrtc runs its constructors, which have no preconditions.
    let loaded = unsafe { libloading::Library::new(&*copy) }?;
    // Never unloaded, since the library may have running threads.
    let library = Library::of(Box::leak(Box::new(loaded)))?;
    let result = compile_first(&library)?;
    if result == nvrtcResult::NVRTC_SUCCESS { Ok(library) } else { Err(describe(result).into()) }
}

/// Runs the first compilation of a library, which must not overlap with that of another library.
fn compile_first(library: &Library) -> crate::Result<Outcome> {
    let _guard = first_compilation();
    compile_probe(library)
}

/// Compiles a tiny kernel.
fn compile_probe(library: &Library) -> crate::Result<Outcome> {
    let text = "extern \"C\" __global__ void probe(int* to) { *to = __popc(*to); }";
    let source = ModuleSource { name: "probe".into(), text: text.into(), entries: vec![], defines: vec![] };
    library.program(&source)?.compile(&[])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cuda::nvrtc::Nvrtc;

    #[test]
    fn compilations_are_spread_over_the_copies() {
        // Skipped without NVRTC; tests/nvrtc_compile.rs says so.
        if Nvrtc::get().is_err() {
            return;
        }
        let file = Nvrtc::path().unwrap();
        let first = load_copy(&file).unwrap();
        let copies: &'static Copies = Box::leak(Box::new(Copies::new(first, 3)));
        let first = copies.take(|| None);
        assert_eq!(copies.len(), 1);
        // A single library takes all compilations.
        let second = copies.take(|| Some(file.clone()));
        assert!(Arc::ptr_eq(&first.0, &second.0));
        copies.wait();
        assert_eq!(copies.len(), 3);
        let (third, fourth) = (copies.take(|| None), copies.take(|| None));
        assert!(!Arc::ptr_eq(&first.0, &third.0) && !Arc::ptr_eq(&third.0, &fourth.0));
        assert_eq!(first.0.running.load(Ordering::Relaxed), 2);
        drop((second, third, fourth));
        assert_eq!(first.0.running.load(Ordering::Relaxed), 1);
    }

    #[cfg(unix)]
    #[test]
    fn signal_handlers_and_stack_limit_are_restored() {
        use crate::cuda::nvrtc::process::idle_state;
        if Nvrtc::get().is_err() {
            return;
        }
        let file = Nvrtc::path().unwrap();
        let before = idle_state();
        let compile = || {
            let library = load_copy(&file).unwrap();
            for _ in 0..8 {
                assert_eq!(compile_probe(&library).unwrap(), nvrtcResult::NVRTC_SUCCESS);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(compile))));
        assert_eq!(idle_state(), before);
    }
}
