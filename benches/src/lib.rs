//! Benches of warpjoin: kernels and operators, compared with the limits of a device's memory.
//!
//! Owns generated data, expected results, the limits of a device, and the report. The driver, which
//! uses criterion, is in `benches/warpjoin.rs`. Must not know how an operator works.
//!
//! Architecture invariant: the report contains only times of runs whose results were checked.

mod bench;
mod checksum;
mod data;
mod error;
pub mod limits;
mod line;
pub mod lines;
pub mod report;
mod shared;
mod work;

pub use bench::{Bench, Member, Scale};
pub use checksum::{ExpectedGroups, ExpectedJoin, GroupAggregate, checksum_of};
pub use data::{ColumnSpec, Numbers, table};
pub use error::{Error, Result};
pub use line::{
    Axes, Case, Figure, Line, PipelineTime, PlotPoint, Relative, Sample, SetUp, SetUpFunction, Unit, median,
};
pub use lines::kernel_modules;
pub use shared::{Checksum, Numbering, Value};
pub use work::{Access, AccessKind, Design, Work};
