//! Benches of warpjoin: what the memory of a device allows, and how near kernels and operators come.
//!
//! Owns data made on the device, what results must be, the limits of a device and the report. The
//! driver, criterion, is in `benches/warpjoin.rs`. Must not know how an operator works.
//!
//! Architecture invariant: no time of a result that was not checked gets into the report.

mod bench;
mod checksum;
mod data;
mod error;
pub mod limits;
mod line;
pub mod lines;
pub mod report;
mod work;

pub use bench::{Bench, Scale, kernel_modules};
pub use checksum::{Checksum, ExpectedGroups, ExpectedJoin, GroupAggregate, checksum_of};
pub use data::{ColumnSpec, Numbering, Numbers, Value, table};
pub use error::{Error, Result};
pub use line::{Axes, Case, Figure, Line, PlotPoint, Relative, Sample, SetUp, SetUpFunction, Unit, median};
pub use work::{Access, AccessKind, Design, Work};
