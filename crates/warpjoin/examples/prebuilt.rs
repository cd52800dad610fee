//! Writes the kernels that any query may want as PTX to `kernels/prebuilt.zst`, for GPUs without a compiler.
//!
//! `cargo run -p warpjoin --example prebuilt`, with the oldest NVRTC that is supported on `LD_LIBRARY_PATH`: its PTX is what the
//! oldest drivers take. A test says when the kernels have changed since.
#![allow(clippy::print_stdout, reason = "a command")]

use std::error::Error;
use std::path::Path;

use warpjoin::prebuilt_modules;
use warpjoin_device::{cuda_status, prebuilt_kernels};

fn main() -> Result<(), Box<dyn Error>> {
    let modules = prebuilt_modules();
    let file = prebuilt_kernels(&modules)?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/prebuilt.zst");
    std::fs::write(path, &file)?;
    let nvrtc = cuda_status().nvrtc.unwrap_or_default();
    println!("{} kernels, {} bytes, by NVRTC {nvrtc}", modules.len(), file.len());
    Ok(())
}
