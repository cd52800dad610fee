//! The tables of TPC-H: which columns queries read, their rows, and loading them.

mod columns;
mod generate;
mod load;
mod tables;

pub use columns::columns_read;
pub use generate::Generation;
pub use load::LoadReport;
pub(super) use load::Loading;
pub use tables::TpchTable;
