//! Simulated devices: the kernel sources of warpjoin on the CPU, one fibre a lane.
//!
//! Owns how kernels are compiled for the CPU ([`compile`]), the fibre scheduler
//! ([`runtime`], and `kernels/sim`), and the order in which the work of all streams is executed
//! ([`schedule`]). With [`SimOptions::races`] every access is checked against those that nothing orders
//! it after ([`races`], and `kernels/sim/races/races.h`). Must not know what any kernel computes.
//!
//! Architecture invariant: with a seed, every choice (which stream goes next, which block, which
//! lane at every yield point, what unwritten memory holds) is drawn from that seed, on one OS
//! thread. So one host thread that makes the same calls gets the same run again.

mod compile;
mod device;
mod launch;
mod memory;
mod open;
mod options;
mod pool;
mod races;
mod random;
mod runtime;
mod schedule;
mod simulation;
mod stream;
mod work;

pub use open::open_simulated;
pub use options::{ChangedFile, SimOptions};
