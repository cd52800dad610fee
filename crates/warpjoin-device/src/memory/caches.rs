//! Caches that give device memory back before an allocation fails.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Holds device memory that can be freed, and restored later at a cost.
pub trait MemoryCache: Send + Sync {
    /// Frees memory that no work uses, at least `bytes` if it can. Returns whether it freed any.
    ///
    /// Any thread may call this in the middle of its work, so it must not allocate device memory, and must not wait for
    /// a thread that does.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Buffer, SimOptions, open_simulated};

    /// Buffers, and the bytes that were asked for.
    #[derive(Default)]
    struct Hoard {
        buffers: Mutex<Vec<Buffer>>,
        asked: Mutex<Vec<u64>>,
    }

    impl MemoryCache for Hoard {
        fn give_back(&self, bytes: u64) -> bool {
            self.asked.lock().unwrap().push(bytes);
            self.buffers.lock().unwrap().pop().is_some()
        }
    }

    #[test]
    fn caches_are_asked_for_what_is_lacking() {
        let device = open_simulated(&SimOptions::default()).unwrap().remove(0);
        let stream = device.create_stream().unwrap().within(100);
        let hoard = Arc::new(Hoard::default());
        hoard.buffers.lock().unwrap().extend((0..3).map(|_| stream.alloc(30).unwrap()));
        let cache: Weak<dyn MemoryCache> = Arc::downgrade(&hoard) as _;
        device.memory().add_cache(cache);
        assert!(stream.make_room(10) && hoard.asked.lock().unwrap().is_empty(), "there was room");
        assert!(stream.make_room(50));
        assert_eq!(std::mem::take(&mut *hoard.asked.lock().unwrap()), [40, 10]);
        let buffer = stream.alloc(90).unwrap();
        assert_eq!(std::mem::take(&mut *hoard.asked.lock().unwrap()), [20]);
        assert!(stream.alloc(20).is_err() && !stream.make_room(101));
        assert_eq!(*hoard.asked.lock().unwrap(), [10], "asked once, as nothing is left");
        drop(buffer);
    }
}
