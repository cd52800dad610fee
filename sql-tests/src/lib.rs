//! SQL tests: .slt files and random queries, on stock DataFusion and on devices.
//!
//! Owns the harness; the cases are in `slt/` and in [`random`]. Must not know how warpjoin works:
//! it sees SQL, answers and [`warpjoin_datafusion::Placement`].

mod engine;
mod files;
pub mod random;
mod runner;
mod text;

pub use engine::{Engine, EngineKind};
pub use files::{FileResult, datafusion_files, run_datafusion_file};
pub use runner::{SltError, complete_file, run_file};

use std::io::Write;

/// Prints a line that `cargo test` does not swallow when the test passes.
pub fn announce(line: &str) {
    // A closed standard error is no reason to fail a test.
    let _ = writeln!(std::io::stderr(), "{line}");
}
