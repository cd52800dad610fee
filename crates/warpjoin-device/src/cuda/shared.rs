//! What the streams of one GPU share, idle streams among it: to make and destroy one takes 60 us.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUresult, CUstream};

use super::blocks::Blocks;
use super::context::Context;
use super::event::Events;
use super::pool::Pool;
use super::staging::Staging;
use crate::Result;

/// Streams that are kept for later ones.
const IDLE_MAX: usize = 16;
/// Of these, those that keep memory: others would keep it from queries on other streams.
const IDLE_WITH_BLOCKS_MAX: usize = 4;
/// Pinned bytes of a stream, for reads of a few words.
pub(super) const SCRATCH_BYTES: usize = 4096;
/// Streams that have such.
const SCRATCHES: usize = 16;

/// What the streams of one GPU share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pool: Pool,
    pub(super) staging: Staging,
    pub(super) events: Arc<Events>,
    /// What all streams keep of freed buffers.
    pub(super) kept_bytes: Arc<AtomicU64>,
    idle: Mutex<Vec<Lane>>,
    /// For [`Self::write_word`]: never behind other work, so made when the device is opened.
    beside: Mutex<BesideStream>,
    scratches: Mutex<Scratches>,
    pub(super) context: Arc<Context>,
}

/// A stream of the driver, with what it keeps for its next user.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) raw: CUstream,
    pub(super) blocks: Mutex<Blocks>,
    /// Used between a copy and the wait for it. `None`: not asked for yet, or there was none left.
    pub(super) scratch: Mutex<Option<Scratch>>,
}

/// [`SCRATCH_BYTES`] of pinned memory.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) *mut u8);

/// Pinned memory for few words, made when it is first asked for: making it waits for the GPU.
#[derive(Debug, Default)]
struct Scratches {
    memory: Option<Scratch>,
    free: Vec<Scratch>,
}

/// A stream that only writes words, each of which is waited for.
#[derive(Debug)]
struct BesideStream(CUstream);

// SAFETY: a stream handle may be used by any number of threads; the driver locks.
unsafe impl Send for BesideStream {}
// SAFETY: as above.
unsafe impl Send for Lane {}
// SAFETY: as above; the rest is behind locks.
unsafe impl Sync for Lane {}
// SAFETY: the memory has no ties to a thread.
unsafe impl Send for Scratch {}

impl Shared {
    pub(super) fn new(context: Arc<Context>) -> Result<Self> {
        let (pool, staging) = (Pool::new(context.clone())?, Staging::new(context.clone()));
        let events = Arc::new(Events::new(context.clone()));
        let beside = Mutex::new(BesideStream(create_stream(&context)?));
        let (kept_bytes, idle, scratches) = (Arc::default(), Mutex::default(), Mutex::default());
        Ok(Self { pool, staging, events, kept_bytes, idle, beside, scratches, context })
    }

    /// Whether the context still works: asks a stream on which nothing runs.
    pub(super) fn is_alive(&self) -> bool {
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stream lives as long as `self`.
        self.context.make_current().is_ok() && unsafe { sys::cuStreamQuery(beside.0) } == CUresult::CUDA_SUCCESS
    }

    /// Gives memory that idle streams and the pool keep back to the driver.
    pub(super) fn trim_all(&self) -> Result<()> {
        self.trim_idle();
        self.pool.trim()
    }

    /// Writes 8 bytes of a live buffer while kernels run: a copy of this size goes with the command, and needs no
    /// multiprocessor.
    pub(super) fn write_word(&self, address: u64, value: u64) -> Result<()> {
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        self.context.make_current()?;
        // SAFETY: the front end promises a live buffer; `value` outlives the wait below.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(address, (&raw const value).cast(), 8, beside.0) };
        // SAFETY: the stream lives as long as `self`.
        let waited = unsafe { sys::cuStreamSynchronize(beside.0) };
        self.context.check("cuMemcpyHtoDAsync", copied)?;
        self.context.check("cuStreamSynchronize", waited)
    }

    /// An idle stream, or a new one, that does not synchronise with the null stream.
    pub(super) fn take_lane(&self) -> Result<Lane> {
        if let Some(lane) = self.idle().pop() {
            return Ok(lane);
        }
        let blocks = Mutex::new(Blocks::counted_in(Arc::clone(&self.kept_bytes)));
        Ok(Lane { raw: create_stream(&self.context)?, blocks, scratch: Mutex::default() })
    }

    /// Pinned memory for a stream, if some is left.
    pub(super) fn take_scratch(&self) -> Option<Scratch> {
        let mut scratches = self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        if scratches.memory.is_none() {
            self.context.make_current().ok()?;
            let mut memory: *mut c_void = std::ptr::null_mut();
            let bytes = SCRATCH_BYTES * SCRATCHES;
            // SAFETY: the context is current; `memory` outlives the call; `drop` frees once.
            let result = unsafe { sys::cuMemHostAlloc(&mut memory, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
            self.context.check("cuMemHostAlloc", result).inspect_err(|error| log::debug!("{error}")).ok()?;
            let memory = memory.cast::<u8>();
            // SAFETY: within what was allocated.
            scratches.free = (0..SCRATCHES).map(|at| Scratch(unsafe { memory.add(at * SCRATCH_BYTES) })).collect();
            scratches.memory = Some(Scratch(memory));
        }
        scratches.free.pop()
    }

    /// Takes back a stream whose buffers are all freed. Its work may be under way: what comes next is behind it.
    pub(super) fn put_lane(&self, lane: Lane) {
        let mut idle = self.idle();
        if idle.len() >= IDLE_WITH_BLOCKS_MAX {
            self.trim(&lane);
        }
        if idle.len() < IDLE_MAX {
            return idle.push(lane);
        }
        drop(idle);
        self.release(lane);
    }

    /// Gives memory that idle streams keep back to the pool.
    pub(super) fn trim_idle(&self) {
        for lane in self.idle().iter() {
            self.trim(lane);
        }
    }

    /// Gives memory that a stream keeps and does not use back to the pool.
    pub(super) fn trim(&self, lane: &Lane) {
        for address in lane.blocks.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            self.pool.free(address, lane.raw);
        }
    }

    /// Destroys a stream.
    fn release(&self, lane: Lane) {
        self.trim(&lane);
        let Ok(()) = self.context.make_current() else { return };
        if let Some(scratch) = lane.scratch.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.scratches.lock().unwrap_or_else(PoisonError::into_inner).free.push(scratch);
        }
        // SAFETY: made once in `take_lane`. The driver finishes enqueued work first; buffers allocated here held the
        // stream, so all are freed by now.
        self.context.note("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(lane.raw) });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut *self.idle());
        idle.into_iter().for_each(|lane| self.release(lane));
        if self.context.make_current().is_ok() {
            let beside = self.beside.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: made once in `new`; all its work was waited for.
            self.context.note("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(beside.0) });
        }
        let scratches = std::mem::take(&mut *self.scratches.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(Scratch(memory)) = scratches.memory
            && self.context.make_current().is_ok()
        {
            // SAFETY: allocated once in `take_scratch`; each copy into it was waited for.
            self.context.note("cuMemFreeHost", unsafe { sys::cuMemFreeHost(memory.cast()) });
        }
    }
}

/// A stream that does not synchronise with the null stream. Whoever asks for it destroys it, once.
fn create_stream(context: &Context) -> Result<CUstream> {
    context.make_current()?;
    let mut raw: CUstream = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the context is current; `raw` outlives the call.
    context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
    Ok(raw)
}
