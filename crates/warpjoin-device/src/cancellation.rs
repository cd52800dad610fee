//! Cancellation: a flag for code on the host, and words of host memory for kernels.
//!
//! Kernels poll words of host memory, because the driver may be unable to write device memory: a thread that loads a module
//! waits for all running kernels, and blocks other calls meanwhile. Must not know what kernels do with the words.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sync::{self, Mutex, MutexGuard};

/// A word of host memory that kernels can read, at the host's address.
pub(crate) trait HostWord: fmt::Debug + Send + Sync {
    fn word(&self) -> &AtomicU64;
}

/// Cancels work that shares it. Cannot be undone.
#[derive(Debug, Default)]
pub struct Cancellation {
    is_cancelled: AtomicBool,
    words: Mutex<Vec<Arc<dyn HostWord>>>,
}

/// A word that kernels of one device can read: 0 until the work is cancelled, then 1. Drop it once the kernels that read it
/// have ended.
#[derive(Debug)]
#[must_use]
pub struct CancelWord {
    cancellation: Arc<Cancellation>,
    word: Arc<dyn HostWord>,
}

impl Cancellation {
    /// Cancels the work. Running kernels that poll a word of it end within milliseconds.
    pub fn cancel(&self) {
        let words = self.words();
        self.is_cancelled.store(true, Ordering::Relaxed);
        words.iter().for_each(|word| word.word().store(1, Ordering::Relaxed));
    }

    /// Whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Sets the word once the work is cancelled.
    pub(crate) fn watch(self: &Arc<Self>, word: Arc<dyn HostWord>) -> CancelWord {
        let mut words = self.words();
        if self.is_cancelled() {
            word.word().store(1, Ordering::Relaxed);
        }
        words.push(Arc::clone(&word));
        drop(words);
        CancelWord { cancellation: Arc::clone(self), word }
    }

    fn words(&self) -> MutexGuard<'_, Vec<Arc<dyn HostWord>>> {
        sync::locked(&self.words)
    }
}

impl CancelWord {
    /// Address of the 8 bytes, for [`Arg::U64`](crate::Arg::U64).
    pub fn address(&self) -> u64 {
        self.word.word().as_ptr().expose_provenance() as u64
    }
}

#[cfg(test)]
impl CancelWord {
    pub(crate) fn value(&self) -> u64 {
        self.word.word().load(Ordering::Relaxed)
    }
}

impl Drop for CancelWord {
    fn drop(&mut self) {
        let mut words = self.cancellation.words();
        if let Some(at) = words.iter().position(|word| Arc::ptr_eq(word, &self.word)) {
            words.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimOptions, open_simulated};

    #[test]
    fn words_follow_their_own_cancellation() {
        let device = open_simulated(&SimOptions::default()).expect("a device").remove(0);
        let (first, second) = (Arc::new(Cancellation::default()), Arc::new(Cancellation::default()));
        let words = [&first, &first, &second].map(|it| device.cancel_word(it).expect("a word"));
        first.cancel();
        assert!(first.is_cancelled() && !second.is_cancelled());
        assert_eq!(words.each_ref().map(|word| word.value()), [1, 1, 0]);
        assert_eq!(device.cancel_word(&first).expect("a word").value(), 1, "made after it was cancelled");
        assert_eq!(first.words().len(), 2, "a dropped word stays");
    }
}
