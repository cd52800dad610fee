//! Simulated devices: run warpjoin's kernel sources on the CPU, with one fiber per lane.
//!
//! Owns how kernels are compiled for the CPU ([`compile`]), the fiber scheduler
//! ([`runtime`], and `kernels/sim`), and the order in which the work of all streams is executed
//! ([`schedule`]). With [`SimOptions::races`], a race detector checks every access
//! ([`races`], and `kernels/sim/races/races.h`). Must not know what any kernel computes.
//!
//! Architecture invariant: with a seed, work runs on one OS thread, and every choice is drawn from
//! the seed: the next stream, the next block, the next lane at each yield point, the content of
//! unwritten memory. A host thread that repeats its calls therefore repeats the run.

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
