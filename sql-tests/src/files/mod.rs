//! DataFusion's own .slt files, on an engine and on stock DataFusion.
//!
//! The files come with a package that is downloaded and never compiled: an optional dependency. What they say
//! about types and layout of answers is DataFusion's matter; here each query's answer on the engine
//! must be stock DataFusion's, and what ran on devices is counted.

mod compare;
mod data;
mod expectations;
mod folder;
mod run;
mod statement;

pub use expectations::{Expectations, FileRule};
pub use folder::{datafusion_files, list_files};
pub use run::{FileResult, Slice, run_datafusion_file};
