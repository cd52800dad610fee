//! The module of interpreters of pipelines.

use warpjoin_device::ModuleSource;

use crate::codegen::Constants;

/// The kernels that interpret pipelines.
pub(crate) fn interpreters(hash_bits: u32) -> ModuleSource {
    let entries = ["interpret_rows", "interpret_groups", "interpret_matches", "interpret_partition"];
    Constants { hash_bits, ..Constants::USUAL }.module(warpjoin_kernels::INTERPRET, entries)
}
