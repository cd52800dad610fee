//! The driver's functions, with results that may have any value.
//!
//! cudarc returns results as a closed enum, and panics if a function is missing. A driver newer than cudarc may return a
//! code that the enum lacks, so the functions are looked up here, and return a [`Code`]. Their parameters are checked
//! against cudarc's when this module is compiled. Must not know what the codes mean.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUctxCreateParams, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUdeviceptr, CUevent,
    CUfunction, CUfunction_attribute, CUmemAccessDesc, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUmodule,
    CUpointer_attribute, CUresult, CUstream,
};

/// The result of a call, which need not be one of the codes that [`CUresult`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Code(pub(super) u32);

impl From<CUresult> for Code {
    fn from(known: CUresult) -> Self {
        Self(known as u32)
    }
}

impl PartialEq<CUresult> for Code {
    fn eq(&self, known: &CUresult) -> bool {
        self.0 == *known as u32
    }
}

/// Looks up a function of the driver. The library stays loaded.
///
/// # Safety
/// The library must be present, and `F` be the type of the function.
unsafe fn find<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: by the caller.
    let found = unsafe { sys::culib().get::<F>(name.as_bytes()) };
    found.inspect_err(|error| log::warn!("the CUDA driver lacks a function: {error}")).ok().map(|function| *function)
}

/// Defines functions that call the driver's function of the same name. A missing function returns
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// # Safety
        /// The library must be present. The driver's documentation says what the parameters must be.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's names and parameters")]
        pub(super) unsafe fn $name($($argument: $type),*) -> Code {
            type Function = unsafe extern "C" fn($($type),*) -> Code;
            static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
            // SAFETY: the library is present, and the type is the function's.
            match FUNCTION.get_or_init(|| unsafe { find(concat!(stringify!($name), "\0")) }) {
                // SAFETY: by the caller.
                Some(function) => unsafe { function($($argument),*) },
                None => CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND.into(),
            }
        }
    )* };
}

/// [`functions`] with parameters that must be those of cudarc.
macro_rules! checked_functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        functions! { $($name($($argument: $type),*);)* }
        $(const _: unsafe fn($($type),*) -> CUresult = sys::$name;)*
    };
}

checked_functions! {
    cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, device: CUdevice);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxEnablePeerAccess(peer_context: CUcontext, flags: c_uint);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxSynchronize();
    cuDeviceCanAccessPeer(can_access: *mut c_int, device: CUdevice, peer: CUdevice);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    cuDeviceGetP2PAttribute(value: *mut c_int, attribute: CUdevice_P2PAttribute, source: CUdevice, target: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, param_index: usize, param_offset: *mut usize, param_size: *mut usize);
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuInit(flags: c_uint);
    cuLaunchKernel(
        function: CUfunction,
        grid_dim_x: c_uint,
        grid_dim_y: c_uint,
        grid_dim_z: c_uint,
        block_dim_x: c_uint,
        block_dim_y: c_uint,
        block_dim_z: c_uint,
        shared_mem_bytes: c_uint,
        stream: CUstream,
        kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void
    );
    cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemFreeHost(pointer: *mut c_void);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint);
    cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(pointer: *mut c_void);
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes_min: usize);
    cuMemcpyAsync(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream);
    cuMemsetD32Async(target: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    cuMemsetD8Async(target: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleUnload(module: CUmodule);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        block_threads: c_int,
        shared_bytes: usize
    );
    cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut CUpointer_attribute,
        values: *mut *mut c_void,
        address: CUdeviceptr
    );
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
}

// cudarc's first two take a `CUresult`. It lacks the third, whose second version drivers before 12.8 lack.
functions! {
    cuEventElapsedTime(elapsed_ms: *mut f32, from: CUevent, to: CUevent);
    cuGetErrorName(code: Code, text: *mut *const c_char);
    cuGetErrorString(code: Code, text: *mut *const c_char);
}
