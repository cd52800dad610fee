//! Large copies between pageable host memory and a GPU, staged through pinned chunks.
//!
//! The driver's own staging reaches 7 GB/s, the bus 55 GB/s. One core copies about 10 GB/s into
//! pinned memory, so several threads copy, each one chunk at a time, while the bus transfers full
//! chunks.
//!
//! Owns the pinned chunks of one GPU, which all its streams share. A free chunk stays in use until
//! the event after its last copy is reached. Must not know what is copied.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUstream};

use crate::cuda::context::Context;
use crate::cuda::event::CudaEvent;
use crate::cuda::functions;
use crate::memory::object_pool::{ObjectPool, Pooled};
use crate::{DeviceError, Result};

/// Size of a chunk: large enough for 90 % of the bus, small enough to divide 16 MiB among the threads.
const CHUNK_BYTES: usize = 2 << 20;
/// Maximum number of chunks of one GPU: 32 MiB of pinned memory, allocated on demand.
const CHUNKS_MAX: usize = 16;
/// Maximum number of threads of one copy. Six to eight saturate the bus.
const THREADS_MAX: usize = 8;
/// Minimum number of chunks per thread: 0.4 ms of copying, against 30 us to start a thread.
const CHUNKS_PER_THREAD: usize = 2;

/// The pinned chunks of one GPU.
#[derive(Debug)]
pub(in crate::cuda) struct Staging {
    context: Arc<Context>,
    chunks: ObjectPool<Chunk>,
}

/// Pinned memory, and the event after its last use.
#[derive(Debug)]
struct Chunk {
    memory: *mut u8,
    event: CudaEvent,
    context: Arc<Context>,
}

// SAFETY: the chunk owns the memory, which is not bound to a thread.
unsafe impl Send for Chunk {}

impl Staging {
    pub(in crate::cuda) fn new(context: Arc<Context>) -> Self {
        Self { context, chunks: ObjectPool::new(CHUNKS_MAX) }
    }

    /// Enqueues a copy of `bytes` to `address`. `bytes` may be reused on return.
    ///
    /// # Safety
    /// Work on `stream` may write `bytes.len()` bytes at `address`. `stream` is a live stream of this
    /// context.
    pub(in crate::cuda) unsafe fn write(&self, address: u64, bytes: &[u8], stream: CUstream) -> Result<()> {
        // SAFETY: as for this function.
        unsafe { self.write_all(address, &[(0, bytes)], stream) }
    }

    /// As [`Self::write`], for several parts in ascending order. Each part gives its distance from `address`. Bytes
    /// between two parts become 0.
    ///
    /// # Safety
    /// Work on `stream` may write from `address` to the end of the last part. `stream` is a live stream of this context.
    pub(in crate::cuda) unsafe fn write_all(
        &self,
        address: u64,
        parts: &[(usize, &[u8])],
        stream: CUstream,
    ) -> Result<()> {
        let stream = StreamHandle(stream);
        let (from, end) = match (parts.first(), parts.last()) {
            (Some((from, _)), Some((start, bytes))) => (*from, start + bytes.len()),
            _ => return Ok(()),
        };
        let pieces = Mutex::new((from..end).step_by(CHUNK_BYTES));
        in_parallel(end - from, || {
            while let Some(at) = next(&pieces) {
                let length = CHUNK_BYTES.min(end - at);
                self.with_chunk(|chunk| {
                    // SAFETY: this thread holds the chunk, which is idle and at least as long as a piece.
                    gather(parts, at, unsafe { std::slice::from_raw_parts_mut(chunk.memory, length) });
                    let target = address + at as u64;
                    // SAFETY: the caller guarantees the target. The chunk is not reused before the event
                    // recorded next is reached.
                    let result =
                        unsafe { functions::cuMemcpyHtoDAsync_v2(target, chunk.memory.cast(), length, stream.get()) };
                    self.context.check("cuMemcpyHtoDAsync", result)?;
                    chunk.event.record(stream.get())
                })?;
            }
            Ok(())
        })
    }

    /// Copies `bytes.len()` bytes from `address`, after the work enqueued on `stream`.
    ///
    /// # Safety
    /// Work on `stream` may read `bytes.len()` bytes at `address`. `stream` is a live stream of this
    /// context.
    pub(in crate::cuda) unsafe fn read(&self, address: u64, bytes: &mut [u8], stream: CUstream) -> Result<()> {
        let stream = StreamHandle(stream);
        let total_bytes = bytes.len();
        let pieces = Mutex::new(bytes.chunks_mut(CHUNK_BYTES).enumerate());
        in_parallel(total_bytes, || {
            while let Some((at, piece)) = next(&pieces) {
                let source = address + (at * CHUNK_BYTES) as u64;
                self.with_chunk(|chunk| {
                    // SAFETY: the caller guarantees the source. This thread holds the chunk, which is idle and
                    // at least as long as a piece, until the event is reached.
                    let result = unsafe {
                        functions::cuMemcpyDtoHAsync_v2(chunk.memory.cast(), source, piece.len(), stream.get())
                    };
                    self.context.check("cuMemcpyDtoHAsync", result)?;
                    chunk.event.record(stream.get())?;
                    chunk.event.synchronize()?;
                    // SAFETY: the copy into the chunk has ended; only this thread has the piece.
                    unsafe { std::ptr::copy_nonoverlapping(chunk.memory, piece.as_mut_ptr(), piece.len()) };
                    Ok(())
                })?;
            }
            Ok(())
        })
    }

    /// Whether parts of these lengths fit in one chunk, for [`Self::read_all`].
    pub(in crate::cuda) fn fits_chunk(lengths: impl Iterator<Item = usize>) -> bool {
        lengths.fold(0usize, |total, length| total.saturating_add(part_bytes(length))) <= CHUNK_BYTES
    }

    /// Copies several ranges after the work enqueued on `stream`, with a single wait.
    ///
    /// # Safety
    /// For each part, work on `stream` may read the part's length in bytes at its address. `stream` is a live stream of
    /// this context.
    pub(in crate::cuda) unsafe fn read_all(&self, parts: &mut [(u64, &mut [u8])], stream: CUstream) -> Result<()> {
        if !Self::fits_chunk(parts.iter().map(|(_, bytes)| bytes.len())) {
            return Err(DeviceError::Invalid("the parts exceed a pinned chunk".into()));
        }
        self.with_chunk(|chunk| {
            let mut at = 0;
            for (address, bytes) in parts.iter() {
                // SAFETY: `at` and the length are within the chunk, as checked above.
                let place = unsafe { chunk.memory.add(at) };
                // SAFETY: the caller guarantees the source. This thread holds the chunk, which is idle, until the event is
                // reached.
                let result = unsafe { functions::cuMemcpyDtoHAsync_v2(place.cast(), *address, bytes.len(), stream) };
                self.context.check("cuMemcpyDtoHAsync", result)?;
                at += part_bytes(bytes.len());
            }
            chunk.event.record(stream)?;
            chunk.event.synchronize()?;
            let mut at = 0;
            for (_, bytes) in parts.iter_mut() {
                // SAFETY: the copies into the chunk have ended; the range is within it, as above.
                unsafe { std::ptr::copy_nonoverlapping(chunk.memory.add(at), bytes.as_mut_ptr(), bytes.len()) };
                at += part_bytes(bytes.len());
            }
            Ok(())
        })
    }

    /// Runs `work` with an idle chunk. After a failure, a copy without an event may still use the chunk, so this waits for
    /// the device.
    fn with_chunk(&self, work: impl FnOnce(&mut Chunk) -> Result<()>) -> Result<()> {
        self.context.make_current()?;
        self.chunks.with(|| Chunk::new(&self.context), work, || self.context.synchronize().is_ok())
    }
}

impl Pooled for Chunk {
    fn is_idle(&self) -> bool {
        self.event.is_reached()
    }

    fn wait_idle(&self) -> Result<()> {
        self.event.synchronize()
    }
}

impl Chunk {
    fn new(context: &Arc<Context>) -> Result<Self> {
        let event = CudaEvent::without_time(context)?;
        let mut memory: *mut std::ffi::c_void = std::ptr::null_mut();
        // Not write-combined, since the host reads from write-combined memory slowly.
        // SAFETY: creating the event made the context current; `memory` outlives the call; `drop`
        // frees once.
        let result = unsafe { functions::cuMemHostAlloc(&mut memory, CHUNK_BYTES, sys::CU_MEMHOSTALLOC_PORTABLE) };
        context.check("cuMemHostAlloc", result)?;
        Ok(Self { memory: memory.cast(), event, context: context.clone() })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // A running copy may still use the memory, perhaps one without an event. If waiting fails, the memory is leaked.
        if self.context.synchronize().is_ok() {
            // SAFETY: allocated once in `new`, and no copy uses it any more.
            self.context.log_failure("cuMemFreeHost", unsafe { functions::cuMemFreeHost(self.memory.cast()) });
        }
    }
}

/// A stream handle for the threads of one copy.
#[derive(Clone, Copy)]
struct StreamHandle(CUstream);

impl StreamHandle {
    fn get(self) -> CUstream {
        self.0
    }
}

// SAFETY: stream handles may be used by any number of threads; the driver synchronizes.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

/// The bytes of ascending parts from byte `at` on; 0 between two parts.
fn gather(parts: &[(usize, &[u8])], at: usize, target: &mut [u8]) {
    let first = parts.partition_point(|(start, bytes)| start + bytes.len() <= at);
    let (mut done, end) = (0, at + target.len());
    for (start, bytes) in parts[first..].iter().take_while(|(start, _)| *start < end) {
        let (from, skipped) = (start.saturating_sub(at), at.saturating_sub(*start));
        let count = (bytes.len() - skipped).min(target.len() - from);
        target[done..from].fill(0);
        target[from..from + count].copy_from_slice(&bytes[skipped..skipped + count]);
        done = from + count;
    }
    target[done..].fill(0);
}

/// The next piece, for any thread.
pub(super) fn next<I: Iterator>(pieces: &Mutex<I>) -> Option<I::Item> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Runs `work` on several threads, depending on `bytes`; the calling thread is one of them. `work`
/// takes pieces until there are none, so it may run on fewer threads than intended.
pub(super) fn in_parallel(bytes: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let threads = threads_for(bytes, std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("warpjoin-copy".into()).spawn_scoped(scope, &work).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut result = work();
        for helper in helpers {
            let ended = helper.join().unwrap_or_else(|_| Err(DeviceError::Invalid("a copying thread panicked".into())));
            result = result.and(ended);
        }
        result
    })
}

/// Bytes of a chunk that a part takes: each part starts at a multiple of 256 bytes, for fast transfers.
fn part_bytes(length: usize) -> usize {
    length.saturating_add(255) & !255
}

fn threads_for(bytes: usize, cores: usize) -> usize {
    (bytes / (CHUNK_BYTES * CHUNKS_PER_THREAD)).clamp(1, THREADS_MAX).min(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn small_copies_start_no_thread() {
        assert_eq!(threads_for(1, 16), 1);
        assert_eq!(threads_for(CHUNK_BYTES * CHUNKS_PER_THREAD * 2 - 1, 16), 1);
        assert_eq!(threads_for(CHUNK_BYTES * CHUNKS_PER_THREAD * 2, 16), 2);
        assert_eq!(threads_for(usize::MAX, 16), THREADS_MAX);
        assert_eq!(threads_for(usize::MAX, 1), 1);
    }

    #[test]
    fn parts_are_gathered_from_any_byte_on() {
        let parts: [(usize, &[u8]); 5] = [(2, &[1, 2, 3]), (5, &[4]), (8, &[]), (8, &[5, 6, 7, 8]), (16, &[9])];
        let all = [0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0, 9];
        for at in 2..all.len() {
            for end in at..=all.len() {
                let mut target = vec![0xff; end - at];
                gather(&parts, at, &mut target);
                assert_eq!(target, all[at..end], "{at} to {end}");
            }
        }
    }

    #[test]
    fn parts_fit_in_a_chunk_with_their_padding() {
        assert!(Staging::fits_chunk(std::iter::empty()));
        assert!(Staging::fits_chunk([CHUNK_BYTES].into_iter()));
        assert!(Staging::fits_chunk(std::iter::repeat_n(1, CHUNK_BYTES / 256)));
        assert!(!Staging::fits_chunk(std::iter::repeat_n(1, CHUNK_BYTES / 256 + 1)));
        assert!(!Staging::fits_chunk([usize::MAX, 1].into_iter()));
    }

    #[test]
    fn every_piece_is_taken_once_and_errors_are_returned() {
        let bytes = vec![0_u8; CHUNK_BYTES * 33 + 5];
        let (pieces, taken) = (Mutex::new(bytes.chunks(CHUNK_BYTES).enumerate()), AtomicUsize::new(0));
        let result = in_parallel(bytes.len(), || {
            while let Some((at, piece)) = next(&pieces) {
                taken.fetch_add(piece.len(), Ordering::Relaxed);
                if at == 20 {
                    return Err(DeviceError::Invalid("piece 20".into()));
                }
            }
            Ok(())
        });
        assert!(result.is_err_and(|error| error.to_string().contains("piece 20")));
        // Other threads continue after the error; a single thread stops there.
        assert!(taken.load(Ordering::Relaxed) >= CHUNK_BYTES * 21);
    }
}
