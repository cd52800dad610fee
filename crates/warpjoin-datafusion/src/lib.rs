//! warpjoin as an extension of Apache DataFusion: runs SQL queries on GPUs, or on simulated devices.
//!
//! One call on the session builder enables it. Supported parts of a plan then run on the devices, and
//! DataFusion's own operators run the rest:
//!
//! ```
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion::prelude::SessionContext;
//! use warpjoin_datafusion::{WarpjoinRuntime, WarpjoinSessionStateBuilder};
//!
//! let state = SessionStateBuilder::new_with_default_features().with_warpjoin(WarpjoinRuntime::lazy()).build();
//! let context = SessionContext::new_with_state(state);
//! # let _ = context;
//! ```
//!
//! [`load_table`] keeps a table on the devices across queries; [`cache_table`] reads the columns of Parquet files ahead of
//! queries. [`WarpjoinOptions`] has the settings.
//! [`Placement`] says which parts of a plan run where, and why.
//!
//! Owns the integration of warpjoin into DataFusion. Must not know kernels or drivers.

mod cache;
mod config;
mod error;
mod exec;
mod extension;
mod fallback;
mod kept;
mod matcher;
mod pass_through;
mod planner;
mod rules;
mod runtime;
mod table;
mod template;
mod translate;
// Runs the programs of the tutorial as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial-rust.md")]
mod tutorial {}

pub use warpjoin::exec::{JoinOrder, Materialization, RuntimeFilters};
pub use warpjoin::plan::FilterForm;

pub use config::{DeviceChoice, Distribute, MemoryShare, OnFault, ParquetDecode, WarpjoinOptions};
pub use exec::WarpjoinExec;
pub use exec::cache_table::{CachedTable, cache_table, uncache_table};
pub use extension::WarpjoinSessionStateBuilder;
pub use fallback::Fallback;
pub use pass_through::{PassThroughExec, Role};
pub use planner::query::{Query, WarpjoinSessionContext};
pub use rules::host_work::HostWork;
pub use rules::placement::{CpuNode, DevicePart, Placement};
pub use rules::reason::{CpuReason, CpuReasonExec};
pub use rules::rule::WarpjoinRule;
pub use rules::strict::{Refusal, RefusedExec};
pub use runtime::{Devices, QueryEnded, QueryInfo, QueryState, WarpjoinRuntime};
pub use table::active_queries::register_queries_table;
pub use table::cached_columns::register_cache_table;
pub use table::provider::{DeviceTableProvider, load_table, runtime_of, session_of};
pub use table::scan::DeviceScanExec;
pub use warpjoin::Cause;
