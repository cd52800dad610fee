//! State that the streams of one GPU share: pool, pinned memory, unused events, idle streams.
//!
//! Owns the streams of the driver, and keeps idle ones, since creating and destroying one takes 60 us. Must not know what
//! work they get.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUresult, CUstream};

use super::blocks::Blocks;
use super::context::Context;
use super::event::EventCache;
use super::functions;
use super::pinned::{HostBuffers, HostWords, Staging};
use super::pool::Pool;
use crate::Result;

/// Maximum number of idle streams.
const IDLE_MAX: usize = 16;
/// Maximum number of idle streams that keep memory, which other streams cannot use.
const IDLE_WITH_BLOCKS_MAX: usize = 4;
/// Streams may keep this fraction of the GPU's memory (1 / divisor). The budget counts it as free, so it is released
/// when needed.
const KEPT_SHARE: u64 = 4;
/// Pinned bytes of a stream, for reads of a few words.
pub(super) const SCRATCH_BYTES: usize = 4096;
/// Number of streams with such pinned bytes.
const SCRATCHES: usize = 16;

/// State that the streams of one GPU share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pool: Pool,
    pub(super) staging: Staging,
    pub(super) host_buffers: HostBuffers,
    pub(super) events: Arc<EventCache>,
    /// Bytes of freed buffers that all streams keep.
    pub(super) kept_bytes: Arc<AtomicU64>,
    idle: Mutex<Vec<RawStream>>,
    /// The memory kept by each stream, in use or idle.
    kept: Mutex<Vec<Kept>>,
    /// Allocated when the device is opened, since the allocation waits for running kernels.
    pub(super) host_words: Arc<HostWords>,
    /// For [`Self::is_alive`]. Has no work.
    probe: ProbeStream,
    scratches: Mutex<Scratches>,
    pub(super) context: Arc<Context>,
}

/// A stream of the driver, with the memory that it keeps for its next user.
#[derive(Debug)]
pub(super) struct RawStream {
    pub(super) raw: CUstream,
    pub(super) blocks: Arc<Mutex<Blocks>>,
    /// Locked from a copy until the wait for it. `None` if not needed yet, or if none was free.
    pub(super) scratch: Mutex<Option<Scratch>>,
}

/// The free memory of a stream that has not been destroyed.
#[derive(Debug)]
struct Kept {
    raw: CUstream,
    blocks: Arc<Mutex<Blocks>>,
}

/// [`SCRATCH_BYTES`] of pinned memory.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) *mut u8);

/// Pinned memory for small reads. Allocated on first use, since the allocation waits for the GPU.
#[derive(Debug, Default)]
struct Scratches {
    memory: Option<Scratch>,
    free: Vec<Scratch>,
}

/// A stream without work.
#[derive(Debug)]
struct ProbeStream(CUstream);

// SAFETY: stream handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for ProbeStream {}
// SAFETY: as above.
unsafe impl Sync for ProbeStream {}
// SAFETY: as above.
unsafe impl Send for RawStream {}
// SAFETY: as above; the other fields are behind locks.
unsafe impl Sync for RawStream {}
// SAFETY: as above.
unsafe impl Send for Kept {}
// SAFETY: the memory is not bound to a thread.
unsafe impl Send for Scratch {}

impl Shared {
    pub(super) fn new(context: Arc<Context>) -> Result<Self> {
        let (pool, staging) = (Pool::new(context.clone())?, Staging::new(context.clone()));
        let events = Arc::new(EventCache::new(context.clone()));
        let host_buffers = HostBuffers::new(context.clone(), Arc::clone(&events));
        let (host_words, probe) = (HostWords::new(context.clone())?, ProbeStream(create_stream(&context)?));
        let (kept_bytes, idle, kept, scratches) =
            (Arc::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { pool, staging, host_buffers, events, kept_bytes, idle, kept, host_words, probe, scratches, context })
    }

    /// Whether the context works. Queries a stream without pending work.
    pub(super) fn is_alive(&self) -> bool {
        // SAFETY: the stream lives as long as `self`.
        self.context.make_current().is_ok()
            && unsafe { functions::cuStreamQuery(self.probe.0) } == CUresult::CUDA_SUCCESS
    }

    /// Returns free memory of streams and of the pool to the driver.
    pub(super) fn trim_all(&self) -> Result<()> {
        self.trim_streams();
        self.host_buffers.trim();
        self.pool.trim()
    }

    /// Takes an idle stream, or creates one.
    pub(super) fn take_stream(&self) -> Result<RawStream> {
        if let Some(stream) = self.idle().pop() {
            return Ok(stream);
        }
        let kept_bytes_max = self.pool.total_bytes() / KEPT_SHARE;
        let blocks = Arc::new(Mutex::new(Blocks::with_total(Arc::clone(&self.kept_bytes), kept_bytes_max)));
        let raw = create_stream(&self.context)?;
        self.kept().push(Kept { raw, blocks: Arc::clone(&blocks) });
        Ok(RawStream { raw, blocks, scratch: Mutex::default() })
    }

    /// Takes pinned memory for a stream; `None` if none is left.
    pub(super) fn take_scratch(&self) -> Option<Scratch> {
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        if scratches.memory.is_none() {
            self.context.make_current().ok()?;
            let mut memory: *mut c_void = std::ptr::null_mut();
            let bytes = SCRATCH_BYTES * SCRATCHES;
            // SAFETY: the context is current; `memory` outlives the call; `drop` frees once.
            let result = unsafe { functions::cuMemHostAlloc(&mut memory, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
            self.context.check("cuMemHostAlloc", result).inspect_err(|error| log::debug!("{error}")).ok()?;
            let memory = memory.cast::<u8>();
            // SAFETY: the offset is within the allocation.
            scratches.free = (0..SCRATCHES).map(|at| Scratch(unsafe { memory.add(at * SCRATCH_BYTES) })).collect();
            scratches.memory = Some(Scratch(memory));
        }
        scratches.free.pop()
    }

    /// Returns a stream whose buffers are all freed. Its work may still run: later work comes after it.
    pub(super) fn put_stream(&self, stream: RawStream) {
        let mut idle = self.idle();
        if idle.len() >= IDLE_WITH_BLOCKS_MAX {
            self.trim(&stream);
        }
        if idle.len() < IDLE_MAX {
            return idle.push(stream);
        }
        drop(idle);
        self.release(stream);
    }

    /// Returns free memory of all streams to the pool.
    pub(super) fn trim_streams(&self) {
        // Streams are destroyed under this lock.
        for Kept { raw, blocks } in self.kept().iter() {
            self.trim_blocks(*raw, blocks);
        }
    }

    /// Returns free memory of a stream to the pool.
    fn trim(&self, stream: &RawStream) {
        self.trim_blocks(stream.raw, &stream.blocks);
    }

    fn trim_blocks(&self, raw: CUstream, blocks: &Mutex<Blocks>) {
        let addresses = blocks.lock().unwrap_or_else(PoisonError::into_inner).drain();
        addresses.into_iter().for_each(|address| self.pool.free(address, raw));
    }

    /// Destroys a stream.
    fn release(&self, stream: RawStream) {
        let mut kept = self.kept();
        kept.retain(|kept| kept.raw != stream.raw);
        self.trim(&stream);
        let Ok(()) = self.context.make_current() else { return };
        if let Some(scratch) = stream.scratch.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.scratches.lock().unwrap_or_else(PoisonError::into_inner).free.push(scratch);
        }
        // SAFETY: created once in `take_stream`. The driver finishes enqueued work first. Buffers allocated on the stream
        // hold it, so all are freed by now.
        self.context.log_failure("cuStreamDestroy", unsafe { functions::cuStreamDestroy_v2(stream.raw) });
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<RawStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut *self.idle());
        idle.into_iter().for_each(|stream| self.release(stream));
        if self.context.make_current().is_ok() {
            // SAFETY: created once in `new`; it has no work.
            self.context.log_failure("cuStreamDestroy", unsafe { functions::cuStreamDestroy_v2(self.probe.0) });
        }
        let scratches = std::mem::take(&mut *self.scratches.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(Scratch(memory)) = scratches.memory
            && self.context.make_current().is_ok()
        {
            // SAFETY: allocated once in `take_scratch`; all copies into it have ended.
            self.context.log_failure("cuMemFreeHost", unsafe { functions::cuMemFreeHost(memory.cast()) });
        }
    }
}

/// Creates a stream that does not synchronize with the null stream. The caller must destroy it once.
fn create_stream(context: &Context) -> Result<CUstream> {
    context.make_current()?;
    let mut raw: CUstream = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the context is current; `raw` outlives the call.
    context.check("cuStreamCreate", unsafe { functions::cuStreamCreate(&mut raw, flags) })?;
    Ok(raw)
}
