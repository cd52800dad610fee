//! The Rust side of the fiber scheduler (`kernels/sim/runtime.cpp`), which is loaded as a library.
//!
//! Owns the scheduler's workers. Must not know about streams and devices.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::compile::library::{KernelLibrary, LibrarySource};
use super::compile::toolchain::{self, Purpose, Toolchain};
use crate::{DeviceError, KernelCache, Result};

/// An entry of a kernel library.
pub(super) type EntryFunction = unsafe extern "C" fn(params: *const u64);
type BindFunction = unsafe extern "C" fn(table: *const c_void);
type TableFunction = unsafe extern "C" fn() -> *const c_void;
type CreateFunction = unsafe extern "C" fn() -> *mut c_void;
type RunFunction = unsafe extern "C" fn(worker: *mut c_void, launch: *mut RawLaunch) -> *const c_char;

/// `WjSimLaunch` of `sim/abi.h`.
#[repr(C)]
pub(super) struct RawLaunch {
    pub(super) entry: EntryFunction,
    pub(super) params: *const u64,
    pub(super) blocks: c_uint,
    pub(super) block_threads: c_uint,
    pub(super) shared_bytes: c_uint,
    pub(super) resident_blocks: c_uint,
    pub(super) seed: u64,
    pub(super) explore: c_uint,
    pub(super) failed: c_uint,
    pub(super) taken: u64,
    pub(super) param_bytes: c_uint,
    pub(super) operation: c_uint,
    pub(super) races: *mut c_void,
}

/// `WjRaceSide` of `sim/abi.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawRaceSide {
    pub(super) operation: c_uint,
    pub(super) block: c_uint,
    pub(super) thread: c_uint,
    pub(super) pc: c_uint,
    pub(super) flags: c_uint,
}

/// `WjRace` of `sim/abi.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawRace {
    pub(super) sides: [RawRaceSide; 2],
}

/// The functions of the race detector, as `sim/races/race_calls.h` declares them.
#[derive(Clone, Copy)]
pub(super) struct RaceFunctions {
    pub(super) create: unsafe extern "C" fn(devices: c_uint, seed: u64) -> *mut c_void,
    pub(super) destroy: unsafe extern "C" fn(races: *mut c_void),
    pub(super) begin: unsafe extern "C" fn(
        races: *mut c_void,
        device: c_uint,
        stream: c_uint,
        before: *const u64,
        streams: c_uint,
        lanes: c_uint,
        block_threads: c_uint,
    ) -> c_uint,
    pub(super) access:
        unsafe extern "C" fn(races: *mut c_void, operation: c_uint, address: u64, bytes: u64, writes: bool) -> bool,
    pub(super) clear: unsafe extern "C" fn(races: *mut c_void, address: u64, bytes: u64),
    pub(super) take: unsafe extern "C" fn(races: *mut c_void, race: *mut RawRace) -> bool,
}

/// `WjEntryInfo` of `sim/abi.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryInfo {
    pub(super) threads_max: c_uint,
    pub(super) param_bytes: c_uint,
}

/// The fiber scheduler of this process. Loaded once and never unloaded.
pub(super) struct Runtime {
    table: *const c_void,
    create: CreateFunction,
    run: RunFunction,
    /// Idle workers, with their fiber stacks.
    workers: Mutex<Vec<Worker>>,
    library: Arc<KernelLibrary>,
}

/// Owns a `Worker` of the runtime.
struct Worker(NonNull<c_void>);

// SAFETY: a worker is not bound to the OS thread that made it. One thread at a time uses it: the one
// that took it out of `Runtime::workers`.
unsafe impl Send for Worker {}
// SAFETY: `table` points to constant data of the library, which `library` keeps loaded. Any thread
// may call the functions.
unsafe impl Send for Runtime {}
// SAFETY: as above; all mutable data is behind the mutex.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// The runtime of this process, compiled and loaded by the first successful call.
    pub(super) fn get(toolchain: &Toolchain, cache: &KernelCache) -> Result<Arc<Self>> {
        static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtime.as_ref() {
            return Ok(runtime.clone());
        }
        let loaded = Arc::new(Self::load(toolchain, cache)?);
        *runtime = Some(loaded.clone());
        Ok(loaded)
    }

    fn load(toolchain: &Toolchain, cache: &KernelCache) -> Result<Self> {
        let file = toolchain::runtime_source().ok_or_else(|| DeviceError::Invalid("no simulation runtime".into()))?;
        let source =
            LibrarySource { name: file.name, text: file.text, defines: &[], purpose: Purpose::Runtime, header: None };
        let library = source.load(toolchain, cache)?;
        // SAFETY: the types are those that `sim/runtime.cpp` declares for these names.
        let (table, create, run) = unsafe {
            let table = symbol::<TableFunction>(&library, "wj_sim_runtime")?;
            (
                table(),
                symbol::<CreateFunction>(&library, "wj_sim_worker_create")?,
                symbol::<RunFunction>(&library, "wj_sim_run")?,
            )
        };
        Ok(Self { table, create, run, workers: Mutex::default(), library })
    }

    /// The race detector's functions.
    pub(super) fn races(&self) -> Result<RaceFunctions> {
        let library = &*self.library;
        // SAFETY: the types are those that `sim/races/race_calls.h` declares for these names. `Detector` holds the
        // functions together with this runtime, which keeps the library loaded.
        unsafe {
            Ok(RaceFunctions {
                create: symbol(library, "wj_sim_races_create")?,
                destroy: symbol(library, "wj_sim_races_destroy")?,
                begin: symbol(library, "wj_sim_races_begin")?,
                access: symbol(library, "wj_sim_races_access")?,
                clear: symbol(library, "wj_sim_races_clear")?,
                take: symbol(library, "wj_sim_races_take")?,
            })
        }
    }

    /// Passes the functions of the scheduler to a kernel library. May be repeated.
    pub(super) fn bind(&self, library: &KernelLibrary) -> Result<()> {
        // SAFETY: the type is the one that `sim/simt_cpu.h` declares. The call stores a pointer to
        // constant data that is never unloaded. All callers store the same pointer.
        unsafe { symbol::<BindFunction>(library, "wj_sim_bind")?(self.table) };
        Ok(())
    }

    /// Runs blocks of `launch` on this thread until all are taken.
    ///
    /// # Safety
    /// `launch` is valid throughout the call, and `params` match its entry. Other threads access it
    /// only through this function. All memory that the kernel accesses stays allocated.
    pub(super) unsafe fn run(&self, launch: *mut RawLaunch) -> std::result::Result<(), String> {
        let taken = self.workers().pop();
        let worker = match taken {
            Some(worker) => worker,
            None => {
                // SAFETY: the constructor has no preconditions.
                let made = unsafe { (self.create)() };
                Worker(NonNull::new(made).ok_or("the host has no memory for a worker")?)
            }
        };
        // SAFETY: only this thread holds the worker; the caller guarantees the rest for `launch`.
        let error = unsafe { (self.run)(worker.0.as_ptr(), launch) };
        // SAFETY: the result is null, or a C string that is valid until the worker runs again.
        let error = (!error.is_null()).then(|| unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned());
        self.workers().push(worker);
        error.map_or(Ok(()), Err)
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A function, or the address of a constant, of `library`.
///
/// # Safety
/// `T` is a pointer type that matches the symbol. It is used only while the library is loaded.
pub(super) unsafe fn symbol<T: Copy>(library: &KernelLibrary, name: &str) -> Result<T> {
    // SAFETY: the caller guarantees the same.
    let found = unsafe { library.library.get::<T>(format!("{name}\0").as_bytes()) };
    found.map(|symbol| *symbol).map_err(|error| DeviceError::Invalid(format!("{name}: {error}")))
}
