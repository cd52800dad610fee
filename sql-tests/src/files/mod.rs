//! Runs DataFusion's own .slt files on an engine and on stock DataFusion.
//!
//! The files are in a package that cargo downloads as an optional dependency and never compiles. Each query's answer on the
//! engine must match stock DataFusion's, and operators on devices are counted. The types and answers in the files are
//! ignored. Must not know how queries run on devices.

mod compare;
mod data;
mod expectations;
mod folder;
mod run;
mod statement;

pub use expectations::{Caps, Expectations, FileRule};
pub use folder::{datafusion_files, list_files};
pub use run::{FileResult, Slice, run_datafusion_file};
