//! Words of device memory that are set once a flag is: how a kernel that runs learns that nobody wants its result.
//!
//! Owns the thread that looks at flags. The thread that launched a kernel waits for it in the driver, or runs it itself on
//! a simulated device, and can do neither. Must not know what kernels do with the words.
//!
//! ```text
//! watched --the flag is seen--> set, again and again --the owner drops the guard--> gone
//!    '----------------the owner drops the guard, its kernel has ended--------------'
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::{Buffer, Device, DeviceError, Result};

/// How often flags are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Without anything to look at the thread sleeps until it is woken, which costs a query microseconds.
const IDLE_MAX: Duration = Duration::from_millis(500);

/// Words that are set once a flag is.
#[derive(Debug)]
pub struct Abort {
    watched: Arc<Watched>,
}

#[derive(Debug)]
struct Watched {
    flag: Arc<AtomicBool>,
    words: Mutex<Vec<Word>>,
}

#[derive(Debug)]
struct Word {
    device: Device,
    address: u64,
    value: u64,
}

/// A word that is watched as long as this lives. It goes before the word's buffer.
#[derive(Debug)]
#[must_use]
pub struct AbortGuard {
    watched: Arc<Watched>,
    address: u64,
}

impl Abort {
    /// Nothing is set before `flag` is.
    pub fn new(flag: &Arc<AtomicBool>) -> Self {
        let watched = Arc::new(Watched { flag: Arc::clone(flag), words: Mutex::default() });
        Watchdog::get().add(&watched);
        Self { watched }
    }

    /// From now on the 8 bytes of `buffer` at byte `offset` get `value` within milliseconds after the flag is set, while
    /// kernels run that read them.
    ///
    /// # Errors
    /// When the word is not within the buffer, or not aligned.
    pub fn watch(&self, buffer: &Buffer, offset: u64, value: u64) -> Result<AbortGuard> {
        if !offset.is_multiple_of(8) || offset.checked_add(8).is_none_or(|end| end > buffer.bytes()) {
            return Err(DeviceError::Invalid(format!("a word at byte {offset} of {}", buffer.bytes())));
        }
        let (device, address) = (buffer.device().clone(), buffer.address() + offset);
        self.watched.words().push(Word { device, address, value });
        Ok(AbortGuard { watched: Arc::clone(&self.watched), address })
    }
}

impl Watched {
    fn words(&self) -> MutexGuard<'_, Vec<Word>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets words whose flag is set: each time, as the clearing of a new buffer may come behind it. Their guards wait
    /// meanwhile, so their buffers stay.
    fn look(&self) {
        if !self.flag.load(Ordering::Relaxed) {
            return;
        }
        for word in self.words().iter() {
            if let Err(error) = word.device.backend().write_word(word.address, word.value) {
                log::debug!("a kernel that nobody waits for goes on: {error}");
            }
        }
    }
}

impl Drop for AbortGuard {
    fn drop(&mut self) {
        let mut words = self.watched.words();
        if let Some(at) = words.iter().position(|word| word.address == self.address) {
            words.swap_remove(at);
        }
    }
}

/// The one thread of the process that looks at flags.
#[derive(Default)]
struct Watchdog {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    watched: Vec<Weak<Watched>>,
    has_thread: bool,
    /// The thread waits until somebody wakes it.
    sleeps: bool,
}

impl Watchdog {
    fn get() -> &'static Self {
        static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();
        WATCHDOG.get_or_init(Self::default)
    }

    fn add(&'static self, watched: &Arc<Watched>) {
        let mut state = self.state();
        state.watched.push(Arc::downgrade(watched));
        if !state.has_thread {
            let thread = std::thread::Builder::new().name("warpjoin-abort".into());
            match thread.spawn(|| self.run()) {
                Ok(_) => state.has_thread = true,
                Err(error) => log::warn!("kernels that run are not stopped when a query is cancelled: {error}"),
            }
        } else if state.sleeps {
            self.woken.notify_one();
        }
    }

    fn run(&self) {
        let mut last_seen = Instant::now();
        loop {
            let mut state = self.state();
            // What goes with the last reference is freed outside of the lock.
            let watched: Vec<Arc<Watched>> = state.watched.iter().filter_map(Weak::upgrade).collect();
            state.watched.retain(|watched| watched.strong_count() > 0);
            if !watched.is_empty() {
                last_seen = Instant::now();
            } else if last_seen.elapsed() > IDLE_MAX {
                state.sleeps = true;
                while state.watched.is_empty() {
                    state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.sleeps = false;
                continue;
            }
            drop(state);
            watched.iter().for_each(|watched| watched.look());
            drop(watched);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
