//! What a stream does: one piece of work at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::launch::SimKernel;
use super::memory;
use super::races::{Before, Failure};
use crate::{DeviceError, Launch, RaceReport};

/// One piece of work. Addresses were checked by the front end when it was enqueued, and stay
/// allocated until it ends, since `Free` comes after it.
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
    /// Memory is there from here on: only the race detector cares.
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
            Failure::TooManyLanes => Self::Failed("the race detector has no more numbers for lanes".into()),
        }
    }
}

impl Work {
    /// Whether it must wait for another stream.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::Wait(event) if event.reached().is_none())
    }

    /// Host bytes that it holds.
    pub(super) fn host_bytes(&self) -> u64 {
        match self {
            Self::Write { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }
}

/// A point in the work of a stream.
pub(super) struct SimEvent {
    /// Which simulation it belongs to.
    pub(super) simulation: usize,
    reached: Mutex<Option<Reached>>,
}

/// When a stream came to an event, and in which state.
#[derive(Clone)]
pub(super) struct Reached {
    pub(super) instant: Instant,
    /// The stream had failed: so has whoever waits for it.
    pub(super) error: Option<StreamError>,
    /// What has happened before, for the race detector.
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
    // `address` on, and `bytes`, being a reference to host memory, does not overlap it. Stream
    // order keeps it allocated.
    unsafe { memory::pointer(address).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Copies device bytes to the host.
pub(super) fn read(address: u64, bytes: &mut [u8]) {
    // SAFETY: as for `write`; the buffer is borrowed by the caller's caller for this call.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(memory::pointer(address), bytes.len()) };
}

/// Sets device bytes.
pub(super) fn fill(address: u64, bytes: u64, value: u8) {
    // SAFETY: the front end checked the length, which fits the address space since the
    // allocation does; stream order keeps it allocated.
    unsafe { memory::pointer(address).write_bytes(value, bytes as usize) };
}

/// Copies between devices, or within one.
pub(super) fn copy(source: u64, target: u64, bytes: u64) {
    // SAFETY: the front end checked both lengths; the two may overlap, which `copy_from` allows.
    unsafe { memory::pointer(target).copy_from(memory::pointer(source), bytes as usize) };
}
