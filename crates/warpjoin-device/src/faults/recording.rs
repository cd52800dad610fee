//! A record of the work of devices. Tests compare it before and after a change.
//!
//! Must not know why the work was done.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ModuleSource;
use crate::backend::Handle;
use crate::cache::KernelCache;

/// The work of several devices, in total.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recording {
    /// Number of kernel launches.
    pub launches: u64,
    /// Number of times that the host waited for a stream: reads and synchronizations.
    pub host_waits: u64,
    /// Peak bytes of live buffers, above those that were live when the recording began.
    pub peak_bytes: u64,
    /// Launches of each kernel, by its entry and a digest of its source, header files excluded. Both code tiers of a
    /// kernel have the same digest.
    pub kernels: BTreeMap<String, u64>,
}

impl Recording {
    /// A digest of all kernels: 12 hexadecimal digits.
    pub fn digest_of_kernels(&self) -> String {
        let names: Vec<&str> = self.kernels.keys().map(String::as_str).collect();
        short(KernelCache::key(&names))
    }
}

/// A kernel with its name in recordings.
pub(super) struct NamedKernel {
    pub(super) inner: Handle,
    pub(super) name: String,
}

/// Wraps the kernels of a module, one per entry, with their names.
pub(super) fn named(source: &ModuleSource, kernels: Vec<Handle>) -> Vec<Handle> {
    // Both code tiers get the same name.
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
