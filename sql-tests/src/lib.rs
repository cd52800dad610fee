//! SQL tests: our .slt files, DataFusion's .slt files and random queries, on stock DataFusion and on devices.
//!
//! Owns the test harness. The cases are in `slt/` and in [`random`]. Must not know how warpjoin works: it sees SQL, answers,
//! and which operators of a plan run on devices ([`Coverage`]).
//!
//! The test binary `sql` needs neither cargo nor a network. Built by `cargo test --no-run`, it runs on a host with GPUs if
//! the files are there:
//!
//! ```text
//! export WARPJOIN_TEST_DEVICE=cuda WARPJOIN_TEST_DEVICES=1,2
//! WARPJOIN_SLT_DIR=test_files WARPJOIN_FILES_ALL=1 ./sql files::
//! WARPJOIN_OWN_SLT_DIR=slt ./sql slt::cuda
//! WARPJOIN_RANDOM_QUERIES=20000 ./sql random::random_queries
//! ```
//!
//! `bugs/run.sh` plants bugs and reports which of them random queries catch.

mod coverage;
mod engine;
mod files;
mod golden;
mod outcome;
pub mod random;
mod runner;
mod text;

pub use coverage::Coverage;
pub use engine::{Engine, EngineKind, Settings};
pub use files::{Caps, Expectations, FileResult, FileRule, Slice, datafusion_files, list_files, run_datafusion_file};
pub use golden::{Golden, GoldenLine};
pub use outcome::{ErrorKind, Failure, Outcome};
pub use runner::{SltError, complete_file, run_file, run_recorded};
pub use text::lines;

use std::io::Write;

/// Prints a line that `cargo test` also shows for tests that pass.
pub fn announce(line: &str) {
    // A closed standard error must not fail a test.
    let _ = writeln!(std::io::stderr(), "{line}");
}
