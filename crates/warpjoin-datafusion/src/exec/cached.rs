//! Reads the columns of a [`CachedScan`] that are not cached, when its plan runs.
//!
//! Owns what is read, and when a scan is not cached after all. Must not know which columns are evicted.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{FutureExt, StreamExt, stream};
use warpjoin::parquet::{DecodeError, StoredColumn, decode_table};
use warpjoin::{Cause, Session, Table};

use crate::cache::{
    CachedScan, DecodedOn, ParquetScan, Pruned, PrunedFor, ReadColumn, StopOnDrop, StoredPages, StoredScan,
};
use crate::runtime::thread::{on_thread, pump_partitions};
use crate::table::load::{LoadError, load};

/// Maximum columns that are read and decoded concurrently.
const DECODED_AT_ONCE: usize = 8;

/// The rows of a scan, from cached columns.
pub(crate) struct CachedRows {
    pub(crate) table: Arc<Table>,
    /// Number of row groups that it has, and of all; `None`: it has all.
    pub(crate) row_groups: Option<(usize, usize)>,
}

/// Result of decoding a column on the device.
enum Decoded {
    Column(ReadColumn),
    /// Kernels can't decode it.
    Declined,
    /// There is no room now; there may be later.
    NoRoom,
}

impl CachedScan {
    /// The table of the scan's columns. Missing columns are read and cached: in whole, or, if few row groups have rows
    /// for the scan's filter, only these row groups.
    ///
    /// `None` if the columns should not be cached: they do not fit the limit or the memory of host or devices, or the
    /// files have changed since they were listed. The scan is then read like any other input.
    ///
    /// # Errors
    /// When the files cannot be read, or a device fails.
    pub(crate) async fn table(
        &self,
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
    ) -> Result<Option<CachedRows>, LoadError> {
        if let Some(table) = self.known(session).await? {
            return Ok(Some(CachedRows { table, row_groups: None }));
        }
        if let Some((part, row_groups)) = self.part(session, context).await?
            && let Some(table) = part.known_or_read(session, context).await?
        {
            return Ok(Some(CachedRows { table, row_groups: Some(row_groups) }));
        }
        let table = self.known_or_read(session, context).await?;
        Ok(table.map(|table| CachedRows { table, row_groups: None }))
    }

    /// The table of the scan's columns, if all are cached. Columns in host memory come back to the devices if there is
    /// room.
    async fn known(&self, session: &Arc<Session>) -> Result<Option<Arc<Table>>, LoadError> {
        let limits = self.settings.limits(session);
        if self.cache.has_room_for(&self.scan, limits) {
            let entry = self.cache.entry(&self.scan.key);
            let _reading = entry.reading.lock().await;
            let (cache, scan) = (Arc::clone(&self.cache), self.scan.clone());
            let moved = on_thread("warpjoin-load", move || cache.bring_back(&scan, limits));
            LoadError::of_thread(moved.map_err(LoadError::Source)?.await)?;
        }
        Ok(self.cache.table(&self.scan, &self.schema))
    }

    /// The scan restricted to the row groups that may have rows for the filter, if it is cached, or cheaper than
    /// reading all. Also returns the number of these row groups, and of all.
    async fn part(
        &self,
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
    ) -> Result<Option<(Self, (usize, usize))>, LoadError> {
        let Some(predicate) = self.scan.predicate() else { return Ok(None) };
        let entry = self.cache.entry(&self.scan.key);
        let (columns, missing) = (self.scan.columns.clone(), entry.missing(&self.scan.columns));
        let of = PrunedFor { filter: Arc::clone(predicate.orig_expr()), columns, missing };
        let pruned = match entry.pruned(&of) {
            Some(pruned) => pruned,
            None => {
                let pruned = self.scan.pruned(&predicate, &of.missing, context).await;
                let pruned = pruned.map_err(LoadError::Source)?;
                entry.remember_pruned(of, pruned.clone());
                pruned
            }
        };
        let Some(Pruned { row_groups, bytes, whole_bytes }) = pruned else { return Ok(None) };
        let (chosen, all) = row_groups.count();
        let part = Self { scan: self.scan.only(row_groups), ..self.clone() };
        let is_cached = part.known(session).await?.is_some();
        let is_read = is_cached || entry.prefers_part(bytes, whole_bytes);
        log::debug!(
            "{chosen} of {all} row groups of {} have rows for the filter: {bytes} of {whole_bytes} bytes; {}",
            self.scan.key.location(),
            if is_cached {
                "cached"
            } else if is_read {
                "read"
            } else {
                "all are read"
            }
        );
        Ok(is_read.then_some((part, (chosen, all))))
    }

    async fn known_or_read(
        &self,
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
    ) -> Result<Option<Arc<Table>>, LoadError> {
        let limits = self.settings.limits(session);
        let entry = self.cache.entry(&self.scan.key);
        // Another query may read the same columns: then they are there afterwards.
        let _reading = entry.reading.lock().await;
        if let Some(table) = self.cache.table(&self.scan, &self.schema) {
            return Ok(Some(table));
        }
        let missing = entry.missing(&self.scan.columns);
        if !self.cache.accepts(&self.scan, limits) {
            return Ok(None);
        }
        let Some(_host) = self.reserve(&missing, context) else { return Ok(None) };
        if !self.scan.is_current() {
            forget_listings(context);
            return Ok(None);
        }
        let home = entry.home(|| {
            let budget = self.settings.budget;
            self.settings.distribute.session_for(session, self.scan.table_bytes(), budget).map_err(LoadError::Device)
        })?;
        let read = match self.read(&missing, &home, context).await {
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
        let bytes = |table: &Table| table.resident_bytes() + table.host_bytes();
        let read_bytes: u64 = read.iter().map(|column| bytes(&column.table)).sum();
        if read_bytes > limits.bytes() {
            entry.refuse(missing);
            let table = self.cache.table_with(&entry, &self.scan, &self.schema, &read);
            if let Some(table) = table.as_ref().filter(|_| self.settings.budget.host_bytes > 0) {
                table.make_room_when_asked();
            }
            return Ok(table);
        }
        self.cache.add(&entry, read, limits);
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

    /// Reads columns, each as its own table: the device decodes the columns that it can, and DataFusion reads the
    /// others.
    async fn read(
        &self,
        columns: &[usize],
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<ReadColumn>, LoadError> {
        if !session.devices().iter().all(|device| self.settings.decode.is_on(device.info().kind)) {
            return self.read_on_cpu(columns, session, context).await;
        }
        let stored = StoredScan::of(&self.scan, columns, context).await.map_err(LoadError::Source)?;
        let decode = self.read_on_device(&stored, session);
        let others = self.read_on_cpu(&stored.others, session, context);
        let (decoded, others) = futures::join!(decode, others);
        let (mut tables, declined) = decoded?;
        tables.extend(others?);
        tables.extend(self.read_on_cpu(&declined, session, context).await?);
        Ok(tables)
    }

    /// The columns that the device has decoded, and those that it can't decode after all.
    async fn read_on_device(
        &self,
        stored: &StoredScan,
        session: &Arc<Session>,
    ) -> Result<(Vec<ReadColumn>, Vec<usize>), LoadError> {
        // Boxed, as the compiler can't tell otherwise that they may change threads.
        let decode = |pages| async move { (pages, self.decode(stored, pages, session).await) };
        let decoding: Vec<_> = stored.columns.iter().map(|pages| decode(pages).boxed()).collect();
        let mut decoding = stream::iter(decoding).buffered(DECODED_AT_ONCE);
        let (mut columns, mut declined, mut too_large) = (vec![], vec![], vec![]);
        while let Some((pages, decoded)) = decoding.next().await {
            match decoded {
                Ok(Decoded::Column(column)) => columns.push(column),
                Ok(Decoded::Declined) => declined.push(pages.column),
                Ok(Decoded::NoRoom) => too_large.push(pages),
                Err(LoadError::Device(error)) if error.cause() == Cause::OutOfMemory => too_large.push(pages),
                Err(error) => return Err(error),
            }
        }
        // What had no room beside others may have it alone.
        for pages in too_large {
            match self.decode(stored, pages, session).await {
                Ok(Decoded::Column(column)) => columns.push(column),
                Ok(Decoded::Declined | Decoded::NoRoom) => declined.push(pages.column),
                Err(LoadError::Device(error)) if error.cause() == Cause::OutOfMemory => declined.push(pages.column),
                Err(error) => return Err(error),
            }
        }
        Ok((columns, declined))
    }

    /// Reads and decodes a column.
    async fn decode(
        &self,
        stored: &StoredScan,
        pages: &Arc<StoredPages>,
        session: &Arc<Session>,
    ) -> Result<Decoded, LoadError> {
        let (started, budget) = (Instant::now(), self.settings.budget);
        let schema = self.scan.schema_of(&[pages.column]).map_err(LoadError::Source)?;
        let arriving = Arc::new(pages.arriving());
        let (to_decode, session, to_read) = (Arc::clone(pages), Arc::clone(session), Arc::clone(&arriving));
        let work = move || {
            let (pages, name) = (to_decode, schema.field(0).name().clone());
            let decode = |column: &StoredColumn<'_>| decode_table(&session, schema, &[*column], budget);
            let decoded = pages.decode_with(&arriving, decode);
            arriving.stop();
            match decoded {
                Ok(table) => {
                    log::debug!("column {name}: {} bytes decoded after {:.1?}", arriving.bytes(), started.elapsed());
                    let (column, table) = (pages.column, Arc::new(table));
                    let column = ReadColumn { column, table, decoded_on: DecodedOn::Device };
                    Ok(Decoded::Column(column))
                }
                Err(DecodeError::Declined(why)) => {
                    log::info!("column {name} is decoded on the CPU: {why}");
                    Ok(Decoded::Declined)
                }
                Err(DecodeError::NoRoom(why)) => {
                    log::debug!("column {name}: {why}");
                    Ok(Decoded::NoRoom)
                }
                Err(DecodeError::Device(error)) => Err(error),
            }
        };
        let decoded = on_thread("warpjoin-load", work).map_err(LoadError::Source)?;
        let _stop = StopOnDrop(&to_read);
        let read = async {
            let read = stored.read(pages, &to_read).await;
            to_read.end();
            read
        };
        let (read, decoded) = futures::join!(read, decoded);
        read.map_err(LoadError::Source)?;
        LoadError::of_thread(decoded)
    }

    async fn read_on_cpu(
        &self,
        columns: &[usize],
        session: &Arc<Session>,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<ReadColumn>, LoadError> {
        if columns.is_empty() {
            return Ok(vec![]);
        }
        let cores = available_parallelism().map_or(1, usize::from);
        let plan = self.scan.read(columns, cores).map_err(LoadError::Source)?;
        let schema = self.scan.schema_of(columns).map_err(LoadError::Source)?;
        let context = Arc::clone(context);
        let pump = |upload| pump_partitions(plan, context, upload);
        let table = load(session, schema, pump, self.settings.budget, 0).await?;
        split(&self.scan, columns, &table).map_err(LoadError::Device)
    }
}

/// Makes DataFusion list files again for the next query, because one has changed since it listed them.
fn forget_listings(context: &TaskContext) {
    log::warn!("a Parquet file has changed since it was listed; later queries list files again");
    if let Some(listings) = context.runtime_env().cache_manager.get_list_files_cache() {
        listings.clear();
    }
}

/// Splits columns into tables of one column, which can be evicted separately.
fn split(scan: &ParquetScan, columns: &[usize], read: &Table) -> warpjoin::Result<Vec<ReadColumn>> {
    let single = |(at, &column): (usize, &usize)| {
        let schema = scan.schema_of(&[column]).map_err(|error| warpjoin::Error::Internal(error.to_string()))?;
        let table = Table::of_columns(schema, &[(read, at)])?;
        Ok(ReadColumn { column, table: Arc::new(table), decoded_on: DecodedOn::Cpu })
    };
    columns.iter().enumerate().map(single).collect()
}
