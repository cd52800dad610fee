//! Words of pinned host memory that kernels of one GPU read while the host writes them. With unified addressing, kernels use
//! the host's addresses.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use crate::cancellation::HostWord;
use crate::cuda::context::Context;
use crate::cuda::functions;
use crate::{DeviceError, Result};

/// Words of an allocation. More words in use at a time need another allocation, which waits for all running kernels.
const WORDS: usize = 4096;

/// The words of one GPU.
#[derive(Debug)]
pub(in crate::cuda) struct HostWords {
    context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    allocations: Vec<Address>,
    free: Vec<Address>,
}

/// A word of pinned memory, or the first one of an allocation.
#[derive(Debug, Clone, Copy)]
struct Address(NonNull<AtomicU64>);

/// A word in use.
#[derive(Debug)]
struct Word {
    words: Arc<HostWords>,
    address: Address,
}

// SAFETY: pinned memory is not bound to a thread, and the words are atomic.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl HostWords {
    pub(in crate::cuda) fn new(context: Arc<Context>) -> Result<Arc<Self>> {
        let words = Self { context, state: Mutex::default() };
        words.grow(&mut words.state())?;
        Ok(Arc::new(words))
    }

    /// Takes a word, which is 0.
    pub(in crate::cuda) fn take(self: &Arc<Self>) -> Result<Arc<dyn HostWord>> {
        let mut state = self.state();
        let address = loop {
            match state.free.pop() {
                Some(address) => break address,
                None => self.grow(&mut state)?,
            }
        };
        drop(state);
        let word = Word { words: Arc::clone(self), address };
        word.word().store(0, Ordering::Relaxed);
        Ok(Arc::new(word))
    }

    /// Allocates more words.
    fn grow(&self, state: &mut State) -> Result<()> {
        self.context.make_current()?;
        let mut memory: *mut c_void = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current; `memory` outlives the call; `drop` frees once.
        let result = unsafe { functions::cuMemHostAlloc(&mut memory, WORDS * size_of::<AtomicU64>(), flags) };
        self.context.check("cuMemHostAlloc", result)?;
        let Some(first) = NonNull::new(memory.cast::<AtomicU64>()) else {
            return Err(DeviceError::Invalid("pinned memory at address 0".into()));
        };
        state.allocations.push(Address(first));
        // SAFETY: all words are within the allocation.
        state.free.extend((0..WORDS).map(|at| Address(unsafe { first.add(at) })));
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HostWords {
    fn drop(&mut self) {
        let allocations = std::mem::take(&mut self.state().allocations);
        if self.context.make_current().is_ok() {
            for Address(memory) in allocations {
                // SAFETY: allocated once in `grow`; words in use keep `self` alive.
                self.context.log_failure("cuMemFreeHost", unsafe { functions::cuMemFreeHost(memory.as_ptr().cast()) });
            }
        }
    }
}

impl HostWord for Word {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the allocation lives as long as `words`, and is accessed by atomics only.
        unsafe { self.address.0.as_ref() }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.words.state().free.push(self.address);
    }
}
