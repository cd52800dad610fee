//! Memory of simulated devices: host memory, with one `malloc` per buffer so that AddressSanitizer
//! knows its bounds.
//!
//! Must not know about devices and streams.

use std::alloc::{GlobalAlloc, Layout, System};

/// Alignment of every allocation, as in CUDA.
const ALIGN_BYTES: usize = 256;
/// Maximum number of bytes that are poisoned at each end of an allocation.
const POISON_BYTES: usize = 32 << 20;

/// Allocates `bytes` > 0 filled with `poison`, which exposes reads of unwritten memory. Large
/// allocations are filled only at both ends. `None` if the host is out of memory.
pub(super) fn allocate(bytes: u64, poison: u8) -> Option<u64> {
    let layout = layout(bytes)?;
    // SAFETY: the size is not 0, as callers promise.
    let address = unsafe { System.alloc(layout) };
    if address.is_null() {
        return None;
    }
    let part = layout.size().min(POISON_BYTES);
    // SAFETY: both ranges of `part` bytes are within the new allocation, which no other code can access yet.
    unsafe {
        address.write_bytes(poison, part);
        address.add(layout.size() - part).write_bytes(poison, part);
    }
    Some(address.expose_provenance() as u64)
}

/// Frees an allocation of [`allocate`].
///
/// # Safety
/// `address` came from [`allocate`] with the same `bytes`, was not freed, and is no longer used.
pub(super) unsafe fn free(address: u64, bytes: u64) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: the caller promises that the allocation is live and has this layout.
        unsafe { System.dealloc(pointer(address), layout) };
    }
}

/// The pointer to an address within an allocation of [`allocate`].
pub(super) fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?, ALIGN_BYTES).ok()
}
