//! The column cache: columns of Parquet files stay on the devices, so that later queries find them there.
//!
//! A scan of Parquet files that a device part reads becomes a table: of cached columns if all are cached at planning,
//! else by a [`CachedScanExec`], whose missing columns are read when the plan runs: in whole, or only the row groups
//! that may have rows for the scan's filter. Files are identified by path, size, time of modification and tag. The
//! least recently used columns are evicted when the limit `warpjoin.cache` is exceeded or an allocation needs their
//! memory.
//!
//! Owns which columns are cached, and how files are read. Must not know the matcher or how parts run.

mod arriving;
mod codecs;
mod columns;
mod entry;
mod row_groups;
mod scan;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod source;
mod stored;

pub(crate) use arriving::StopOnDrop;
pub(crate) use columns::{ColumnCache, TableHolder};
pub(crate) use entry::{CachedColumnInfo, DecodedOn, PrunedFor, ReadColumn};
pub(crate) use row_groups::Pruned;
pub(crate) use scan::{CachedScan, CachedScanExec};
pub(crate) use source::{ParquetScan, are_current};
pub(crate) use stored::{StoredPages, StoredScan};
