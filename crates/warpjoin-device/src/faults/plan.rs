//! Which call fails, and how.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::order::Order;
use super::recording::Recording;
use crate::{DeviceError, Result};

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Making a stream.
    CreateStream,
    /// Compiling a module, or loading it from the disk cache.
    Compile,
    /// Opening access to a peer.
    OpenPeer,
    /// Allocating device memory.
    Alloc,
    /// A copy from the host.
    Write,
    /// A copy to the host.
    Read,
    /// Setting bytes.
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
    /// Writing a file of the kernel cache. The entry's first half is on the disk when it fails.
    StoreFile,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::CreateStream,
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

/// What happens at the chosen call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// There is no memory; for a file no room.
    OutOfMemory,
    /// The driver fails once.
    Driver,
    /// The device is lost: this call fails, and all later ones of all devices.
    DeviceLost,
    /// The calling thread panics.
    Panic,
    /// The flag is set, and the call goes on.
    Set(Arc<AtomicBool>),
}

/// Counts the calls of some devices, and makes one of them fail. Clones are the same plan.
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
    /// Bytes that lived when the recording began.
    recorded_from_bytes: u64,
}

#[derive(Debug)]
struct Armed {
    /// `None`: of any kind.
    kind: Option<CallKind>,
    /// Calls before the one that fails.
    left: u64,
    fault: Fault,
}

impl FaultPlan {
    /// A plan for devices that can't reach each other's memory.
    pub fn without_peers() -> Self {
        let plan = Self::default();
        plan.locked().has_no_peers = true;
        plan
    }

    /// Whether devices may reach each other.
    pub(super) fn has_peers(&self) -> bool {
        !self.locked().has_no_peers
    }

    /// Makes call number `nth` from now on fail, counted from 0: of `kind`, or of any.
    pub fn arm(&self, kind: Option<CallKind>, nth: u64, fault: Fault) {
        self.locked().armed = Some(Armed { kind, left: nth, fault });
    }

    /// Whether the chosen call is still to come. Nothing fails from now on.
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

    /// Takes what was found wrong with the order of streams: buffers that were freed while another stream may still use
    /// them, or used before their stream had made them. Each in words.
    pub fn take_disorder(&self) -> Vec<String> {
        self.locked().order.take_findings()
    }

    /// Bytes of buffers that are not freed yet, on all devices.
    pub fn live_bytes(&self) -> u64 {
        self.locked().order.live_bytes()
    }

    /// What was asked for since this was called last. Calls that failed count.
    pub fn take_recording(&self) -> Recording {
        let mut state = self.locked();
        state.recorded_from_bytes = state.order.live_bytes();
        std::mem::take(&mut state.recording)
    }

    /// Notes a launch.
    pub(super) fn launched(&self, kernel: &str) {
        let mut state = self.locked();
        match state.recording.kernels.get_mut(kernel) {
            Some(launches) => *launches += 1,
            None => drop(state.recording.kernels.insert(kernel.to_string(), 1)),
        }
    }

    /// Counts a call; fails where it is the chosen one.
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
            #[expect(clippy::panic, reason = "this is what was asked for")]
            Fault::Panic => panic!("injected: {call} on {device}"),
            Fault::Set(flag) => {
                flag.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The order of streams. Nothing is looked at on lost devices, where nothing runs.
    pub(super) fn with_order<R>(&self, look: impl FnOnce(&mut Order) -> R) -> R {
        let mut state = self.locked();
        state.order.is_off = state.is_lost;
        let result = look(&mut state.order);
        let bytes = state.order.live_bytes().saturating_sub(state.recorded_from_bytes);
        state.recording.peak_bytes = state.recording.peak_bytes.max(bytes);
        result
    }

    /// Runs `work` on this thread, whose writes of cache files count as calls of this plan.
    pub(super) fn watching_files<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = WATCHED.replace(Some(self.clone()));
        let result = work();
        WATCHED.set(before);
        result
    }

    /// A panic that was asked for leaves the state whole, so poison is ignored.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(device: &str, kind: CallKind) -> DeviceError {
    DeviceError::DeviceLost { device: device.into(), call: kind.name(), reason: "injected".into() }
}

thread_local! {
    /// Whose files this thread writes.
    static WATCHED: RefCell<Option<FaultPlan>> = const { RefCell::new(None) };
}

/// Fails where a plan wants the file that this thread writes to fail.
pub(crate) fn fail_file_write() -> io::Result<()> {
    let plan = WATCHED.with_borrow(Clone::clone);
    let failed = plan.map_or(Ok(()), |plan| plan.begin("disk", CallKind::StoreFile));
    failed.map_err(|error| match error {
        DeviceError::OutOfDriverMemory { .. } => io::ErrorKind::StorageFull.into(),
        other => io::Error::other(other),
    })
}
