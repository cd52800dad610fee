//! [`FaultPlan`]: which call fails, and how.
//!
//! Owns the counts of calls and the armed fault. Must not know what a call does.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::order::Order;
use super::recording::Recording;
use crate::{Cancellation, DeviceError, Result};

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Creating a stream.
    CreateStream,
    /// Taking a word of host memory that kernels can read.
    HostWord,
    /// Compiling a module, or loading it from the disk cache.
    Compile,
    /// Opening peer access.
    OpenPeer,
    /// Allocating device memory.
    Alloc,
    /// A copy from the host.
    Write,
    /// A copy to the host.
    Read,
    /// A fill of device memory.
    Fill,
    /// A copy between devices, or within one.
    Copy,
    /// Launching a kernel.
    Launch,
    /// Recording an event.
    Record,
    /// Waiting for an event.
    Wait,
    /// Waiting for a stream.
    Synchronize,
    /// Writing a file of the kernel cache. It fails after the first half is written.
    StoreFile,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::CreateStream,
        Self::HostWord,
        Self::Compile,
        Self::OpenPeer,
        Self::Alloc,
        Self::Write,
        Self::Read,
        Self::Fill,
        Self::Copy,
        Self::Launch,
        Self::Record,
        Self::Wait,
        Self::Synchronize,
        Self::StoreFile,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::CreateStream => "create_stream",
            Self::HostWord => "host_word",
            Self::Compile => "compile",
            Self::OpenPeer => "open_peer_access",
            Self::Alloc => "alloc",
            Self::Write => "write",
            Self::Read => "read",
            Self::Fill => "fill",
            Self::Copy => "copy",
            Self::Launch => "launch",
            Self::Record => "record",
            Self::Wait => "wait",
            Self::Synchronize => "synchronize",
            Self::StoreFile => "store",
        }
    }
}

/// What happens at the armed call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Out of memory, or out of disk space for a file.
    OutOfMemory,
    /// The driver fails once.
    Driver,
    /// The device is lost: this call and all later calls of all devices fail.
    DeviceLost,
    /// The device has no link to the peer. For [`CallKind::OpenPeer`].
    NoPeerLink,
    /// The call is not made, and succeeds, as if it had been forgotten. For [`CallKind::Wait`].
    Missing,
    /// The calling thread panics.
    Panic,
    /// The work is cancelled, and the call succeeds.
    Cancel(Arc<Cancellation>),
}

/// Counts the calls of some devices, and makes one of them fail. Clones share the plan.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    calls: [u64; CallKind::ALL.len()],
    armed: Option<Armed>,
    is_lost: bool,
    has_no_peers: bool,
    order: Order,
    recording: Recording,
    /// Live bytes when the recording began.
    recorded_from_bytes: u64,
}

#[derive(Debug)]
struct Armed {
    /// `None`: any kind.
    kind: Option<CallKind>,
    /// Number of calls before the one that fails.
    left: u64,
    fault: Fault,
}

impl FaultPlan {
    /// A plan for devices without peer access.
    pub fn without_peers() -> Self {
        let plan = Self::default();
        plan.locked().has_no_peers = true;
        plan
    }

    /// Whether devices may have peer access.
    pub(super) fn has_peers(&self) -> bool {
        !self.locked().has_no_peers
    }

    /// Makes the `nth` call from now on fail, counted from 0. Counts calls of `kind`, or all calls.
    pub fn arm(&self, kind: Option<CallKind>, nth: u64, fault: Fault) {
        self.locked().armed = Some(Armed { kind, left: nth, fault });
    }

    /// Stops all faults. Returns whether the armed call had not happened yet.
    pub fn disarm(&self) -> bool {
        let mut state = self.locked();
        state.is_lost = false;
        state.armed.take().is_some()
    }

    /// Calls of a kind so far.
    pub fn calls(&self, kind: CallKind) -> u64 {
        self.locked().calls[kind as usize]
    }

    /// Calls of all kinds so far.
    pub fn all_calls(&self) -> u64 {
        self.locked().calls.iter().sum()
    }

    /// Takes messages about buffers that were freed while another stream may still use them, or used before their stream
    /// had allocated them.
    pub fn take_disorder(&self) -> Vec<String> {
        self.locked().order.take_findings()
    }

    /// Bytes of live buffers on all devices.
    pub fn live_bytes(&self) -> u64 {
        self.locked().order.live_bytes()
    }

    /// Takes the recording of the calls since the last `take_recording`, failed calls included.
    pub fn take_recording(&self) -> Recording {
        let mut state = self.locked();
        state.recorded_from_bytes = state.order.live_bytes();
        std::mem::take(&mut state.recording)
    }

    /// Records a launch.
    pub(super) fn launched(&self, kernel: &str) {
        let mut state = self.locked();
        match state.recording.kernels.get_mut(kernel) {
            Some(launches) => *launches += 1,
            None => drop(state.recording.kernels.insert(kernel.to_string(), 1)),
        }
    }

    /// Counts a call, and fails if it is the armed one.
    pub(super) fn begin(&self, device: &str, kind: CallKind) -> Result<()> {
        let mut state = self.locked();
        state.calls[kind as usize] += 1;
        match kind {
            CallKind::Launch => state.recording.launches += 1,
            CallKind::Read | CallKind::Synchronize => state.recording.host_waits += 1,
            _ => {}
        }
        if state.is_lost && kind != CallKind::StoreFile {
            return Err(lost(device, kind));
        }
        let Some(armed) = state.armed.as_mut().filter(|armed| armed.kind.is_none_or(|chosen| chosen == kind)) else {
            return Ok(());
        };
        if armed.left > 0 {
            armed.left -= 1;
            return Ok(());
        }
        let fault = armed.fault.clone();
        state.armed = None;
        state.is_lost = matches!(fault, Fault::DeviceLost);
        drop(state);
        let (device, call, reason) = (device.to_string(), kind.name(), "injected".to_string());
        match fault {
            Fault::OutOfMemory => Err(DeviceError::OutOfDriverMemory { device, call, reason }),
            Fault::Driver => Err(DeviceError::Driver { device, call, reason }),
            Fault::DeviceLost => Err(lost(&device, kind)),
            Fault::NoPeerLink => Err(DeviceError::NoPeerLink { from: device, to: reason }),
            Fault::Missing => Ok(()),
            #[expect(clippy::panic, reason = "the injected fault is a panic")]
            Fault::Panic => panic!("injected: {call} on {device}"),
            Fault::Cancel(cancellation) => {
                cancellation.cancel();
                Ok(())
            }
        }
    }

    /// Whether the next call of a kind is armed with [`Fault::Missing`], which is then over.
    pub(super) fn is_missing(&self, kind: CallKind) -> bool {
        let is_armed =
            |armed: &mut Armed| armed.left == 0 && armed.kind == Some(kind) && matches!(armed.fault, Fault::Missing);
        self.locked().armed.take_if(is_armed).is_some()
    }

    /// Runs `update` on the order of streams. Lost devices run nothing, so they give no findings.
    pub(super) fn with_order<R>(&self, update: impl FnOnce(&mut Order) -> R) -> R {
        let mut state = self.locked();
        state.order.is_off = state.is_lost;
        let result = update(&mut state.order);
        let bytes = state.order.live_bytes().saturating_sub(state.recorded_from_bytes);
        state.recording.peak_bytes = state.recording.peak_bytes.max(bytes);
        result
    }

    /// Runs `work`. Cache files that this thread writes meanwhile count as calls of this plan.
    pub(super) fn watching_files<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = WATCHED.replace(Some(self.clone()));
        let result = work();
        WATCHED.set(before);
        result
    }

    /// Ignores poison: an injected panic leaves the state consistent.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(device: &str, kind: CallKind) -> DeviceError {
    DeviceError::DeviceLost { device: device.into(), call: kind.name(), reason: "injected".into() }
}

thread_local! {
    /// The plan that counts the files that this thread writes.
    static WATCHED: RefCell<Option<FaultPlan>> = const { RefCell::new(None) };
}

/// Fails if this thread's plan has armed this write of a file.
pub(crate) fn fail_file_write() -> io::Result<()> {
    let plan = WATCHED.with_borrow(Clone::clone);
    let failed = plan.map_or(Ok(()), |plan| plan.begin("disk", CallKind::StoreFile));
    failed.map_err(|error| match error {
        DeviceError::OutOfDriverMemory { .. } => io::ErrorKind::StorageFull.into(),
        other => io::Error::other(other),
    })
}
