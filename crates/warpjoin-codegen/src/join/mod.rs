//! Join tables: sinks that write a build side, probes, and the sink that sends probe rows to the owners of their keys.
//!
//! Must not know the loop over rows that it is part of: those that joins have of their own are in `pipeline/batch.rs` and
//! `pipeline/matches.rs`.

mod build;
mod keys;
mod probe;
mod route;

pub(super) use build::{build, direct};
pub(super) use keys::{probe_values, probe_words};
pub(super) use probe::{access, both_sides, hash_windows, output, probe, slots_of, without_payload};
pub(super) use route::{Route, route};
