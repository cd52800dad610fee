//! What devices were asked to do, so that a test can tell that a change asks the same of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ModuleSource;
use crate::backend::Handle;
use crate::cache::KernelCache;

/// What some devices were asked to do, all of them together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recording {
    /// Kernels launched.
    pub launches: u64,
    /// Times that the host waited for a stream: reads and synchronisations.
    pub host_waits: u64,
    /// Most bytes of live buffers, above those that lived when the recording began.
    pub peak_bytes: u64,
    /// Launches of each kernel, by its entry and a digest of its source, header files excluded. A kernel compiled for a
    /// first run counts as the better one.
    pub kernels: BTreeMap<String, u64>,
}

impl Recording {
    /// One digest of all kernels, in hexadecimal: 12 digits.
    pub fn digest_of_kernels(&self) -> String {
        let names: Vec<&str> = self.kernels.keys().map(String::as_str).collect();
        short(KernelCache::key(&names))
    }
}

/// A kernel and its name in recordings.
pub(super) struct NamedKernel {
    pub(super) inner: Handle,
    pub(super) name: String,
}

/// The kernels of a module, one an entry, with their names.
pub(super) fn named(source: &ModuleSource, kernels: Vec<Handle>) -> Vec<Handle> {
    // The text of a first run is the same.
    let defines = source.defines.iter().map(String::as_str).filter(|define| !define.starts_with("WJ_QUICK="));
    let parts: Vec<&str> = [source.text.as_str()].into_iter().chain(defines).collect();
    let digest = short(KernelCache::key(&parts));
    let name = |(inner, entry): (Handle, &String)| -> Handle {
        Arc::new(NamedKernel { inner, name: format!("{entry} {digest}") })
    };
    kernels.into_iter().zip(&source.entries).map(name).collect()
}

fn short(mut digest: String) -> String {
    digest.truncate(12);
    digest
}
