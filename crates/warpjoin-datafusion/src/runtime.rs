//! The devices that the plans of one or many DataFusion sessions share, opened when first asked for.
//!
//! Owns which [`Session`] answers to which options. Must not know plans.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::Result;
use warpjoin::Session;
use warpjoin_device::{CudaOptions, DeviceKind, SimOptions, cuda_status, open_cuda, open_simulated};

use crate::config::{DeviceChoice, WarpjoinOptions};
use crate::error::to_datafusion;

/// Simulated devices that are opened when no number is given: enough to exercise the exchange.
const SIMULATED_DEVICES_DEFAULT: usize = 2;

/// The devices that plans run on, shared by all DataFusion sessions that were built with it.
///
/// Devices are opened when a plan first needs them, once for each combination of
/// `warpjoin.device`, `warpjoin.devices` and `warpjoin.simulate_seed`.
pub struct WarpjoinRuntime {
    /// Session given by the caller. It answers whenever the options do not contradict it.
    given: Option<Arc<Session>>,
    opened: Mutex<HashMap<SessionKey, Arc<Session>>>,
    /// Whether an option has changed a budget, so that the default has to be restored.
    budget_changed: AtomicBool,
}

/// What distinguishes one opened session from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SessionKey {
    kind: DeviceKind,
    devices: usize,
    seed: Option<u64>,
}

impl WarpjoinRuntime {
    /// A runtime on devices that the caller opened. It serves every plan whose options
    /// ask for nothing else.
    pub fn new(session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self { given: Some(session), opened: Mutex::default(), budget_changed: AtomicBool::new(false) })
    }

    /// A runtime that opens devices when a plan needs them, as the `warpjoin.*` options say.
    pub fn lazy() -> Arc<Self> {
        Arc::new(Self { given: None, opened: Mutex::default(), budget_changed: AtomicBool::new(false) })
    }

    /// The devices that `options` ask for, with their memory budget set; `None` when the choice is
    /// automatic and there is no GPU.
    ///
    /// # Errors
    /// When the devices that were named can't be opened.
    pub fn session(&self, options: &WarpjoinOptions) -> Result<Option<Arc<Session>>> {
        let session = match self.given_for(options) {
            Some(session) => Some(session),
            None => self.opened_for(options)?,
        };
        if let Some(session) = &session {
            self.set_budget(session, options.memory_budget_bytes);
        }
        Ok(session)
    }

    /// Sets the budget of every device; with 0, what an option changed is undone, and what the
    /// devices' owner chose stays.
    fn set_budget(&self, session: &Session, budget_bytes: u64) {
        if budget_bytes == 0 && !self.budget_changed.swap(false, Ordering::Relaxed) {
            return;
        }
        self.budget_changed.store(budget_bytes != 0, Ordering::Relaxed);
        for device in session.devices() {
            let limit_bytes = if budget_bytes == 0 { device.info().budget_bytes } else { budget_bytes };
            device.memory().set_limit_bytes(limit_bytes);
        }
    }

    fn given_for(&self, options: &WarpjoinOptions) -> Option<Arc<Session>> {
        let session = self.given.as_ref()?;
        let kind_fits = match options.device {
            DeviceChoice::Auto => true,
            DeviceChoice::Cuda => session.kind() == DeviceKind::Cuda,
            DeviceChoice::Simulated => session.kind() == DeviceKind::Simulated,
        };
        let count_fits = options.devices == 0 || options.devices == session.devices().len();
        (kind_fits && count_fits).then(|| Arc::clone(session))
    }

    fn opened_for(&self, options: &WarpjoinOptions) -> Result<Option<Arc<Session>>> {
        let key = match options.device {
            DeviceChoice::Auto if cuda_status().problem.is_some() => return Ok(None),
            DeviceChoice::Auto | DeviceChoice::Cuda => {
                SessionKey { kind: DeviceKind::Cuda, devices: options.devices, seed: None }
            }
            DeviceChoice::Simulated => {
                let devices = if options.devices == 0 { SIMULATED_DEVICES_DEFAULT } else { options.devices };
                SessionKey { kind: DeviceKind::Simulated, devices, seed: options.simulate_seed }
            }
        };
        // The lock is held while opening, so that two queries do not open the same devices twice.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = opened.get(&key) {
            return Ok(Some(Arc::clone(session)));
        }
        let session = key.open().map_err(to_datafusion)?;
        opened.insert(key, Arc::clone(&session));
        Ok(Some(session))
    }
}

impl SessionKey {
    fn open(&self) -> warpjoin::Result<Arc<Session>> {
        let devices = match self.kind {
            DeviceKind::Cuda => {
                let devices = (self.devices > 0).then_some(self.devices);
                open_cuda(&CudaOptions { devices, ..CudaOptions::default() })?
            }
            DeviceKind::Simulated => {
                let options = SimOptions { devices: self.devices, seed: self.seed, ..SimOptions::default() };
                open_simulated(&options)?
            }
        };
        Session::new(devices)
    }
}

impl fmt::Debug for WarpjoinRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("WarpjoinRuntime")
            .field("given", &self.given.as_ref().map(|session| session.devices()))
            .field("opened", &opened.keys().collect::<Vec<_>>())
            .finish()
    }
}
