//! Memory of simulated devices: the host's, one `malloc` a buffer, so that AddressSanitizer knows
//! where each ends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of every allocation, as CUDA's.
const ALIGN_BYTES: usize = 256;
/// Poison reaches this far into an allocation from both of its ends.
const POISON_BYTES: usize = 32 << 20;

/// Allocates `bytes` > 0 filled with `poison`, so that a read before a write shows; of large
/// allocations only the ends. `None` when the host has no memory.
pub(super) fn allocate(bytes: u64, poison: u8) -> Option<u64> {
    let layout = layout(bytes)?;
    // SAFETY: the size is not 0, as callers promise.
    let address = unsafe { System.alloc(layout) };
    if address.is_null() {
        return None;
    }
    let part = layout.size().min(POISON_BYTES);
    // SAFETY: both runs of `part` bytes lie within the new allocation, which nobody else knows yet.
    unsafe {
        address.write_bytes(poison, part);
        address.add(layout.size() - part).write_bytes(poison, part);
    }
    Some(address.expose_provenance() as u64)
}

/// Frees what [`allocate`] gave for as many bytes.
///
/// # Safety
/// `address` came from [`allocate`] with the same `bytes`, was not freed, and is not used any more.
pub(super) unsafe fn free(address: u64, bytes: u64) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: the caller promises that the allocation is live and has this layout.
        unsafe { System.dealloc(pointer(address), layout) };
    }
}

/// The pointer to an address that [`allocate`] gave, or to a byte behind it.
pub(super) fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Sets the bits of `value` in 8 bytes that a kernel may be using.
pub(super) fn set_bits(address: u64, value: u64) {
    // SAFETY: the front end promises 8 aligned bytes of a live buffer, whose owner waits for this call. Kernels access a
    // word that may be set meanwhile by atomics and volatile loads only.
    unsafe { AtomicU64::from_ptr(pointer(address).cast()) }.fetch_or(value, Ordering::Relaxed);
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?, ALIGN_BYTES).ok()
}
