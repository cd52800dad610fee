//! What executes the SQL of a test.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use warpjoin::Session;
use warpjoin_datafusion::{
    DeviceChoice, FilterForm, JoinOrder, Materialization, OnFault, RuntimeFilters, WarpjoinOptions, WarpjoinRuntime,
    WarpjoinSessionStateBuilder,
};
use warpjoin_device::{CudaOptions, FaultPlan, Recording, SimOptions, open_cuda, open_simulated, with_faults};

/// Partitions of a session: enough to exercise repartitioning, few enough for small machines.
const PARTITIONS: usize = 3;

/// Kinds of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// DataFusion as it comes.
    Stock,
    /// warpjoin on so many simulated devices.
    Simulated(usize),
    /// warpjoin on so many GPUs.
    Cuda(usize),
}

/// Which options an engine's sessions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// The defaults, except that tables of any size go to the devices.
    Defaults,
    /// What data of a test's size would seldom make the engine choose: runtime filters always, with several devices
    /// another join order and late columns, too.
    Forced,
}

/// An engine: a source of fresh sessions that share devices and compiled kernels.
#[derive(Debug, Clone)]
pub struct Engine {
    kind: EngineKind,
    runtime: Arc<WarpjoinRuntime>,
    settings: Settings,
    schedule_seed: Option<u64>,
    has_resident_tables: bool,
    partitions: usize,
    recorder: Option<FaultPlan>,
}

impl Engine {
    /// An engine of forced settings. Opens no device yet.
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
        }
    }

    /// The same devices with other settings.
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// The same on devices of its own, whose lanes, blocks and streams run in an order of `seed`. GPUs have no seed.
    pub fn with_schedule(&self, seed: u64) -> Self {
        match self.kind {
            EngineKind::Simulated(_) => {
                Self { runtime: WarpjoinRuntime::lazy(), schedule_seed: Some(seed), ..self.clone() }
            }
            EngineKind::Stock | EngineKind::Cuda(_) => self.clone(),
        }
    }

    /// warpjoin with its defaults on `devices` simulated devices that record what they are asked for: the same each time, as
    /// nothing runs in parallel.
    ///
    /// # Errors
    /// When they can't be opened.
    pub fn recorded(devices: usize) -> Result<Self, warpjoin::Error> {
        let plan = FaultPlan::default();
        let simulated = open_simulated(&SimOptions { devices, threads: 1, ..SimOptions::default() })?;
        let runtime = WarpjoinRuntime::new(Session::new(with_faults(&simulated, &plan))?);
        let engine = Self::new(EngineKind::Simulated(devices)).with_settings(Settings::Defaults);
        Ok(Self { runtime, partitions: 1, recorder: Some(plan), ..engine })
    }

    /// Whether its devices record.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// What the devices were asked for since this was called last, if they record it.
    pub fn take_recording(&self) -> Option<Recording> {
        self.recorder.as_ref().map(FaultPlan::take_recording)
    }

    /// The same on devices of its own that can't reach each other's memory.
    ///
    /// # Errors
    /// When they can't be opened.
    pub fn without_peers(&self) -> Result<Self, warpjoin::Error> {
        let devices = match self.kind {
            EngineKind::Stock => return Ok(self.clone()),
            EngineKind::Simulated(devices) => open_simulated(&SimOptions { devices, ..SimOptions::default() }),
            EngineKind::Cuda(devices) => open_cuda(&CudaOptions { devices: Some(devices), ..CudaOptions::default() }),
        };
        let session = Session::new(with_faults(&devices?, &FaultPlan::without_peers()))?;
        Ok(Self { runtime: WarpjoinRuntime::new(session), ..self.clone() })
    }

    /// The same; tables of files of tests are brought to the devices as soon as they are created.
    pub fn with_resident_tables(&self) -> Self {
        Self { has_resident_tables: true, ..self.clone() }
    }

    /// See [`Self::with_resident_tables`].
    pub fn has_resident_tables(&self) -> bool {
        self.has_resident_tables
    }

    /// Number of its devices.
    pub fn devices(&self) -> usize {
        match self.kind {
            EngineKind::Stock => 0,
            EngineKind::Simulated(devices) | EngineKind::Cuda(devices) => devices,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// A session without tables.
    pub fn session(&self) -> SessionContext {
        let mut config = SessionConfig::new().with_target_partitions(self.partitions).with_information_schema(true);
        // Wrong answers on dictionary keys (apache/datafusion #24587): an oracle must not have them.
        config.options_mut().optimizer.enable_dynamic_filter_pushdown = false;
        let (device, devices) = match self.kind {
            EngineKind::Stock => {
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
            // A fault is a failure of the test, not a slower answer.
            on_fault: OnFault::Error,
            simulate_seed: self.schedule_seed,
            ..WarpjoinOptions::default()
        };
        let options = match self.settings {
            Settings::Defaults => defaults,
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

/// Whatever the order and the filters, the answer is the same: each number of devices tries others.
fn forced(defaults: WarpjoinOptions) -> WarpjoinOptions {
    let devices = defaults.devices;
    WarpjoinOptions {
        join_order: if devices == 1 { JoinOrder::Auto } else { JoinOrder::Seeded(devices as u64) },
        runtime_filters: match devices {
            1 => RuntimeFilters::Always,
            2 => RuntimeFilters::AlwaysBy(FilterForm::Bitmap),
            _ => RuntimeFilters::AlwaysBy(FilterForm::Bloom),
        },
        // With several devices columns are read late wherever they can be, most of them on another device.
        materialization: if devices == 1 { Materialization::Auto } else { Materialization::Late },
        ..defaults
    }
}

impl EngineKind {
    /// The kinds that `WARPJOIN_TEST_DEVICE` (`sim` or `cuda`) and `WARPJOIN_TEST_DEVICES` (such as `1` or `1,2`) name;
    /// without the first, simulated devices of `default_counts`.
    ///
    /// # Errors
    /// When a variable has another value.
    pub fn from_environment(default_counts: &[usize]) -> Result<Vec<Self>, String> {
        let kind = match std::env::var("WARPJOIN_TEST_DEVICE").as_deref() {
            Err(_) | Ok("sim") => Self::Simulated,
            Ok("cuda") => Self::Cuda,
            Ok(other) => return Err(format!("WARPJOIN_TEST_DEVICE is sim or cuda, not {other}")),
        };
        let counts = match std::env::var("WARPJOIN_TEST_DEVICES") {
            Err(_) => default_counts.to_vec(),
            Ok(list) => list
                .split(',')
                .map(|count| {
                    count.trim().parse().map_err(|_| format!("WARPJOIN_TEST_DEVICES is a list of numbers, not {list}"))
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
