//! Compiles the benches' own kernels with NVRTC.
//!
//! Without libnvrtc the test prints SKIP and passes, or fails with `WARPJOIN_REQUIRE_NVRTC=1`.

use warpjoin_benches::kernel_modules;
use warpjoin_device::{compile_for_architecture, cuda_status};

#[test]
fn kernels_compile_for_every_architecture() {
    if cuda_status().nvrtc.is_none() {
        let is_required = std::env::var("WARPJOIN_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
        assert!(!is_required, "WARPJOIN_REQUIRE_NVRTC=1 and no NVRTC");
        eprintln!("SKIP kernels_compile_for_every_architecture: no libnvrtc (put its folder on LD_LIBRARY_PATH)");
        return;
    }
    for module in kernel_modules() {
        for architecture in ["sm_80", "sm_90", "sm_100"] {
            if let Err(error) = compile_for_architecture(&module, architecture) {
                panic!("{architecture}: {error}");
            }
        }
    }
}
