//! The state that the devices of one `open_simulated` call share: the schedule, the threads, the compiler.
//!
//! Owns the execution of work. Must not know what kernels compute.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::compile::library::LibrarySource;
use super::compile::toolchain::{self, Purpose, Toolchain};
use super::launch::{LaunchRun, Order, SimKernel};
use super::memory;
use super::options::{ChangedFile, SimOptions};
use super::pool::Pool;
use super::races::{Before, Races};
use super::runtime::Runtime;
use super::schedule::{Next, Schedule};
use super::work::{self, Reached, SimEvent, StreamError, Work};
use crate::{DeviceError, KernelCache, Launch, ModuleSource, Result};

/// Maximum work and host bytes in the queues. A thread that enqueues more executes work first.
const PENDING_MAX: u64 = 4096;
const PENDING_HOST_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Simulation {
    /// Unique in the process.
    pub(super) id: usize,
    /// Whether work is delayed until its result is needed, and lanes switch at every yield point.
    explore: bool,
    schedule: Mutex<Schedule>,
    /// Work was executed.
    progress: Condvar,
    pool: Pool,
    toolchain: Toolchain,
    cache: KernelCache,
    kernels: Purpose,
    runtime: Arc<Runtime>,
    races: Option<Races>,
    changed_file: Option<ChangedFile>,
}

impl Simulation {
    pub(super) fn new(options: &SimOptions) -> Result<Self> {
        static NEXT_ID: AtomicUsize = AtomicUsize::new(0);
        let toolchain = Toolchain::find()?;
        let cache = KernelCache::open(options.kernel_cache.as_deref());
        let runtime = Runtime::get(&toolchain, &cache)?;
        let races = match options.seed.filter(|_| options.races) {
            Some(seed) => Some(Races::new(&runtime, options.devices, seed)?),
            None => None,
        };
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            explore: options.seed.is_some(),
            schedule: Mutex::new(Schedule::new(options.seed.unwrap_or(0))),
            progress: Condvar::new(),
            pool: Pool::new(match (options.seed, options.threads) {
                (Some(_), _) => 1,
                (None, 0) => cores(),
                (None, threads) => threads,
            }),
            toolchain,
            cache,
            kernels: match (options.sanitize, options.seed) {
                _ if races.is_some() => Purpose::RacingKernels,
                (true, _) => Purpose::SanitizedKernels,
                (false, Some(_)) if options.yield_at_plain_accesses => Purpose::YieldingKernels,
                _ => Purpose::Kernels,
            },
            runtime,
            races,
            changed_file: options.changed_file.clone(),
        })
    }

    /// Version text of the compiler.
    pub(super) fn compiler(&self) -> &str {
        self.toolchain.version()
    }

    pub(super) fn compile(&self, source: &ModuleSource, device: usize) -> Result<Vec<Arc<SimKernel>>> {
        let library = self.library_of(source).load(&self.toolchain, &self.cache)?;
        self.runtime.bind(&library)?;
        source.entries.iter().map(|name| Ok(Arc::new(SimKernel::find(&library, name, (self.id, device))?))).collect()
    }

    pub(super) fn is_stored(&self, source: &ModuleSource) -> bool {
        self.library_of(source).is_stored(&self.toolchain, &self.cache)
    }

    fn library_of<'a>(&'a self, source: &'a ModuleSource) -> LibrarySource<'a> {
        let ModuleSource { name, text, defines, .. } = source;
        let changed = self.changed_file.as_ref();
        let text = changed.filter(|changed| changed.file.text == *text).map_or(text, |changed| &changed.text);
        let header = changed.filter(|changed| toolchain::includes(text, &changed.file));
        LibrarySource { name, text, defines, purpose: self.kernels, header }
    }

    pub(super) fn open_stream(&self, device: usize) -> u64 {
        let stream = self.schedule().open();
        if let Some(races) = &self.races {
            races.open_stream(stream, device);
        }
        stream
    }

    pub(super) fn close_stream(&self, stream: u64) {
        self.schedule().close(stream);
    }

    /// A byte to fill new memory with. It does not look like a valid value.
    pub(super) fn poison(&self) -> u8 {
        const BYTES: [u8; 4] = [0xA5, 0x5B, 0xC7, 0x6D];
        BYTES[self.schedule().random().below(BYTES.len())]
    }

    pub(super) fn new_event(&self) -> Arc<SimEvent> {
        Arc::new(SimEvent::new(self.id))
    }

    /// Appends work to a stream. When exploring, it is executed once its result is needed, else
    /// immediately.
    pub(super) fn enqueue(&self, stream: u64, work: Work) -> Result<()> {
        let before = self.races.as_ref().map(Races::host).unwrap_or_default();
        let mut schedule = self.schedule();
        schedule.enqueue(stream, work, before);
        let (pending, pending_host_bytes) = schedule.pending();
        if self.explore && pending <= PENDING_MAX && pending_host_bytes <= PENDING_HOST_BYTES_MAX {
            return Ok(());
        }
        drop(schedule);
        self.advance(stream)
    }

    /// Whether work is executed when it is enqueued, so that a host write needs no copy of its bytes.
    pub(super) fn is_eager(&self) -> bool {
        !self.explore
    }

    /// Executes work until all current work of `stream` is done. Returns the stream's error, if it failed.
    pub(super) fn synchronize(&self, stream: u64, device: usize) -> Result<()> {
        self.advance(stream)?;
        if let Some(races) = &self.races {
            races.host_waited(stream);
        }
        self.schedule().error(stream).map_or(Ok(()), |error| Err(error.of_device(device)))
    }

    /// Tells the race detector about new memory of `stream`.
    pub(super) fn allocated(&self, stream: u64, address: u64, bytes: u64) -> Result<()> {
        let Some(races) = &self.races else {
            return Ok(());
        };
        races.clear(address, bytes);
        self.enqueue(stream, Work::Alloc { address, bytes })
    }

    /// Checks for races of a host read, after the host has waited for `stream` of `device`.
    pub(super) fn check_read(&self, stream: u64, device: usize, address: u64, bytes: u64) -> Result<()> {
        let Some(races) = &self.races else {
            return Ok(());
        };
        races.order_after(stream, &races.host());
        let outcome = races.access(stream, "read", &[(address, bytes, false)]);
        races.host_waited(stream);
        outcome.map_err(|failure| StreamError::from(failure).of_device(device))
    }

    /// Executes work, of any stream, until all current work of `stream` is done.
    pub(super) fn advance(&self, stream: u64) -> Result<()> {
        let mut schedule = self.schedule();
        let target = schedule.enqueued(stream);
        loop {
            match schedule.next(stream, target) {
                Next::Reached => return Ok(()),
                Next::Busy => {
                    schedule = self.progress.wait(schedule).unwrap_or_else(PoisonError::into_inner);
                }
                Next::Stuck => {
                    return Err(DeviceError::Invalid("deadlock: streams wait for each other's events".into()));
                }
                Next::Execute(from, work, before) => {
                    let (earlier, seed) = (schedule.error(from), schedule.random().next());
                    drop(schedule);
                    let error = self.execute((from, work, before), earlier, seed);
                    schedule = self.schedule();
                    schedule.executed(from, error);
                    self.progress.notify_all();
                }
            }
        }
    }

    /// Executes one piece of work. Returns the error state of its stream afterwards.
    fn execute(
        &self,
        (stream, work, before): (u64, Work, Before),
        earlier: Option<StreamError>,
        seed: u64,
    ) -> Option<StreamError> {
        if let Some(races) = &self.races {
            races.order_after(stream, &before);
        }
        let raced = if earlier.is_none() { self.check(stream, &work) } else { None };
        match work {
            // Events and frees are executed after an error too, so that no stream waits forever and no memory leaks.
            Work::Record(event) => {
                let before = self.races.as_ref().map(|races| races.reached(stream)).unwrap_or_default();
                event.set(Reached { instant: Instant::now(), error: earlier.clone(), before });
            }
            Work::Wait(event) => {
                let reached = event.reached();
                if let (Some(races), Some(reached)) = (&self.races, &reached) {
                    races.order_after(stream, &reached.before);
                }
                return earlier.or_else(|| reached.and_then(|reached| reached.error));
            }
            Work::Free { address, bytes } => {
                if let Some(races) = &self.races {
                    races.clear(address, bytes);
                }
                free(address, bytes);
            }
            Work::Alloc { .. } => {}
            _ if earlier.is_some() || raced.is_some() => {}
            Work::Write { address, bytes } => work::write(address, &bytes),
            Work::Fill { address, bytes, value } => work::fill(address, bytes, value),
            Work::Copy { source, target, bytes } => work::copy(source, target, bytes),
            Work::Launch { kernel, launch, params } => return self.launch(stream, kernel, launch, params, seed).err(),
        }
        earlier.or(raced)
    }

    /// Checks work of the host or the copy engine for races.
    fn check(&self, stream: u64, work: &Work) -> Option<StreamError> {
        let races = self.races.as_ref()?;
        let outcome = match *work {
            Work::Write { address, ref bytes } => races.access(stream, "write", &[(address, bytes.len() as u64, true)]),
            Work::Fill { address, bytes, .. } => races.access(stream, "fill", &[(address, bytes, true)]),
            Work::Copy { source, target, bytes } => {
                races.access(stream, "copy", &[(source, bytes, false), (target, bytes, true)])
            }
            Work::Alloc { address, bytes } => races.access(stream, "alloc", &[(address, bytes, true)]),
            Work::Free { address, bytes } => races.access(stream, "free", &[(address, bytes, true)]),
            Work::Launch { .. } | Work::Record(_) | Work::Wait(_) => Ok(()),
        };
        outcome.err().map(|failure| {
            let error = StreamError::from(failure);
            if let (Work::Free { .. }, StreamError::Race(report)) = (work, &error) {
                // Logged, since the stream may not be synchronized again.
                log::error!("simulated device: {report}");
            }
            error
        })
    }

    fn launch(
        &self,
        stream: u64,
        kernel: Arc<SimKernel>,
        launch: Launch,
        params: Vec<u64>,
        seed: u64,
    ) -> std::result::Result<(), StreamError> {
        let order = Order { explore: self.explore, seed };
        let run = |detector: (*mut c_void, u32)| {
            let run = Arc::new(LaunchRun::new(self.runtime.clone(), kernel.clone(), launch, params, order, detector));
            self.pool.run(&run, launch.blocks);
            run.finish()
        };
        let outcome = match &self.races {
            Some(races) => races.launch(stream, &kernel, launch, |races, operation| run((races, operation)))?,
            None => run((std::ptr::null_mut(), 0)),
        };
        outcome.map_err(|error| StreamError::Failed(error.into()))
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // No handle is left that could observe the remaining work, so only memory is freed.
        let schedule = self.schedule.get_mut().unwrap_or_else(PoisonError::into_inner);
        for work in schedule.drain() {
            if let Work::Free { address, bytes } = work {
                free(address, bytes);
            }
        }
    }
}

fn free(address: u64, bytes: u64) {
    // SAFETY: the drop of the `Buffer` that owns the allocation enqueues `Free` once, with its
    // length, after all work of its stream that uses it. Work of other streams has ended before, as
    // `Buffer` requires.
    unsafe { memory::free(address, bytes) };
}
