//! The memory pool of one GPU: allocation in stream order.
//!
//! Must not know about budgets. It is not the GPU's default pool, since a release threshold and
//! trimming there would affect other libraries of the process. Freed memory stays in the pool,
//! since allocating it again from the driver takes 1.3 ms per GiB.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemoryPool, CUresult, CUstream};

use super::context::Context;
use super::functions;
use crate::{DeviceError, Result};

/// A pool of device memory.
#[derive(Debug)]
pub(super) struct Pool {
    raw: CUmemoryPool,
    /// Total memory of the GPU.
    total_bytes: u64,
    context: Arc<Context>,
}

// SAFETY: pool handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Creates a pool on the GPU of `context`.
    pub(super) fn new(context: Arc<Context>) -> Result<Self> {
        let (_, total_bytes) = context.memory_info()?;
        // SAFETY: all fields (numbers, enums, a pointer) may be zero, and the driver requires zeros in
        // unset fields.
        let mut props: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location = location(&context);
        let mut raw: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: `props` and `raw` outlive the call; `drop` destroys once.
        context.check("cuMemPoolCreate", unsafe { functions::cuMemPoolCreate(&mut raw, &props) })?;
        let pool = Self { raw, total_bytes, context };
        let mut threshold_bytes = u64::MAX;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the value of this attribute is a u64, which outlives the call.
        let result =
            unsafe { functions::cuMemPoolSetAttribute(pool.raw, attribute, (&raw mut threshold_bytes).cast()) };
        pool.context.check("cuMemPoolSetAttribute", result)?;
        Ok(pool)
    }

    /// Total memory of the GPU.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Allocates `bytes` (> 0) in the order of `stream`. `Err(None)` if there is not enough memory,
    /// even after waiting for all frees and trimming the pool.
    pub(super) fn alloc(&self, bytes: u64, stream: CUstream) -> Result<u64, Option<DeviceError>> {
        match self.try_alloc(bytes, stream)? {
            Some(address) => Ok(address),
            None => {
                self.trim()?;
                self.try_alloc(bytes, stream)?.ok_or(None)
            }
        }
    }

    /// Returns all free memory to the driver.
    pub(super) fn trim(&self) -> Result<()> {
        // Memory freed on a stream is available once the stream has reached the free. Free ranges are merged only by
        // returning them to the driver.
        self.context.synchronize()?;
        // SAFETY: the pool is live; trimming does not affect allocated memory.
        self.context.check("cuMemPoolTrimTo", unsafe { functions::cuMemPoolTrimTo(self.raw, 0) })
    }

    /// Bytes that the pool has taken from the driver, allocated or free.
    pub(super) fn reserved_bytes(&self) -> Result<u64> {
        let mut bytes = 0_u64;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
        self.context.make_current()?;
        // SAFETY: the value of this attribute is a u64, which outlives the call.
        let result = unsafe { functions::cuMemPoolGetAttribute(self.raw, attribute, (&raw mut bytes).cast()) };
        self.context.check("cuMemPoolGetAttribute", result).map(|()| bytes)
    }

    fn try_alloc(&self, bytes: u64, stream: CUstream) -> Result<Option<u64>> {
        // The driver reports a size above the GPU's memory as an invalid value, not as out of memory.
        let Some(bytes) = usize::try_from(bytes).ok().filter(|_| bytes <= self.total_bytes) else { return Ok(None) };
        self.context.make_current()?;
        let mut address = 0;
        // SAFETY: pool and stream belong to the current context; `address` outlives the call.
        let result = unsafe { functions::cuMemAllocFromPoolAsync(&mut address, bytes, self.raw, stream) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Ok(None);
        }
        self.context.check("cuMemAllocFromPoolAsync", result).map(|()| Some(address))
    }

    /// Frees an allocation of this pool in the order of `stream`.
    pub(super) fn free(&self, address: u64, stream: CUstream) {
        if self.context.make_current().is_ok() {
            // SAFETY: `address` came from `alloc`, and the `Buffer` that owns it frees it once. Work
            // enqueued earlier on `stream` may still use the memory.
            self.context.log_failure("cuMemFreeAsync", unsafe { functions::cuMemFreeAsync(address, stream) });
        }
    }

    /// Lets the GPU of `reader` access all current and future allocations of the pool.
    pub(super) fn grant(&self, reader: &Context) -> Result<()> {
        let access = sys::CUmemAccessDesc {
            location: location(reader),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        self.context.make_current()?;
        // SAFETY: one description, which outlives the call.
        self.context.check("cuMemPoolSetAccess", unsafe { functions::cuMemPoolSetAccess(self.raw, &access, 1) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created once in `new`. Buffers keep their stream alive, which keeps this pool
            // alive. The driver finishes pending frees before it releases the pool.
            self.context.log_failure("cuMemPoolDestroy", unsafe { functions::cuMemPoolDestroy(self.raw) });
        }
    }
}

fn location(context: &Context) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device() }
}
