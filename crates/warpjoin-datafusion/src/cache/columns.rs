//! The cached columns of Parquet files, on the devices of one session or in host memory.
//!
//! Owns which columns stay, and where. Must not know how they are read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use warpjoin::{Cause, MemoryBudget, MovedBytes, Session, Table};
use warpjoin_device::sync::{self, Mutex, MutexGuard};
use warpjoin_device::{MemoryCache, MemoryPlace};

use super::entry::{CachedColumnInfo, Entry, ReadColumn, bytes_in};
use super::source::{ParquetScan, ScanKey};
use crate::config::CacheLimits;

/// Maximum entries for parts of files. Each filter may have its own.
const PARTS_MAX: usize = 64;
/// Columns come back from the host only if a quarter of a device's budget stays free.
const RESERVED_DIVISOR: u64 = 4;
/// Minimum time that columns evicted for an allocation stay in host memory: moving them costs as much as reading them
/// there once or twice.
const STAYS: Duration = Duration::from_secs(10);

/// A holder of tables of cached columns that no query uses.
pub(crate) trait TableHolder: Send + Sync {
    /// Drops everything that holds one of these tables.
    fn let_go(&self, tables: &[Weak<Table>]);
}

/// Cached columns, by files.
#[derive(Default)]
pub(crate) struct ColumnCache {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Counts uses.
    clock: AtomicU64,
    /// Limit of host memory for evicted columns; the field after it limits all use of host memory.
    host_limit_bytes: AtomicU64,
    host_budget_bytes: AtomicU64,
    /// When columns were last evicted for an allocation.
    made_room: Mutex<Option<Instant>>,
    holder: Option<Weak<dyn TableHolder>>,
}

impl ColumnCache {
    /// A cache on the devices of a session, which ask it to free memory before an allocation fails. `holder` may hold
    /// its tables.
    pub(crate) fn on(session: &Session, holder: Weak<dyn TableHolder>) -> Arc<Self> {
        let cache = Arc::new(Self { holder: Some(holder), ..Self::default() });
        for device in session.devices() {
            let weak: Weak<Self> = Arc::downgrade(&cache);
            device.memory().add_cache(weak);
        }
        cache
    }

    /// The table of a scan's columns, with its schema; `None` unless all of them are cached, and the files have not
    /// changed since they were listed.
    pub(crate) fn table(&self, scan: &ParquetScan, schema: &SchemaRef) -> Option<Arc<Table>> {
        let entry = self.find(&scan.key)?;
        if !scan.is_current() {
            self.remove(&entry);
            return None;
        }
        entry.table(&scan.columns, schema, &[], self.now())
    }

    /// As [`Self::table`], for planning: `None` if columns should come back to the devices first, when the plan runs.
    pub(crate) fn resident(&self, scan: &ParquetScan, schema: &SchemaRef, limits: CacheLimits) -> Option<Arc<Table>> {
        if self.has_room_for(scan, limits) { None } else { self.table(scan, schema) }
    }

    /// Whether to read the missing columns of a scan: they are expected to fit the limits, and were not refused lately.
    pub(crate) fn accepts(&self, scan: &ParquetScan, limits: CacheLimits) -> bool {
        let entry = self.find(&scan.key);
        let missing = entry.as_ref().map_or_else(|| scan.columns.clone(), |entry| entry.missing(&scan.columns));
        // Columns are narrowed, usually to less than half.
        scan.estimated_bytes(&missing) / 2 <= limits.bytes() && !entry.is_some_and(|entry| entry.is_refused(&missing))
    }

    /// The table of a scan's columns; `read` has the columns that are not cached.
    pub(crate) fn table_with(
        &self,
        entry: &Entry,
        scan: &ParquetScan,
        schema: &SchemaRef,
        read: &[ReadColumn],
    ) -> Option<Arc<Table>> {
        entry.table(&scan.columns, schema, read, self.now())
    }

    /// Whether no columns are cached.
    pub(crate) fn is_empty(&self) -> bool {
        self.locked().iter().all(|entry| entry.is_empty())
    }

    /// The number of a scan's columns that are cached.
    pub(crate) fn cached_columns(&self, scan: &ParquetScan) -> usize {
        let Some(entry) = self.find(&scan.key) else { return 0 };
        scan.columns.len() - entry.missing(&scan.columns).len()
    }

    /// The entry of a scan's files, made if there is none.
    pub(crate) fn entry(&self, key: &ScanKey) -> Arc<Entry> {
        let mut entries = self.locked();
        if let Some(entry) = entries.iter().find(|entry| entry.key == *key) {
            return Arc::clone(entry);
        }
        let entry = Arc::new(Entry::of(key));
        // Files that have changed are not asked for again.
        let mut gone: Vec<_> = entries.extract_if(.., |known| known.key.is_replaced_by(key)).collect();
        if key.is_part() {
            let mut excess = (entries.iter().filter(|known| known.key.is_part()).count() + 1).saturating_sub(PARTS_MAX);
            gone.extend(entries.extract_if(.., |known| {
                let is_gone = excess > 0 && known.key.is_part();
                excess -= usize::from(is_gone);
                is_gone
            }));
        }
        entries.push(Arc::clone(&entry));
        drop(entries);
        gone.iter().for_each(|gone| self.let_go(&gone.tables_with(None)));
        entry
    }

    /// Adds columns that were read. Then evicts the least recently used columns from the devices to host memory until
    /// the limit is met, except those that queries use. Columns in host memory are evicted in the same way.
    pub(crate) fn add(&self, entry: &Entry, columns: Vec<ReadColumn>, limits: CacheLimits) {
        self.host_limit_bytes.store(limits.host_bytes, Ordering::Relaxed);
        self.host_budget_bytes.store(limits.host_budget_bytes, Ordering::Relaxed);
        entry.add(columns, self.now());
        if !entry.key.is_part() {
            self.remove_if(|known| known.key.is_part_of(&entry.key) && entry.missing(&known.cached()).is_empty());
        }
        for (place, limit_bytes) in [(MemoryPlace::Device, limits.device_bytes), (MemoryPlace::Host, limits.host_bytes)]
        {
            let excess = self.bytes(place).saturating_sub(limit_bytes);
            if excess > 0 {
                self.leave(place, excess, true);
            }
        }
    }

    /// Whether columns of a scan lie in host memory although the devices have room for them.
    pub(crate) fn has_room_for(&self, scan: &ParquetScan, limits: CacheLimits) -> bool {
        let Some(entry) = self.find(&scan.key) else { return false };
        entry.on_host(&scan.columns).iter().any(|read| self.has_room(&read.table, limits))
    }

    /// Brings columns of a scan back to the devices, as far as these have room. A query that reads them from the host
    /// transfers as many bytes.
    ///
    /// # Errors
    /// When a device fails.
    pub(crate) fn bring_back(&self, scan: &ParquetScan, limits: CacheLimits) -> warpjoin::Result<()> {
        let Some(entry) = self.find(&scan.key) else { return Ok(()) };
        for read in entry.on_host(&scan.columns) {
            if self.has_room(&read.table, limits) {
                match read.table.move_to(MemoryPlace::Device, MemoryBudget::OF_DEVICES) {
                    Err(error) if error.cause() != Cause::OutOfMemory => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Whether the devices have room for the host-resident columns of a table, besides the room that queries need.
    fn has_room(&self, table: &Table, limits: CacheLimits) -> bool {
        if sync::locked(&self.made_room).is_some_and(|made| made.elapsed() < STAYS) {
            return false;
        }
        let (bytes, devices) = (table.host_bytes(), table.devices().devices());
        let has_room = |memory: &warpjoin_device::MemoryPool| {
            let limit_bytes = memory.limit_bytes().min(limits.device_budget_bytes);
            let wanted = bytes / devices.len().max(1) as u64 + limit_bytes / RESERVED_DIVISOR;
            limit_bytes.saturating_sub(memory.used_bytes()) >= wanted
        };
        self.bytes(MemoryPlace::Device).saturating_add(bytes) <= limits.device_bytes
            && devices.iter().all(|device| has_room(device.memory()))
    }

    /// Evicts the least recently used columns from the devices or from host memory, until `bytes` are freed or will be.
    /// With `keeps_some`, columns on devices move to host memory while it has room, even if a query uses them. Other
    /// columns are dropped, unless a query uses them. Returns whether any memory has been freed already.
    fn leave(&self, place: MemoryPlace, bytes: u64, keeps_some: bool) -> bool {
        let entries = self.locked().clone();
        let mut uses: Vec<(u64, usize, &Arc<Entry>)> = entries
            .iter()
            .flat_map(|entry| entry.uses(place).into_iter().map(move |(last_use, column)| (last_use, column, entry)))
            .collect();
        uses.sort_unstable_by_key(|(last_use, column, _)| (*last_use, *column));
        let mut left = MovedBytes::default();
        for (_, column, entry) in uses {
            if left.freed + left.in_use >= bytes && left != MovedBytes::default() {
                break;
            }
            let moved = match entry.read(column) {
                Some(read) if keeps_some && place == MemoryPlace::Device => self.move_to_host(&read.table),
                _ => None,
            };
            let moved = moved.or_else(|| {
                let (taken, _tables) = self.take(entry, column)?;
                Some(MovedBytes { freed: bytes_in(&taken.table, place), in_use: 0 })
            });
            if let Some(moved) = moved {
                left = left + moved;
            }
        }
        left.freed > 0
    }

    /// Removes a column from an entry, unless a query uses it.
    fn take(&self, entry: &Entry, column: usize) -> Option<(ReadColumn, Vec<Arc<Table>>)> {
        entry.take(column).or_else(|| {
            self.let_go(&entry.tables_with(Some(column)));
            entry.take(column)
        })
    }

    /// Asks the holder to drop these tables.
    fn let_go(&self, tables: &[Weak<Table>]) {
        if let Some(holder) = self.holder.as_ref().and_then(Weak::upgrade) {
            holder.let_go(tables);
        }
    }

    /// Moves a column to host memory; `None` if there is no room.
    fn move_to_host(&self, table: &Table) -> Option<MovedBytes> {
        let limit_bytes = self.host_limit_bytes.load(Ordering::Relaxed);
        if self.bytes(MemoryPlace::Host).saturating_add(table.resident_bytes()) > limit_bytes {
            return None;
        }
        let host_bytes = self.host_budget_bytes.load(Ordering::Relaxed);
        let budget = MemoryBudget { host_bytes, ..MemoryBudget::OF_DEVICES };
        let moved = table.move_to(MemoryPlace::Host, budget);
        moved.inspect_err(|error| log::debug!("a column leaves the cache: {error}")).ok()
    }

    /// All cached columns.
    pub(crate) fn columns(&self) -> Vec<CachedColumnInfo> {
        let entries = self.locked().clone();
        entries.iter().flat_map(|entry| entry.columns()).collect()
    }

    /// Drops the columns of these files, and returns them. Queries that use them keep their memory until they end.
    pub(crate) fn forget(&self, key: &ScanKey) -> Vec<CachedColumnInfo> {
        self.remove_if(|known| known.key.is_part_of(key));
        let Some(entry) = self.find(key) else { return vec![] };
        self.remove(&entry);
        entry.columns()
    }

    /// Bytes of all columns: on all devices together, or in host memory.
    pub(crate) fn bytes(&self, place: MemoryPlace) -> u64 {
        let entries = self.locked().clone();
        let of = |[on_devices, on_host]: [u64; 2]| if place == MemoryPlace::Device { on_devices } else { on_host };
        entries.iter().map(|entry| of(entry.bytes())).sum()
    }

    /// Frees all columns that no query uses.
    pub(crate) fn clear(&self) {
        self.leave(MemoryPlace::Device, u64::MAX, false);
        self.leave(MemoryPlace::Host, u64::MAX, false);
        self.locked().iter().for_each(|entry| entry.forget_refused());
    }

    /// Drops the entry of some files; queries that use their columns keep them.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        self.remove_if(|known| Arc::ptr_eq(known, entry));
    }

    fn remove_if(&self, is_gone: impl Fn(&Arc<Entry>) -> bool) {
        let gone: Vec<_> = self.locked().extract_if(.., |known| is_gone(known)).collect();
        gone.iter().for_each(|gone| self.let_go(&gone.tables_with(None)));
    }

    fn find(&self, key: &ScanKey) -> Option<Arc<Entry>> {
        self.locked().iter().find(|entry| entry.key == *key).cloned()
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        sync::locked(&self.entries)
    }
}

impl MemoryCache for ColumnCache {
    fn give_back(&self, bytes: u64) -> bool {
        let has_left = self.leave(MemoryPlace::Device, bytes, true);
        if has_left {
            *sync::locked(&self.made_room) = Some(Instant::now());
        }
        has_left
    }
}

impl fmt::Debug for ColumnCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnCache({} bytes)", self.bytes(MemoryPlace::Device))
    }
}
