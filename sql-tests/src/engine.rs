//! What executes the SQL of a test.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use warpjoin_datafusion::{
    DeviceChoice, FilterForm, JoinOrder, Materialization, RuntimeFilters, WarpjoinOptions, WarpjoinRuntime,
    WarpjoinSessionStateBuilder,
};

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

/// An engine: a source of fresh sessions that share devices and compiled kernels.
#[derive(Debug, Clone)]
pub struct Engine {
    kind: EngineKind,
    runtime: Arc<WarpjoinRuntime>,
    schedule_seed: Option<u64>,
}

impl Engine {
    /// Opens nothing yet.
    pub fn new(kind: EngineKind) -> Self {
        Self { kind, runtime: WarpjoinRuntime::lazy(), schedule_seed: None }
    }

    /// The same on devices of its own, whose lanes, blocks and streams run in an order of `seed`.
    pub fn with_schedule(&self, seed: u64) -> Self {
        Self { kind: self.kind, runtime: WarpjoinRuntime::lazy(), schedule_seed: Some(seed) }
    }

    /// Its kind.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// A session without tables.
    pub fn session(&self) -> SessionContext {
        let mut config = SessionConfig::new().with_target_partitions(PARTITIONS).with_information_schema(true);
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
        // Whatever the order, the answer is the same: each number of devices tries another one, and other filters.
        let join_order = if devices == 1 { JoinOrder::Auto } else { JoinOrder::Seeded(devices as u64) };
        // With several devices columns are read late wherever they can be, most of them on another device.
        let materialization = if devices == 1 { Materialization::Auto } else { Materialization::Late };
        let options = WarpjoinOptions {
            device,
            devices,
            minimum_rows: 0,
            simulate_seed: self.schedule_seed,
            join_order,
            runtime_filters: match devices {
                1 => RuntimeFilters::Always,
                2 => RuntimeFilters::AlwaysBy(FilterForm::Bitmap),
                _ => RuntimeFilters::AlwaysBy(FilterForm::Bloom),
            },
            materialization,
            ..WarpjoinOptions::default()
        };
        let state = SessionStateBuilder::new()
            .with_config(config.with_option_extension(options))
            .with_default_features()
            .with_warpjoin(Arc::clone(&self.runtime))
            .build();
        SessionContext::new_with_state(state)
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
