//! Constants of generated code, and those that vary between modules. What kernels and host share is declared in
//! `warpjoin_kernels`.

use warpjoin_device::ModuleSource;
use warpjoin_kernels::KernelFile;

/// Threads of a block of a pipeline whose sink asks for no others.
pub(crate) const PIPELINE_BLOCK_THREADS: u32 = 256;

/// Constants that vary between modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    /// Bits of a key hash that are kept; 64 but for tests of collisions.
    pub hash_bits: u32,
    /// Lanes of a probe group in modules that build tables.
    pub lanes: u32,
}

impl Constants {
    /// Those of most modules.
    pub const USUAL: Self = Self { hash_bits: 64, lanes: 1 };

    /// The definitions for the preprocessor.
    pub fn defines(self) -> Vec<String> {
        vec![format!("WJ_HASH_BITS={}", self.hash_bits), format!("WJ_LANES={}", self.lanes)]
    }

    /// A file of kernels to compile, of which these entries may be launched.
    pub fn module<'e>(self, file: KernelFile, entries: impl IntoIterator<Item = &'e str>) -> ModuleSource {
        ModuleSource {
            name: file.name.into(),
            text: file.text.into(),
            entries: entries.into_iter().map(String::from).collect(),
            defines: self.defines(),
        }
    }
}
