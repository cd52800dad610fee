//! The Rust side of the race detector (`kernels/sim/races/races.h`), and the order of operations that
//! streams, events and the host define.
//!
//! Must not know how operations are executed.
//!
//! All host threads count as one: later calls of any host thread come after what one of them waited
//! for. The detector therefore misses races between host threads, but reports no false ones.

use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::launch::SimKernel;
use super::runtime::{RaceFunctions, RawRace, RawRaceSide, Runtime};
use crate::{DeviceError, Launch, RaceAccess, RaceReport, Result};

/// A vector clock: how many operations of each stream come before a point, by the stream's number.
pub(super) type Before = Arc<Vec<u64>>;

/// The detector of one simulation.
pub(super) struct Races {
    seed: u64,
    /// Locked while an operation is executed.
    detector: Mutex<Detector>,
    order: Mutex<Order>,
}

struct Detector {
    raw: NonNull<c_void>,
    functions: RaceFunctions,
    _runtime: Arc<Runtime>,
    operations: Vec<Operation>,
}

// SAFETY: the detector is not bound to the OS thread that made it, and the mutex around it lets one
// thread at a time call its functions.
unsafe impl Send for Detector {}

struct Operation {
    name: &'static str,
    kernel: Option<Arc<SimKernel>>,
    device: usize,
    stream: u64,
}

/// What comes before the next operation of each stream, and before the host's next call.
#[derive(Default)]
struct Order {
    streams: Vec<Stream>,
    host: Before,
}

#[derive(Default, Clone)]
struct Stream {
    device: usize,
    before: Before,
}

fn join(before: &mut Before, other: &[u64]) {
    if other.iter().enumerate().all(|(stream, &count)| before.get(stream).is_some_and(|&known| known >= count)) {
        return;
    }
    let before = Arc::make_mut(before);
    before.resize(before.len().max(other.len()), 0);
    for (known, &count) in before.iter_mut().zip(other) {
        *known = (*known).max(count);
    }
}

impl Races {
    pub(super) fn new(runtime: &Arc<Runtime>, devices: usize, seed: u64) -> Result<Self> {
        let functions = runtime.races()?;
        // SAFETY: the constructor has no preconditions.
        let raw = unsafe { (functions.create)(devices as c_uint, seed) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| DeviceError::Invalid("the host has no memory for a race detector".into()))?;
        let detector = Detector { raw, functions, _runtime: runtime.clone(), operations: vec![] };
        Ok(Self { seed, detector: Mutex::new(detector), order: Mutex::default() })
    }

    pub(super) fn open_stream(&self, stream: u64, device: usize) {
        let mut order = self.order();
        let count = order.streams.len().max(stream as usize + 1);
        order.streams.resize(count, Stream::default());
        order.streams[stream as usize].device = device;
    }

    /// What comes before the host's next call.
    pub(super) fn host(&self) -> Before {
        self.order().host.clone()
    }

    /// Orders the stream's next operation after `before`.
    pub(super) fn order_after(&self, stream: u64, before: &Before) {
        join(&mut self.order().streams[stream as usize].before, before);
    }

    /// What comes before the stream's next operation. An event recorded now has this clock.
    pub(super) fn reached(&self, stream: u64) -> Before {
        self.order().streams[stream as usize].before.clone()
    }

    /// Records that the host has waited for all operations of the stream.
    pub(super) fn host_waited(&self, stream: u64) {
        let mut order = self.order();
        let before = order.streams[stream as usize].before.clone();
        join(&mut order.host, &before);
    }

    /// Runs a launch as the stream's next operation. `run` gets the detector and the operation's number.
    pub(super) fn launch<T>(
        &self,
        stream: u64,
        kernel: &Arc<SimKernel>,
        launch: Launch,
        run: impl FnOnce(*mut c_void, u32) -> T,
    ) -> std::result::Result<T, Failure> {
        let lanes = u64::from(launch.blocks) * u64::from(launch.block_threads);
        let lanes = u32::try_from(lanes).map_err(|_| Failure::TooManyLanes)?;
        let mut detector = self.detector();
        let operation = self.begin(&mut detector, stream, "launch", Some(kernel), (lanes, launch.block_threads))?;
        let outcome = run(detector.raw.as_ptr(), operation);
        self.found(&detector).map_or(Ok(outcome), |report| Err(Failure::Race(report)))
    }

    /// Records an access of the host to ranges (address, bytes, whether it writes) as the stream's next operation.
    pub(super) fn access(
        &self,
        stream: u64,
        name: &'static str,
        ranges: &[(u64, u64, bool)],
    ) -> std::result::Result<(), Failure> {
        let mut detector = self.detector();
        let operation = self.begin(&mut detector, stream, name, None, (1, 1))?;
        for &(address, bytes, writes) in ranges {
            // SAFETY: `raw` is live, and `operation` came from it. The call does not access the memory itself.
            unsafe { (detector.functions.access)(detector.raw.as_ptr(), operation, address, bytes, writes) };
        }
        self.found(&detector).map_or(Ok(()), |report| Err(Failure::Race(report)))
    }

    /// Removes all recorded accesses to memory that was freed or allocated.
    pub(super) fn clear(&self, address: u64, bytes: u64) {
        let detector = self.detector();
        // SAFETY: `raw` is live. The call does not access the memory itself.
        unsafe { (detector.functions.clear)(detector.raw.as_ptr(), address, bytes) };
    }

    fn begin(
        &self,
        detector: &mut Detector,
        stream: u64,
        name: &'static str,
        kernel: Option<&Arc<SimKernel>>,
        (lanes, block_threads): (u32, u32),
    ) -> std::result::Result<u32, Failure> {
        let mut order = self.order();
        let of = &mut order.streams[stream as usize];
        let before = of.before.clone();
        // SAFETY: the length passed is that of `before`.
        let operation = unsafe {
            (detector.functions.begin)(
                detector.raw.as_ptr(),
                of.device as c_uint,
                stream as c_uint,
                before.as_ptr(),
                before.len() as c_uint,
                lanes,
                block_threads,
            )
        };
        if operation == u32::MAX {
            return Err(Failure::TooManyLanes);
        }
        let counts = Arc::make_mut(&mut of.before);
        counts.resize(counts.len().max(stream as usize + 1), 0);
        counts[stream as usize] += 1;
        detector.operations.push(Operation { name, kernel: kernel.cloned(), device: of.device, stream });
        Ok(operation)
    }

    /// The race found since the last call.
    fn found(&self, detector: &Detector) -> Option<Arc<RaceReport>> {
        let mut race = RawRace::default();
        // SAFETY: `raw` is live, and `race` is valid for writes.
        unsafe { (detector.functions.take)(detector.raw.as_ptr(), &raw mut race) }.then(|| {
            let accesses = race.sides.map(|side| detector.describe(&side));
            Arc::new(RaceReport { accesses, seed: self.seed })
        })
    }

    fn detector(&self) -> MutexGuard<'_, Detector> {
        self.detector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Detector {
    fn describe(&self, side: &RawRaceSide) -> RaceAccess {
        const SCOPES: [&str; 3] = ["block", "device", "system"];
        let operation = &self.operations[side.operation as usize];
        let kernel = operation.kernel.as_ref();
        RaceAccess {
            operation: kernel.map_or(operation.name, |kernel| &kernel.name).to_string(),
            device: operation.device,
            stream: operation.stream,
            lane: kernel.map(|_| (side.block, side.thread)),
            lines: kernel.map_or(vec![], |kernel| kernel.lines(side.pc)),
            writes: side.flags & 1 != 0,
            scope: (side.flags & 2 != 0).then(|| SCOPES[(side.flags as usize / 4) % 4 % 3]),
        }
    }
}

impl Drop for Detector {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `create`, and this is its last use.
        unsafe { (self.functions.destroy)(self.raw.as_ptr()) };
    }
}

/// Why the detector stops an operation.
pub(super) enum Failure {
    Race(Arc<RaceReport>),
    /// The detector's 32-bit lane numbers are exhausted.
    TooManyLanes,
}
