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
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::sync::{self, Mutex, MutexGuard, thread};
use crate::{Buffer, Device, DeviceError, Result};

/// How often flags are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Without anything to look at for so long the thread ends; to start another costs a query some 30 us.
const IDLE_MAX: Duration = if cfg!(feature = "shuttle") { Duration::ZERO } else { Duration::from_secs(5) };

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
        static WATCHDOG: OnceLock<Arc<Watchdog>> = OnceLock::new();
        Self::looked_at_by(WATCHDOG.get_or_init(Arc::default), flag)
    }

    pub(crate) fn looked_at_by(watchdog: &Arc<Watchdog>, flag: &Arc<AtomicBool>) -> Self {
        let watched = Arc::new(Watched { flag: Arc::clone(flag), words: Mutex::default() });
        watchdog.add(&watched);
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
        sync::locked(&self.words)
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

/// Looks at flags, in one thread as long as there is one to look at.
#[derive(Default)]
pub(crate) struct Watchdog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: Vec<Weak<Watched>>,
    has_thread: bool,
}

impl Watchdog {
    fn add(self: &Arc<Self>, watched: &Arc<Watched>) {
        let mut state = self.state();
        state.watched.push(Arc::downgrade(watched));
        if state.has_thread {
            return;
        }
        let watchdog = Arc::clone(self);
        match thread::Builder::new().name("warpjoin-abort".into()).spawn(move || watchdog.run()) {
            Ok(_) => state.has_thread = true,
            Err(error) => log::warn!("kernels that run are not stopped when a query is cancelled: {error}"),
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
            } else if last_seen.elapsed() >= IDLE_MAX {
                // Under the lock: what comes now finds no thread, and starts one.
                state.has_thread = false;
                return;
            }
            drop(state);
            watched.iter().for_each(|watched| watched.look());
            drop(watched);
            thread::sleep(LOOK_EVERY);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        sync::locked(&self.state)
    }
}
