//! Shared libraries: compiled, cached on disk and in memory, and loaded.
//!
//! Owns the libraries that this process has loaded. Must not know how their functions are called.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::toolchain::{self, Purpose, Toolchain, temporary_file_error};
use crate::sim::options::ChangedFile;
use crate::{DeviceError, KernelCache, Result};

const EXTENSION: &str = "so";

/// A loaded library.
pub(in crate::sim) struct KernelLibrary {
    pub(in crate::sim) library: Library,
    /// Bytes of its file, if source lines may be needed; else empty.
    pub(in crate::sim) image: Vec<u8>,
}

/// Libraries that this process has loaded, by key. Tests open hundreds of simulations that run the
/// same few kernels.
static LOADED: Mutex<Option<HashMap<String, Arc<KernelLibrary>>>> = Mutex::new(None);
const LOADED_MAX: usize = 512;

/// The source of a library.
pub(in crate::sim) struct LibrarySource<'a> {
    pub(in crate::sim) name: &'a str,
    pub(in crate::sim) text: &'a str,
    pub(in crate::sim) defines: &'a [String],
    pub(in crate::sim) purpose: Purpose,
    /// A header with a replaced text.
    pub(in crate::sim) header: Option<&'a ChangedFile>,
}

impl LibrarySource<'_> {
    fn key(&self, toolchain: &Toolchain) -> String {
        let identity = toolchain.identity(self.purpose);
        let mut parts = vec!["sim", self.name, self.text, &identity, toolchain::headers_key(self.purpose)];
        parts.extend(self.defines.iter().map(String::as_str));
        parts.extend(self.header.iter().flat_map(|header| [header.file.name, header.text.as_str()]));
        KernelCache::key(&parts)
    }

    /// Whether the disk cache has the library.
    pub(in crate::sim) fn is_stored(&self, toolchain: &Toolchain, cache: &KernelCache) -> bool {
        cache.contains(&self.key(toolchain), EXTENSION)
    }

    /// Takes the library from memory or the disk cache, or compiles it.
    pub(in crate::sim) fn load(&self, toolchain: &Toolchain, cache: &KernelCache) -> Result<Arc<KernelLibrary>> {
        let key = self.key(toolchain);
        if let Some(library) = loaded().as_ref().and_then(|map| map.get(&key)) {
            return Ok(library.clone());
        }
        let keep = |bytes: &[u8]| open(bytes).map(|library| (library, bytes.to_vec()));
        let (library, bytes) = match cache.load_with(&key, EXTENSION, keep)? {
            Some(cached) => cached,
            None => {
                let bytes = toolchain.compile(self)?;
                let library = open(&bytes)?;
                cache.store(&key, EXTENSION, &bytes);
                (library, bytes)
            }
        };
        let image = if self.purpose == Purpose::RacingKernels { bytes } else { vec![] };
        let library = Arc::new(KernelLibrary { library, image });
        let mut map = loaded();
        let map = map.get_or_insert_default();
        if map.len() >= LOADED_MAX {
            // Libraries in use stay loaded, since their users hold references.
            map.clear();
        }
        map.insert(key, library.clone());
        Ok(library)
    }
}

fn loaded() -> std::sync::MutexGuard<'static, Option<HashMap<String, Arc<KernelLibrary>>>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads the bytes of a library through a temporary file.
fn open(bytes: &[u8]) -> Result<Library> {
    let written = tempfile::Builder::new().prefix("warpjoin-").suffix(".so").tempfile().and_then(|mut file| {
        file.write_all(bytes)?;
        // Closes the file: some systems do not execute files that are open for writing.
        Ok(file.into_temp_path())
    });
    let path = written.map_err(|error| temporary_file_error(&error))?;
    // SAFETY: the library was compiled from the sources of this workspace, now or before, and its
    // checksum was verified. It has no initializers but the compiler's own.
    unsafe { Library::open(Some(&*path), RTLD_NOW | RTLD_LOCAL) }
        // For example, a library of another machine.
        .map_err(|error| DeviceError::BadImage { device: "sim".into(), call: "dlopen", reason: error.to_string() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_cached_library_that_does_not_load_is_compiled_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = KernelCache::open(Some(dir.path()));
        let toolchain = Toolchain::find().unwrap();
        let text = "extern \"C\" __attribute__((visibility(\"default\"))) int seven() { return 7; }";
        let source = LibrarySource { name: "seven.cpp", text, defines: &[], purpose: Purpose::Kernels, header: None };
        let key = source.key(&toolchain);
        cache.store(&key, EXTENSION, b"no library");
        let library = source.load(&toolchain, &cache).unwrap();
        // SAFETY: the type is the one in the text above.
        let seven = unsafe { library.library.get::<extern "C" fn() -> i32>(b"seven\0") }.unwrap();
        assert_eq!(seven(), 7);
        assert!(open(&cache.load(&key, EXTENSION).unwrap()).is_ok(), "the new library is stored");
    }
}
