//! A kernel launch: checked, then run by one or more OS threads.
//!
//! Must not know about streams and their order.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::compile::library::KernelLibrary;
use super::compile::lines;
use super::runtime::{EntryFunction, EntryInfo, RawLaunch, Runtime, symbol};
use crate::{DeviceError, Launch, Result};

/// Maximum number of blocks that an exploring launch interleaves; `kResidentMax` of `sim/worker.h`.
const RESIDENT_BLOCKS_MAX: u64 = 4;

/// One entry of a kernel library, for one device.
pub(super) struct SimKernel {
    pub(super) name: String,
    pub(super) device_key: (usize, usize),
    entry: EntryFunction,
    info: EntryInfo,
    library: Arc<KernelLibrary>,
}

impl SimKernel {
    /// Finds `name` in a library. `device_key` is the simulation and the device that may run it.
    pub(super) fn find(library: &Arc<KernelLibrary>, name: &str, device_key: (usize, usize)) -> Result<Self> {
        // SAFETY: WJ_ENTRY of `sim/simt_cpu.h` gives both names these types; `library` keeps the
        // function loaded for as long as this value lives.
        let (entry, info) = unsafe {
            let info = symbol::<*const EntryInfo>(library, &format!("{name}_wj_info"))?;
            (symbol::<EntryFunction>(library, name)?, *info)
        };
        Ok(Self { name: name.to_string(), device_key, entry, info, library: library.clone() })
    }

    /// The source lines of an instruction: its own, then those of its inlined callers. `pc` is the lower half of its
    /// address.
    pub(super) fn lines(&self, pc: u32) -> Vec<String> {
        type BaseFunction = unsafe extern "C" fn() -> *const std::ffi::c_void;
        // SAFETY: `sim/simt_plain.h` gives the name this type; the library is loaded.
        let base = unsafe { symbol::<BaseFunction>(&self.library, "wj_sim_base").map(|base| base()) };
        // `pc` is a return address: the access is the instruction before it.
        base.map_or(vec![], |base| {
            lines::of(&self.library.image, pc.wrapping_sub(base as usize as u32).wrapping_sub(1))
        })
    }

    /// Checks the block size and the number of parameters of a launch.
    pub(super) fn check(&self, launch: Launch, params: &[u64]) -> Result<()> {
        let name = &self.name;
        if launch.block_threads > self.info.threads_max {
            let (given, max) = (launch.block_threads, self.info.threads_max);
            return Err(DeviceError::Invalid(format!("{name}: {given} threads per block, the maximum is {max}")));
        }
        if size_of_val(params) != self.info.param_bytes as usize {
            let (given, expected) = (size_of_val(params), self.info.param_bytes);
            return Err(DeviceError::Invalid(format!("{name}: {given} bytes of arguments, its Params has {expected}")));
        }
        Ok(())
    }
}

/// A launch that any number of threads can work on.
pub(super) struct LaunchRun {
    raw: UnsafeCell<RawLaunch>,
    runtime: Arc<Runtime>,
    kernel: Arc<SimKernel>,
    /// What `raw` points to.
    _params: Vec<u64>,
    error: Mutex<Option<String>>,
}

// SAFETY: only `Runtime::run` accesses `raw`, and changes it through atomics. The data that `raw`
// points to is constant and owned here.
unsafe impl Send for LaunchRun {}
// SAFETY: as above.
unsafe impl Sync for LaunchRun {}

impl LaunchRun {
    /// `races` and `operation` are the race detector, which must outlive this, and the number of the launch in it; or null
    /// and 0.
    pub(super) fn new(
        runtime: Arc<Runtime>,
        kernel: Arc<SimKernel>,
        launch: Launch,
        params: Vec<u64>,
        order: Order,
        (races, operation): (*mut c_void, u32),
    ) -> Self {
        let raw = RawLaunch {
            entry: kernel.entry,
            params: params.as_ptr(),
            blocks: launch.blocks,
            block_threads: launch.block_threads,
            shared_bytes: launch.shared_bytes,
            resident_blocks: if order.explore { 1 + (order.seed % RESIDENT_BLOCKS_MAX) as u32 } else { 1 },
            seed: order.seed,
            explore: u32::from(order.explore),
            failed: 0,
            taken: 0,
            param_bytes: size_of_val(params.as_slice()) as u32,
            operation,
            races,
        };
        Self { raw: UnsafeCell::new(raw), runtime, kernel, _params: params, error: Mutex::new(None) }
    }

    /// Runs blocks until all are taken.
    pub(super) fn work(&self) {
        // SAFETY: `raw` lives as long as self, and its parameters were checked against the entry
        // at launch. Stream order keeps the buffers named in them allocated until this work ends.
        if let Err(error) = unsafe { self.runtime.run(self.raw.get()) } {
            self.error().get_or_insert(error);
        }
    }

    /// The outcome, once all threads that work on it are done.
    pub(super) fn finish(&self) -> std::result::Result<(), String> {
        self.error().take().map_or(Ok(()), |error| Err(format!("kernel {}: {error}", self.kernel.name)))
    }

    fn error(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order in which lanes run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// Whether every yield point yields to a random lane.
    pub(super) explore: bool,
    /// Seed of all random choices in the launch.
    pub(super) seed: u64,
}
