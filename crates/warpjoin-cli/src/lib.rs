//! The parts of the binary `warpjoin`: TPC-H runner, SQL shell, device listing.
//!
//! Owns the user interface. Must not know how a query runs on a device.

pub mod answers;
mod compare;
mod devices;
mod error;
mod output;
mod shell;
mod target;
pub mod tpch;
mod warm;

pub use compare::{BenchCompareArgs, run_bench_compare};
pub use devices::describe_devices;
pub use error::{CliError, Result};
pub use output::print_line;
pub use shell::{ShellArgs, run_shell};
pub use target::TargetArgs;
pub use tpch::{TpchArgs, TpchReportArgs, run_tpch, run_tpch_report};
pub use warm::{WarmArgs, warm};
