//! Lookups in a hash table: values, presence, counts or all rows of keys, in the order of the keys or in any order.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_codegen::SlotForm;
use warpjoin_columns::column::{ColumnType, Domain};
use warpjoin_columns::table::ShardColumn;
use warpjoin_columns::{Error, Result, Table};
use warpjoin_device::{Buffer, Cause};

use super::buckets::{FindOutputs, ProbedKeys};
use super::device::Report;
use super::lists::{Matches, counts_of_bits, matches_of_bits};
use super::partitioned::{ByHash, probe_bits, restored_bits};
use super::words::{PackMode, PackedRows, UnpackedColumn, Word};
use super::{HashTable, Parts, State, TableKind};

/// Load factor up to which few keys find their home bucket full.
const LOW_LOAD_FACTOR: f64 = 0.7;
/// Name of the column of row numbers in [`HashTable::retrieve`].
const ROW_COLUMN: &str = "row";

impl HashTable {
    /// The values of keys (the key columns of `keys`, by name), in the order of the keys: the value columns, null for a
    /// missing key. For maps.
    ///
    /// # Errors
    /// For multimaps and sets; when a column is missing or of another type, or there is no memory.
    pub fn find(&self, keys: &Table) -> Result<Table> {
        if self.kind != TableKind::Map {
            return Err(Error::InvalidArgument(match self.kind {
                TableKind::Set => "a set has no values: ask whether it contains keys".into(),
                _ => "a key of a multimap has several rows: retrieve them".into(),
            }));
        }
        self.timed(|table, state| {
            let wanted = table.device.pack(table.layout, keys, PackMode::Keys)?;
            let bits = table.device.alloc_bits(wanted.rows)?;
            let (words, hits) = table.find_words(state, &wanted, &bits)?;
            let fields = table.layout.part(false);
            let columns = table.device.unpack(table.layout, fields, words, Some((&bits, hits)), wanted.rows)?;
            table.device.table(fields.iter().map(|field| field.field.name().clone()).collect(), columns, wanted.rows)
        })
    }

    /// Whether keys exist: one column `found` (Boolean, no nulls), in the order of the keys.
    ///
    /// # Errors
    /// When a column is missing or of another type, or there is no memory.
    pub fn contains(&self, keys: &Table) -> Result<Table> {
        self.timed(|table, state| {
            let wanted = table.device.pack(table.layout, keys, PackMode::Keys)?;
            let bytes = table.device.alloc(wanted.rows)?;
            if table.kind == TableKind::Multimap {
                table.flag_rows(state, &wanted, &bytes)?;
            } else {
                table.find_bits(state, &wanted, &FindOutputs { bytes: Some(&bytes), ..FindOutputs::default() })?;
            }
            let column = column(DataType::Boolean, 0, 1, bytes);
            table.device.table(vec!["found".into()], vec![column], wanted.rows)
        })
    }

    /// Number of rows of each key: one column `count` (Int64, no nulls), in the order of the keys.
    ///
    /// # Errors
    /// As [`Self::contains`].
    pub fn count(&self, keys: &Table) -> Result<Table> {
        self.timed(|table, state| {
            let wanted = table.device.pack(table.layout, keys, PackMode::Keys)?;
            let counts = table.row_counts(state, &wanted)?;
            let column = column(DataType::Int64, 0, i64::MAX.into(), counts);
            table.device.table(vec!["count".into()], vec![column], wanted.rows)
        })
    }

    /// All rows of keys: the number of the row in `keys` (column `row`, UInt64), and the value columns. Rows are in the
    /// order of the keys; rows of the same key are in any order.
    ///
    /// # Errors
    /// As [`Self::contains`].
    pub fn retrieve(&self, keys: &Table) -> Result<Table> {
        self.timed(|table, state| {
            let wanted = table.device.pack(table.layout, keys, PackMode::Keys)?;
            let (matches, words) = table.matches(state, &wanted)?;
            let fields = table.layout.part(false);
            let mut columns = vec![column(DataType::UInt64, 0, u64::MAX.into(), matches.wanted_rows)];
            columns.extend(table.device.unpack(table.layout, fields, words, None, matches.count)?);
            let mut names = vec![ROW_COLUMN.to_string()];
            names.extend(fields.iter().map(|field| field.field.name().clone()));
            table.device.table(names, columns, matches.count)
        })
    }

    /// The rows (all columns) whose keys are in `keys`, once for each occurrence of the key, in any order. If the table
    /// is larger than the cache, the keys are partitioned first; this is the fastest lookup of many keys.
    ///
    /// # Errors
    /// As [`Self::contains`].
    pub fn probe(&self, keys: &Table) -> Result<Table> {
        self.timed(|table, state| {
            let wanted = table.device.pack(table.layout, keys, PackMode::Keys)?;
            let (words, rows) = match table.kind == TableKind::Multimap || state.buckets.form.holds_rows() {
                true => table.probe_stored(state, &wanted)?,
                false => table.probe_narrow(state, &wanted)?,
            };
            table.all_columns(words, rows)
        })
    }

    /// All rows, in any order.
    ///
    /// # Errors
    /// As [`Self::contains`].
    pub fn entries(&self) -> Result<Table> {
        self.timed(|table, state| {
            if table.kind == TableKind::Multimap {
                table.drop_erased(state)?;
                return table.all_columns(state.stored.copies(table.device, table.layout)?, state.stored.rows);
            }
            let (keys, values) = state.buckets.export(table.device, state.keys)?;
            let words = match keys {
                Some(keys) => narrow_words(state.buckets.form, keys, values),
                None => table.stored_words(state, &values, state.keys, 0)?,
            };
            table.all_columns(words, state.keys)
        })
    }
}

impl Parts<'_> {
    /// A table of all columns from all words.
    fn all_columns(&self, words: Vec<Word>, rows: u64) -> Result<Table> {
        let columns = self.device.unpack(self.layout, &self.layout.fields, words, None, rows)?;
        self.device.table(self.layout.fields.iter().map(|field| field.field.name().clone()).collect(), columns, rows)
    }

    fn find_bits(&self, state: &State, wanted: &PackedRows, outputs: &FindOutputs<'_>) -> Result<u64> {
        match self.find_in_bins(state, wanted, outputs) {
            Ok(Some(report)) if !report.is_full => return Ok(report.rows),
            // A very frequent key overflows its bin. Looked up in row order, such a key stays in the cache, and only
            // the results take memory.
            Ok(_) => {}
            Err(error) if error.cause() == Cause::OutOfMemory => {}
            Err(error) => return Err(error),
        }
        let buckets = &state.buckets;
        let stored = state.stored.row_words(self.layout, buckets.seed);
        Ok(buckets.find(self.device, &wanted.row_words(buckets.seed), &stored, wanted.rows, outputs)?.rows)
    }

    /// Looks keys up partition by partition, so that parts of the table stay in the cache; `None` if that does not pay.
    fn find_in_bins(&self, state: &State, wanted: &PackedRows, outputs: &FindOutputs<'_>) -> Result<Option<Report>> {
        let (buckets, device) = (&state.buckets, self.device);
        let bits = restored_bits(device, buckets, wanted.rows, self.options.segment_bytes_max.is_some());
        if bits == 0 {
            return Ok(None);
        }
        let by = ByHash { bits, hash_bits: self.options.hash_bits, notes_places: true };
        let keys = device.partition_into_bins(&wanted.row_words(buckets.seed), wanted.rows, by)?;
        keys.map(|keys| buckets.find_partitioned(device, &keys, wanted.rows, self.rounds(), outputs)).transpose()
    }

    /// Rounds of a block that looks up keys of a bin. Few rounds keep few bins in flight, so that their parts of the
    /// table stay in the cache; more rounds help when many keys probe further, as these wait for the end of the block.
    fn rounds(&self) -> u64 {
        if self.options.load_factor <= LOW_LOAD_FACTOR { 4 } else { 8 }
    }

    /// The words of a map's values, a bit for each key that was found, and their number.
    fn find_words(&self, state: &State, wanted: &PackedRows, bits: &Buffer) -> Result<(Vec<Word>, u64)> {
        let form = state.buckets.form;
        if form.holds_rows() {
            let numbers = self.device.alloc(wanted.rows * 8)?;
            let outputs = FindOutputs { values: Some(&numbers), bits: Some(bits), ..FindOutputs::default() };
            let hits = self.find_bits(state, wanted, &outputs)?;
            return Ok((self.stored_words(state, &numbers, wanted.rows, self.layout.key_words)?, hits));
        }
        let values =
            (form.value_bytes > 0).then(|| self.device.alloc(wanted.rows * u64::from(form.value_bytes))).transpose()?;
        let outputs = FindOutputs { values: values.as_ref(), bits: Some(bits), ..FindOutputs::default() };
        let hits = self.find_bits(state, wanted, &outputs)?;
        let mut words = vec![Word::default()];
        words.extend(values.map(|values| Word::new(values, form.value_bytes == 8)));
        Ok((words, hits))
    }

    /// The words from `first_word` on of stored rows, whose numbers are given.
    fn stored_words(&self, state: &State, numbers: &Buffer, rows: u64, first_word: usize) -> Result<Vec<Word>> {
        let mut words = vec![];
        for word in 0..self.layout.word_bytes.len() {
            let is_wide = self.layout.is_wide(word);
            words.push(match state.stored.words().get(word) {
                Some(buffer) if word >= first_word => {
                    Word::new(self.device.gather(numbers, rows, buffer, state.stored.rows, is_wide)?, is_wide)
                }
                None if word >= first_word => {
                    Word::new(self.device.alloc_zeroed(rows * if is_wide { 8 } else { 4 })?, is_wide)
                }
                _ => Word::default(),
            });
        }
        Ok(words)
    }

    /// A byte a key: whether a multimap has rows of it.
    fn flag_rows(&self, state: &mut State, wanted: &PackedRows, bytes: &Buffer) -> Result<()> {
        self.update_index(state)?;
        match &state.index.lists {
            Some(lists) => lists.flags(self.device, &self.places(state, wanted)?, wanted.rows, bytes),
            None => Ok(self.device.stream.fill(bytes, 0, bytes.bytes(), 0)?),
        }
    }

    fn row_counts(&self, state: &mut State, wanted: &PackedRows) -> Result<Buffer> {
        if self.kind == TableKind::Multimap {
            self.update_index(state)?;
            let Some(lists) = &state.index.lists else { return self.device.alloc_zeroed(wanted.rows * 8) };
            return lists.counts(self.device, &self.places(state, wanted)?, wanted.rows);
        }
        let bits = self.device.alloc_bits(wanted.rows)?;
        self.find_bits(state, wanted, &FindOutputs { bits: Some(&bits), ..FindOutputs::default() })?;
        counts_of_bits(self.device, &bits, wanted.rows)
    }

    /// The matches of keys, and the words of their values.
    fn matches(&self, state: &mut State, wanted: &PackedRows) -> Result<(Matches, Vec<Word>)> {
        if self.kind == TableKind::Multimap {
            let (matches, numbers) = self.matches_of_lists(state, wanted)?;
            let words = self.stored_words(state, &numbers, matches.count, self.layout.key_words)?;
            return Ok((matches, words));
        }
        let bits = self.device.alloc_bits(wanted.rows)?;
        let (found, _) = self.find_words(state, wanted, &bits)?;
        let matches = matches_of_bits(self.device, &bits, wanted.rows)?;
        let mut words = vec![];
        for word in found {
            words.push(match word.buffer {
                Some(buffer) => {
                    let chosen =
                        self.device.gather(&matches.wanted_rows, matches.count, &buffer, wanted.rows, word.is_wide)?;
                    Word::new(chosen, word.is_wide)
                }
                None => Word::default(),
            });
        }
        Ok((matches, words))
    }

    /// The matches of keys with a multimap, and the numbers of their stored rows.
    fn matches_of_lists(&self, state: &mut State, wanted: &PackedRows) -> Result<(Matches, Buffer)> {
        self.update_index(state)?;
        let Some(lists) = &state.index.lists else {
            let wanted_rows = self.device.alloc(0)?;
            return Ok((Matches { count: 0, wanted_rows, stored_rows: None }, self.device.alloc(0)?));
        };
        let mut matches = lists.matches(self.device, &self.places(state, wanted)?, wanted.rows)?;
        let numbers = matches.stored_rows.take().ok_or_else(|| Error::internal("matches without rows"))?;
        Ok((matches, numbers))
    }

    fn probe_stored(&self, state: &mut State, wanted: &PackedRows) -> Result<(Vec<Word>, u64)> {
        if self.kind == TableKind::Multimap {
            let (matches, numbers) = self.matches_of_lists(state, wanted)?;
            return Ok((self.stored_words(state, &numbers, matches.count, 0)?, matches.count));
        }
        let numbers = self.device.alloc(wanted.rows * 8)?;
        let bits = self.device.alloc_bits(wanted.rows)?;
        self.find_bits(
            state,
            wanted,
            &FindOutputs { values: Some(&numbers), bits: Some(&bits), ..FindOutputs::default() },
        )?;
        let matches = matches_of_bits(self.device, &bits, wanted.rows)?;
        let chosen = self.device.gather(&matches.wanted_rows, matches.count, &numbers, wanted.rows, true)?;
        Ok((self.stored_words(state, &chosen, matches.count, 0)?, matches.count))
    }

    fn probe_narrow(&self, state: &State, wanted: &PackedRows) -> Result<(Vec<Word>, u64)> {
        let (buckets, device) = (&state.buckets, self.device);
        let words = wanted.row_words(buckets.seed);
        let bits = probe_bits(device, buckets.bytes(), wanted.rows, self.options.segment_bytes_max.is_some());
        let keys = device.alloc(wanted.rows * u64::from(buckets.form.key_bytes))?;
        let values = device.alloc(wanted.rows * u64::from(buckets.form.value_bytes))?;
        let probe = |probed: &ProbedKeys<'_>| buckets.probe(device, probed, wanted.rows, &keys, &values);
        let by = ByHash { bits, hash_bits: self.options.hash_bits, notes_places: false };
        // Bins first: they save counting. A very frequent key overflows them.
        for is_binned in [true, false] {
            let partitioned = match (bits, is_binned) {
                (0, _) => None,
                (_, true) => device.partition_into_bins(&words, wanted.rows, by)?,
                (_, false) => device.partition(&words, wanted.rows, by)?,
            };
            let report = probe(&match &partitioned {
                Some(partitioned) => ProbedKeys::Partitioned(partitioned, self.rounds()),
                None => ProbedKeys::AsTheyAre(&words),
            })?;
            if !report.is_full {
                return Ok((narrow_words(buckets.form, keys, values), report.rows));
            }
        }
        Err(Error::kernel_bound("keys overflow partitions of exact size"))
    }
}

/// Keys and values of slots as words.
fn narrow_words(form: SlotForm, keys: Buffer, values: Buffer) -> Vec<Word> {
    let mut words = vec![Word::new(keys, form.key_bytes == 8)];
    if form.value_bytes > 0 {
        words.push(Word::new(values, form.value_bytes == 8));
    }
    words
}

/// A column without nulls of integers from `min` to `max`.
fn column(data_type: DataType, min: i128, max: i128, values: Buffer) -> UnpackedColumn {
    let column_type = ColumnType { data_type, has_nulls: false, domain: Domain::Int { min, max }, dictionary: None };
    let stored = ShardColumn { values: Some(Arc::new(values)), offsets: None, validity: None };
    UnpackedColumn { column_type, null_count: 0, stored }
}
