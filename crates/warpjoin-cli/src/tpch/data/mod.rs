//! The TPC-H tables: the columns that queries read, generating rows, and loading.

mod columns;
mod files;
mod generate;
mod load;
mod tables;

pub use columns::columns_read;
pub(super) use files::ParquetFiles;
pub use generate::Generation;
pub use load::LoadReport;
pub(super) use load::Loading;
pub use tables::TpchTable;
