//! All SQL tests in one binary, which also runs on a host with GPUs and without cargo; see the crate's docs.

// Helpers outside #[test] functions may also fail a test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod golden;
mod large;
mod latency;
mod random;
mod slt;

/// Number of cases that run concurrently: two, or half of the cores if that is more.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| (cores.get() / 2).max(2))
}
