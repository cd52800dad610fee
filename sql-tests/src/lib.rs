//! SQL tests: .slt files and random queries, on stock DataFusion and on devices.
//!
//! Owns the harness; the cases are in `slt/` and in [`random`]. Must not know how warpjoin works:
//! it sees SQL, answers and [`warpjoin_datafusion::Placement`].

mod coverage;
mod engine;
mod files;
mod outcome;
pub mod random;
mod runner;
mod text;

pub use coverage::Coverage;
pub use engine::{Engine, EngineKind, Settings};
pub use files::{Expectations, FileResult, FileRule, Slice, datafusion_files, list_files, run_datafusion_file};
pub use outcome::{ErrorKind, Failure, Outcome};
pub use runner::{SltError, complete_file, run_file};

use std::io::Write;

/// Prints a line that `cargo test` does not swallow when the test passes.
pub fn announce(line: &str) {
    // A closed standard error is no reason to fail a test.
    let _ = writeln!(std::io::stderr(), "{line}");
}
