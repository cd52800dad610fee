//! All SQL tests in one binary, which also runs on a host with GPUs and without cargo; see the crate.

// Helpers outside #[test] functions may fail a test too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod large;
mod random;
mod slt;
