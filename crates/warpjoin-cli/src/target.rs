//! The devices that a command runs on: flags, and DataFusion sessions.
//!
//! Must not know what a command does with a session.

use clap::Args;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use warpjoin::Session;
use warpjoin_datafusion::{DeviceChoice, OnFault, WarpjoinOptions, WarpjoinRuntime, WarpjoinSessionStateBuilder};
use warpjoin_device::cuda_problem;

use crate::error::{CliError, Result};

/// Flags that choose devices.
#[derive(Debug, Clone, Default, Args)]
pub struct TargetArgs {
    /// Kind of device: auto (GPUs if there are any), cuda, or sim (simulated on the CPU)
    #[arg(long, default_value = "auto", value_parser = parse_choice)]
    pub device: DeviceChoice,
    /// Number of devices; default: all GPUs, or two simulated devices
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=Session::DEVICES_MAX as i64))]
    pub devices: Option<u8>,
    /// Memory budget of each device, such as 8GB
    #[arg(long, value_name = "BYTES")]
    pub memory_budget: Option<String>,
    /// Fail if the CPU does any work other than reading, moving and writing rows
    #[arg(long)]
    pub strict: bool,
    /// Maximum number of rows that a CPU node may process with --strict
    #[arg(long, value_name = "ROWS", default_value_t = WarpjoinOptions::default().strict_rows)]
    pub strict_rows: u64,
    /// What to do after a fault of a device: fallback (run the query on the CPU), or error
    #[arg(long, value_parser = parse_on_fault)]
    pub on_fault: Option<OnFault>,
}

fn parse_on_fault(text: &str) -> Result<OnFault, String> {
    match text {
        "fallback" => Ok(OnFault::Fallback),
        "error" => Ok(OnFault::Error),
        _ => Err("expected fallback or error".to_string()),
    }
}

fn parse_choice(text: &str) -> Result<DeviceChoice, String> {
    text.parse().map_err(|()| "expected auto, cuda or sim".to_string())
}

impl TargetArgs {
    /// A DataFusion session with warpjoin on these devices. Devices are opened on first use.
    ///
    /// # Errors
    /// When the memory budget is not a size.
    pub fn session(&self, mut config: SessionConfig) -> Result<SessionContext> {
        let options = WarpjoinOptions {
            device: self.device,
            devices: self.devices.map_or(0, usize::from),
            strict: self.strict,
            strict_rows: self.strict_rows,
            on_fault: self.on_fault.unwrap_or_default(),
            ..WarpjoinOptions::default()
        };
        config = config.with_option_extension(options);
        if let Some(budget) = &self.memory_budget {
            let set = config.options_mut().set("warpjoin.memory_budget", budget);
            set.map_err(|_| {
                CliError::Usage(format!("--memory-budget takes bytes, such as 8GB or 512MiB, not '{budget}'"))
            })?;
        }
        // Files that come, change or go are seen by the next query.
        let runtime = RuntimeEnvBuilder::new().with_object_list_cache_limit(0).build_arc()?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_warpjoin(WarpjoinRuntime::lazy())
            .build();
        Ok(SessionContext::new_with_state(state))
    }

    /// Resolves `auto` to simulated devices if there is no GPU.
    #[must_use]
    pub fn with_resolved_device(mut self) -> Self {
        if self.device == DeviceChoice::Auto {
            self.device = match cuda_problem() {
                None => DeviceChoice::Cuda,
                Some(_) => DeviceChoice::Simulated,
            };
        }
        self
    }
}

/// The DataFusion session whose answers are the reference. Dynamic filters are off, since they drop dictionary keys
/// (apache/datafusion #24587), and -0.0 where the other side has 0.0.
pub(crate) fn oracle_session() -> SessionContext {
    let config = SessionConfig::new().set_bool("datafusion.optimizer.enable_dynamic_filter_pushdown", false);
    SessionContext::new_with_state(SessionStateBuilder::new().with_config(config).with_default_features().build())
}

/// A session with the tables of `context` and DataFusion's default settings, for measuring times.
pub(crate) fn with_defaults(context: &SessionContext) -> SessionContext {
    // Keeps the catalog of `context`.
    let config = SessionConfig::new().with_create_default_catalog_and_schema(false);
    let state = SessionStateBuilder::new_from_existing(context.state()).with_config(config);
    SessionContext::new_with_state(state.build())
}
