//! The pieces of work of a stream, and how memory operations are executed.
//!
//! Must not know when work is executed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::launch::SimKernel;
use super::memory;
use super::races::{Before, Failure};
use crate::{DeviceError, Launch, RaceReport};

/// One piece of work. The front end checked its addresses when it was enqueued. They stay allocated
/// until it ends, since `Free` comes later in the stream.
pub(super) enum Work {
    Write {
        address: u64,
        bytes: Box<[u8]>,
    },
    Fill {
        address: u64,
        bytes: u64,
        value: u8,
    },
    Copy {
        source: u64,
        target: u64,
        bytes: u64,
    },
    Launch {
        kernel: Arc<SimKernel>,
        launch: Launch,
        params: Vec<u64>,
    },
    Record(Arc<SimEvent>),
    Wait(Arc<SimEvent>),
    Free {
        address: u64,
        bytes: u64,
    },
    /// Memory exists from here on. Only for the race detector.
    Alloc {
        address: u64,
        bytes: u64,
    },
}

/// The first error of a stream.
#[derive(Debug, Clone)]
pub(super) enum StreamError {
    Failed(Arc<str>),
    Race(Arc<RaceReport>),
}

impl StreamError {
    pub(super) fn of_device(self, device: usize) -> DeviceError {
        let device = format!("sim:{device}");
        match self {
            Self::Failed(reason) => DeviceError::Kernel { device, reason: reason.to_string() },
            Self::Race(report) => DeviceError::Race { device, report },
        }
    }
}

impl From<Failure> for StreamError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Race(report) => Self::Race(report),
            Failure::TooManyLanes => Self::Failed("the race detector has no lane numbers left".into()),
        }
    }
}

impl Work {
    /// Whether it waits for another stream.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::Wait(event) if event.reached().is_none())
    }

    /// Number of host bytes that it holds.
    pub(super) fn host_bytes(&self) -> u64 {
        match self {
            Self::Write { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }
}

/// A point in the work of a stream.
pub(super) struct SimEvent {
    /// Id of its simulation.
    pub(super) simulation: usize,
    reached: Mutex<Option<Reached>>,
}

/// The time at which a stream reached an event, and its state.
#[derive(Clone)]
pub(super) struct Reached {
    pub(super) instant: Instant,
    /// Error of the stream. Streams that wait for the event get it too.
    pub(super) error: Option<StreamError>,
    /// Clock of the race detector.
    pub(super) before: Before,
}

impl SimEvent {
    pub(super) fn new(simulation: usize) -> Self {
        Self { simulation, reached: Mutex::new(None) }
    }

    pub(super) fn reached(&self) -> Option<Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, reached: Reached) {
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Some(reached);
    }
}

/// Copies host bytes to a device.
pub(super) fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the front end checked that a live allocation holds `bytes.len()` bytes from
    // `address` on. `bytes` refers to host memory, so it does not overlap. Stream order keeps the
    // allocation alive.
    unsafe { memory::pointer(address).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Copies device bytes to the host.
pub(super) fn read(address: u64, bytes: &mut [u8]) {
    // SAFETY: as for `write`. The front end borrows the buffer, so it stays allocated during the call.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(memory::pointer(address), bytes.len()) };
}

/// Fills device bytes with `value`.
pub(super) fn fill(address: u64, bytes: u64, value: u8) {
    // SAFETY: the front end checked the length, which fits in a `usize` since the allocation does.
    // Stream order keeps the allocation alive.
    unsafe { memory::pointer(address).write_bytes(value, bytes as usize) };
}

/// Copies between devices, or within one.
pub(super) fn copy(source: u64, target: u64, bytes: u64) {
    // SAFETY: the front end checked both lengths, and stream order keeps both allocations alive.
    // They may overlap, which `copy_from` allows.
    unsafe { memory::pointer(target).copy_from(memory::pointer(source), bytes as usize) };
}
