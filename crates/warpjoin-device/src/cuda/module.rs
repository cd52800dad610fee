//! Compiled modules on one GPU, and the launch of their kernels.
//!
//! Must not know how modules are compiled or cached.

use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule, CUstream};

use super::context::Context;
use super::functions;
use crate::{DeviceError, Launch, Result};

/// A module, unloaded on drop.
#[derive(Debug)]
struct CudaModule {
    raw: CUmodule,
    context: Arc<Context>,
}

// SAFETY: module handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for CudaModule {}
// SAFETY: as above.
unsafe impl Sync for CudaModule {}

/// One entry of a module.
#[derive(Debug)]
pub(super) struct CudaKernel {
    name: String,
    raw: CUfunction,
    /// Size of the kernel's single parameter.
    params_bytes: usize,
    /// Current limit of the dynamic shared memory of a launch.
    shared_bytes_allowed: Mutex<u32>,
    /// Threads and shared memory of a block that was asked for last, and how many a multiprocessor holds.
    resident: Mutex<Option<([u32; 2], u32)>>,
    module: CudaModuleRef,
}

/// Keeps the module loaded as long as one of its kernels is in use.
type CudaModuleRef = Arc<CudaModule>;

// SAFETY: function handles may be used by any number of threads while their module is loaded.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

/// Loads a cubin, or PTX that ends in a zero byte, and finds `entries` in it.
pub(super) fn load(context: &Arc<Context>, image: &[u8], entries: &[String]) -> Result<Vec<CudaKernel>> {
    if image.last() != Some(&0) && !image.starts_with(b"\x7fELF") {
        let reason = "the image is neither a cubin nor PTX".into();
        return Err(DeviceError::BadImage { device: context.label().into(), call: "cuModuleLoadData", reason });
    }
    context.make_current()?;
    let mut raw: CUmodule = std::ptr::null_mut();
    // SAFETY: `image` is an ELF file, whose header holds its length, or text that ends in a zero
    // byte. The driver copies what it needs. `raw` outlives the call; `drop` unloads once.
    context.check("cuModuleLoadData", unsafe { functions::cuModuleLoadData(&mut raw, image.as_ptr().cast()) })?;
    let module = Arc::new(CudaModule { raw, context: context.clone() });
    entries.iter().map(|entry| CudaKernel::find(&module, entry)).collect()
}

impl CudaKernel {
    fn find(module: &Arc<CudaModule>, name: &str) -> Result<Self> {
        let context = &module.context;
        let symbol = CString::new(name).map_err(|_| DeviceError::Invalid(format!("entry {name:?}")))?;
        let mut raw: CUfunction = std::ptr::null_mut();
        // SAFETY: the module is loaded; `symbol` and `raw` outlive the call.
        let result = unsafe { functions::cuModuleGetFunction(&mut raw, module.raw, symbol.as_ptr()) };
        context.check("cuModuleGetFunction", result)?;
        let shared_bytes_allowed = Mutex::new(shared_bytes_allowed(context, raw)?);
        let params_bytes = params_bytes(context, raw)?;
        let resident = Mutex::new(None);
        Ok(Self { name: name.into(), raw, params_bytes, shared_bytes_allowed, resident, module: module.clone() })
    }

    /// Enqueues a launch on `stream`, a live stream of `context`, which is current.
    pub(super) fn launch(
        &self,
        context: &Arc<Context>,
        launch: Launch,
        params: &[u64],
        stream: CUstream,
    ) -> Result<()> {
        if !Arc::ptr_eq(context, &self.module.context) {
            return Err(DeviceError::Invalid(format!(
                "kernel {} was compiled for {}",
                self.name,
                self.module.context.label()
            )));
        }
        // An empty struct has one byte in C++.
        if self.params_bytes != (params.len() * 8).max(1) {
            return Err(DeviceError::Invalid(format!(
                "kernel {} has {} bytes of parameters, but got {} parameters of 8 bytes",
                self.name,
                self.params_bytes,
                params.len()
            )));
        }
        self.allow_shared_bytes(launch.shared_bytes)?;
        let nothing = 0_u64;
        let bytes: *const u64 = if params.is_empty() { &nothing } else { params.as_ptr() };
        let mut arguments = [bytes.cast_mut().cast::<c_void>()];
        // SAFETY: the kernel has one parameter of `params_bytes`, which the call copies from `bytes`.
        // The front end has checked that its addresses are of live buffers that this GPU can reach.
        let result = unsafe {
            functions::cuLaunchKernel(
                self.raw,
                launch.blocks,
                1,
                1,
                launch.block_threads,
                1,
                1,
                launch.shared_bytes,
                stream,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        context.check("cuLaunchKernel", result).map_err(|error| self.named(error, launch))
    }

    /// Blocks that a multiprocessor holds at once. The context is current.
    pub(super) fn resident_blocks(&self, block_threads: u32, shared_bytes: u32) -> Result<u32> {
        let mut last = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = [block_threads, shared_bytes];
        if let Some((_, blocks)) = last.filter(|(known, _)| *known == shape) {
            return Ok(blocks);
        }
        self.allow_shared_bytes(shared_bytes)?;
        let (mut blocks, threads) = (0, c_int::try_from(block_threads).unwrap_or(c_int::MAX));
        // SAFETY: the module is loaded; `blocks` outlives the call.
        let result = unsafe {
            functions::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.raw,
                threads,
                shared_bytes as usize,
            )
        };
        self.module.context.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        let blocks = u32::try_from(blocks).unwrap_or(0);
        *last = Some((shape, blocks));
        Ok(blocks)
    }

    /// Raises the function's limit if a launch with `bytes` needs it. The limit is never lowered.
    fn allow_shared_bytes(&self, bytes: u32) -> Result<()> {
        let mut allowed = self.shared_bytes_allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > *allowed {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
            // SAFETY: the module is loaded.
            let result = unsafe { functions::cuFuncSetAttribute(self.raw, attribute, value) };
            self.module.context.check("cuFuncSetAttribute", result)?;
            *allowed = bytes;
        }
        Ok(())
    }

    /// Adds the name of the kernel to the error of a launch.
    fn named(&self, error: DeviceError, launch: Launch) -> DeviceError {
        match error {
            DeviceError::Driver { device, call, reason } => {
                DeviceError::Driver { device, call, reason: format!("{reason}; kernel {}, {launch:?}", self.name) }
            }
            other => other,
        }
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        // Kernels may still run. If waiting fails, the context is broken and unloading does no further harm.
        if let Err(error) = self.context.synchronize() {
            log::debug!("{error}");
        }
        // SAFETY: loaded once in `load`; none of its kernels runs or can be launched any more.
        self.context.log_failure("cuModuleUnload", unsafe { functions::cuModuleUnload(self.raw) });
    }
}

/// Default limit of the dynamic shared memory of a launch: 48 KiB minus the static shared memory.
fn shared_bytes_allowed(context: &Context, function: CUfunction) -> Result<u32> {
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let mut bytes: c_int = 0;
    // SAFETY: the function's module is loaded; `bytes` outlives the call.
    context.check("cuFuncGetAttribute", unsafe { functions::cuFuncGetAttribute(&mut bytes, attribute, function) })?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Size of the function's parameter. WJ_ENTRY gives each entry a single one.
fn params_bytes(context: &Context, function: CUfunction) -> Result<usize> {
    let (mut offset, mut bytes) = (0_usize, 0_usize);
    // SAFETY: the function's module is loaded; both numbers outlive the call.
    let result = unsafe { functions::cuFuncGetParamInfo(function, 0, &mut offset, &mut bytes) };
    context.check("cuFuncGetParamInfo", result)?;
    Ok(bytes)
}
