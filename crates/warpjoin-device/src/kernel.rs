//! Kernels: the source of a module, the compiled module, and the shape and arguments of a launch.
//!
//! Must not know how modules are compiled or run.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::backend::Handle;
use crate::{Buffer, DeviceError, Result};

/// CUDA C++ text to compile. Equal sources are compiled once per device.
///
/// The text may include every header of `warpjoin_kernels::HEADERS` by name, and nothing else.
/// An entry is written `WJ_ENTRY(name, Params, threads_max) { ... }`, where `Params p` is a struct
/// of 8-byte fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSource {
    /// Name in messages and profiles.
    pub name: String,
    /// CUDA C++ text.
    pub text: String,
    /// Names of the entries.
    pub entries: Vec<String>,
    /// Preprocessor definitions, `NAME=value`.
    pub defines: Vec<String>,
}

impl ModuleSource {
    /// The definition in modules that spend their time in one large switch.
    pub const DISPATCHES: &str = "WJ_DISPATCHES=1";

    /// The same text with only one of its entries; see `WJ_SELECTED` in `common/simt.cuh`.
    pub fn of_entry(&self, entry: &str) -> Self {
        let selected = ["WJ_SELECTED=1".to_string(), format!("WJ_WANTED_{entry}=1")];
        Self {
            name: self.name.clone(),
            text: self.text.clone(),
            entries: vec![entry.into()],
            defines: self.defines.iter().cloned().chain(selected).collect(),
        }
    }
}

/// A query looks up every kernel by its whole text, so this hash trades collision resistance for speed: it mixes four
/// 8-byte words at a time. The name is left out, as it adds nothing to the text.
impl Hash for ModuleSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hash = mixed(self.text.as_bytes());
        let lists = self.entries.iter().chain(&self.defines);
        state.write_u64(lists.fold(hash, |hash, text| mix(hash, mixed(text.as_bytes()))));
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Hashes bytes in four independent chains, since a single chain would wait for each multiplication.
fn mixed(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut chains = [bytes.len() as u64, 1, 2, 3];
    for block in blocks {
        for (chain, word) in chains.iter_mut().zip(block.as_chunks::<8>().0) {
            *chain = mix(*chain, u64::from_le_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    let hash = chains.into_iter().fold(0, mix);
    let hash = words.iter().fold(hash, |hash, &word| mix(hash, u64::from_le_bytes(word)));
    rest.iter().fold(hash, |hash, &byte| mix(hash, byte.into()))
}

/// A module compiled for one device.
#[derive(Clone)]
pub struct Module {
    name: Arc<str>,
    entries: Arc<Vec<(String, Handle)>>,
}

impl Module {
    pub(crate) fn new(source: &ModuleSource, handles: Vec<Handle>) -> Self {
        Self {
            name: source.name.as_str().into(),
            entries: Arc::new(source.entries.iter().cloned().zip(handles).collect()),
        }
    }

    /// The entry of that name.
    ///
    /// # Errors
    /// When the source listed no such entry.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.entries
            .iter()
            .find(|(entry, _)| entry == name)
            .map(|(entry, handle)| Kernel { name: entry.as_str().into(), handle: handle.clone() })
            .ok_or_else(|| DeviceError::Invalid(format!("module {} has no entry {name}", self.name)))
    }
}

/// One entry of a compiled module.
#[derive(Clone)]
pub struct Kernel {
    name: Arc<str>,
    handle: Handle,
}

impl Kernel {
    /// Name of the entry.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Shape of a one-dimensional launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Number of blocks.
    pub blocks: u32,
    /// Threads per block: a multiple of 32, at most 1024.
    pub block_threads: u32,
    /// Dynamic shared memory per block.
    pub shared_bytes: u32,
}

/// What a launch passes for one 8-byte field of a kernel's parameters.
pub type Arg<'a> = warpjoin_kernels::Arg<'a, Buffer>;

/// An address in a buffer: a field of a kernel's parameters. `T` is the pointer's type, such as `*const u32`.
pub type Ptr<'a, T> = warpjoin_kernels::Ptr<'a, Buffer, T>;
