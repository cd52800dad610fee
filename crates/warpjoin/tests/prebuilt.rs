//! The prebuilt kernels are those of the sources, and PTX that the oldest drivers take.
#![allow(clippy::unwrap_used, missing_docs)]

use warpjoin::prebuilt_modules;
use warpjoin_device::prebuilt_ptx;

#[test]
fn prebuilt_kernels_are_of_these_sources() {
    let modules = prebuilt_modules();
    assert!(modules.len() <= 300, "{} kernels", modules.len());
    let ptx = prebuilt_ptx(&modules);
    let is_missing = |ptx: &Option<&str>| ptx.is_none();
    let missing: Vec<_> =
        modules.iter().zip(&ptx).filter(|(_, ptx)| is_missing(ptx)).map(|(it, _)| &it.entries).collect();
    assert!(
        missing.is_empty(),
        "kernels have changed: cargo run -p warpjoin --example prebuilt, with NVRTC 12.0: {missing:?}"
    );
    for (module, ptx) in modules.iter().zip(ptx) {
        let ptx = ptx.unwrap();
        for line in [".version 8.0", ".target sm_80", &format!(".visible .entry {}(", module.entries[0])] {
            assert!(ptx.lines().any(|found| found.starts_with(line)), "{}: no {line}", module.entries[0]);
        }
    }
}

/// Devices ask for one entry of a module, and for a module of one entry as it is: both must be what is prebuilt.
#[test]
fn modules_of_one_entry_are_found() {
    let modules = prebuilt_modules();
    let alone = modules.iter().filter(|module| !module.defines.iter().any(|define| define.starts_with("WJ_SELECTED")));
    let alone: Vec<&str> = alone.map(|module| module.entries[0].as_str()).collect();
    for entry in ["decompress_snappy", "pack_validity"] {
        assert!(alone.contains(&entry), "{entry}: {alone:?}");
    }
}
