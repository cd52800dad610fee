//! Columns on devices, expressions over them, and resident tables: an internal part of warpjoin, without promises of stability.
//!
//! Owns the error type, layouts and dictionaries of columns, the devices of a session, expressions and when two are the same,
//! and tables. Must not know plans, generated code, or how queries run.

pub mod column;
pub mod devices;
mod error;
pub mod expr;
pub mod function;
pub mod identity;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
pub mod string_test;
pub mod table;

pub use devices::{DeviceSet, MemoryBudget};
pub use error::{Error, Reason, Result, cause_of_arrow};
pub use table::{MovedBytes, Pieces, ResidentColumn, Shard, ShardColumn, Table, TableBuilder};
