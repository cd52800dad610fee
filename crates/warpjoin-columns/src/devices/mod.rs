//! The devices of a session, and what works on them whatever runs: kernels that are compiled in the background, threads
//! that drive devices, the order in which queries launch, waiting, rows that are written away.
//!
//! Must not know columns, tables or plans.

mod budget;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod compiler;
#[allow(missing_docs, reason = "internal to warpjoin")]
mod copies;
pub mod dictionaries;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod scheduler;
mod set;
mod spill;
mod threads;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod waits;

pub use budget::MemoryBudget;
pub use budget::{alloc_in_order, place_of};
pub use copies::CopyLane;
pub use set::DeviceSet;
pub use spill::{ColumnBytes, Outbound, SpilledColumns};
