//! Caches that give device memory back before an allocation fails.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Holds device memory that can be had again at a cost.
pub trait MemoryCache: Send + Sync {
    /// Frees memory that no work uses, at least `bytes` if it can. Returns whether it freed any.
    ///
    /// Any thread may call this, in the midst of its work, so it must not allocate device memory, and must not wait for a
    /// thread that does.
    fn give_back(&self, bytes: u64) -> bool;
}

/// The caches of one device.
#[derive(Default)]
pub(super) struct MemoryCaches {
    caches: Mutex<Vec<Weak<dyn MemoryCache>>>,
}

impl MemoryCaches {
    pub(super) fn add(&self, cache: Weak<dyn MemoryCache>) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    /// Asks one cache after the other, until one has freed memory.
    pub(super) fn give_back(&self, bytes: u64) -> bool {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        caches.iter().filter_map(Weak::upgrade).any(|cache: Arc<dyn MemoryCache>| cache.give_back(bytes))
    }
}

impl fmt::Debug for MemoryCaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryCaches")
    }
}
