//! Engines: stock DataFusion, or warpjoin on a kind and number of devices, with settings.
//!
//! Must not know the test cases.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use warpjoin::{CodeTier, Session};
use warpjoin_datafusion::{
    DeviceChoice, FilterForm, JoinOrder, Materialization, OnFault, RuntimeFilters, WarpjoinOptions, WarpjoinRuntime,
    WarpjoinSessionStateBuilder,
};
use warpjoin_device::{CudaOptions, FaultPlan, Recording, SimOptions, open_cuda, open_simulated, with_faults};

/// Partitions of a session. Several, to exercise repartitioning; few, for small machines.
const PARTITIONS: usize = 3;

/// Kinds of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// DataFusion without warpjoin.
    Stock,
    /// warpjoin on this number of simulated devices.
    Simulated(usize),
    /// warpjoin on this number of GPUs.
    Cuda(usize),
}

/// Settings of an engine's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// The defaults, except that inputs of any size go to the devices.
    Defaults,
    /// The defaults, as users have them: plans are not checked, and stock DataFusion has as many partitions as cores.
    AsUsed,
    /// Decisions that the cost model seldom takes for small test data: always runtime filters; with several devices also
    /// another join order and late columns.
    Forced,
}

/// An engine makes new sessions that share devices and compiled kernels.
#[derive(Debug, Clone)]
pub struct Engine {
    kind: EngineKind,
    runtime: Arc<WarpjoinRuntime>,
    settings: Settings,
    schedule_seed: Option<u64>,
    has_resident_tables: bool,
    partitions: usize,
    recorder: Option<FaultPlan>,
    code_tier: CodeTier,
}

impl Engine {
    /// An engine with forced settings. Devices are opened when a query needs them.
    pub fn new(kind: EngineKind) -> Self {
        let runtime = WarpjoinRuntime::lazy();
        Self {
            kind,
            runtime,
            settings: Settings::Forced,
            schedule_seed: None,
            has_resident_tables: false,
            partitions: PARTITIONS,
            recorder: None,
            code_tier: CodeTier::default(),
        }
    }

    /// The same engine, whose pipelines are interpreted.
    pub fn interpreting(&self) -> Self {
        Self { code_tier: CodeTier::Interpreted, ..self.clone() }
    }

    /// The same engine with other settings.
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// The same engine on new simulated devices with the schedule of `seed`. On GPUs the engine stays the same.
    pub fn with_schedule(&self, seed: u64) -> Self {
        match self.kind {
            EngineKind::Simulated(_) => {
                Self { runtime: WarpjoinRuntime::lazy(), schedule_seed: Some(seed), ..self.clone() }
            }
            EngineKind::Stock | EngineKind::Cuda(_) => self.clone(),
        }
    }

    /// warpjoin with default settings on simulated devices that record requests. Recordings are reproducible, because nothing
    /// runs in parallel.
    ///
    /// # Errors
    /// Returns an error if the devices cannot be opened.
    pub fn recorded(devices: usize) -> Result<Self, warpjoin::Error> {
        let plan = FaultPlan::default();
        let simulated = open_simulated(&SimOptions { devices, threads: 1, ..SimOptions::default() })?;
        let runtime = WarpjoinRuntime::new(Session::new(with_faults(&simulated, &plan))?);
        let engine = Self::new(EngineKind::Simulated(devices)).with_settings(Settings::Defaults);
        Ok(Self { runtime, partitions: 1, recorder: Some(plan), ..engine })
    }

    /// Whether its devices record requests.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// The requests to the devices since the last call; `None` if they do not record.
    pub fn take_recording(&self) -> Option<Recording> {
        self.recorder.as_ref().map(FaultPlan::take_recording)
    }

    /// The same engine on new devices without peer access.
    ///
    /// # Errors
    /// Returns an error if the devices cannot be opened.
    pub fn without_peers(&self) -> Result<Self, warpjoin::Error> {
        let devices = match self.kind {
            EngineKind::Stock => return Ok(self.clone()),
            EngineKind::Simulated(devices) => open_simulated(&SimOptions { devices, ..SimOptions::default() }),
            EngineKind::Cuda(devices) => open_cuda(&CudaOptions { devices: Some(devices), ..CudaOptions::default() }),
        };
        let session = Session::new(with_faults(&devices?, &FaultPlan::without_peers()))?;
        Ok(Self { runtime: WarpjoinRuntime::new(session), ..self.clone() })
    }

    /// The same engine, where tables that .slt files create are loaded onto the devices.
    pub fn with_resident_tables(&self) -> Self {
        Self { has_resident_tables: true, ..self.clone() }
    }

    /// See [`Self::with_resident_tables`].
    pub fn has_resident_tables(&self) -> bool {
        self.has_resident_tables
    }

    /// The number of devices.
    pub fn devices(&self) -> usize {
        match self.kind {
            EngineKind::Stock => 0,
            EngineKind::Simulated(devices) | EngineKind::Cuda(devices) => devices,
        }
    }

    /// The kind of engine.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// A new session without tables.
    pub fn session(&self) -> SessionContext {
        let config = match self.settings {
            Settings::AsUsed => SessionConfig::new(),
            Settings::Defaults | Settings::Forced => SessionConfig::new().with_target_partitions(self.partitions),
        };
        let config = config.with_information_schema(true);
        let (device, devices) = match self.kind {
            EngineKind::Stock => {
                // Dynamic filters of DataFusion 55.2 drop dictionary keys (apache/datafusion #24587), and -0.0 where the other
                // side has 0.0. Set by name, which switches all kinds off; the field alone does not.
                let has_filters = self.settings == Settings::AsUsed;
                let config = config.set_bool("datafusion.optimizer.enable_dynamic_filter_pushdown", has_filters);
                let builder = SessionStateBuilder::new().with_config(config).with_default_features();
                return SessionContext::new_with_state(builder.build());
            }
            EngineKind::Simulated(devices) => (DeviceChoice::Simulated, devices),
            EngineKind::Cuda(devices) => (DeviceChoice::Cuda, devices),
        };
        let defaults = WarpjoinOptions {
            device,
            devices,
            minimum_rows: 0,
            strict_rows: 0,
            // A fault must fail the test, not fall back.
            on_fault: OnFault::Error,
            simulate_seed: self.schedule_seed,
            code_tier: self.code_tier,
            check_plans: true,
            ..WarpjoinOptions::default()
        };
        let options = match self.settings {
            Settings::Defaults => defaults,
            Settings::AsUsed => WarpjoinOptions { check_plans: false, on_fault: OnFault::default(), ..defaults },
            Settings::Forced => forced(defaults),
        };
        let state = SessionStateBuilder::new()
            .with_config(config.with_option_extension(options))
            .with_default_features()
            .with_warpjoin(Arc::clone(&self.runtime))
            .build();
        SessionContext::new_with_state(state)
    }
}

/// The forced settings. Each number of devices has another join order and form of runtime filters.
fn forced(defaults: WarpjoinOptions) -> WarpjoinOptions {
    let devices = defaults.devices;
    WarpjoinOptions {
        join_order: if devices == 1 { JoinOrder::Auto } else { JoinOrder::Seeded(devices as u64) },
        runtime_filters: match devices {
            1 => RuntimeFilters::Always,
            2 => RuntimeFilters::AlwaysBy(FilterForm::Bitmap),
            _ => RuntimeFilters::AlwaysBy(FilterForm::Bloom),
        },
        // With several devices late columns are mostly read from another device.
        materialization: if devices == 1 { Materialization::Auto } else { Materialization::Late },
        ..defaults
    }
}

impl EngineKind {
    /// The kinds that the variables `WARPJOIN_TEST_DEVICE` (`sim` or `cuda`, by default `sim`) and `WARPJOIN_TEST_DEVICES`
    /// (such as `1` or `1,2`, by default `default_counts`) name.
    ///
    /// # Errors
    /// Returns an error if a variable has another value.
    pub fn from_environment(default_counts: &[usize]) -> Result<Vec<Self>, String> {
        let kind = match std::env::var("WARPJOIN_TEST_DEVICE").as_deref() {
            Err(_) | Ok("sim") => Self::Simulated,
            Ok("cuda") => Self::Cuda,
            Ok(other) => return Err(format!("WARPJOIN_TEST_DEVICE must be sim or cuda, not {other}")),
        };
        let counts = match std::env::var("WARPJOIN_TEST_DEVICES") {
            Err(_) => default_counts.to_vec(),
            Ok(list) => list
                .split(',')
                .map(|count| {
                    count
                        .trim()
                        .parse()
                        .map_err(|_| format!("WARPJOIN_TEST_DEVICES must be a list of numbers, not {list}"))
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(counts.into_iter().map(kind).collect())
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock => f.write_str("stock"),
            Self::Simulated(devices) => write!(f, "sim x{devices}"),
            Self::Cuda(devices) => write!(f, "cuda x{devices}"),
        }
    }
}
