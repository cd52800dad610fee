//! Abort words: a word in device memory tells a running kernel that its query was cancelled.
//!
//! Owns the watchdog thread, which polls the cancel flags and sets the words. The thread that launched a kernel cannot do
//! this: it waits in the driver, or runs the kernel itself on a simulated device. Must not know what kernels do with the
//! words.
//!
//! ```text
//! watched --flag is set--> word is set at each poll --guard is dropped--> removed
//!    '-----------------guard is dropped, its kernel has ended-----------'
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::sync::{self, Mutex, MutexGuard, thread};
use crate::{Buffer, Device, DeviceError, Result};

/// How often flags are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The thread ends when it has had no flag to poll for this long. Starting another costs a query some 30 us.
const IDLE_MAX: Duration = if cfg!(feature = "shuttle") { Duration::ZERO } else { Duration::from_secs(5) };

/// The abort words of one query, which are set once its cancel flag is set.
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

/// Keeps a word watched until dropped. Drop it before the word's buffer.
#[derive(Debug)]
#[must_use]
pub struct AbortGuard {
    watched: Arc<Watched>,
    address: u64,
}

impl Abort {
    /// Sets words when `flag` is set.
    pub fn new(flag: &Arc<AtomicBool>) -> Self {
        static WATCHDOG: OnceLock<Arc<Watchdog>> = OnceLock::new();
        Self::with_watchdog(WATCHDOG.get_or_init(Arc::default), flag)
    }

    pub(crate) fn with_watchdog(watchdog: &Arc<Watchdog>, flag: &Arc<AtomicBool>) -> Self {
        let watched = Arc::new(Watched { flag: Arc::clone(flag), words: Mutex::default() });
        watchdog.add(&watched);
        Self { watched }
    }

    /// Watches the 8 bytes of `buffer` at byte `offset`: they become `value` within milliseconds after the flag is set,
    /// even while kernels that read them run.
    ///
    /// # Errors
    /// When the word is not within the buffer, or not aligned.
    pub fn watch(&self, buffer: &Buffer, offset: u64, value: u64) -> Result<AbortGuard> {
        if !offset.is_multiple_of(8) || offset.checked_add(8).is_none_or(|end| end > buffer.bytes()) {
            return Err(DeviceError::Invalid(format!("no aligned word at byte {offset} of {} bytes", buffer.bytes())));
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

    /// Sets the words if the flag is set. Repeated at each poll, since a stream may clear a new buffer after the write. The
    /// lock makes dropping a guard wait, so the buffers stay alive meanwhile.
    fn poll(&self) {
        if !self.flag.load(Ordering::Relaxed) {
            return;
        }
        for word in self.words().iter() {
            if let Err(error) = word.device.backend().write_word(word.address, word.value) {
                log::debug!("a kernel of a cancelled query continues: {error}");
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

/// Polls flags, in one thread that lives while there are flags.
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
            Err(error) => log::warn!("cancelling a query will not stop its running kernels: {error}"),
        }
    }

    fn run(&self) {
        let mut last_seen = Instant::now();
        loop {
            let mut state = self.state();
            // These references keep the last drop outside the lock.
            let watched: Vec<Arc<Watched>> = state.watched.iter().filter_map(Weak::upgrade).collect();
            state.watched.retain(|watched| watched.strong_count() > 0);
            if !watched.is_empty() {
                last_seen = Instant::now();
            } else if last_seen.elapsed() >= IDLE_MAX {
                // Under the lock: the next `add` finds no thread, and starts one.
                state.has_thread = false;
                return;
            }
            drop(state);
            watched.iter().for_each(|watched| watched.poll());
            drop(watched);
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        sync::locked(&self.state)
    }
}
