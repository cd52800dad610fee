//! What outlives a query: the devices of a session, tables on them, kernels that are compiled in the background, pipelines that
//! were generated before, threads that drive devices.
//!
//! Must not know how plans are run.

pub(crate) mod compiler;
mod device_threads;
pub(crate) mod pipelines;
pub(crate) mod session;
pub(crate) mod table;
pub(crate) mod waits;
