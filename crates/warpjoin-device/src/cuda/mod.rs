//! NVIDIA GPUs, through the CUDA driver and NVRTC.
//!
//! Owns all uses of cudarc. Must not know what kernels compute, and must not check what the front end
//! ([`crate::Stream`], [`crate::Device`]) has checked already. Both libraries are loaded at run time.
//! Without them, the functions here return errors that say what to install; nothing panics.
//!
//! Ownership, where `->` means "holds an `Arc` of": buffer -> stream -> [`shared`] (pool, pinned chunks, idle streams) ->
//! context; kernel -> module -> context; event -> context.

mod blocks;
mod context;
mod device;
mod driver;
mod event;
mod exit;
mod functions;
mod info;
mod module;
mod nvrtc;
mod open;
mod pinned;
mod pool;
mod shared;
mod stream;

use std::path::PathBuf;

pub use nvrtc::compile_for_architecture;
pub use nvrtc::prebuilt::{binaries_name, prebuilt_binaries, prebuilt_kernels, prebuilt_ptx};
pub use open::{LeftOut, OpenedDevices, open_cuda, open_usable_cuda, trim_open_gpus};

use crate::DeviceError;
use driver::Driver;
use nvrtc::Nvrtc;

/// How to open GPUs.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// Number of GPUs, starting at ordinal 0; `None` means all visible GPUs.
    pub devices: Option<usize>,
    /// Memory budget of each GPU; `None` means 90 % of its free memory when it is first opened.
    pub memory_bytes: Option<u64>,
    /// Folder for compiled kernels; see [`crate::KernelCache::open`].
    pub kernel_cache: Option<PathBuf>,
}

/// The CUDA installation of this machine; see [`cuda_status`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CudaStatus {
    /// CUDA version that the driver supports, for example `CUDA 13.0`; `None` without a driver.
    pub driver: Option<String>,
    /// Number of visible GPUs.
    pub gpus: usize,
    /// Version of the run-time compiler, for example `13.0`; `None` if it is missing or too old: GPUs then run prebuilt kernels.
    pub nvrtc: Option<String>,
    /// The library file of the run-time compiler, if known.
    pub nvrtc_path: Option<PathBuf>,
    /// Why CUDA cannot be used; `None` if [`open_cuda`] should succeed.
    pub problem: Option<DeviceError>,
}

/// Looks for the driver, GPUs and the run-time compiler, without opening a GPU. Never fails.
///
/// Reads the list of loaded libraries, which takes 0.1 ms or more. Where this is called per query, use [`cuda_problem`].
pub fn cuda_status() -> CudaStatus {
    let nvrtc = Nvrtc::get().ok();
    CudaStatus {
        driver: driver::version().ok().map(|version| version.to_string()),
        gpus: Driver::get().and_then(Driver::gpus).unwrap_or(0),
        nvrtc: nvrtc.map(Nvrtc::version),
        nvrtc_path: nvrtc.and_then(|_| Nvrtc::path()),
        problem: cuda_problem(),
    }
}

/// Why CUDA cannot be used; `None` if [`open_cuda`] should succeed.
pub fn cuda_problem() -> Option<DeviceError> {
    match Driver::get().and_then(Driver::gpus) {
        Err(error) => Some(error),
        Ok(0) => Some(no_visible_gpu()),
        Ok(_) => None,
    }
}

fn no_visible_gpu() -> DeviceError {
    DeviceError::NoGpu { reason: "none is visible; CUDA_VISIBLE_DEVICES may hide them".into() }
}
