//! The driver library: loading, versions and errors.
//!
//! Owns the only place where libcuda is loaded and initialized. cudarc panics if the library is missing, so this module
//! checks presence and version first. All other code of this folder takes a [`Driver`] or a context as proof of the check.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use super::exit;
use super::functions::{self, Code};
use crate::{DeviceError, Result};

/// The oldest driver with all functions that this folder calls (`cuFuncGetParamInfo`).
const OLDEST: DriverVersion = DriverVersion(12_040);

/// The CUDA version that a driver supports, in the driver's format: 1000 * major + 10 * minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DriverVersion(pub(super) c_int);

impl DriverVersion {
    /// Major and minor.
    pub(super) fn parts(self) -> (u32, u32) {
        let number = self.0.unsigned_abs();
        (number / 1000, number % 1000 / 10)
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.parts();
        write!(f, "CUDA {major}.{minor}")
    }
}

/// Proof that the driver is loaded, initialized and recent enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    version: DriverVersion,
}

impl Driver {
    /// Loads and initializes the driver. Only success is cached.
    ///
    /// # Errors
    /// `NoDriver` without libcuda, `NoGpu` without a GPU, `Driver` if the driver is too old.
    pub(super) fn get() -> Result<Self> {
        static READY: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = READY.get() {
            return Ok(*driver);
        }
        let version = version()?;
        if version < OLDEST {
            return Err(DeviceError::Driver {
                device: "cuda".into(),
                call: "cuDriverGetVersion",
                reason: format!(
                    "the driver supports {version}, warpjoin needs {OLDEST} or later: update the NVIDIA driver"
                ),
            });
        }
        // SAFETY: the library is present; initializing twice is allowed.
        let result = unsafe { functions::cuInit(0) };
        if result == CUresult::CUDA_SUCCESS {
            return Ok(*READY.get_or_init(|| {
                exit::wait_at_exit();
                Self { version }
            }));
        }
        Err(DeviceError::NoGpu { reason: format!("cuInit: {}", describe(result)) })
    }

    /// The CUDA version that it supports.
    pub(super) fn version(self) -> DriverVersion {
        self.version
    }

    /// Number of GPUs visible to this process (`CUDA_VISIBLE_DEVICES` hides some).
    pub(super) fn gpus(self) -> Result<usize> {
        let mut count: c_int = 0;
        // SAFETY: the driver is initialized; `count` outlives the call.
        check("cuda", "cuDeviceGetCount", unsafe { functions::cuDeviceGetCount(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// The version of the driver library. Does not initialize it.
///
/// # Errors
/// `NoDriver` without libcuda; `Driver` if the call fails.
pub(super) fn version() -> Result<DriverVersion> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loading libcuda runs its constructors, which have no preconditions.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(DeviceError::NoDriver);
    }
    let mut number: c_int = 0;
    // SAFETY: the library is present, and every version has this function; `number` outlives the call.
    check("cuda", "cuDriverGetVersion", unsafe { functions::cuDriverGetVersion(&mut number) })?;
    Ok(DriverVersion(number))
}

/// The context does not recover. CUDA's documentation says to end the process or to make a new context.
const LOST: [CUresult; 16] = [
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
];

/// The compiled kernel cannot be used.
const BAD_IMAGE: [CUresult; 5] = [
    CUresult::CUDA_ERROR_INVALID_IMAGE,
    CUresult::CUDA_ERROR_INVALID_PTX,
    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_NOT_FOUND,
];

/// The GPU is in exclusive use, not permitted, or not ready.
const UNUSABLE: [CUresult; 14] = [
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_NO_DEVICE,
    CUresult::CUDA_ERROR_INVALID_DEVICE,
    CUresult::CUDA_ERROR_DEVICE_NOT_LICENSED,
    CUresult::CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED,
    CUresult::CUDA_ERROR_MPS_RPC_FAILURE,
    CUresult::CUDA_ERROR_MPS_SERVER_NOT_READY,
    CUresult::CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
    CUresult::CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
];

/// Converts a failed result of `call` into an error of `device`.
pub(super) fn check(device: &str, call: &'static str, result: Code) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(error_of(device, call, result, describe(result)))
}

/// The error of a failed call. A code that this build does not know is an error of the driver.
fn error_of(device: &str, call: &'static str, result: Code, reason: String) -> DeviceError {
    let device = device.into();
    let is_in = |codes: &[CUresult]| codes.iter().any(|code| result == *code);
    if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        DeviceError::OutOfDriverMemory { device, call, reason }
    } else if is_in(&LOST) {
        DeviceError::DeviceLost { device, call, reason }
    } else if is_in(&BAD_IMAGE) {
        DeviceError::BadImage { device, call, reason }
    } else if is_in(&UNUSABLE) {
        DeviceError::UnusableGpu { device, reason: format!("{call}: {reason}") }
    } else {
        DeviceError::Driver { device, call, reason }
    }
}

/// Name and description of a driver error.
pub(super) fn describe(result: Code) -> String {
    // SAFETY: `result` came from the loaded library; both functions set `text` to a constant of the
    // library, or leave it null for an unknown result.
    let (name, description) = unsafe {
        (
            constant(|text| functions::cuGetErrorName(result, text)),
            constant(|text| functions::cuGetErrorString(result, text)),
        )
    };
    match (name, description) {
        (Some(name), Some(description)) => format!("{name} ({description})"),
        (Some(name), None) => name.into(),
        _ => format!("CUDA error {}", result.0),
    }
}

/// The string that a driver function returns.
///
/// # Safety
/// `get` must not change its argument, or set it to a string that is never freed.
unsafe fn constant(get: impl FnOnce(*mut *const c_char) -> Code) -> Option<&'static str> {
    let mut text: *const c_char = std::ptr::null();
    if get(&mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: `text` is not null, and the caller guarantees a string that is never freed.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    #[test]
    fn versions_have_major_and_minor() {
        assert_eq!(DriverVersion(12_040).to_string(), "CUDA 12.4");
        assert_eq!(DriverVersion(13_000).to_string(), "CUDA 13.0");
        assert!(DriverVersion(12_020) < OLDEST && OLDEST < DriverVersion(13_000));
    }

    #[test]
    fn driver_errors_have_causes() {
        let cause = |result: CUresult| error_of("cuda:0", "cuX", result.into(), String::new()).cause();
        assert_eq!(cause(CUresult::CUDA_ERROR_OUT_OF_MEMORY), Cause::OutOfMemory);
        for result in [
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            CUresult::CUDA_ERROR_LAUNCH_FAILED,
            CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        ] {
            assert_eq!(cause(result), Cause::DeviceLost);
        }
        assert_eq!(cause(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU), Cause::Unavailable);
        assert_eq!(cause(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE), Cause::Unavailable);
        assert_eq!(cause(CUresult::CUDA_ERROR_INVALID_VALUE), Cause::Driver);
        assert_eq!(cause(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), Cause::Driver);
        // A code that no driver has yet.
        assert_eq!(error_of("cuda:0", "cuX", Code(98_765), String::new()).cause(), Cause::Driver);
    }
}
