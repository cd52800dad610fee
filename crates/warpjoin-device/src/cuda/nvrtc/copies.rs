//! Several copies of libnvrtc in one process.
//!
//! NVRTC may be called by any thread, but holds a lock of the whole library through a part of each compilation: on 16
//! cores, threads compiled no faster than 4 of them would. Copies of the file are libraries of their own to the loader,
//! and each has its own lock. They are loaded in the background once compilations meet.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use cudarc::nvrtc::sys::nvrtcResult;

use super::library::Library;
use super::process::first_compilation;
use crate::ModuleSource;

/// Cores that a library keeps busy: a fifth of a compilation is under its lock.
const CORES_EACH: usize = 4;
const LIBRARIES_MAX: usize = 8;

/// The library that was found first, and its copies.
#[derive(Debug)]
pub(super) struct Copies {
    libraries: Mutex<Vec<Arc<Counted>>>,
    /// How many are to be loaded in the end.
    wanted: usize,
    loading: Mutex<Loading>,
}

/// Copies on their way.
#[derive(Debug, Default)]
struct Loading {
    has_begun: bool,
    threads: Vec<JoinHandle<()>>,
}

/// A library, and the compilations under way in it.
#[derive(Debug)]
struct Counted {
    library: Library,
    under_way: AtomicUsize,
}

/// The use of a library for one compilation.
pub(super) struct Taken(Arc<Counted>);

impl std::ops::Deref for Taken {
    type Target = Library;

    fn deref(&self) -> &Library {
        &self.0.library
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Copies {
    /// So many as the cores can use. `first` compiles something here.
    pub(super) fn for_cores(first: Library) -> Self {
        if let Err(error) = compile_first(&first) {
            log::debug!("NVRTC's first compilation: {error}");
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::new(first, cores.div_ceil(CORES_EACH).min(LIBRARIES_MAX))
    }

    fn new(first: Library, wanted: usize) -> Self {
        let first = Counted { library: first, under_way: AtomicUsize::new(0) };
        Self { libraries: Mutex::new(vec![Arc::new(first)]), wanted, loading: Mutex::default() }
    }

    /// The library with the fewest compilations under way. Where that has one, copies of `file` are loaded for later ones.
    pub(super) fn take(&'static self, file: impl FnOnce() -> Option<PathBuf>) -> Taken {
        let libraries = self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |counted: &&Arc<Counted>| counted.under_way.load(Ordering::Relaxed);
        let least = libraries.iter().min_by_key(load).unwrap_or(&libraries[0]).clone();
        // Only counted up under the lock.
        let is_busy = least.under_way.fetch_add(1, Ordering::Relaxed) > 0;
        drop(libraries);
        if is_busy {
            self.load_copies(file);
        }
        Taken(least)
    }

    /// Begins to load the copies, a thread each, unless that was done before.
    fn load_copies(&'static self, file: impl FnOnce() -> Option<PathBuf>) {
        let mut loading = self.loading();
        if std::mem::replace(&mut loading.has_begun, true) {
            return;
        }
        let Some(file) = file() else { return };
        for _ in 1..self.wanted {
            let file = file.clone();
            let load = move || match load_copy(&file) {
                Ok(library) => {
                    let copy = Counted { library, under_way: AtomicUsize::new(0) };
                    self.libraries.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(copy));
                }
                Err(reason) => log::debug!("no further copy of {}: {reason}", file.display()),
            };
            match thread::Builder::new().name("warpjoin-nvrtc".into()).spawn(load) {
                Ok(thread) => loading.threads.push(thread),
                Err(error) => log::debug!("no thread to load a copy of NVRTC: {error}"),
            }
        }
    }

    /// Waits for copies on their way: at the end of the process nothing may run in a library any more.
    pub(super) fn settle(&self) {
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

/// Loads a copy of the file, whose name is gone then, and sees that it compiles: it has to find its own files.
fn load_copy(file: &Path) -> Result<Library, Box<dyn std::error::Error + Send + Sync>> {
    let copy = tempfile::Builder::new().prefix("warpjoin-nvrtc-").suffix(".so").tempfile()?.into_temp_path();
    std::fs::copy(file, &copy)?;
    // SAFETY: loading libnvrtc runs its constructors, which expect nothing of the process.
    let loaded = unsafe { libloading::Library::new(&*copy) }?;
    // It is never unloaded: threads of its own may be running.
    let library = Library::of(Box::leak(Box::new(loaded)))?;
    match compile_first(&library)? {
        nvrtcResult::NVRTC_SUCCESS => Ok(library),
        failed => Err(super::library::words(failed).into()),
    }
}

/// The first compilation of a library, which has to be alone.
fn compile_first(library: &Library) -> crate::Result<nvrtcResult> {
    let _alone = first_compilation();
    compile_probe(library)
}

/// Compiles hardly any text.
fn compile_probe(library: &Library) -> crate::Result<nvrtcResult> {
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
    fn copies_compile_beside_each_other() {
        // Skipped without NVRTC; tests/nvrtc_compile.rs says so.
        if Nvrtc::get().is_err() {
            return;
        }
        let file = Nvrtc::path().unwrap();
        let first = load_copy(&file).unwrap();
        let copies: &'static Copies = Box::leak(Box::new(Copies::new(first, 3)));
        let first = copies.take(|| None);
        assert_eq!(copies.len(), 1);
        // One library takes all until there is another.
        let second = copies.take(|| Some(file.clone()));
        assert!(Arc::ptr_eq(&first.0, &second.0));
        copies.settle();
        assert_eq!(copies.len(), 3);
        let (third, fourth) = (copies.take(|| None), copies.take(|| None));
        assert!(!Arc::ptr_eq(&first.0, &third.0) && !Arc::ptr_eq(&third.0, &fourth.0));
        assert_eq!(first.0.under_way.load(Ordering::Relaxed), 2);
        drop((second, third, fourth));
        assert_eq!(first.0.under_way.load(Ordering::Relaxed), 1);
    }

    #[cfg(unix)]
    #[test]
    fn the_process_stays_as_it_was() {
        use crate::cuda::nvrtc::process::at_rest;
        if Nvrtc::get().is_err() {
            return;
        }
        let file = Nvrtc::path().unwrap();
        let found = at_rest();
        let compile = || {
            let library = load_copy(&file).unwrap();
            for _ in 0..8 {
                assert_eq!(compile_probe(&library).unwrap(), nvrtcResult::NVRTC_SUCCESS);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(compile))));
        assert_eq!(at_rest(), found);
    }
}
