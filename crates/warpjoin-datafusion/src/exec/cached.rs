//! Reads the columns of a [`CachedScan`] that are not cached, when its plan runs.
//!
//! Owns what is read, and when a scan is not cached after all. Must not know which columns stay.

use std::sync::Arc;
use std::thread::available_parallelism;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use warpjoin::{Cause, Session, Table};

use crate::cache::{CachedScan, ParquetScan};
use crate::runtime::thread::pump_partitions;
use crate::table::load::{LoadError, load};

impl CachedScan {
    /// The table of the scan's columns. Columns that are not cached are read in whole, and cached.
    ///
    /// `None` if they should not be cached: they do not fit the limit or the memory of host or devices, or the files have
    /// changed since they were listed. Then the scan is read as any other input.
    ///
    /// # Errors
    /// When the files cannot be read, or a device fails.
    pub(crate) async fn table(
        &self,
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
        memory_budget_bytes: u64,
    ) -> Result<Option<Arc<Table>>, LoadError> {
        if let Some(table) = self.cache.table(&self.scan, &self.schema) {
            return Ok(Some(table));
        }
        let entry = self.cache.entry(&self.scan.key);
        // Another query may read the same columns: then they are there afterwards.
        let _reading = entry.reading.lock().await;
        if let Some(table) = self.cache.table(&self.scan, &self.schema) {
            return Ok(Some(table));
        }
        let missing = entry.missing(&self.scan.columns);
        let limit_bytes = self.limit.bytes(session);
        if !self.cache.accepts(&self.scan, limit_bytes) {
            return Ok(None);
        }
        let Some(_host) = self.reserve(&missing, context) else { return Ok(None) };
        if !self.scan.is_current() {
            forget_listings(context);
            return Ok(None);
        }
        let read = match self.read(&missing, session, context, memory_budget_bytes).await {
            Ok(read) => read,
            Err(LoadError::Device(error)) if error.cause() == Cause::OutOfMemory => {
                entry.refuse(missing);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // What was read of files that changed meanwhile may be of both.
        if !self.scan.is_current() {
            forget_listings(context);
            self.cache.remove(&entry);
            return Ok(None);
        }
        let singles = split(&self.scan, &missing, &read).map_err(LoadError::Device)?;
        drop(read);
        let read_bytes: u64 = singles.iter().map(|(_, table)| table.resident_bytes()).sum();
        if read_bytes > limit_bytes {
            entry.refuse(missing);
            return Ok(self.cache.table_with(&entry, &self.scan, &self.schema, &singles));
        }
        self.cache.add(&entry, singles, limit_bytes);
        let table = self.cache.table(&self.scan, &self.schema);
        if table.is_none() {
            self.cache.remove(&entry);
        }
        Ok(table)
    }

    /// Reserves host memory for reading columns, which are encoded there. `None` if DataFusion's pool refuses it.
    fn reserve(&self, missing: &[usize], context: &TaskContext) -> Option<MemoryReservation> {
        let reservation = MemoryConsumer::new("warpjoin column cache").register(context.memory_pool());
        reservation.try_grow(usize::try_from(self.scan.estimated_bytes(missing)).ok()?).ok()?;
        Some(reservation)
    }

    async fn read(
        &self,
        columns: &[usize],
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
        memory_budget_bytes: u64,
    ) -> Result<Table, LoadError> {
        let cores = available_parallelism().map_or(1, usize::from);
        let plan = self.scan.read(columns, cores).map_err(LoadError::Source)?;
        let schema = self.scan.schema_of(columns).map_err(LoadError::Source)?;
        let context = Arc::clone(context);
        load(session, schema, |upload| pump_partitions(plan, context, upload), memory_budget_bytes).await
    }
}

/// Lets DataFusion list files again for the next query: one has changed since it listed them.
fn forget_listings(context: &TaskContext) {
    log::warn!("a Parquet file has changed since it was listed; later queries list files again");
    if let Some(listings) = context.runtime_env().cache_manager.get_list_files_cache() {
        listings.clear();
    }
}

/// Each column as a table by itself, so that it can leave alone.
fn split(scan: &ParquetScan, columns: &[usize], read: &Table) -> warpjoin::Result<Vec<(usize, Table)>> {
    let single = |(at, &column): (usize, &usize)| {
        let schema = scan.schema_of(&[column]).map_err(|error| warpjoin::Error::Internal(error.to_string()))?;
        Ok((column, Table::of_columns(schema, &[(read, at)])?))
    };
    columns.iter().enumerate().map(single).collect()
}
