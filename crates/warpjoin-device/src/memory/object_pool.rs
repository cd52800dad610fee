//! A bounded pool of objects that are expensive to make, such as pinned host memory.
//!
//! Owns which objects are free; must not know what they are. An object is *free* or *held* by one thread. A free object may
//! still be in use by a device, until it is *idle*.

use std::collections::VecDeque;

use crate::Result;
use crate::sync::{self, Condvar, Mutex, MutexGuard};

/// An object of a pool.
pub(crate) trait Pooled {
    /// Whether its last use has ended.
    fn is_idle(&self) -> bool;

    /// Waits until its last use has ended.
    fn wait_idle(&self) -> Result<()>;
}

/// A pool whose objects are made on demand, up to a maximum.
#[derive(Debug)]
pub(crate) struct ObjectPool<T> {
    objects: Mutex<Objects<T>>,
    /// An object was returned or dropped.
    returned: Condvar,
    /// Maximum number of objects.
    max: usize,
}

#[derive(Debug)]
struct Objects<T> {
    /// In the order in which they were returned.
    free: VecDeque<T>,
    /// Number of free and held objects.
    made: usize,
}

impl<T: Pooled> ObjectPool<T> {
    pub(crate) fn new(max: usize) -> Self {
        let objects = Objects { free: VecDeque::new(), made: 0 };
        Self { objects: Mutex::new(objects), returned: Condvar::new(), max }
    }

    /// Runs `work` with an idle object, made by `make` if none is idle and there are fewer than the maximum. The object then
    /// returns to the pool. It is dropped instead if `work` panicked, or failed without `is_usable`.
    ///
    /// # Errors
    /// Those of `make` and `work`, and of waiting for an object to become idle, which drops it.
    pub(crate) fn with<R>(
        &self,
        make: impl FnOnce() -> Result<T>,
        work: impl FnOnce(&mut T) -> Result<R>,
        is_usable: impl FnOnce() -> bool,
    ) -> Result<R> {
        // In this order, so that the object is dropped before another may be made in its place.
        let (held, mut object) = self.take(make)?;
        let result = work(&mut object);
        if result.is_ok() || is_usable() {
            held.give_back(object);
        }
        result
    }

    /// An idle object, else a new one, else the next to become idle.
    fn take(&self, make: impl FnOnce() -> Result<T>) -> Result<(Held<'_, T>, T)> {
        let mut objects = self.locked();
        loop {
            if let Some(at) = objects.free.iter().position(Pooled::is_idle)
                && let Some(object) = objects.free.remove(at)
            {
                return Ok((Held { pool: self }, object));
            }
            if objects.made < self.max {
                objects.made += 1;
                drop(objects);
                let held = Held { pool: self };
                let object = make()?;
                return Ok((held, object));
            }
            if let Some(first) = objects.free.pop_front() {
                drop(objects);
                // In this order, as in `with`.
                let held = Held { pool: self };
                let object = first;
                object.wait_idle()?;
                return Ok((held, object));
            }
            // All objects are held. Each holder returns or drops its own.
            objects = sync::wait(&self.returned, objects);
        }
    }
}

impl<T> ObjectPool<T> {
    fn locked(&self) -> MutexGuard<'_, Objects<T>> {
        sync::locked(&self.objects)
    }
}

/// Counts an object as held. Dropping it without [`Self::give_back`] lets another object be made.
struct Held<'a, T> {
    pool: &'a ObjectPool<T>,
}

impl<T> Held<'_, T> {
    fn give_back(self, object: T) {
        self.pool.locked().free.push_back(object);
        self.pool.returned.notify_one();
        std::mem::forget(self);
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.pool.locked().made -= 1;
        self.pool.returned.notify_one();
    }
}
