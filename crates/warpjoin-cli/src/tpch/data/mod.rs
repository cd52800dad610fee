//! The TPC-H tables: the columns that queries read, generating rows, and loading.

mod columns;
mod generate;
mod load;
mod tables;

pub use columns::columns_read;
pub use generate::Generation;
pub use load::LoadReport;
pub(super) use load::Loading;
pub use tables::TpchTable;
