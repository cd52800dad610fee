//! The error type of this crate. Messages say what went wrong, and what the user can do about it.
//!
//! Must not know how callers react.

mod cause;

pub use cause::Cause;

use std::path::PathBuf;
use std::sync::Arc;

use crate::RaceReport;

/// Result of a device operation.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// An error of a device, its driver or its compiler.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// libcuda is not installed.
    #[error("no CUDA driver found (libcuda): install the NVIDIA driver, or choose the simulated device")]
    NoDriver,
    /// The driver is installed, but there is no GPU.
    #[error("the CUDA driver reports no GPU: {reason}")]
    NoGpu {
        /// The driver's message.
        reason: String,
    },
    /// The driver is installed, but the run-time compiler is not.
    #[error(
        "libnvrtc not found: the driver does not include it; install the CUDA toolkit 12.0 or later, or \
         the Python wheel nvidia-cuda-nvrtc, and put its lib folder on LD_LIBRARY_PATH"
    )]
    NoNvrtc,
    /// The simulated device found no C++ compiler.
    #[error(
        "the simulated device needs a C++ compiler: {tried} could not be run ({reason}); install g++ or clang++, or set CXX"
    )]
    NoCompiler {
        /// The command that was tried.
        tried: String,
        /// Why it did not run.
        reason: String,
    },
    /// A kernel did not compile. A defect of warpjoin, never of the user's data.
    #[error("kernel {module} does not compile for {target}:\n{log}")]
    KernelCompile {
        /// Name of the module.
        module: String,
        /// Architecture or compiler.
        target: String,
        /// The compiler's output.
        log: String,
    },
    /// The run-time compiler does not support the GPU's architecture.
    #[error("NVRTC {nvrtc} cannot compile for {architecture}: it supports {known}; install another CUDA toolkit")]
    UnknownArchitecture {
        /// For example `sm_70`.
        architecture: String,
        /// For example `13.0`.
        nvrtc: String,
        /// Architectures that it supports.
        known: String,
    },
    /// The device, or its budget, has too little memory.
    #[error(
        "{device}: out of device memory: {asked_bytes} bytes requested, {free_bytes} free of a budget of {limit_bytes}{}",
        advice(*.asked_bytes, *.free_bytes, *.physical_free_bytes)
    )]
    OutOfDeviceMemory {
        /// Name of the device.
        device: String,
        /// Bytes requested.
        asked_bytes: u64,
        /// Bytes left in the budget.
        free_bytes: u64,
        /// The budget.
        limit_bytes: u64,
        /// Free bytes of the device, for any process; `None` if unknown.
        physical_free_bytes: Option<u64>,
    },
    /// The host has too little memory for a device's buffers in host memory.
    #[error(
        "{device}: out of host memory: {asked_bytes} bytes requested, {free_bytes} free of a budget of {limit_bytes}; raise \
         warpjoin.host_memory or the memory that this process may use, or set warpjoin.spill_path to a folder for files"
    )]
    OutOfHostMemory {
        /// Name of the device that should read it.
        device: String,
        /// Bytes requested.
        asked_bytes: u64,
        /// Bytes left in the budget.
        free_bytes: u64,
        /// The budget.
        limit_bytes: u64,
    },
    /// A GPU exists but cannot be used: it is too old, in exclusive use, or above the maximum number.
    #[error("{device} cannot be used: {reason}")]
    UnusableGpu {
        /// Name of the device.
        device: String,
        /// Why.
        reason: String,
    },
    /// The driver has no memory for something other than a buffer: a module, a stream, pinned host memory.
    #[error(
        "{device}: the driver is out of memory in {call}: {reason}; lower warpjoin.memory_budget, or stop other processes \
         that use the GPU"
    )]
    OutOfDriverMemory {
        /// Name of the device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The hardware, or the system, does not let one device reach the memory of another.
    #[error("{from} cannot reach the memory of {to}: neither NVLink nor PCIe peer access connects them")]
    NoPeerLink {
        /// Device that executes.
        from: String,
        /// Device that owns the memory.
        to: String,
    },
    /// A kernel or a copy accesses the memory of a device without opened peer access.
    #[error("{from} has no access to the memory of {to}: open peer access first")]
    NoPeerAccess {
        /// Device that executes.
        from: String,
        /// Device that owns the memory.
        to: String,
    },
    /// A driver call failed.
    #[error("{call} failed on {device}: {reason}")]
    Driver {
        /// Name of the device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// A driver error that breaks the context of the GPU: every later call on it fails.
    #[error(
        "{device} is lost: {call}: {reason}; its memory is gone. Restart the process; if that does not help, look at \
         nvidia-smi and the kernel's log (dmesg) for Xid errors, and reset the GPU"
    )]
    DeviceLost {
        /// Name of the device.
        device: String,
        /// The driver function that reported it.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The driver rejects a compiled module.
    #[error("{call} rejects a module on {device}: {reason}")]
    BadImage {
        /// Name of the device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// A simulated device found an error in a kernel: a deadlock or a divergent barrier. A defect of warpjoin.
    #[error("{device}: {reason}")]
    Kernel {
        /// Name of the device.
        device: String,
        /// The kernel and its error.
        reason: String,
    },
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// The race detector of simulated devices ([`crate::SimOptions::races`]) found a race. A defect of warpjoin.
    #[error("{device}: {report}")]
    Race {
        /// Name of the device.
        device: String,
        /// The two accesses.
        report: Arc<RaceReport>,
    },
    /// A file of the kernel cache or a scratch file could not be used.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A caller violated a precondition of this crate. A defect of warpjoin.
    #[error("internal: {0}")]
    Invalid(String),
}

impl DeviceError {
    /// The class of this error.
    pub fn cause(&self) -> Cause {
        match self {
            Self::NoDriver
            | Self::NoGpu { .. }
            | Self::NoNvrtc
            | Self::NoCompiler { .. }
            | Self::UnknownArchitecture { .. }
            | Self::NoPeerLink { .. }
            | Self::UnusableGpu { .. }
            | Self::BadImage { .. } => Cause::Unavailable,
            Self::KernelCompile { .. } => Cause::Compile,
            Self::OutOfDeviceMemory { .. } | Self::OutOfHostMemory { .. } | Self::OutOfDriverMemory { .. } => {
                Cause::OutOfMemory
            }
            Self::Driver { .. } => Cause::Driver,
            Self::DeviceLost { .. } => Cause::DeviceLost,
            Self::Kernel { .. } | Self::Race { .. } => Cause::Kernel,
            Self::File { .. } => Cause::File,
            Self::Cancelled => Cause::Cancelled,
            Self::NoPeerAccess { .. } | Self::Invalid(_) => Cause::Internal,
        }
    }
}

/// Advice for an out-of-memory error. Raising the budget helps only if the device has free memory.
fn advice(asked_bytes: u64, free_bytes: u64, physical_free_bytes: Option<u64>) -> String {
    match physical_free_bytes {
        Some(physical) if free_bytes >= asked_bytes || physical < asked_bytes => format!(
            "; the device itself has {physical} bytes free: end other processes that use it (nvidia-smi lists them), or use \
             more devices"
        ),
        _ => "; raise warpjoin.memory_budget or use more devices".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_advice_depends_on_what_is_short() {
        let words = |asked_bytes, free_bytes, physical_free_bytes| {
            let device = "cuda:0".into();
            let limit_bytes = 1000;
            DeviceError::OutOfDeviceMemory { device, asked_bytes, free_bytes, limit_bytes, physical_free_bytes }
                .to_string()
        };
        assert!(words(500, 100, Some(9000)).ends_with("raise warpjoin.memory_budget or use more devices"));
        assert!(words(500, 100, None).ends_with("raise warpjoin.memory_budget or use more devices"));
        // Raising the budget would not help.
        assert!(words(500, 100, Some(50)).contains("the device itself has 50 bytes free: end other processes"));
        assert!(words(500, 800, Some(50)).contains("the device itself has 50 bytes free: end other processes"));
    }
}
