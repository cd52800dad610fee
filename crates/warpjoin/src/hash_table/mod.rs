//! Hash tables on a device, for use without a join: maps, multimaps and sets of Arrow rows.
//!
//! Owns the tables of the Arrow-native API: their rows as words (`layout`, `words`), slots and buckets
//! (`slots`, `segments`, `buckets`), rows in their order (`partitioned`), rows beside them (`stored`, `lists`). Must not know plans.
//!
//! Architecture invariant: words depend on declared types only, so that rows of every table of the same schema
//! have the same words.
//!
//! Architecture invariant: an operation ends with a wait, so that the caller's tables may go.

mod buckets;
mod device;
mod fill;
mod index;
mod layout;
mod lists;
mod lookup;
mod partitioned;
mod segments;
mod slots;
mod stored;
mod words;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::SchemaRef;
use warpjoin_columns::devices::waits::Waits;
use warpjoin_columns::{Error, Result, Table};

use crate::Session;
use buckets::{Buckets, Existing};
use device::TableDevice;
use fill::Cut;
use index::Index;
use layout::RowLayout;
use lists::Lists;
use slots::slot_form;
use stored::StoredRows;
use words::PackMode;

/// What a hash table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// One row for each key.
    Map,
    /// Any number of rows for each key.
    Multimap,
    /// Keys without values.
    Set,
}

/// Settings of a hash table. The default chooses everything by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct HashTableOptions {
    /// Share of the slots that may be filled, from 0.05 to 0.95.
    pub load_factor: f64,
    /// Keys to make room for.
    pub capacity: u64,
    /// Lanes that probe a bucket together: 1, 2, 4, 8, 16 or 32. `None`: by the cost model.
    pub probe_group_lanes: Option<u32>,
    /// Bytes of a bucket: a power of two from 16 to 1024. `None`: by the cost model.
    pub bucket_bytes: Option<u32>,
    /// Seed of the hash function.
    pub seed: u64,
    /// Bits of a hash that are kept; fewer bits force collisions in tests.
    pub hash_bits: u32,
    /// Maximum bytes of a segment that is built in shared memory; small values force many segments in tests.
    pub segment_bytes_max: Option<u32>,
}

impl Default for HashTableOptions {
    fn default() -> Self {
        Self {
            load_factor: 0.5,
            capacity: 0,
            probe_group_lanes: None,
            bucket_bytes: None,
            seed: 0,
            hash_bits: 64,
            segment_bytes_max: None,
        }
    }
}

/// A hash table of Arrow rows on the device of a session: a map, a multimap or a set.
///
/// The first columns of its schema are the key, the others the value. Keys and values are those of the declared
/// types: integers, booleans, dates, times, decimals and floats (with one zero and one not-a-number as
/// keys); strings are declined. A null key is never in the table: rows with one are left out when they are inserted, and
/// not found. Values may be null where their field is nullable.
///
/// Keys and values of 4 and 8 bytes are stored in the slots; longer rows are stored separately, and slots refer to
/// them. Slots form buckets that one access reads; see `kernels/table/buckets.cuh`.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow::array::{AsArray, Int32Array, RecordBatch};
/// # use arrow::datatypes::{DataType, Field, Int32Type, Schema};
/// # use warpjoin::hash_table::{HashTable, HashTableOptions, TableKind};
/// # use warpjoin::{Session, TableBuilder};
/// # use warpjoin_device::{SimOptions, open_simulated};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let session = Session::new(open_simulated(&SimOptions::default())?)?;
/// # let table = |columns: Vec<(&str, Vec<i32>)>| -> Result<_, Box<dyn std::error::Error>> {
/// #     let schema = Arc::new(Schema::new(
/// #         columns.iter().map(|(name, _)| Field::new(*name, DataType::Int32, false)).collect::<Vec<_>>()));
/// #     let mut builder = TableBuilder::new(session.device_set(), schema.clone());
/// #     let arrays = columns.into_iter().map(|(_, values)| Arc::new(Int32Array::from(values)) as _).collect();
/// #     builder.push(&RecordBatch::try_new(schema, arrays)?)?;
/// #     Ok(builder.finish()?)
/// # };
/// let prices = table(vec![("item", vec![7, 8, 9]), ("price", vec![70, 80, 90])])?;
/// let map = HashTable::build(&session, TableKind::Map, &prices, 1, HashTableOptions::default())?;
/// let found = map.find(&table(vec![("item", vec![9, 1, 7])])?)?;
/// let batch = &found.download(&[0], 1024)?[0];
/// let price = batch.column(0).as_primitive::<Int32Type>();
/// assert_eq!(price.iter().collect::<Vec<_>>(), [Some(90), None, Some(70)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HashTable {
    kind: TableKind,
    schema: SchemaRef,
    layout: RowLayout,
    options: HashTableOptions,
    device: TableDevice,
    state: Mutex<State>,
    device_ns: AtomicU64,
}

/// The immutable parts of a table.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    kind: TableKind,
    layout: &'a RowLayout,
    options: &'a HashTableOptions,
    device: &'a TableDevice,
}

/// The mutable state of a table.
#[derive(Debug)]
struct State {
    buckets: Buckets,
    /// Keys in the buckets; for a multimap, keys that have or had rows.
    keys: u64,
    stored: StoredRows,
    /// The row lists of a multimap.
    index: Index,
}

impl State {
    /// Rows of a multimap.
    fn rows(&self) -> u64 {
        self.stored.rows - self.index.erased
    }
}

impl HashTable {
    /// An empty table of rows of `schema`, whose first `keys` columns are the key. A set has no others.
    ///
    /// # Errors
    /// When the session has several devices, a type can't be in a hash table, options contradict
    /// each other, or there is no memory.
    pub fn new(
        session: &Arc<Session>,
        kind: TableKind,
        schema: SchemaRef,
        keys: usize,
        options: HashTableOptions,
    ) -> Result<Self> {
        if kind == TableKind::Set && keys != schema.fields().len() {
            return Err(Error::InvalidArgument("a set has key columns only".into()));
        }
        if !(0.05..=0.95).contains(&options.load_factor) {
            return Err(Error::InvalidArgument(format!("load factor {}: take 0.05 to 0.95", options.load_factor)));
        }
        let layout = RowLayout::of(&schema, keys)?;
        let device = TableDevice::new(session)?;
        let form = slot_form(&layout, kind == TableKind::Multimap);
        let parts = Parts { kind, layout: &layout, options: &options, device: &device };
        let buckets = parts.empty(form, (options.capacity, Cut::Segments), options.seed, true)?;
        device.stream.synchronize()?;
        let state = State { buckets, keys: 0, stored: StoredRows::default(), index: Index::default() };
        Ok(Self { kind, schema, layout, options, device, state: Mutex::new(state), device_ns: AtomicU64::new(0) })
    }

    /// A table of the rows of `table`. A map keeps any one of the rows with the same key.
    ///
    /// # Errors
    /// As [`Self::new`] and [`Self::insert`].
    pub fn build(
        session: &Arc<Session>,
        kind: TableKind,
        table: &Table,
        keys: usize,
        options: HashTableOptions,
    ) -> Result<Self> {
        let mut built = Self::new(session, kind, table.schema(), keys, options)?;
        built.insert(table)?;
        Ok(built)
    }

    /// Whether the table is a map, a multimap or a set.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Names and types of its columns, those of the key first.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Number of rows: the keys of a map or set, all rows of a multimap.
    pub fn len(&self) -> u64 {
        let state = self.state();
        if self.kind == TableKind::Multimap { state.rows() } else { state.keys }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys that it holds before it grows.
    pub fn capacity(&self) -> u64 {
        self.parts().capacity_of(&self.state().buckets)
    }

    /// Device memory that it holds.
    pub fn resident_bytes(&self) -> u64 {
        let state = self.state();
        state.buckets.bytes() + state.stored.bytes() + state.index.lists.as_ref().map_or(0, Lists::bytes)
    }

    /// Bytes of a bucket, and the lanes that probe it together.
    pub fn bucket_shape(&self) -> (u32, u32) {
        let shape = self.state().buckets.shape;
        (shape.bytes, shape.lanes)
    }

    /// Device time of the last operation, from its first to its last event.
    pub fn last_device_ns(&self) -> u64 {
        self.device_ns.load(Ordering::Relaxed)
    }

    /// Inserts rows: `table` has the columns of the schema, by name. In a map, an existing key keeps its row. Returns
    /// the number of rows added (for maps and sets, of new keys). The table grows as needed.
    ///
    /// # Errors
    /// When a column is missing or of another type, or there is no memory; rows may then be in the table in part.
    pub fn insert(&mut self, table: &Table) -> Result<u64> {
        self.insert_as(table, Existing::Keep)
    }

    /// As [`Self::insert`], but existing keys get the new values. If `table` has several rows with the same key, any
    /// one of them wins. A multimap has no values to replace.
    ///
    /// # Errors
    /// As [`Self::insert`], and for multimaps.
    pub fn insert_or_assign(&mut self, table: &Table) -> Result<u64> {
        if self.kind == TableKind::Multimap {
            return Err(Error::InvalidArgument("a multimap keeps all rows: erase the key, then insert".into()));
        }
        self.insert_as(table, Existing::Assign)
    }

    /// Removes all rows whose key is in `keys`, which has the key columns by name. Returns their number. Their slots
    /// are reusable at once.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn erase(&mut self, keys: &Table) -> Result<u64> {
        self.change(|table, state| {
            let wanted = table.device.pack(table.layout, keys, PackMode::Keys)?;
            if table.kind == TableKind::Multimap {
                table.erase_lists(state, &wanted)
            } else {
                let seed = state.buckets.seed;
                let stored = state.stored.row_words(table.layout, seed);
                let erased = state.buckets.erase(table.device, &wanted.row_words(seed), &stored, wanted.rows)?;
                state.keys -= erased;
                Ok(erased)
            }
        })
    }

    /// Removes all rows, and keeps the memory of the slots.
    ///
    /// # Errors
    /// When the device fails.
    pub fn clear(&mut self) -> Result<()> {
        self.change(|table, state| {
            state.buckets.clear(table.device)?;
            state.stored.clear();
            state.index = Index::default();
            state.keys = 0;
            Ok(())
        })
    }

    /// Reserves room for `keys` keys.
    ///
    /// # Errors
    /// When there is no memory; the table is then as it was.
    pub fn reserve(&mut self, keys: u64) -> Result<()> {
        self.change(|table, state| {
            if keys <= table.capacity_of(&state.buckets) {
                return Ok(());
            }
            table.rebuild(state, (keys, Cut::Segments), state.buckets.seed)
        })
    }

    /// Rebuilds the table with another hash function.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn rehash(&mut self, seed: u64) -> Result<()> {
        self.change(|table, state| table.rebuild(state, (table.capacity_of(&state.buckets), Cut::Segments), seed))
    }

    fn insert_as(&mut self, rows: &Table, existing: Existing) -> Result<u64> {
        self.change(|table, state| match (table.kind, state.buckets.form.holds_rows()) {
            (TableKind::Multimap, _) => table.append(state, rows),
            (_, true) => table.insert_stored(state, rows, existing),
            (_, false) => table.insert_narrow(state, rows, existing),
        })
    }

    /// Runs an operation, waits for it and notes its time.
    fn change<T>(&mut self, operation: impl FnOnce(&Parts<'_>, &mut State) -> Result<T>) -> Result<T> {
        self.timed(operation)
    }

    /// As [`Self::change`], for lookups, which may still update the index of a multimap.
    fn timed<T>(&self, operation: impl FnOnce(&Parts<'_>, &mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state();
        let stream = &self.device.stream;
        let begun = stream.record()?;
        // Whatever happens, a panic included: nothing may still run when the caller's buffers go.
        let mut waits = Waits::of(std::slice::from_ref(stream));
        let outcome = operation(&self.parts(), &mut state);
        let ended = self.device.work_done();
        let synchronized = waits.end();
        let result = outcome?;
        synchronized?;
        self.device_ns.store(ended?.elapsed_ns(&begun)?, Ordering::Relaxed);
        Ok(result)
    }

    fn parts(&self) -> Parts<'_> {
        Parts { kind: self.kind, layout: &self.layout, options: &self.options, device: &self.device }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
