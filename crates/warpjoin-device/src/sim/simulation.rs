//! What the devices of one `open_simulated` call share: the schedule, the threads, the compiler.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::launch::{LaunchRun, Order, SimKernel};
use super::library::LibrarySource;
use super::memory;
use super::options::SimOptions;
use super::pool::Pool;
use super::runtime::Runtime;
use super::schedule::{Next, Schedule};
use super::toolchain::{Purpose, Toolchain};
use super::work::{self, Reached, SimEvent, Work};
use crate::{DeviceError, KernelCache, ModuleSource, Result};

/// Work and host bytes that may wait before an enqueuing thread executes some.
const PENDING_MAX: u64 = 4096;
const PENDING_HOST_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Simulation {
    /// Tells simulations of a process apart.
    pub(super) id: usize,
    /// Whether work waits until someone needs its result, and lanes switch at every yield point.
    explore: bool,
    schedule: Mutex<Schedule>,
    /// Some work was executed.
    progress: Condvar,
    pool: Pool,
    toolchain: Toolchain,
    cache: KernelCache,
    kernels: Purpose,
    runtime: Arc<Runtime>,
}

impl Simulation {
    pub(super) fn new(options: &SimOptions) -> Result<Self> {
        static NEXT_ID: AtomicUsize = AtomicUsize::new(0);
        let toolchain = Toolchain::find()?;
        let cache = KernelCache::open(options.kernel_cache.as_deref());
        let runtime = Runtime::get(&toolchain, &cache)?;
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
                (true, _) => Purpose::SanitizedKernels,
                (false, Some(_)) if options.yield_at_plain_accesses => Purpose::YieldingKernels,
                _ => Purpose::Kernels,
            },
            runtime,
        })
    }

    /// The compiler in words.
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

    fn library_of<'a>(&self, source: &'a ModuleSource) -> LibrarySource<'a> {
        LibrarySource { name: &source.name, text: &source.text, defines: &source.defines, purpose: self.kernels }
    }

    pub(super) fn open_stream(&self) -> u64 {
        self.schedule().open()
    }

    pub(super) fn close_stream(&self, stream: u64) {
        self.schedule().close(stream);
    }

    /// A byte to fill new memory with. Not one that looks like an honest value.
    pub(super) fn poison(&self) -> u8 {
        const BYTES: [u8; 4] = [0xA5, 0x5B, 0xC7, 0x6D];
        BYTES[self.schedule().random().below(BYTES.len())]
    }

    pub(super) fn new_event(&self) -> Arc<SimEvent> {
        Arc::new(SimEvent::new(self.id))
    }

    /// Puts work at the end of a stream. When exploring, it is executed once someone needs the
    /// result; else at once.
    pub(super) fn enqueue(&self, stream: u64, work: Work) -> Result<()> {
        let mut schedule = self.schedule();
        schedule.enqueue(stream, work);
        let (pending, pending_host_bytes) = schedule.pending();
        if self.explore && pending <= PENDING_MAX && pending_host_bytes <= PENDING_HOST_BYTES_MAX {
            return Ok(());
        }
        drop(schedule);
        self.advance(stream)
    }

    /// Whether a host thread may itself do what a stream comes to next, without a copy of its bytes.
    pub(super) fn is_eager(&self) -> bool {
        !self.explore
    }

    /// Executes work until all that `stream` of `device` holds now is done; its error, if it failed.
    pub(super) fn synchronize(&self, stream: u64, device: usize) -> Result<()> {
        self.advance(stream)?;
        let failed =
            |reason: Arc<str>| Err(DeviceError::Kernel { device: format!("sim:{device}"), reason: reason.to_string() });
        self.schedule().error(stream).map_or(Ok(()), failed)
    }

    /// Executes work, of any stream, until all that `stream` holds now is done.
    pub(super) fn advance(&self, stream: u64) -> Result<()> {
        let mut schedule = self.schedule();
        let target = schedule.enqueued(stream);
        loop {
            match schedule.next(stream, target) {
                Next::Reached => return Ok(()),
                Next::Busy => {
                    schedule = self.progress.wait(schedule).unwrap_or_else(PoisonError::into_inner);
                }
                Next::Stuck => return Err(DeviceError::Invalid("streams wait for events in a circle".into())),
                Next::Execute(from, work) => {
                    let (earlier, seed) = (schedule.error(from), schedule.random().next());
                    drop(schedule);
                    let error = self.execute(work, earlier, seed);
                    schedule = self.schedule();
                    schedule.executed(from, error);
                    self.progress.notify_all();
                }
            }
        }
    }

    /// Does one piece of work; gives the error that it leaves its stream with.
    fn execute(&self, work: Work, earlier: Option<Arc<str>>, seed: u64) -> Option<Arc<str>> {
        match work {
            // Bookkeeping goes on after an error, so that nobody waits forever and nothing leaks.
            Work::Record(event) => event.set(Reached { instant: Instant::now(), error: earlier.clone() }),
            Work::Wait(event) => return earlier.or_else(|| event.reached().and_then(|reached| reached.error)),
            Work::Free { address, bytes } => free(address, bytes),
            _ if earlier.is_some() => {}
            Work::Write { address, bytes } => work::write(address, &bytes),
            Work::Fill { address, bytes, value } => work::fill(address, bytes, value),
            Work::Copy { source, target, bytes } => work::copy(source, target, bytes),
            Work::Launch { kernel, launch, params } => {
                let order = Order { explore: self.explore, seed };
                let run = Arc::new(LaunchRun::new(self.runtime.clone(), kernel, launch, params, order));
                self.pool.run(&run, launch.blocks);
                return run.finish().err().map(Arc::from);
            }
        }
        earlier
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // No handle is left that could see what the remaining work does; only memory matters.
        let schedule = self.schedule.get_mut().unwrap_or_else(PoisonError::into_inner);
        for work in schedule.drain() {
            if let Work::Free { address, bytes } = work {
                free(address, bytes);
            }
        }
    }
}

fn free(address: u64, bytes: u64) {
    // SAFETY: `Free` is enqueued once for each allocation, by the drop of the one `Buffer` that
    // owns it and with its length, after all work of its stream that uses it; work of other
    // streams has ended before, as `Buffer` demands.
    unsafe { memory::free(address, bytes) };
}
