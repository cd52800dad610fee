//! The columns of Parquet files that are on the devices of one session.
//!
//! Owns which columns stay. Must not know how they are read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};
use warpjoin::{Session, Table};
use warpjoin_device::MemoryCache;
use warpjoin_device::sync::{self, Mutex, MutexGuard};

use super::source::{ParquetScan, ScanKey};

/// Tables that are kept of the columns of one entry, so that queries which read the same columns get the same table.
const TABLES_MAX: usize = 64;

/// Time until columns that did not fit are read again: other tables may have left the devices.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Cached columns, by files.
#[derive(Default)]
pub(crate) struct ColumnCache {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Counts uses.
    clock: AtomicU64,
}

/// The cached columns of some files.
pub(crate) struct Entry {
    key: ScanKey,
    /// Held by whoever reads columns, so that each is read once.
    pub(crate) reading: tokio::sync::Mutex<()>,
    columns: Mutex<Columns>,
}

#[derive(Default)]
struct Columns {
    cached: Vec<CachedColumn>,
    /// Columns that did not fit when they were read together, and when that was.
    refused: Vec<(Vec<usize>, Instant)>,
    /// Tables of some of the columns, by position, in the order of their last use.
    tables: Vec<(Vec<usize>, Arc<Table>)>,
}

/// A column that was read, as a table by itself.
pub(crate) struct ReadColumn {
    pub(crate) column: usize,
    pub(crate) table: Table,
    pub(crate) decoded_on: DecodedOn,
}

/// What decoded the pages of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodedOn {
    Device,
    Cpu,
}

struct CachedColumn {
    read: ReadColumn,
    last_use: u64,
}

/// What is known of a cached column.
pub(crate) struct CachedColumnInfo {
    /// The file, or the folder of several.
    pub(crate) location: String,
    pub(crate) files: usize,
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) rows: u64,
    /// On all devices together.
    pub(crate) bytes: u64,
    /// A number that is larger for later uses.
    pub(crate) last_use: u64,
    pub(crate) decoded_on: DecodedOn,
}

impl ColumnCache {
    /// A cache on the devices of a session, which ask it for memory before an allocation fails.
    pub(crate) fn on(session: &Session) -> Arc<Self> {
        let cache = Arc::new(Self::default());
        for device in session.devices() {
            let weak: Weak<Self> = Arc::downgrade(&cache);
            device.memory().add_cache(weak);
        }
        cache
    }

    /// The table of a scan's columns, with its schema; `None` unless all of them are cached, and the files are as they were
    /// listed.
    pub(crate) fn table(&self, scan: &ParquetScan, schema: &SchemaRef) -> Option<Arc<Table>> {
        let entry = self.find(&scan.key)?;
        if !scan.is_current() {
            self.remove(&entry);
            return None;
        }
        entry.table(&scan.columns, schema, &[], self.now())
    }

    /// Whether to read the missing columns of a scan: they are expected to fit `limit_bytes` on all devices together, and did
    /// not fail to fit before.
    pub(crate) fn accepts(&self, scan: &ParquetScan, limit_bytes: u64) -> bool {
        let entry = self.find(&scan.key);
        let missing = entry.as_ref().map_or_else(|| scan.columns.clone(), |entry| entry.missing(&scan.columns));
        // Columns are narrowed, usually to less than half.
        scan.estimated_bytes(&missing) / 2 <= limit_bytes && !entry.is_some_and(|entry| entry.is_refused(&missing))
    }

    /// The table of a scan's columns, of which `read` has those that are not cached.
    pub(crate) fn table_with(
        &self,
        entry: &Entry,
        scan: &ParquetScan,
        schema: &SchemaRef,
        read: &[ReadColumn],
    ) -> Option<Arc<Table>> {
        entry.table(&scan.columns, schema, read, self.now())
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
        let entry =
            Arc::new(Entry { key: key.clone(), reading: tokio::sync::Mutex::default(), columns: Mutex::default() });
        // Files that have changed are not asked for again.
        entries.retain(|known| !known.key.is_replaced_by(key));
        entries.push(Arc::clone(&entry));
        entry
    }

    /// Adds columns that were read. Afterwards, the columns used longest ago leave until all together
    /// have at most `limit_bytes`, as far as no query uses them.
    pub(crate) fn add(&self, entry: &Entry, columns: Vec<ReadColumn>, limit_bytes: u64) {
        let last_use = self.now();
        let columns = columns.into_iter().map(|read| CachedColumn { read, last_use });
        entry.locked().cached.extend(columns);
        let excess = self.bytes().saturating_sub(limit_bytes);
        if excess > 0 {
            self.give_back(excess);
        }
    }

    /// All cached columns.
    pub(crate) fn columns(&self) -> Vec<CachedColumnInfo> {
        let entries = self.locked().clone();
        entries.iter().flat_map(|entry| entry.columns()).collect()
    }

    /// Forgets the columns of these files, and returns them. Queries that use them keep their memory until they end.
    pub(crate) fn forget(&self, key: &ScanKey) -> Vec<CachedColumnInfo> {
        let Some(entry) = self.find(key) else { return vec![] };
        self.remove(&entry);
        entry.columns()
    }

    /// Bytes of all columns, on all devices together.
    pub(crate) fn bytes(&self) -> u64 {
        let entries = self.locked().clone();
        entries
            .iter()
            .map(|entry| entry.locked().cached.iter().map(|it| it.read.table.resident_bytes()).sum::<u64>())
            .sum()
    }

    /// Frees all columns that no query uses.
    pub(crate) fn clear(&self) {
        self.give_back(u64::MAX);
        self.locked().iter().for_each(|entry| entry.locked().refused.clear());
    }

    /// Forgets files; queries that use their columns keep them.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        self.locked().retain(|known| !Arc::ptr_eq(known, entry));
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

impl Entry {
    /// The columns, of those asked for, that are not cached; each once.
    pub(crate) fn missing(&self, columns: &[usize]) -> Vec<usize> {
        let locked = self.locked();
        let is_cached = |column: usize| locked.cached.iter().any(|it| it.read.column == column);
        let mut missing: Vec<usize> = columns.iter().copied().filter(|&column| !is_cached(column)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Remembers for a while that these columns do not fit, so that queries do not read them in vain.
    pub(crate) fn refuse(&self, columns: Vec<usize>) {
        self.locked().refused.push((columns, Instant::now()));
    }

    /// Whether columns among these did not fit a while ago.
    fn is_refused(&self, columns: &[usize]) -> bool {
        let mut locked = self.locked();
        locked.refused.retain(|(_, at)| at.elapsed() < REFUSED_FOR);
        locked.refused.iter().any(|(refused, _)| refused.iter().all(|column| columns.contains(column)))
    }

    /// The table of these columns; `None` unless all are cached or among those that were just read.
    pub(super) fn table(
        &self,
        columns: &[usize],
        schema: &SchemaRef,
        read: &[ReadColumn],
        now: u64,
    ) -> Option<Arc<Table>> {
        let mut locked = self.locked();
        let Columns { cached, tables, refused: _ } = &mut *locked;
        for column in &mut *cached {
            if columns.contains(&column.read.column) {
                column.last_use = now;
            }
        }
        if let Some(at) = tables.iter().position(|(of, table)| of == columns && table.schema() == *schema) {
            let latest = tables.remove(at);
            let table = Arc::clone(&latest.1);
            tables.push(latest);
            return Some(table);
        }
        let find = |column: &usize| {
            let mut known = cached.iter().map(|cached| &cached.read).chain(read);
            known.find(|it| it.column == *column).map(|it| (&it.table, 0))
        };
        let found = columns.iter().map(find).collect::<Option<Vec<_>>>()?;
        let table = Table::of_columns(Arc::clone(schema), &found);
        let table = table.inspect_err(|error| log::warn!("cached columns do not fit together: {error}")).ok()?;
        let table = Arc::new(table);
        if read.is_empty() {
            tables.push((columns.to_vec(), Arc::clone(&table)));
            let excess = tables.len().saturating_sub(TABLES_MAX);
            tables.drain(..excess);
        }
        Some(table)
    }

    fn columns(&self) -> Vec<CachedColumnInfo> {
        let info = |column: &CachedColumn| {
            let field = self.key.schema().field(column.read.column);
            CachedColumnInfo {
                location: self.key.location(),
                files: self.key.files(),
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                rows: column.read.table.rows(),
                bytes: column.read.table.resident_bytes(),
                last_use: column.last_use,
                decoded_on: column.read.decoded_on,
            }
        };
        self.locked().cached.iter().map(info).collect()
    }

    /// The last use of each column.
    fn uses(&self) -> Vec<(u64, usize)> {
        self.locked().cached.iter().map(|it| (it.last_use, it.read.column)).collect()
    }

    /// Takes a column out, with the tables that have it, unless a query or a plan uses one of them.
    fn take(&self, column: usize) -> Option<(CachedColumn, Vec<Arc<Table>>)> {
        let mut locked = self.locked();
        let has_it = |(of, _): &(Vec<usize>, Arc<Table>)| of.contains(&column);
        if locked.tables.iter().filter(|table| has_it(table)).any(|(_, table)| Arc::strong_count(table) > 1) {
            return None;
        }
        let at = locked.cached.iter().position(|it| it.read.column == column)?;
        let (with_it, others) = std::mem::take(&mut locked.tables).into_iter().partition(has_it);
        let with_it: Vec<(Vec<usize>, Arc<Table>)> = with_it;
        locked.tables = others;
        Some((locked.cached.swap_remove(at), with_it.into_iter().map(|(_, table)| table).collect()))
    }

    fn locked(&self) -> MutexGuard<'_, Columns> {
        sync::locked(&self.columns)
    }
}

impl MemoryCache for ColumnCache {
    fn give_back(&self, bytes: u64) -> bool {
        let entries = self.locked().clone();
        let mut uses: Vec<(u64, usize, &Arc<Entry>)> = entries
            .iter()
            .flat_map(|entry| entry.uses().into_iter().map(move |(last_use, column)| (last_use, column, entry)))
            .collect();
        uses.sort_unstable_by_key(|(last_use, column, _)| (*last_use, *column));
        let mut freed_bytes = 0;
        let mut frees_any = false;
        for (_, column, entry) in uses {
            if frees_any && freed_bytes >= bytes {
                break;
            }
            if let Some((column, _tables)) = entry.take(column) {
                freed_bytes += column.read.table.resident_bytes();
                frees_any = true;
            }
        }
        frees_any
    }
}

impl fmt::Debug for ColumnCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnCache({} bytes)", self.bytes())
    }
}
