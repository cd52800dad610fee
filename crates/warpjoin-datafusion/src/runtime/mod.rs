//! The devices that the plans of one or many DataFusion sessions share, opened when first asked for.
//!
//! Owns which [`Session`] answers to which options. Must not know plans.

pub(crate) mod admission;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
pub(crate) mod thread;
pub(crate) mod worker;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warpjoin::Session;
use warpjoin_device::{
    CudaOptions, Device, DeviceError, DeviceKind, LeftOut, SimOptions, cuda_problem, open_simulated, open_usable_cuda,
};

use crate::config::{DeviceChoice, WarpjoinOptions};
use crate::runtime::admission::{Admission, QUERIES_DEFAULT};

/// Simulated devices that are opened when no number is given: enough to exercise the exchange.
const SIMULATED_DEVICES_DEFAULT: usize = 2;

/// After a failure to open devices, how long queries go without them before the next try.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The devices that plans run on, shared by all DataFusion sessions that were built with it.
///
/// Devices are opened when a plan first needs them, once for each combination of
/// `warpjoin.device`, `warpjoin.devices` and `warpjoin.simulate_seed`. What could not be opened, or was lost, is tried again
/// after some time, not by every query.
pub struct WarpjoinRuntime {
    /// Session given by the caller. It answers whenever the options do not contradict it.
    given: Option<Given>,
    opened: Mutex<HashMap<SessionKey, Opened>>,
    admission: Admission,
}

/// A session that the caller opened.
struct Given {
    session: Arc<Session>,
    /// Why its devices can't be used any more.
    lost: OnceLock<String>,
}

/// What became of the devices of a key.
enum Opened {
    /// They are there; with the GPUs that are not used, and why.
    Open { session: Arc<Session>, left_out: Vec<String> },
    /// They could not be opened, or were lost.
    Failed { why: String, at: Instant },
}

/// The devices that some options ask for.
#[derive(Debug, Clone)]
pub enum Devices {
    /// They are open.
    Open(Arc<Session>),
    /// The choice is automatic, and there are none: queries run on the CPU, for this reason.
    None(String),
    /// The options name devices that can't be used, for this reason.
    Refused(String),
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
        Self::with(Some(Given { session, lost: OnceLock::new() }), QUERIES_DEFAULT)
    }

    /// A runtime that opens devices when a plan needs them, as the `warpjoin.*` options say.
    pub fn lazy() -> Arc<Self> {
        Self::with(None, QUERIES_DEFAULT)
    }

    /// The same, where so many queries use the devices at once, 16 without this. Further ones wait their turn.
    pub fn lazy_with_queries_max(queries_max: usize) -> Arc<Self> {
        Self::with(None, queries_max)
    }

    fn with(given: Option<Given>, queries_max: usize) -> Arc<Self> {
        Arc::new(Self { given, opened: Mutex::default(), admission: Admission::new(queries_max) })
    }

    /// Where queries wait for their turn.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The devices that `options` ask for.
    pub fn devices(&self, options: &WarpjoinOptions) -> Devices {
        match self.given_for(options) {
            Some(given) => match given.lost.get() {
                None => Devices::Open(Arc::clone(&given.session)),
                Some(why) if options.device == DeviceChoice::Auto => Devices::None(why.clone()),
                Some(why) => Devices::Refused(why.clone()),
            },
            None => self.opened_for(options),
        }
    }

    /// Gives up devices that were lost: later queries open them anew, or run without them.
    pub(crate) fn report_lost(&self, session: &Arc<Session>, error: &warpjoin::Error) {
        let why = format!("{error}; tables that were loaded onto the device have to be loaded again");
        if let Some(given) = self.given.as_ref().filter(|given| Arc::ptr_eq(&given.session, session)) {
            // Whoever opened these devices has to open others.
            let _ = given.lost.set(why);
            return;
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost =
            |opened: &Opened| matches!(opened, Opened::Open { session: open, .. } if Arc::ptr_eq(open, session));
        opened.retain(|_, opened| !is_lost(opened));
    }

    /// GPUs that are not used beside those of `session`, each with the reason.
    pub fn left_out(&self, session: &Arc<Session>) -> Vec<String> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let of_session = opened.values().find_map(|opened| match opened {
            Opened::Open { session: open, left_out } if Arc::ptr_eq(open, session) => Some(left_out.clone()),
            _ => None,
        });
        of_session.unwrap_or_default()
    }

    fn given_for(&self, options: &WarpjoinOptions) -> Option<&Given> {
        let given = self.given.as_ref()?;
        let session = &given.session;
        let kind_fits = match options.device {
            DeviceChoice::Auto => true,
            DeviceChoice::Cuda => session.kind() == DeviceKind::Cuda,
            DeviceChoice::Simulated => session.kind() == DeviceKind::Simulated,
        };
        let count_fits = options.devices == 0 || options.devices == session.devices().len();
        (kind_fits && count_fits).then_some(given)
    }

    fn opened_for(&self, options: &WarpjoinOptions) -> Devices {
        let is_auto = options.device == DeviceChoice::Auto;
        let refused = |why: String| if is_auto { Devices::None(why) } else { Devices::Refused(why) };
        let key = match options.device {
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
        match opened.get(&key) {
            Some(Opened::Open { session, .. }) => return Devices::Open(Arc::clone(session)),
            Some(Opened::Failed { why, at }) if at.elapsed() < RETRY_AFTER => return refused(why.clone()),
            _ => {}
        }
        // Without a driver there is nothing to try, nor to warn of.
        if key.kind == DeviceKind::Cuda
            && let Some(problem) = cuda_problem()
        {
            return refused(problem.to_string());
        }
        match key.open() {
            Ok((session, left_out)) => {
                left_out.iter().for_each(|left_out| log::warn!("a GPU is not used: {left_out}"));
                opened.insert(key, Opened::Open { session: Arc::clone(&session), left_out });
                Devices::Open(session)
            }
            Err(why) => {
                log::warn!("devices can't be opened, the next try is in {} s: {why}", RETRY_AFTER.as_secs());
                opened.insert(key, Opened::Failed { why: why.clone(), at: Instant::now() });
                refused(why)
            }
        }
    }
}

impl SessionKey {
    /// The devices, and GPUs that are left out; or why there are none.
    fn open(&self) -> Result<(Arc<Session>, Vec<String>), String> {
        let (devices, left_out) = match self.kind {
            DeviceKind::Cuda => self.open_gpus()?,
            DeviceKind::Simulated => {
                let options = SimOptions { devices: self.devices, seed: self.seed, ..SimOptions::default() };
                (open_simulated(&options).map_err(|error| error.to_string())?, vec![])
            }
        };
        let session = Session::new(devices).map_err(|error| error.to_string())?;
        Ok((session, left_out))
    }

    /// As many GPUs as can be used together. Where a number is asked for, it must be that many.
    fn open_gpus(&self) -> Result<(Vec<Device>, Vec<String>), String> {
        let devices = (self.devices > 0).then_some(self.devices);
        let opened = open_usable_cuda(&CudaOptions { devices, ..CudaOptions::default() });
        let opened = opened.map_err(|error| error.to_string())?;
        // Those beyond the number that was asked for are nothing to tell.
        let is_enough = devices.is_some_and(|wanted| opened.devices.len() >= wanted);
        let left_out: Vec<String> = opened.left_out.iter().filter(|_| !is_enough).map(describe).collect();
        match devices {
            Some(wanted) if opened.devices.len() < wanted => Err(format!(
                "warpjoin.devices asks for {wanted} GPUs, and {} can be used together: {}; SET warpjoin.devices = 0 takes \
                 those that can",
                opened.devices.len(),
                left_out.join("; ")
            )),
            _ if opened.devices.is_empty() => Err(left_out.join("; ")),
            _ => Ok((opened.devices, left_out)),
        }
    }
}

fn describe(left_out: &LeftOut) -> String {
    let LeftOut { ordinal, name, error, .. } = left_out;
    let hint = match error {
        DeviceError::NoPeerLink { .. } => {
            "; asked for by its number (SET warpjoin.devices), it gets its rows through the host"
        }
        _ => "",
    };
    format!("cuda:{ordinal} {name}: {error}{hint}")
}

impl fmt::Debug for WarpjoinRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("WarpjoinRuntime")
            .field("given", &self.given.as_ref().map(|given| given.session.devices()))
            .field("opened", &opened.keys().collect::<Vec<_>>())
            .finish()
    }
}
