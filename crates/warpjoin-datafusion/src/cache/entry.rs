//! The cached columns of some files.
//!
//! Must not know which columns are evicted, and why.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use warpjoin::{Session, Table};
use warpjoin_device::MemoryPlace;
use warpjoin_device::sync::{self, Mutex, MutexGuard};

use super::row_groups::Pruned;
use super::source::ScanKey;

/// Maximum tables kept for one entry, so that queries which read the same columns get the same table.
const TABLES_MAX: usize = 1024;

/// Time until columns that did not fit are tried again: other tables may have left the devices.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The cached columns of some files.
pub(crate) struct Entry {
    pub(super) key: ScanKey,
    /// Held while columns are read, so that each is read once.
    pub(crate) reading: tokio::sync::Mutex<()>,
    columns: Mutex<Columns>,
    /// Bytes read so far for row groups of the files, when not all of them were read.
    read_of_parts: AtomicU64,
    /// The session whose devices hold the columns: all columns of a table lie on the same devices.
    home: Mutex<Option<Weak<Session>>>,
    /// Row groups that filters leave, so that footers need not be read for each query.
    pruned: Mutex<Vec<(PrunedFor, Option<Pruned>)>>,
}

/// The inputs that determine the pruned row groups of some files.
#[derive(Debug)]
pub(crate) struct PrunedFor {
    pub(crate) filter: Arc<dyn PhysicalExpr>,
    /// The columns of the scan.
    pub(crate) columns: Vec<usize>,
    /// Columns among these that are not cached in whole.
    pub(crate) missing: Vec<usize>,
}

impl PrunedFor {
    fn is(&self, other: &Self) -> bool {
        // Words would not do: a string may look like an expression.
        self.columns == other.columns && self.missing == other.missing && *self.filter == *other.filter
    }
}

/// Maximum filters whose row groups are remembered.
const FILTERS_MAX: usize = 64;

#[derive(Default)]
struct Columns {
    cached: Vec<CachedColumn>,
    /// Columns that did not fit when they were read together, and when that was.
    refused: Vec<(Vec<usize>, Instant)>,
    /// Tables of some of the columns, by position, in the order of their last use.
    tables: Vec<(Vec<usize>, Arc<Table>)>,
}

/// A column that was read, as a table by itself.
#[derive(Clone)]
pub(crate) struct ReadColumn {
    pub(crate) column: usize,
    pub(crate) table: Arc<Table>,
    pub(crate) decoded_on: DecodedOn,
}

/// Where the pages of a column were decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodedOn {
    Device,
    Cpu,
}

struct CachedColumn {
    read: ReadColumn,
    last_use: u64,
}

/// Information about a cached column.
pub(crate) struct CachedColumnInfo {
    /// The file, or the folder of several.
    pub(crate) location: String,
    pub(crate) files: usize,
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) rows: u64,
    /// Bytes on all devices together.
    pub(crate) bytes: u64,
    /// Bytes in host memory.
    pub(crate) host_bytes: u64,
    /// A number that is larger for later uses.
    pub(crate) last_use: u64,
    pub(crate) decoded_on: DecodedOn,
}

impl Entry {
    pub(super) fn of(key: &ScanKey) -> Self {
        Self {
            key: key.clone(),
            reading: tokio::sync::Mutex::default(),
            columns: Mutex::default(),
            read_of_parts: AtomicU64::new(0),
            home: Mutex::default(),
            pruned: Mutex::default(),
        }
    }

    /// The session that columns are read to; `choose` decides if none are cached.
    pub(crate) fn home<E>(&self, choose: impl FnOnce() -> Result<Arc<Session>, E>) -> Result<Arc<Session>, E> {
        let mut home = sync::locked(&self.home);
        if !self.is_empty()
            && let Some(home) = home.as_ref().and_then(Weak::upgrade)
        {
            return Ok(home);
        }
        let chosen = choose()?;
        *home = Some(Arc::downgrade(&chosen));
        Ok(chosen)
    }

    /// Adds columns, unless others have added them meanwhile.
    pub(super) fn add(&self, columns: Vec<ReadColumn>, last_use: u64) {
        let mut locked = self.locked();
        for read in columns {
            if !locked.cached.iter().any(|it| it.read.column == read.column) {
                locked.cached.push(CachedColumn { read, last_use });
            }
        }
    }

    /// A column, if it is cached.
    pub(super) fn read(&self, column: usize) -> Option<ReadColumn> {
        self.locked().cached.iter().map(|it| &it.read).find(|read| read.column == column).cloned()
    }

    /// Columns among these that lie in host memory.
    pub(super) fn on_host(&self, columns: &[usize]) -> Vec<ReadColumn> {
        let is_on_host = |read: &&ReadColumn| columns.contains(&read.column) && read.table.host_bytes() > 0;
        self.locked().cached.iter().map(|it| &it.read).filter(is_on_host).cloned().collect()
    }

    /// Bytes of all columns: on all devices together, and in the host's memory.
    pub(super) fn bytes(&self) -> [u64; 2] {
        let locked = self.locked();
        let tables = || locked.cached.iter().map(|it| &it.read.table);
        [tables().map(|table| table.resident_bytes()).sum(), tables().map(|table| table.host_bytes()).sum()]
    }

    /// Whether no columns are cached.
    pub(super) fn is_empty(&self) -> bool {
        self.locked().cached.is_empty()
    }

    /// Allows columns that did not fit to be tried again.
    pub(super) fn forget_refused(&self) {
        self.locked().refused.clear();
    }

    /// The columns that are cached.
    pub(super) fn cached(&self) -> Vec<usize> {
        self.locked().cached.iter().map(|it| it.read.column).collect()
    }

    /// The columns, of those asked for, that are not cached; each once.
    pub(crate) fn missing(&self, columns: &[usize]) -> Vec<usize> {
        let locked = self.locked();
        let is_cached = |column: usize| locked.cached.iter().any(|it| it.read.column == column);
        let mut missing: Vec<usize> = columns.iter().copied().filter(|&column| !is_cached(column)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// What a filter is known to leave.
    pub(crate) fn pruned(&self, of: &PrunedFor) -> Option<Option<Pruned>> {
        sync::locked(&self.pruned).iter().find(|(known, _)| known.is(of)).map(|(_, pruned)| pruned.clone())
    }

    /// Remembers what a filter leaves.
    pub(crate) fn remember_pruned(&self, of: PrunedFor, pruned: Option<Pruned>) {
        let mut known = sync::locked(&self.pruned);
        known.push((of, pruned));
        let excess = known.len().saturating_sub(FILTERS_MAX);
        known.drain(..excess);
    }

    /// Whether to read `bytes` of some row groups instead of all `whole_bytes`. Parts are read until they together have
    /// cost as much as the whole, so that the total cost is at most twice the whole.
    pub(crate) fn prefers_part(&self, bytes: u64, whole_bytes: u64) -> bool {
        let read = self.read_of_parts.load(Ordering::Relaxed);
        let is_preferred = bytes <= whole_bytes / 2 && read.saturating_add(bytes) <= whole_bytes;
        if is_preferred {
            self.read_of_parts.fetch_add(bytes, Ordering::Relaxed);
        }
        is_preferred
    }

    /// Remembers for a while that these columns do not fit, so that queries do not try them again.
    pub(crate) fn refuse(&self, columns: Vec<usize>) {
        self.locked().refused.push((columns, Instant::now()));
    }

    /// Whether columns among these were refused lately, because they did not fit.
    pub(super) fn is_refused(&self, columns: &[usize]) -> bool {
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
            known.find(|it| it.column == *column).map(|it| (&*it.table, 0))
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

    pub(super) fn columns(&self) -> Vec<CachedColumnInfo> {
        let info = |column: &CachedColumn| {
            let field = self.key.schema().field(column.read.column);
            CachedColumnInfo {
                location: self.key.location(),
                files: self.key.files(),
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                rows: column.read.table.rows(),
                bytes: column.read.table.resident_bytes(),
                host_bytes: column.read.table.host_bytes(),
                last_use: column.last_use,
                decoded_on: column.read.decoded_on,
            }
        };
        self.locked().cached.iter().map(info).collect()
    }

    /// The last use of each column that lies on the devices, or in the host's memory.
    pub(super) fn uses(&self, place: MemoryPlace) -> Vec<(u64, usize)> {
        let is_there = |it: &&CachedColumn| bytes_in(&it.read.table, place) > 0;
        self.locked().cached.iter().filter(is_there).map(|it| (it.last_use, it.read.column)).collect()
    }

    /// The tables that have a column, or all.
    pub(super) fn tables_with(&self, column: Option<usize>) -> Vec<Weak<Table>> {
        let locked = self.locked();
        let has_it = |of: &[usize]| column.is_none_or(|column| of.contains(&column));
        locked.tables.iter().filter(|(of, _)| has_it(of)).map(|(_, table)| Arc::downgrade(table)).collect()
    }

    /// Removes a column, with the tables that have it, unless a query or a plan uses one of them.
    pub(super) fn take(&self, column: usize) -> Option<(ReadColumn, Vec<Arc<Table>>)> {
        let mut locked = self.locked();
        let has_it = |(of, _): &(Vec<usize>, Arc<Table>)| of.contains(&column);
        if locked.tables.iter().filter(|table| has_it(table)).any(|(_, table)| Arc::strong_count(table) > 1) {
            return None;
        }
        let at = locked.cached.iter().position(|it| it.read.column == column)?;
        let (with_it, others) = std::mem::take(&mut locked.tables).into_iter().partition(has_it);
        let with_it: Vec<(Vec<usize>, Arc<Table>)> = with_it;
        locked.tables = others;
        Some((locked.cached.swap_remove(at).read, with_it.into_iter().map(|(_, table)| table).collect()))
    }

    fn locked(&self) -> MutexGuard<'_, Columns> {
        sync::locked(&self.columns)
    }
}

/// Bytes of a table in this place, for all devices together.
pub(super) fn bytes_in(table: &Table, place: MemoryPlace) -> u64 {
    match place {
        MemoryPlace::Device => table.resident_bytes(),
        MemoryPlace::Host => table.host_bytes(),
    }
}
