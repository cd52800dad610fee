//! Devices that are NVIDIA GPUs, by way of the CUDA driver and NVRTC.
//!
//! Owns everything that names cudarc. Must not know what kernels compute, and must not check what
//! the front end ([`crate::Stream`], [`crate::Device`]) has checked already. Both libraries are
//! loaded at run time: without them the functions here return errors that say what to install, and
//! nothing panics.
//!
//! Who keeps whom alive: buffer -> stream -> what streams share (pool, pinned chunks, idle streams) -> context; kernel -> module ->
//! context; event -> context.

mod blocks;
mod context;
mod device;
mod driver;
mod event;
mod info;
mod module;
mod nvrtc;
mod open;
mod pool;
mod shared;
mod staging;
mod stream;

use std::path::PathBuf;

pub use nvrtc::compile_for_architecture;
pub use open::{LeftOut, OpenedDevices, open_cuda, open_usable_cuda};

use crate::DeviceError;
use driver::Driver;
use nvrtc::Nvrtc;

/// How GPUs are opened.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// How many GPUs, the first ones; `None`: all that the driver shows.
    pub devices: Option<usize>,
    /// Memory budget of each; `None`: 90 % of what is free when it is first opened.
    pub memory_bytes: Option<u64>,
    /// Folder for compiled kernels; see [`crate::KernelCache::open`].
    pub kernel_cache: Option<PathBuf>,
}

/// What this machine has for CUDA; see [`cuda_status`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CudaStatus {
    /// CUDA version that the driver serves, such as `CUDA 13.0`; `None` without a driver.
    pub driver: Option<String>,
    /// GPUs that the driver shows.
    pub gpus: usize,
    /// Version of the run-time compiler, such as `13.0`; `None` when there is none, or it is too old.
    pub nvrtc: Option<String>,
    /// The library file of the run-time compiler, where the system tells.
    pub nvrtc_path: Option<PathBuf>,
    /// Why CUDA cannot be used; `None` when [`open_cuda`] should succeed.
    pub problem: Option<DeviceError>,
}

/// Looks for the driver, GPUs and the run-time compiler, without opening a GPU. Never fails.
///
/// Reads the list of loaded libraries, which takes 0.1 ms and more: for each query, ask [`cuda_problem`].
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

/// Why GPUs can't be used; `None` when [`open_cuda`] should succeed.
pub fn cuda_problem() -> Option<DeviceError> {
    match Driver::get().and_then(Driver::gpus) {
        Err(error) => Some(error),
        Ok(0) => Some(none_shown()),
        Ok(_) => Nvrtc::get().err(),
    }
}

fn none_shown() -> DeviceError {
    DeviceError::NoGpu { reason: "it shows none; CUDA_VISIBLE_DEVICES may hide them".into() }
}
