//! Joins and group-bys on Arrow data, on one or several devices.
//!
//! Owns columns on devices, expressions, device plans, generated pipelines, hash tables, exchange,
//! joins and group-bys, the decoding of Parquet, and the Arrow-native API over them. Must not know DataFusion, nor a driver.

mod codegen;
pub mod column;
mod devices;
mod error;
pub mod exec;
pub mod expr;
pub mod function;
pub mod hash_table;
mod identity;
mod operators;
mod optimize;
mod options;
pub mod parquet;
pub mod plan;
mod runtime;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod string_test;
mod table;
pub mod window;

pub use codegen::prebuilt_modules;
pub use devices::{DeviceSet, MemoryBudget};
pub use error::{Error, Reason, Result, cause_of_arrow};
pub use exec::{QueryMetrics, QueryOutput};
pub use hash_table::HashTable;
pub use operators::{GroupBy, HashJoin, PartitionedTable, PartitionedTableShard, kernel_definitions, partition_table};
pub use optimize::share_between;
pub use options::{CodeTier, DeviceThreads, ExecOptions, JoinForm};
pub use runtime::session::Session;
pub use table::{MovedBytes, Pieces, ResidentColumn, Shard, ShardColumn, Table, TableBuilder};
pub use warpjoin_device::{Cancellation, Cause};
