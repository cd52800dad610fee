//! A few things of one kind that are dear to make, such as pinned memory, lent to one thread at a time.
//!
//! Owns which of them are free; must not know what they are. A thing is *free* or *held* by a thread; one that is free may
//! still be in use by a device, until it is *idle*.

use std::collections::VecDeque;

use crate::Result;
use crate::sync::{self, Condvar, Mutex, MutexGuard};

/// What is lent.
pub(crate) trait Lent {
    /// Whether its last use has ended.
    fn is_idle(&self) -> bool;

    /// Waits until its last use has ended.
    fn wait_idle(&self) -> Result<()>;
}

/// Things that are lent, made when they are wanted.
#[derive(Debug)]
pub(crate) struct Lending<T> {
    things: Mutex<Things<T>>,
    /// One was given back, or is no more.
    given_back: Condvar,
    /// The most that are made.
    max: usize,
}

#[derive(Debug)]
struct Things<T> {
    /// The one that was given back first in front.
    free: VecDeque<T>,
    /// Free and held ones together.
    made: usize,
}

impl<T: Lent> Lending<T> {
    pub(crate) fn new(max: usize) -> Self {
        let things = Things { free: VecDeque::new(), made: 0 };
        Self { things: Mutex::new(things), given_back: Condvar::new(), max }
    }

    /// Runs `work` with a thing that nothing else uses, made by `make` if none is idle and there are not enough. It is given
    /// back afterwards; where `work` failed, only if `is_usable`. One that is not, or whose work panicked, is dropped.
    ///
    /// # Errors
    /// Those of `make` and `work`, and of waiting for a thing to be idle: it is dropped.
    pub(crate) fn with<R>(
        &self,
        make: impl FnOnce() -> Result<T>,
        work: impl FnOnce(&mut T) -> Result<R>,
        is_usable: impl FnOnce() -> bool,
    ) -> Result<R> {
        // In this order, so that a thing goes before another may be made for it.
        let (place, mut thing) = self.take(make)?;
        let result = work(&mut thing);
        if result.is_ok() || is_usable() {
            place.give_back(thing);
        }
        result
    }

    /// An idle one, else a new one, else the next that will be idle.
    fn take(&self, make: impl FnOnce() -> Result<T>) -> Result<(Place<'_, T>, T)> {
        let mut things = self.locked();
        loop {
            if let Some(at) = things.free.iter().position(Lent::is_idle)
                && let Some(thing) = things.free.remove(at)
            {
                return Ok((Place { lending: self }, thing));
            }
            if things.made < self.max {
                things.made += 1;
                drop(things);
                let place = Place { lending: self };
                let thing = make()?;
                return Ok((place, thing));
            }
            if let Some(first) = things.free.pop_front() {
                drop(things);
                // In this order, as in `with`.
                let place = Place { lending: self };
                let thing = first;
                thing.wait_idle()?;
                return Ok((place, thing));
            }
            // All are held, and each holder gives its own back.
            things = sync::wait(&self.given_back, things);
        }
    }
}

impl<T> Lending<T> {
    fn locked(&self) -> MutexGuard<'_, Things<T>> {
        sync::locked(&self.things)
    }
}

/// That a thing is held: on every path it is given back, or another may be made for it.
struct Place<'a, T> {
    lending: &'a Lending<T>,
}

impl<T> Place<'_, T> {
    fn give_back(self, thing: T) {
        self.lending.locked().free.push_back(thing);
        self.lending.given_back.notify_one();
        std::mem::forget(self);
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        self.lending.locked().made -= 1;
        self.lending.given_back.notify_one();
    }
}
