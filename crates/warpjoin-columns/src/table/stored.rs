//! A column of a shard, which may move between a device and host memory while queries use it.
//!
//! Users of a column hold a [`ShardColumn`] of it, which keeps the buffers alive until the work on them has ended.

use std::ops::Add;
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

use warpjoin_device::{MemoryPlace, Stream};

use super::place::copied;
use super::replicas::ColumnReplica;
use super::resident::ShardColumn;
use crate::Result;
use crate::devices::waits::Waits;

/// The buffers of a column on one device.
#[derive(Debug)]
pub(super) struct StoredColumn {
    buffers: RwLock<ShardColumn>,
    /// Held while it moves.
    moving: Mutex<()>,
    pub(super) replicas: Mutex<Vec<ColumnReplica>>,
}

/// Bytes freed by moving columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Freed by now.
    pub freed: u64,
    /// Freed once the work that uses them has ended.
    pub in_use: u64,
}

impl Add for MovedBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { freed: self.freed + other.freed, in_use: self.in_use + other.in_use }
    }
}

impl StoredColumn {
    pub(super) fn new(buffers: ShardColumn) -> Arc<Self> {
        Arc::new(Self { buffers: RwLock::new(buffers), moving: Mutex::default(), replicas: Mutex::default() })
    }

    /// Its buffers as they lie now.
    pub(super) fn buffers(&self) -> ShardColumn {
        self.buffers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves its buffers to `place`. Does nothing while another move is in progress.
    pub(super) fn move_to(&self, place: MemoryPlace, stream: &Stream) -> Result<MovedBytes> {
        // Moving may ask caches for memory, which then move columns.
        let _moving = match self.moving.try_lock() {
            Ok(moving) => moving,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(MovedBytes::default()),
        };
        let old = self.buffers();
        let mut new = old.clone();
        {
            let mut waits = Waits::of(std::slice::from_ref(stream));
            let buffers = [&mut new.values, &mut new.offsets, &mut new.validity].into_iter().flatten();
            for buffer in buffers.filter(|buffer| buffer.place() != place) {
                *buffer = Arc::new(copied(stream, buffer, place)?);
            }
            waits.end()?;
        }
        let replaced = {
            let mut buffers = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *buffers, new)
        };
        drop(old);
        let mut bytes = MovedBytes::default();
        let buffers = [replaced.values, replaced.offsets, replaced.validity].into_iter().flatten();
        for buffer in buffers.filter(|buffer| buffer.place() != place) {
            // Others that have it may drop it at any time, but nobody takes it any more.
            match Arc::strong_count(&buffer) {
                1 => bytes.freed += buffer.bytes(),
                _ => bytes.in_use += buffer.bytes(),
            }
        }
        Ok(bytes)
    }
}
