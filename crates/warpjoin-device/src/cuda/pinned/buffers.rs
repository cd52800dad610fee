//! Buffers in pinned host memory, for data that does not fit on a GPU.
//!
//! Pinning a page costs more than copying it, so freed memory is kept for the next buffer of about its size. Owns the
//! memory of one GPU's buffers. Must not know budgets, nor the contents of buffers.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUresult, CUstream};

use crate::cuda::context::Context;
use crate::cuda::event::{CudaEvent, EventCache};
use crate::cuda::functions;
use crate::cuda::pinned::staging::{in_parallel, next};
use crate::memory::{take_huge_pages, usable_host_bytes};
use crate::{DeviceError, Result};

/// The size of a buffer is a multiple of this: a huge page.
const UNIT_BYTES: usize = 2 << 20;
/// Free memory is kept up to this fraction of host memory (1 / divisor).
const KEPT_DIVISOR: u64 = 4;
/// Free memory is taken for a buffer if at most a quarter of it stays unused.
const WASTE_DIVISOR: usize = 4;
/// Bytes that a thread copies, fills or touches at a time: whole pages, so that no two threads touch one.
const PIECE_BYTES: usize = 2 << 20;

/// The buffers of one GPU.
#[derive(Debug)]
pub(in crate::cuda) struct HostBuffers {
    context: Arc<Context>,
    events: Arc<EventCache>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Memory of buffers, by address.
    held: HashMap<u64, Block>,
    /// Free blocks, in the order in which they were returned.
    free: Vec<FreeBlock>,
}

/// Memory that belongs to no buffer. A copy or a kernel may still use it.
#[derive(Debug)]
struct FreeBlock {
    last_use: CudaEvent,
    block: Block,
}

impl HostBuffers {
    pub(in crate::cuda) fn new(context: Arc<Context>, events: Arc<EventCache>) -> Self {
        Self { context, events, state: Mutex::default() }
    }

    /// Takes a buffer of at least `bytes` bytes. `Err(None)` when the host has no memory.
    pub(in crate::cuda) fn take(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        let wanted = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(UNIT_BYTES));
        let bytes = wanted.ok_or(None)?;
        let kept = self.state().take_free(bytes);
        let block = match kept {
            Some(FreeBlock { last_use, block }) => {
                // Pinning memory anew takes longer than what was copied there.
                last_use.synchronize()?;
                block
            }
            None => match Block::new(&self.context, bytes)? {
                Some(block) => block,
                None => {
                    self.trim();
                    Block::new(&self.context, bytes)?.ok_or(None)?
                }
            },
        };
        let address = block.address();
        self.state().held.insert(address, block);
        Ok(address)
    }

    /// Returns a buffer. Work that was enqueued on `stream` before may still use it.
    pub(in crate::cuda) fn put(&self, address: u64, stream: CUstream) {
        let Some(block) = self.state().held.remove(&address) else { return };
        let recorded = self.events.take().and_then(|event| event.record(stream).map(|()| event));
        match recorded {
            Ok(last_use) => {
                let mut state = self.state();
                state.free.push(FreeBlock { last_use, block });
                let excess = state.take_excess();
                drop(state);
                // Not under the lock: unpinning takes long.
                drop(excess);
            }
            Err(error) => {
                log::warn!("pinned memory of a GPU that fails is not used again: {error}");
                std::mem::forget(block);
            }
        }
    }

    /// Returns free memory to the system.
    pub(in crate::cuda) fn trim(&self) {
        let (idle, busy) = std::mem::take(&mut self.state().free).into_iter().partition(FreeBlock::is_idle);
        self.state().free.extend::<Vec<_>>(busy);
        drop::<Vec<_>>(idle);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A block that is large enough, and not far too large: the smallest one, if possible an idle one.
    fn take_free(&mut self, bytes: usize) -> Option<FreeBlock> {
        let fits = |size: usize| size >= bytes && size - bytes <= size / WASTE_DIVISOR;
        let fitting = (0..self.free.len()).filter(|&at| fits(self.free[at].block.bytes));
        let best = fitting.min_by_key(|&at| (!self.free[at].is_idle(), self.free[at].block.bytes))?;
        Some(self.free.remove(best))
    }

    /// Takes idle blocks beyond the limit of kept memory, oldest first.
    fn take_excess(&mut self) -> Vec<FreeBlock> {
        let mut kept: usize = self.free.iter().map(|free| free.block.bytes).sum();
        let mut excess = vec![];
        let kept_max = usize::try_from(usable_host_bytes() / KEPT_DIVISOR).unwrap_or(usize::MAX);
        while kept > kept_max
            && let Some(at) = self.free.iter().position(FreeBlock::is_idle)
        {
            let oldest = self.free.remove(at);
            kept -= oldest.block.bytes;
            excess.push(oldest);
        }
        excess
    }
}

impl FreeBlock {
    fn is_idle(&self) -> bool {
        self.last_use.is_reached()
    }
}

impl Drop for HostBuffers {
    fn drop(&mut self) {
        for free in self.state().free.drain(..) {
            if let Err(error) = free.last_use.synchronize() {
                log::debug!("pinned memory of a GPU that fails: {error}");
            }
        }
    }
}

/// A separate allocation of pinned memory.
#[derive(Debug)]
struct Block {
    memory: *mut c_void,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the block owns its memory, which is not bound to a thread.
unsafe impl Send for Block {}

impl Block {
    /// Allocates and pins memory. `None` when the host has no memory, or does not allow pinning that much.
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Option<Self>> {
        context.make_current()?;
        let Some(memory) = map(bytes) else { return Ok(None) };
        // SAFETY: just mapped; nobody else has it.
        let touched = unsafe { touch(memory, bytes) };
        touched.inspect_err(|_| unmap(memory, bytes))?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the context is current; the range is mapped, and is unregistered before it is unmapped.
        let registered = unsafe { functions::cuMemHostRegister_v2(memory, bytes, flags) };
        if registered != CUresult::CUDA_SUCCESS {
            unmap(memory, bytes);
            if registered == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return Ok(None);
            }
            return context.check("cuMemHostRegister", registered).map(|()| None);
        }
        let block = Self { memory, bytes, context: Arc::clone(context) };
        let mut address: CUdeviceptr = 0;
        // SAFETY: registered above; `address` outlives the call.
        context.check("cuMemHostGetDevicePointer", unsafe {
            functions::cuMemHostGetDevicePointer_v2(&mut address, memory, 0)
        })?;
        if address != block.address() {
            return Err(DeviceError::Invalid("the GPU does not use host addresses for pinned memory".into()));
        }
        Ok(Some(block))
    }

    fn address(&self) -> u64 {
        self.memory as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let unpinned = self.context.make_current().and_then(|()| {
            // SAFETY: registered once in `new`; no work uses it any more.
            self.context.check("cuMemHostUnregister", unsafe { functions::cuMemHostUnregister(self.memory) })
        });
        match unpinned {
            Ok(()) => unmap(self.memory, self.bytes),
            // The driver may still use it.
            Err(error) => log::debug!("pinned memory that is leaked: {error}"),
        }
    }
}

/// Maps memory that begins at a huge page; `None` if the system has none.
fn map(bytes: usize) -> Option<*mut c_void> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let length = bytes.checked_add(UNIT_BYTES)?;
    // SAFETY: a new mapping, which replaces no other.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let before = (mapped as usize).wrapping_neg() % UNIT_BYTES;
    // SAFETY: within the mapping, which is one unit longer than what is wanted of it.
    let begin = unsafe { mapped.byte_add(before) };
    if before > 0 {
        unmap(mapped, before);
    }
    // SAFETY: the end of the mapping.
    unmap(unsafe { begin.byte_add(bytes) }, UNIT_BYTES - before);
    Some(begin)
}

fn unmap(memory: *mut c_void, bytes: usize) {
    // SAFETY: callers give whole pages of a mapping of `map`, which nobody uses any more.
    let result = unsafe { libc::munmap(memory, bytes) };
    if result != 0 {
        log::warn!("munmap: {}", std::io::Error::last_os_error());
    }
}

/// Touches the pages of a new mapping: in huge pages, and on several threads, since the system clears them.
///
/// # Safety
/// The caller has exclusive access to the `bytes` bytes, a multiple of a page.
unsafe fn touch(memory: *mut c_void, bytes: usize) -> Result<()> {
    // SAFETY: by the caller; anonymous mappings are 0.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), bytes) };
    take_huge_pages(memory);
    in_pieces(memory, |_, piece| piece.iter_mut().step_by(4096).for_each(|byte| *byte = 0))
}

/// Copies host bytes to pinned memory.
///
/// # Safety
/// `bytes.len()` bytes at `address` are pinned memory that no work uses.
pub(in crate::cuda) unsafe fn copy_in(address: u64, bytes: &[u8]) -> Result<()> {
    // SAFETY: by the caller.
    let target = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes.len()) };
    in_pieces(target, |at, piece| piece.copy_from_slice(&bytes[at..at + piece.len()]))
}

/// Copies pinned memory to host bytes.
///
/// # Safety
/// `bytes.len()` bytes at `address` are pinned memory that no work writes.
pub(in crate::cuda) unsafe fn copy_out(address: u64, bytes: &mut [u8]) -> Result<()> {
    // SAFETY: by the caller.
    let source = unsafe { std::slice::from_raw_parts(address as *const u8, bytes.len()) };
    in_pieces(bytes, |at, piece| piece.copy_from_slice(&source[at..at + piece.len()]))
}

/// Sets bytes of pinned memory.
///
/// # Safety
/// As [`copy_in`].
pub(in crate::cuda) unsafe fn fill(address: u64, bytes: u64, value: u8) -> Result<()> {
    // SAFETY: by the caller; the range is within an allocation, so its length fits.
    let target = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes as usize) };
    in_pieces(target, |_, piece| piece.fill(value))
}

/// Lets threads work on pieces of memory, each with its position.
fn in_pieces(memory: &mut [u8], work: impl Fn(usize, &mut [u8]) + Sync) -> Result<()> {
    let bytes = memory.len();
    let pieces = Mutex::new(memory.chunks_mut(PIECE_BYTES).enumerate());
    in_parallel(bytes, || {
        while let Some((number, piece)) = next(&pieces) {
            work(number * PIECE_BYTES, piece);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::expect_used, reason = "tests")]
    fn pieces_are_all_there_once() {
        for bytes in [0, 1, 4097, PIECE_BYTES * 8 + 5, PIECE_BYTES * 36 + 4095] {
            let from: Vec<u8> = (0..bytes).map(|at| (at * 7 / 3) as u8).collect();
            let (mut to, mut back) = (vec![0; bytes], vec![0; bytes]);
            // SAFETY: memory of two vectors that nobody else uses.
            unsafe {
                copy_in(to.as_mut_ptr() as u64, &from).expect("copied");
                copy_out(to.as_ptr() as u64, &mut back).expect("copied");
            }
            assert!(from == to && from == back, "{bytes}");
            // SAFETY: as above.
            unsafe { fill(to.as_mut_ptr() as u64, bytes as u64, 9) }.expect("filled");
            assert!(to.iter().all(|byte| *byte == 9));
        }
    }

    #[test]
    #[allow(clippy::expect_used, reason = "tests")]
    fn mappings_begin_at_huge_pages() {
        for bytes in [UNIT_BYTES, 5 * UNIT_BYTES] {
            let memory = map(bytes).expect("memory");
            assert_eq!(memory as usize % UNIT_BYTES, 0);
            // SAFETY: just mapped.
            unsafe { touch(memory, bytes) }.expect("touched");
            unmap(memory, bytes);
        }
        assert!(map(usize::MAX - UNIT_BYTES).is_none());
    }
}
