//! A set of devices that hold tables and run queries.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpjoin_device::{DEVICES_MAX, Device, DeviceError, DeviceKind, Stream};

use super::budget::MemoryBudget;
use super::compiler::Compiler;
use super::dictionaries::DictionaryOwners;
use super::scheduler::{LaunchPermits, Scheduler};
use super::threads::DeviceThreads;
use crate::{Error, Result};

/// Streams for decoding columns concurrently: a page keeps a warp busy for long, and a column has few pages.
const DECODE_STREAMS: usize = 8;

/// Devices of one kind. Tables lie on all of them or on a member, which is a set of one of these devices, and queries
/// run where their tables lie. Rows go from device to device directly, or through host memory if the devices can't
/// reach each other.
pub struct DeviceSet {
    devices: Vec<Device>,
    has_peer_access: bool,
    /// One stream for each device, for tables and other data that outlives queries.
    load_streams: Vec<Stream>,
    decode_streams: DecodeStreams,
    dictionaries: DictionaryOwners,
    compiler: Arc<Compiler>,
    threads: DeviceThreads,
    scheduler: Arc<Scheduler>,
    /// With several devices: a set of each one alone, made on first use.
    members: Vec<OnceLock<Arc<Self>>>,
    /// Number of queries that run on it, without those on its members.
    running: AtomicUsize,
}

/// Counts a query as running on a set of devices, until dropped.
pub struct Running(Arc<DeviceSet>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeviceSet {
    /// Takes 1 to [`DEVICES_MAX`] devices of one kind, and opens peer access between all that have it.
    ///
    /// # Errors
    /// When there is no device, they are of different kinds, or opening access fails.
    #[doc(hidden)]
    pub fn new(devices: Vec<Device>) -> Result<Arc<Self>> {
        if devices.is_empty() || devices.len() > DEVICES_MAX {
            let asked = devices.len();
            return Err(Error::InvalidArgument(format!("a session takes 1 to {DEVICES_MAX} devices, not {asked}")));
        }
        let first = devices[0].info().kind;
        if let Some(other) = devices.iter().map(|device| device.info().kind).find(|kind| *kind != first) {
            return Err(Error::InvalidArgument(format!(
                "a session takes devices of one kind, not {first} and {other}"
            )));
        }
        let mut has_peer_access = true;
        for from in &devices {
            for to in &devices {
                match from.open_peer_access(to) {
                    Ok(()) => {}
                    Err(DeviceError::NoPeerLink { .. }) => has_peer_access = false,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Arc::new(Self { has_peer_access, ..Self::of(devices, Arc::default())? }))
    }

    fn of(devices: Vec<Device>, compiler: Arc<Compiler>) -> Result<Self> {
        let load_streams = devices.iter().map(Device::create_stream).collect::<Result<_, _>>()?;
        let members = if devices.len() > 1 { devices.len() } else { 0 };
        Ok(Self {
            devices,
            has_peer_access: true,
            load_streams,
            decode_streams: DecodeStreams::default(),
            dictionaries: DictionaryOwners::default(),
            compiler,
            threads: DeviceThreads::default(),
            scheduler: Arc::default(),
            running: AtomicUsize::new(0),
            members: (0..members).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Counts a query that runs on it.
    #[doc(hidden)]
    pub fn enter(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// Queries that run on it.
    #[doc(hidden)]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The set of one of the devices alone. It shares the compiler threads.
    ///
    /// # Errors
    /// When there is no such device, or it has no more streams.
    #[doc(hidden)]
    pub fn member(self: &Arc<Self>, device: usize) -> Result<Arc<Self>> {
        let Some(member) = self.members.get(device) else {
            return match (device, self.devices.len()) {
                (0, 1) => Ok(Arc::clone(self)),
                (_, devices) => Err(Error::InvalidArgument(format!("device {device} of {devices}"))),
            };
        };
        if let Some(member) = member.get() {
            return Ok(Arc::clone(member));
        }
        let made = Arc::new(Self::of(vec![self.devices[device].clone()], Arc::clone(&self.compiler))?);
        Ok(Arc::clone(member.get_or_init(|| made)))
    }

    /// The device of which `other` is the set.
    #[doc(hidden)]
    pub fn device_of_member(&self, other: &Arc<Self>) -> Option<usize> {
        self.members.iter().position(|member| member.get().is_some_and(|member| Arc::ptr_eq(member, other)))
    }

    /// The devices, in shard order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Whether each device can reach the memory of all others. Rows between two devices that can't go through host
    /// memory.
    pub fn has_peer_access(&self) -> bool {
        self.has_peer_access
    }

    /// Kind of all its devices.
    pub fn kind(&self) -> DeviceKind {
        self.devices[0].info().kind
    }

    /// L2 bytes of the device with the smallest L2.
    #[doc(hidden)]
    pub fn l2_bytes(&self) -> f64 {
        self.devices.iter().map(|device| device.info().l2_bytes).min().unwrap_or(0).max(1) as f64
    }

    /// Streams for loading tables, one a device.
    #[doc(hidden)]
    pub fn load_streams(&self) -> &[Stream] {
        &self.load_streams
    }

    /// Streams for decoding columns, one for each device: the next of several streams of each.
    ///
    /// # Errors
    /// When a device has no more streams.
    #[doc(hidden)]
    pub fn decode_streams(&self) -> Result<Vec<Stream>> {
        self.decode_streams.next(&self.devices)
    }

    /// Dictionaries that tables have.
    #[doc(hidden)]
    pub fn dictionaries(&self) -> &DictionaryOwners {
        &self.dictionaries
    }

    /// The background compiler.
    #[doc(hidden)]
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// Runs work for several of its devices, each piece on a thread of its own.
    #[doc(hidden)]
    pub fn run_on_threads<T: Send>(&self, work: Vec<impl FnOnce() -> T + Send>) -> Vec<T> {
        self.threads.run(work, self.devices.len())
    }

    /// Decides which query launches next.
    #[doc(hidden)]
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// Fresh streams for one query, one a device.
    #[doc(hidden)]
    pub fn query_streams(&self, budget: MemoryBudget, permits: &LaunchPermits) -> Result<Vec<Stream>> {
        let stream = |(number, device): (usize, &Device)| {
            Ok(budget.of_stream(device.create_stream()?).paced(permits.pacer(number)))
        };
        self.devices.iter().enumerate().map(stream).collect()
    }
}

impl fmt::Debug for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSet({:?})", self.devices)
    }
}

/// Streams on which devices decode columns, created when they are wanted first.
#[derive(Debug, Default)]
struct DecodeStreams {
    /// One a device each time.
    streams: Mutex<Vec<Vec<Stream>>>,
    turn: AtomicUsize,
}

impl DecodeStreams {
    fn next(&self, devices: &[Device]) -> Result<Vec<Stream>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % DECODE_STREAMS;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.len() <= turn {
            streams.push(devices.iter().map(Device::create_stream).collect::<Result<_, _>>()?);
        }
        Ok(streams[turn.min(streams.len() - 1)].clone())
    }
}
