//! Bytes of row groups that are read while others are decoded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use warpjoin::parquet::ChunkBytes;

/// The bytes of a column's row groups: some tasks put them here, a thread waits for them.
#[derive(Debug)]
pub(crate) struct Arriving {
    chunks: Vec<OnceLock<Bytes>>,
    /// Whether no more bytes will arrive.
    is_over: Mutex<bool>,
    arrived: Condvar,
    /// Whether no more bytes are needed: the column is decoded or declined, or its query is dropped.
    is_stopped: AtomicBool,
}

impl Arriving {
    pub(super) fn new(chunks: usize) -> Self {
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        Self { chunks, is_over: Mutex::new(false), arrived: Condvar::new(), is_stopped: AtomicBool::new(false) }
    }

    /// Adds the bytes of neighboring row groups.
    pub(super) fn put(&self, first: usize, bytes: Vec<Bytes>) {
        for (cell, bytes) in self.chunks[first..].iter().zip(bytes) {
            // Each comes once.
            let _ = cell.set(bytes);
        }
        // Who waits has looked before it released the lock, or will look behind it.
        drop(self.is_over.lock().unwrap_or_else(PoisonError::into_inner));
        self.arrived.notify_all();
    }

    /// Ends the input: no more bytes will arrive.
    pub(crate) fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.arrived.notify_all();
    }

    /// Cancels: waiters get no chunks, not even those that have arrived.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.end();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// All bytes that have arrived.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().filter_map(OnceLock::get).map(Bytes::len).sum()
    }

    pub(super) fn chunk(&self, number: usize) -> ArrivingChunk<'_> {
        ArrivingChunk { arriving: self, number }
    }
}

/// One of the row groups.
#[derive(Debug)]
pub(super) struct ArrivingChunk<'a> {
    arriving: &'a Arriving,
    number: usize,
}

impl ChunkBytes for ArrivingChunk<'_> {
    fn are_here(&self) -> bool {
        self.arriving.chunks[self.number].get().is_some()
    }

    fn wait(&self) -> Option<&[u8]> {
        let Arriving { chunks, is_over, arrived, .. } = self.arriving;
        let cell = &chunks[self.number];
        let mut over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.arriving.is_stopped() {
                return None;
            }
            if let Some(bytes) = cell.get() {
                return Some(bytes);
            }
            if *over {
                return None;
            }
            over = arrived.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Stops the decoding when it is dropped, together with its query.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a Arriving);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_waited_for_until_it_is_over() {
        let arriving = Arriving::new(3);
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| (0..3).map(|number| arriving.chunk(number).wait().map(<[u8]>::to_vec)).collect());
            arriving.put(1, vec![Bytes::from_static(b"b")]);
            assert!(!arriving.chunk(0).are_here() && arriving.chunk(1).are_here());
            arriving.put(0, vec![Bytes::from_static(b"a")]);
            arriving.end();
            let waited: Vec<Option<Vec<u8>>> = waiting.join().unwrap_or_default();
            assert_eq!(waited, [Some(b"a".to_vec()), Some(b"b".to_vec()), None]);
        });
        assert_eq!(arriving.bytes(), 2);
        drop(StopOnDrop(&arriving));
        assert!(arriving.is_stopped() && arriving.chunk(0).wait().is_none());
    }
}
