//! The devices that DataFusion sessions share, opened when first needed.
//!
//! Owns which [`Session`] serves which settings. Must not know plans.

mod active_queries;
pub(crate) mod active_query;
pub(crate) mod admission;
mod ended;
mod query_info;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
pub(crate) mod thread;
pub(crate) mod worker;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use datafusion::common::{Result, exec_err};
use warpjoin::Session;
use warpjoin_device::sync::{self, Mutex};
use warpjoin_device::{
    CudaOptions, Device, DeviceError, DeviceKind, LeftOut, SimOptions, cuda_problem, open_simulated, open_usable_cuda,
};

use crate::cache::ColumnCache;
use crate::config::{DeviceChoice, WarpjoinOptions};
use crate::kept::KeptPlans;
use crate::runtime::active_queries::ActiveQueries;
use crate::runtime::admission::{Admission, QUERIES_DEFAULT};

pub use ended::QueryEnded;
pub use query_info::{QueryInfo, QueryState};

/// Default number of simulated devices: the smallest that exercises the exchange.
const SIMULATED_DEVICES_DEFAULT: usize = 2;

/// Time between attempts to open devices. Queries run without devices in between.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The devices that plans run on. All DataFusion sessions built with a runtime share its devices.
///
/// Devices are opened when a plan first needs them, once for each combination of
/// `warpjoin.device`, `warpjoin.devices` and `warpjoin.simulate_seed`. After a failure, opening is tried again after 30 s.
pub struct WarpjoinRuntime {
    /// The caller's session. It serves all settings that it does not contradict.
    given: Option<Given>,
    opened: Mutex<HashMap<SessionKey, Opened>>,
    admission: Admission,
    active_queries: ActiveQueries,
    caches: Mutex<Vec<(Weak<Session>, Arc<ColumnCache>)>>,
    kept_plans: Arc<KeptPlans>,
}

/// A session that the caller opened.
struct Given {
    session: Arc<Session>,
    /// Set when its devices are lost, with the reason.
    lost: OnceLock<String>,
}

/// The result of opening devices.
enum Opened {
    /// The devices are open. `left_out` has the GPUs that are not used, with the reasons.
    Open { session: Arc<Session>, left_out: Vec<String> },
    /// The devices could not be opened.
    Failed { why: String, at: Instant },
}

/// The devices for some settings.
#[derive(Debug, Clone)]
pub enum Devices {
    /// The devices are open.
    Open(Arc<Session>),
    /// `warpjoin.device` is `auto`, and no device is usable for this reason: queries run on the CPU.
    None(String),
    /// The settings name devices that are not usable, for this reason.
    Refused(String),
}

/// The settings that distinguish opened sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SessionKey {
    kind: DeviceKind,
    devices: usize,
    seed: Option<u64>,
}

impl WarpjoinRuntime {
    /// A runtime on devices that the caller opened. It serves all plans whose settings do not name other devices.
    pub fn new(session: Arc<Session>) -> Arc<Self> {
        Self::with(Some(Given { session, lost: OnceLock::new() }), QUERIES_DEFAULT)
    }

    /// A runtime that opens devices when a plan needs them, according to the `warpjoin.*` settings.
    pub fn lazy() -> Arc<Self> {
        Self::with(None, QUERIES_DEFAULT)
    }

    /// As [`Self::lazy`], with at most `queries_max` queries on the devices at once (default 16). Further queries wait.
    pub fn lazy_with_queries_max(queries_max: usize) -> Arc<Self> {
        Self::with(None, queries_max)
    }

    fn with(given: Option<Given>, queries_max: usize) -> Arc<Self> {
        Arc::new(Self {
            given,
            opened: Mutex::default(),
            admission: Admission::new(queries_max),
            active_queries: ActiveQueries::default(),
            caches: Mutex::default(),
            kept_plans: KeptPlans::new(),
        })
    }

    /// Admission control of queries.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The active queries.
    pub(crate) fn active_queries(&self) -> &ActiveQueries {
        &self.active_queries
    }

    /// The queries of all sessions that use the devices or wait for them, oldest first.
    pub fn queries(&self) -> Vec<QueryInfo> {
        self.active_queries.list()
    }

    /// Ends a query: it fails with [`QueryEnded::Killed`], and frees its memory. Does not wait for that.
    ///
    /// # Errors
    /// When no active query has this id.
    pub fn kill(&self, id: u64) -> Result<()> {
        if self.active_queries.kill(id) {
            return Ok(());
        }
        exec_err!("no query under way has the id {id}; SHOW QUERIES lists them")
    }

    /// Plans of earlier queries.
    pub(crate) fn kept_plans(&self) -> &KeptPlans {
        &self.kept_plans
    }

    /// Drops the plans of earlier queries: each query is planned again.
    pub fn clear_plans(&self) {
        self.kept_plans.clear();
    }

    /// The columns of files that are cached on the devices of a session.
    pub(crate) fn cache(&self, session: &Arc<Session>) -> Arc<ColumnCache> {
        let mut caches = sync::locked(&self.caches);
        caches.retain(|(of, _)| of.strong_count() > 0);
        if let Some((_, cache)) = caches.iter().find(|(of, _)| of.as_ptr() == Arc::as_ptr(session)) {
            return Arc::clone(cache);
        }
        let holder: Weak<KeptPlans> = Arc::downgrade(&self.kept_plans);
        let cache = ColumnCache::on(session, holder);
        caches.push((Arc::downgrade(session), Arc::clone(&cache)));
        cache
    }

    /// The caches of all open devices, with the devices.
    pub(crate) fn caches(&self) -> Vec<(Arc<Session>, Arc<ColumnCache>)> {
        let caches = sync::locked(&self.caches);
        caches.iter().filter_map(|(session, cache)| Some((session.upgrade()?, Arc::clone(cache)))).collect()
    }

    /// Frees the memory of all cached columns of files that no query uses: the next query that needs them reads the
    /// files again.
    pub fn clear_cache(&self) {
        self.caches().iter().for_each(|(_, cache)| cache.clear());
    }

    /// The devices for `options`.
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

    /// Forgets lost devices. Later queries open them again, or run without them if the caller had opened them.
    pub(crate) fn report_lost(&self, session: &Arc<Session>, error: &warpjoin::Error) {
        let is_of = |of: &Weak<Session>| of.as_ptr() == Arc::as_ptr(session);
        sync::locked(&self.caches).retain(|(of, _)| !is_of(of));
        self.kept_plans.clear();
        let why = format!("{error}; tables that were loaded onto the device have to be loaded again");
        if let Some(given) = self.given.as_ref().filter(|given| Arc::ptr_eq(&given.session, session)) {
            // Only the caller can open new devices in place of these.
            let _ = given.lost.set(why);
            return;
        }
        let mut opened = sync::locked(&self.opened);
        let is_lost =
            |opened: &Opened| matches!(opened, Opened::Open { session: open, .. } if Arc::ptr_eq(open, session));
        opened.retain(|_, opened| !is_lost(opened));
    }

    /// GPUs that were left out when `session` was opened, each with the reason.
    pub fn left_out(&self, session: &Arc<Session>) -> Vec<String> {
        let opened = sync::locked(&self.opened);
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
        let mut opened = sync::locked(&self.opened);
        match opened.get(&key) {
            Some(Opened::Open { session, .. }) => return Devices::Open(Arc::clone(session)),
            Some(Opened::Failed { why, at }) if at.elapsed() < RETRY_AFTER => return refused(why.clone()),
            _ => {}
        }
        // A host without a driver needs no warning and no retry interval.
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
                log::warn!("devices cannot be opened, next attempt in {} s: {why}", RETRY_AFTER.as_secs());
                opened.insert(key, Opened::Failed { why: why.clone(), at: Instant::now() });
                refused(why)
            }
        }
    }
}

impl SessionKey {
    /// Opens the devices. Also returns the GPUs that are left out; an error is the reason why there are no devices.
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

    /// Opens all GPUs that can be used together; an error if `warpjoin.devices` names a larger number.
    fn open_gpus(&self) -> Result<(Vec<Device>, Vec<String>), String> {
        let devices = (self.devices > 0).then_some(self.devices);
        let opened = open_usable_cuda(&CudaOptions { devices, ..CudaOptions::default() });
        let opened = opened.map_err(|error| error.to_string())?;
        // GPUs beyond the number in the settings are not worth reporting.
        let is_enough = devices.is_some_and(|wanted| opened.devices.len() >= wanted);
        let left_out: Vec<String> = opened.left_out.iter().filter(|_| !is_enough).map(describe).collect();
        match devices {
            Some(wanted) if opened.devices.len() < wanted => Err(format!(
                "warpjoin.devices is {wanted}, but only {} GPUs can be used together: {}; SET warpjoin.devices = 0 uses those",
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
            "; SET warpjoin.devices to the number of GPUs to use it with rows going through the host"
        }
        _ => "",
    };
    format!("cuda:{ordinal} {name}: {error}{hint}")
}

impl fmt::Debug for WarpjoinRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opened = sync::locked(&self.opened);
        f.debug_struct("WarpjoinRuntime")
            .field("given", &self.given.as_ref().map(|given| given.session.devices()))
            .field("opened", &opened.keys().collect::<Vec<_>>())
            .finish()
    }
}
