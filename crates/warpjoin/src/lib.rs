//! Joins and group-bys on Arrow data, on one or several devices.
//!
//! Owns columns on devices, expressions, device plans, generated pipelines, hash tables, exchange,
//! joins and group-bys, and the Arrow-native API over them. Must not know DataFusion, nor a driver.

mod codegen;
pub mod column;
mod compiler;
mod error;
pub mod exec;
pub mod expr;
pub mod function;
mod hash;
pub mod hash_table;
mod identity;
mod operators;
mod optimize;
mod options;
mod pipelines;
pub mod plan;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod session;
mod string_test;
mod table;
mod waits;
pub mod window;

pub use error::{Error, Reason, Result, cause_of_arrow};
pub use exec::{QueryMetrics, QueryOutput};
pub use hash_table::HashTable;
pub use operators::{group_by::GroupBy, hash_join::HashJoin};
pub use options::{ExecOptions, JoinForm};
pub use session::Session;
pub use table::{ResidentColumn, Shard, ShardColumn, Table, TableBuilder};
pub use warpjoin_device::Cause;
