//! The context of one GPU, held open: the primary one, or another where a kernel broke that.
//!
//! Everything that belongs to the GPU (pool, streams, events, modules, pinned memory) keeps an
//! `Arc` of it, so that the context is released last. Each call into the driver goes through
//! [`Context::make_current`] first: callers come from any thread.

use std::ffi::c_int;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult};

use super::driver::{Driver, DriverVersion, check};
use crate::{DeviceError, Result};

/// The first driver that makes contexts beside the primary one by the call used here.
const MAKES_CONTEXTS: DriverVersion = DriverVersion(12_050);

/// A context that is kept until this is dropped.
#[derive(Debug)]
pub(super) struct Context {
    driver: Driver,
    device: CUdevice,
    raw: CUcontext,
    label: String,
    is_primary: bool,
}

// SAFETY: a context handle may be used by any number of threads; the driver locks.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of GPU `ordinal`; a new one where a kernel of this process has broken that.
    ///
    /// # Errors
    /// [`DeviceError::DeviceLost`] where the new one does not work either.
    pub(super) fn open(driver: Driver, ordinal: usize) -> Result<Self> {
        let primary = Self::retain(driver, ordinal)?;
        let Err(lost @ DeviceError::DeviceLost { .. }) = primary.probe() else { return Ok(primary) };
        if driver.version() < MAKES_CONTEXTS {
            return Err(lost);
        }
        let created = primary.create_another().and_then(|created| created.probe().map(|()| created));
        match &created {
            Ok(_) => log::warn!("{lost}; a new context on the GPU works"),
            Err(error) => log::warn!("{error}: a new context on a lost GPU"),
        }
        created.map_err(|_| lost)
    }

    /// Retains the primary context of GPU `ordinal`.
    fn retain(driver: Driver, ordinal: usize) -> Result<Self> {
        let label = format!("cuda:{ordinal}");
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let (mut device, mut raw): (CUdevice, CUcontext) = (0, std::ptr::null_mut());
        // SAFETY: the driver is initialised; `device` outlives the call.
        check(&label, "cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number) })?;
        // SAFETY: `device` is the driver's; `raw` outlives the call; `drop` releases once.
        check(&label, "cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        Ok(Self { driver, device, raw, label, is_primary: true })
    }

    /// A context beside this one, on the same GPU.
    fn create_another(&self) -> Result<Self> {
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device is the driver's; without parameters it is an ordinary context; `raw` outlives the call; `drop`
        // destroys once.
        let result = unsafe { sys::cuCtxCreate_v4(&mut raw, std::ptr::null_mut(), 0, self.device) };
        self.check("cuCtxCreate", result)?;
        Ok(Self { driver: self.driver, device: self.device, raw, label: self.label.clone(), is_primary: false })
    }

    /// The driver it belongs to.
    pub(super) fn driver(&self) -> Driver {
        self.driver
    }

    /// The driver's number of the GPU.
    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// The handle, for enabling peers.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Such as `cuda:0`.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Makes this the context of the calling thread: 0.1 us.
    pub(super) fn make_current(&self) -> Result<()> {
        // SAFETY: `raw` is retained until `self` is dropped.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// Waits for all work of the GPU's context. Errors of that work come out here.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Whether the context still works; waits for nobody's work.
    fn probe(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the context is current; null is its default stream.
        match unsafe { sys::cuStreamQuery(std::ptr::null_mut()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            result => self.check("cuStreamQuery", result),
        }
    }

    /// Free and total bytes of the GPU's memory.
    pub(super) fn memory_info(&self) -> Result<(u64, u64)> {
        self.make_current()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the context is current; both numbers outlive the call.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Turns a result of `call` into an error of this GPU.
    pub(super) fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        check(&self.label, call, result)
    }

    /// For calls on the way out, where there is nobody to tell: a failure is logged. At the end of
    /// the process the driver may be gone before us, which is no matter.
    pub(super) fn note(&self, call: &'static str, result: CUresult) {
        if result != CUresult::CUDA_ERROR_DEINITIALIZED
            && let Err(error) = self.check(call, result)
        {
            log::debug!("{error}");
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Everything made in the context held an `Arc` of `self`, so it is gone by now.
        if self.is_primary {
            // SAFETY: retained once in `retain`.
            self.note("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) });
        } else {
            // SAFETY: made once in `create_another`.
            self.note("cuCtxDestroy", unsafe { sys::cuCtxDestroy_v2(self.raw) });
        }
    }
}
