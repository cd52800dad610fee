//! Hash tables on a device, for those who want the table and not a join: maps, multimaps and sets of Arrow rows.
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

use crate::codegen::SlotForm;
use crate::devices::waits::Waits;
use crate::{Error, Result, Session, Table};
use buckets::{Buckets, Existing};
use device::TableDevice;
use fill::Cut;
use index::Index;
use layout::RowLayout;
use lists::Lists;
use stored::StoredRows;
use words::PackMode;

/// What a hash table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// One row a key.
    Map,
    /// Any number of rows a key.
    Multimap,
    /// Keys alone.
    Set,
}

/// Settings of a hash table. The default chooses everything by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct HashTableOptions {
    /// Share of the slots that may be filled, from 0.05 to 0.95.
    pub load_factor: f64,
    /// Keys to make room for.
    pub capacity: u64,
    /// Lanes that look at a bucket together: 1, 2, 4, 8, 16 or 32. `None`: by the cost model.
    pub probe_group_lanes: Option<u32>,
    /// Bytes of a bucket: a power of two from 16 to 1024. `None`: by the cost model.
    pub bucket_bytes: Option<u32>,
    /// Of the hash function.
    pub seed: u64,
    /// Bits of a hash that are kept, so that tests meet collisions.
    pub hash_bits: u32,
    /// Largest segment that is built in shared memory, so that tests meet many.
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
/// Keys of 4 and 8 bytes lie in the slots, and a value of as much beside its key; longer rows are stored by
/// themselves, and slots point at them. Slots form buckets that one access reads; see `kernels/table/buckets.cuh`.
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

/// What stays as it is while the table lives.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    kind: TableKind,
    layout: &'a RowLayout,
    options: &'a HashTableOptions,
    device: &'a TableDevice,
}

/// What an operation may change.
#[derive(Debug)]
struct State {
    buckets: Buckets,
    /// Keys in the buckets; of a multimap those that have or had rows.
    keys: u64,
    stored: StoredRows,
    /// Of a multimap.
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
        let form = SlotForm::of(&layout, kind == TableKind::Multimap);
        let parts = Parts { kind, layout: &layout, options: &options, device: &device };
        let buckets = parts.empty(form, (options.capacity, Cut::Segments), options.seed, true)?;
        device.stream.synchronize()?;
        let state = State { buckets, keys: 0, stored: StoredRows::default(), index: Index::default() };
        Ok(Self { kind, schema, layout, options, device, state: Mutex::new(state), device_ns: AtomicU64::new(0) })
    }

    /// A table of the rows of `table`. Of rows with the same key a map keeps one, any of them.
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

    /// What the table holds.
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Names and types of its columns, those of the key first.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Rows: keys of a map or set, all rows of a multimap.
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

    /// Bytes of a bucket and lanes that look at it together.
    pub fn bucket_shape(&self) -> (u32, u32) {
        let shape = self.state().buckets.shape;
        (shape.bytes, shape.lanes)
    }

    /// Device time of the last operation, from its first to its last event.
    pub fn last_device_ns(&self) -> u64 {
        self.device_ns.load(Ordering::Relaxed)
    }

    /// Inserts rows: `table` has the columns of the schema, by name. A key that is there keeps its row in a map. Gives the
    /// number of rows (for maps and sets: of new keys) that came in. The table grows as needed.
    ///
    /// # Errors
    /// When a column is missing or of another type, or there is no memory; rows may then be in the table in part.
    pub fn insert(&mut self, table: &Table) -> Result<u64> {
        self.insert_as(table, Existing::Keep)
    }

    /// As [`Self::insert`], but keys that are there get the new values; of several rows with the same key in `table` one wins,
    /// any of them. A multimap has no values to replace.
    ///
    /// # Errors
    /// As [`Self::insert`], and for multimaps.
    pub fn insert_or_assign(&mut self, table: &Table) -> Result<u64> {
        if self.kind == TableKind::Multimap {
            return Err(Error::InvalidArgument("a multimap keeps all rows: erase the key, then insert".into()));
        }
        self.insert_as(table, Existing::Assign)
    }

    /// Takes rows out: all with a key among those of `keys`, which has the key columns by name. Gives their
    /// number. Slots are free at once.
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

    /// Takes all rows out, and keeps the memory of the slots.
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

    /// Makes room for `keys` keys.
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

    /// Makes the table anew with another hash function.
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

    /// As [`Self::change`]; queries too may bring the index of a multimap up to date.
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
