//! The context of one GPU: the primary context, or a new one if a kernel broke the primary one.
//!
//! Owns the lifetime of the context; must not know what is made in it. All objects of the GPU (pool,
//! streams, events, modules, pinned memory) hold an `Arc` of it, so it is released last. Callers come
//! from any thread, so they call [`Context::make_current`] before each driver call.

use std::ffi::c_int;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUpointer_attribute, CUresult};

use super::driver::{Driver, DriverVersion, check};
use super::functions::{self, Code};
use crate::{DeviceError, Result};

/// The first driver with `cuCtxCreate_v4`.
const MAKES_CONTEXTS: DriverVersion = DriverVersion(12_050);

/// A context, released or destroyed on drop.
#[derive(Debug)]
pub(super) struct Context {
    driver: Driver,
    device: CUdevice,
    raw: CUcontext,
    label: String,
    is_primary: bool,
    /// Whether the GPU reads any host memory by its page tables, as on Grace Hopper.
    uses_host_pages: bool,
}

// SAFETY: context handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the primary context of GPU `ordinal`, or a new context if a kernel of this process broke the primary one.
    ///
    /// # Errors
    /// [`DeviceError::DeviceLost`] if the new context does not work either.
    pub(super) fn open(driver: Driver, ordinal: usize) -> Result<Self> {
        let primary = Self::retain(driver, ordinal)?;
        let Err(lost @ DeviceError::DeviceLost { .. }) = primary.probe() else { return Ok(primary) };
        if driver.version() < MAKES_CONTEXTS {
            return Err(lost);
        }
        let created = primary.create_another().and_then(|created| created.probe().map(|()| created));
        match &created {
            Ok(_) => log::warn!("{lost}; opened a new context on the GPU"),
            Err(error) => log::warn!("cannot open a new context on a lost GPU: {error}"),
        }
        created.map_err(|_| lost)
    }

    /// Retains the primary context of GPU `ordinal`.
    fn retain(driver: Driver, ordinal: usize) -> Result<Self> {
        let label = format!("cuda:{ordinal}");
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let (mut device, mut raw): (CUdevice, CUcontext) = (0, std::ptr::null_mut());
        // SAFETY: the driver is initialized; `device` outlives the call.
        check(&label, "cuDeviceGet", unsafe { functions::cuDeviceGet(&mut device, number) })?;
        // SAFETY: `device` came from the driver; `raw` outlives the call; `drop` releases once.
        check(&label, "cuDevicePrimaryCtxRetain", unsafe { functions::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        let mut uses_host_pages: c_int = 0;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
        // SAFETY: `device` came from the driver; the number outlives the call.
        let result = unsafe { functions::cuDeviceGetAttribute(&mut uses_host_pages, attribute, device) };
        let context = Self { driver, device, raw, label, is_primary: true, uses_host_pages: uses_host_pages != 0 };
        context.check("cuDeviceGetAttribute", result)?;
        Ok(context)
    }

    /// Creates another context on the same GPU.
    fn create_another(&self) -> Result<Self> {
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device came from the driver; null parameters mean an ordinary context; `raw` outlives the call;
        // `drop` destroys once.
        let result = unsafe { functions::cuCtxCreate_v4(&mut raw, std::ptr::null_mut(), 0, self.device) };
        self.check("cuCtxCreate", result)?;
        let Self { driver, device, uses_host_pages, .. } = *self;
        Ok(Self { driver, device, raw, label: self.label.clone(), is_primary: false, uses_host_pages })
    }

    /// The driver it belongs to.
    pub(super) fn driver(&self) -> Driver {
        self.driver
    }

    /// The driver's handle of the GPU.
    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// The handle, for enabling peer access.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// For example `cuda:0`.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Makes this the context of the calling thread. Takes 0.1 us.
    pub(super) fn make_current(&self) -> Result<()> {
        // SAFETY: `raw` is retained until `self` is dropped.
        self.check("cuCtxSetCurrent", unsafe { functions::cuCtxSetCurrent(self.raw) })
    }

    /// Whether an asynchronous copy may read `bytes` after the call returns: the driver copies bytes during the call
    /// only from pageable memory that the GPU does not read by itself. The context must be current.
    pub(super) fn reads_late(&self, bytes: &[u8]) -> bool {
        // Stays 0 for memory that CUDA does not know, which is pageable. (For one attribute there is a call, which fails then.)
        let mut kind = 0_u32;
        let mut attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let mut value = (&raw mut kind).cast();
        let address = bytes.as_ptr() as u64;
        // SAFETY: one attribute, whose value is a 32-bit number that outlives the call. Any address is allowed.
        let result = unsafe { functions::cuPointerGetAttributes(1, &raw mut attribute, &raw mut value, address) };
        self.uses_host_pages || result != CUresult::CUDA_SUCCESS || kind != 0
    }

    /// Waits for all work in the context, and returns its errors.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { functions::cuCtxSynchronize() })
    }

    /// Checks that the context works, without waiting for any work.
    fn probe(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the context is current; null means its default stream.
        let result = unsafe { functions::cuStreamQuery(std::ptr::null_mut()) };
        if result == CUresult::CUDA_ERROR_NOT_READY { Ok(()) } else { self.check("cuStreamQuery", result) }
    }

    /// Free and total bytes of the GPU's memory.
    pub(super) fn memory_info(&self) -> Result<(u64, u64)> {
        self.make_current()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the context is current; both numbers outlive the call.
        self.check("cuMemGetInfo", unsafe { functions::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Converts a failed result of `call` into an error of this GPU.
    pub(super) fn check(&self, call: &'static str, result: Code) -> Result<()> {
        check(&self.label, call, result)
    }

    /// Logs a failure of a call in a destructor, which cannot return it. Ignores that the driver is
    /// already shut down at the end of the process.
    pub(super) fn log_failure(&self, call: &'static str, result: Code) {
        if result != CUresult::CUDA_ERROR_DEINITIALIZED
            && let Err(error) = self.check(call, result)
        {
            log::debug!("{error}");
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // All objects made in the context held an `Arc` of `self`, so they are gone by now.
        if self.is_primary {
            // SAFETY: retained once in `retain`.
            self.log_failure("cuDevicePrimaryCtxRelease", unsafe {
                functions::cuDevicePrimaryCtxRelease_v2(self.device)
            });
        } else {
            // SAFETY: made once in `create_another`.
            self.log_failure("cuCtxDestroy", unsafe { functions::cuCtxDestroy_v2(self.raw) });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::ffi::c_void;

    use super::*;

    #[test]
    fn only_pageable_memory_is_copied_at_once() {
        // Skipped without a GPU; tests/cuda_device.rs says so.
        let Ok(driver) = Driver::get() else { return };
        let context = Context::open(driver, 0).unwrap();
        context.make_current().unwrap();
        assert_eq!(context.reads_late(&[1_u8; 100]), context.uses_host_pages);
        let mut pinned: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current; `pinned` outlives the call; freed below.
        context.check("cuMemHostAlloc", unsafe { functions::cuMemHostAlloc(&mut pinned, 4096, 0) }).unwrap();
        // SAFETY: the allocation is as long, and only this thread uses it. CUDA zeroes no memory, but any byte is valid.
        let bytes = unsafe {
            pinned.cast::<u8>().write_bytes(1, 4096);
            std::slice::from_raw_parts(pinned.cast::<u8>(), 4096)
        };
        assert!(context.reads_late(bytes) && context.reads_late(&bytes[100..200]));
        // SAFETY: allocated above, and `bytes` is not used again.
        context.check("cuMemFreeHost", unsafe { functions::cuMemFreeHost(pinned) }).unwrap();
    }
}
