//! What queries keep on devices beside a dictionary, and give back when memory is needed.
//!
//! Must not know what it is.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpjoin_columns::column::Dictionary;
use warpjoin_device::MemoryCache;

/// Something attached to a dictionary that holds device memory.
struct Entry {
    dictionary: Weak<Dictionary>,
    bytes: u64,
    /// Takes it from the dictionary unless a query uses it.
    detach: fn(&Dictionary) -> Option<Arc<dyn Any + Send + Sync>>,
}

/// The entries, least recently used first.
#[derive(Default)]
pub(crate) struct DictionaryCache {
    entries: Mutex<Vec<Entry>>,
}

impl DictionaryCache {
    /// Says that a query uses the `T` attached to `dictionary`, which holds `bytes` on all devices together.
    pub(crate) fn use_attached<T: Any + Send + Sync>(&self, dictionary: &Arc<Dictionary>, bytes: u64) {
        let detach = |dictionary: &Dictionary| dictionary.detach_unused::<T>();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let this = Arc::downgrade(dictionary);
        entries.retain(|entry| entry.dictionary.strong_count() > 0 && !Weak::ptr_eq(&entry.dictionary, &this));
        entries.push(Entry { dictionary: this, bytes, detach });
    }
}

impl MemoryCache for DictionaryCache {
    fn give_back(&self, bytes: u64) -> bool {
        // Dropped at the end, without the lock.
        let mut detached = vec![];
        let mut freed_bytes = 0;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).retain(|entry| {
            let Some(dictionary) = entry.dictionary.upgrade() else { return false };
            if freed_bytes >= bytes {
                return true;
            }
            let Some(thing) = (entry.detach)(&dictionary) else { return true };
            freed_bytes += entry.bytes;
            detached.push((thing, dictionary));
            false
        });
        !detached.is_empty()
    }
}
