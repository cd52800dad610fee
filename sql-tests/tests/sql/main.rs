//! All SQL tests in one binary, which also runs on a host with GPUs and without cargo; see the crate.

// Helpers outside #[test] functions may fail a test too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod golden;
mod large;
mod random;
mod slt;

/// Cases that run at a time: two, and more where there are cores to spare.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| (cores.get() / 2).max(2))
}
