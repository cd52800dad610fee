//! Device memory: buffers, the budget of a device, and pools of objects.
//!
//! Owns what is charged to a budget. Must not know how a backend allocates.

mod buffer;
mod caches;
mod host;
mod huge_pages;
pub(crate) mod object_pool;

use std::sync::{Arc, OnceLock, Weak};

pub use buffer::{Buffer, MemoryPlace};
pub use caches::MemoryCache;
use caches::MemoryCaches;
pub use host::usable_host_bytes;
pub use huge_pages::take_huge_pages;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Buffers of all devices together may take this fraction of host memory (1 / divisor).
const HOST_DIVISOR: u64 = 2;

/// Accounting of the host memory in buffers of this process. Its budget is half of the memory that the process may use.
pub(crate) fn host_memory() -> Arc<MemoryPool> {
    static MEMORY: OnceLock<Arc<MemoryPool>> = OnceLock::new();
    Arc::clone(MEMORY.get_or_init(|| Arc::new(MemoryPool::new(usable_host_bytes() / HOST_DIVISOR))))
}

/// Counts the bytes allocated on one device, or in host memory, against a budget.
#[derive(Debug)]
pub struct MemoryPool {
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    caches: MemoryCaches,
}

impl MemoryPool {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes: AtomicU64::new(limit_bytes),
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            caches: MemoryCaches::default(),
        }
    }

    /// The budget.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the budget. Existing allocations stay.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes allocated now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the budget still allows.
    pub fn free_bytes(&self) -> u64 {
        self.free_within(self.limit_bytes())
    }

    /// Bytes that `budget_bytes`, at most this device's budget, still allows.
    pub(crate) fn free_within(&self, budget_bytes: u64) -> u64 {
        budget_bytes.saturating_sub(self.used_bytes())
    }

    /// Peak of [`Self::used_bytes`] since the last [`Self::reset_peak`].
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Starts a new measurement of the peak.
    pub fn reset_peak(&self) {
        self.peak_bytes.store(self.used_bytes(), Ordering::Relaxed);
    }

    /// From now on, `cache` is asked for memory before an allocation fails.
    pub fn add_cache(&self, cache: Weak<dyn MemoryCache>) {
        self.caches.add(cache);
    }

    /// Lets a cache free memory for an allocation of `bytes`. Returns whether one did.
    pub(crate) fn give_back(&self, bytes: u64) -> bool {
        self.caches.give_back(bytes)
    }

    /// Charges `bytes`. Charges nothing and returns false if the budget or `budget_bytes` does not allow them.
    pub(crate) fn try_charge(&self, bytes: u64, budget_bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes().min(budget_bytes);
        let charged = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&total| total <= limit_bytes)
        });
        match charged {
            Ok(before) => {
                self.peak_bytes.fetch_max(before + bytes, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    /// As [`Self::try_charge`], with a guard that releases the bytes on drop unless it is kept. This covers every path, a
    /// panic of a backend included.
    pub(crate) fn charge(&self, bytes: u64, budget_bytes: u64) -> Option<Charge<'_>> {
        self.try_charge(bytes, budget_bytes).then(|| Charge { memory: self, bytes })
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are charged but not allocated yet.
pub(crate) struct Charge<'a> {
    memory: &'a MemoryPool,
    bytes: u64,
}

impl Charge<'_> {
    /// Keeps the charge: the bytes are allocated, and freeing the buffer releases them.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}
