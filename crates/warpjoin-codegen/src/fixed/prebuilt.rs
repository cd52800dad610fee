//! Kernels that any query may want, whatever its shape: compiled once a machine, before a query waits for them.

use warpjoin_device::ModuleSource;
use warpjoin_kernels::KernelFile;

use crate::Constants;

/// Files of which queries use one form, those that most queries want first. Hash tables of the Arrow-native API have many.
const FILES: [KernelFile; 16] = [
    warpjoin_kernels::JOIN_BUILD,
    warpjoin_kernels::PARTITION,
    warpjoin_kernels::RUNTIME_FILTER,
    warpjoin_kernels::REGROUP,
    warpjoin_kernels::CUT,
    warpjoin_kernels::TOP_K,
    warpjoin_kernels::SORT,
    warpjoin_kernels::EXCHANGE,
    warpjoin_kernels::VALIDITY,
    warpjoin_kernels::STRINGS,
    warpjoin_kernels::DECODE_SNAPPY,
    warpjoin_kernels::DECODE_VALUES,
    warpjoin_kernels::DECODE_FACTS,
    warpjoin_kernels::DECODE_TEXT,
    warpjoin_kernels::WINDOW,
    warpjoin_kernels::WINDOW_FRAMES,
];

/// All bits of a hash are kept.
pub const USUAL_HASH_BITS: u32 = 64;

/// The kernel that merges a group table into a larger one.
pub fn regroup(hash_bits: u32) -> ModuleSource {
    let file = warpjoin_kernels::REGROUP;
    Constants { hash_bits, ..Constants::USUAL }.module(file, file.entries())
}

/// The kernels that interpret pipelines.
pub fn interpreters(hash_bits: u32) -> ModuleSource {
    let file = warpjoin_kernels::INTERPRET;
    let mut module = Constants { hash_bits, ..Constants::USUAL }.module(file, file.entries());
    module.defines.push(ModuleSource::DISPATCHES.into());
    module
}

/// Kernels that any query may want, an entry each: those that interpret pipelines, and hand-written ones.
pub fn prebuilt_modules() -> Vec<ModuleSource> {
    let mut modules = each_entry(interpreters(USUAL_HASH_BITS));
    modules.extend(prebuilt());
    modules
}

/// The hand-written ones.
pub fn prebuilt() -> Vec<ModuleSource> {
    FILES.into_iter().flat_map(|file| each_entry(Constants::USUAL.module(file, file.entries()))).collect()
}

/// What GPUs compile of a module: see `Device::module_of`.
fn each_entry(module: ModuleSource) -> Vec<ModuleSource> {
    match module.entries.as_slice() {
        [_] => vec![module],
        entries => entries.iter().map(|entry| module.of_entry(entry)).collect(),
    }
}
