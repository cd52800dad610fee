//! Insertion of rows into a hash table, one by one or by a segmented build, and rebuilding of the table.

use warpjoin_codegen::SlotForm;
use warpjoin_columns::{Error, Result, Table};
use warpjoin_plan::optimize::costs::is_held;

use super::buckets::{Buckets, Existing};
use super::partitioned::ByHash;
use super::segments::Segments;
use super::slots::bucket_shape;
use super::words::{PackMode, PackedRows};
use super::{Parts, State, TableKind};
use crate::exec::partition::{RowWords, WordColumn};

/// Minimum rows for a segmented build of an empty table.
const BUILD_ROWS_MIN: u64 = 1 << 16;
/// The same if tests ask for small segments.
const BUILD_ROWS_MIN_TEST: u64 = 32;
/// Maximum capacity per row for a segmented build, which writes the whole table.
const BUILT_CAPACITY_MAX: u64 = 32;
/// Maximum tries with other seeds and more room before a full table is an error.
pub(super) const TRIES_MAX: u32 = 16;
/// Tries with other seeds before more room.
const SEEDS: u32 = 2;
/// Tries with segments (the first one with bins) before a build with a single segment, which only fails if the table is
/// full.
const SEGMENTED_TRIES: u32 = 4;

/// Whether a table has segments that a block can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Segments,
    One,
}

impl Cut {
    pub(super) fn of(attempt: u32) -> Self {
        if attempt < SEGMENTED_TRIES { Self::Segments } else { Self::One }
    }
}

/// The seed of try `attempt`: another hash function for each retry.
pub(super) fn seed_of(seed: u64, attempt: u32) -> u64 {
    if attempt == 0 { seed } else { seed.wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15)) }
}

impl Parts<'_> {
    /// Keys that buckets hold at the load factor.
    pub(super) fn capacity_of(&self, buckets: &Buckets) -> u64 {
        (buckets.slot_count() as f64 * self.options.load_factor + 1e-6) as u64
    }

    /// Buckets with room for `capacity` keys. Their content is undefined unless cleared.
    pub(super) fn empty(
        &self,
        form: SlotForm,
        (capacity, cut): (u64, Cut),
        seed: u64,
        is_cleared: bool,
    ) -> Result<Buckets> {
        let options = self.options;
        let slots = capacity as f64 / options.load_factor;
        let l2_bytes = self.device.stream.device().info().l2_bytes;
        let is_cached = is_held(slots * f64::from(form.slot_bytes()), l2_bytes as f64);
        let shape =
            bucket_shape(form, options.bucket_bytes, options.probe_group_lanes, options.load_factor, is_cached)?;
        let load_factor = options.load_factor;
        // Only rows that lie in the slots are built by segment.
        let is_cut = cut == Cut::Segments && !form.holds_rows() && self.kind != TableKind::Multimap;
        let bounds = (is_cut, options.segment_bytes_max);
        let segments = Segments::new(self.device, form, shape, capacity, load_factor, bounds);
        Buckets::new(self.device, form, shape, segments, (seed, options.hash_bits), is_cleared)
    }

    /// Inserts rows whose keys and values are stored in the slots.
    pub(super) fn insert_narrow(&self, state: &mut State, rows: &Table, existing: Existing) -> Result<u64> {
        let mut packed = self.device.pack(self.layout, rows, PackMode::Rows)?;
        if state.keys == 0 && self.is_built(&state.buckets, packed.rows) {
            if packed.row_words(0).validity.is_some() {
                packed = self.device.pack(self.layout, rows, PackMode::Compact)?;
            }
            if let Some(built) = self.build(state, &packed)? {
                return Ok(built);
            }
        }
        let mut added = 0;
        for attempt in 0..TRIES_MAX {
            let needed = state.keys + packed.rows;
            if attempt > 0 || needed > self.capacity_of(&state.buckets) {
                self.grow(state, needed, attempt)?;
            }
            let words = packed.row_words(state.buckets.seed);
            let report =
                state.buckets.insert(self.device, &words, (0, packed.rows), (existing, state.keys == 0), None)?;
            added += report.rows;
            state.keys += report.rows;
            if !report.is_full {
                return Ok(added);
            }
        }
        Err(Error::kernel_bound("a hash table is still full after the last retry"))
    }

    /// Whether `rows` rows are enough for a segmented build of an empty table.
    fn is_built(&self, buckets: &Buckets, rows: u64) -> bool {
        if self.options.segment_bytes_max.is_some() {
            return rows >= BUILD_ROWS_MIN_TEST;
        }
        rows >= BUILD_ROWS_MIN && rows >= self.capacity_of(buckets) / BUILT_CAPACITY_MAX
    }

    /// Fills an empty table by a segmented build. `None` if that is not possible.
    fn build(&self, state: &mut State, packed: &PackedRows) -> Result<Option<u64>> {
        let words = packed.row_words(state.buckets.seed);
        let capacity = self.capacity_of(&state.buckets).max(packed.rows);
        let Some((buckets, keys)) =
            self.build_buckets(state.buckets.form, &words, packed.rows, capacity, state.buckets.seed)?
        else {
            return Ok(None);
        };
        state.buckets = buckets;
        state.keys = keys;
        Ok(Some(keys))
    }

    /// New buckets with all rows, and the number of keys. `None` if the rows can't be partitioned into that many
    /// segments, or a segment stays full.
    fn build_buckets(
        &self,
        form: SlotForm,
        rows: &RowWords<'_>,
        count: u64,
        capacity: u64,
        seed: u64,
    ) -> Result<Option<(Buckets, u64)>> {
        let mut capacity = capacity;
        for attempt in 0..SEGMENTED_TRIES {
            let seed = seed_of(seed, attempt);
            let rows = RowWords { seed, ..rows.clone() };
            let buckets = self.empty(form, (capacity, Cut::Segments), seed, false)?;
            let bits = buckets.segments.bits;
            let by = ByHash { bits, hash_bits: self.options.hash_bits, notes_places: false };
            // Bins first: they save counting. If they overflow (many rows of a key), retries partition without gaps.
            let bins = if attempt == 0 { self.device.partition_into_bins(&rows, count, by)? } else { None };
            let Some(partitioned) = (match bins {
                Some(bins) => Some(bins),
                None => self.device.partition(&rows, count, by)?,
            }) else {
                return Ok(None);
            };
            let report = buckets.build(self.device, &partitioned)?;
            if !report.is_full {
                return Ok(Some((buckets, report.rows)));
            }
            log::debug!("{count} keys: one of 2^{bits} segments is full, in try {attempt}");
            if attempt + 1 >= SEEDS {
                capacity += capacity / 4 + 1;
            }
        }
        Ok(None)
    }

    /// Inserts rows that are stored outside the slots.
    pub(super) fn insert_stored(&self, state: &mut State, rows: &Table, existing: Existing) -> Result<u64> {
        let packed = self.device.pack(self.layout, rows, PackMode::Compact)?;
        let count = packed.rows;
        if state.keys + count > self.capacity_of(&state.buckets) {
            self.grow(state, state.keys + count, 0)?;
        }
        // Rows that were replaced or erased are dropped when they are half of all.
        if state.stored.rows > 2 * (state.keys + count) {
            self.rebuild(state, (self.capacity_of(&state.buckets), Cut::Segments), state.buckets.seed)?;
        }
        let mut added = 0;
        for attempt in 0..TRIES_MAX {
            if attempt > 0 {
                self.grow(state, state.keys + count, attempt)?;
            }
            let first = state.stored.rows;
            state.stored.append(self.device, self.layout, &packed)?;
            let words = state.stored.row_words(self.layout, state.buckets.seed);
            let report = state.buckets.insert(self.device, &words, (first, count), (existing, false), None)?;
            added += report.rows;
            state.keys += report.rows;
            if !report.is_full {
                return Ok(added);
            }
        }
        Err(Error::kernel_bound("a hash table is still full after the last retry"))
    }

    /// Grows the table to at least twice its capacity; retries use another hash function.
    fn grow(&self, state: &mut State, keys: u64, attempt: u32) -> Result<()> {
        let capacity = self.capacity_of(&state.buckets);
        let capacity = if state.keys == 0 && attempt == 0 { keys } else { keys.max(capacity * 2) };
        self.rebuild(state, (capacity, Cut::of(attempt)), seed_of(state.buckets.seed, attempt))
    }

    /// Rebuilds the table with room for `capacity` keys. On failure the table is unchanged.
    pub(super) fn rebuild(&self, state: &mut State, (capacity, cut): (u64, Cut), seed: u64) -> Result<()> {
        if self.kind == TableKind::Multimap {
            self.drop_erased(state)?;
            return self.make_index(state, capacity, seed);
        }
        let form = state.buckets.form;
        if state.keys == 0 {
            state.buckets = self.empty(form, (capacity, cut), seed, true)?;
            state.stored.clear();
            return Ok(());
        }
        let (keys, values) = state.buckets.export(self.device, state.keys)?;
        let Some(keys) = keys else { return self.rebuild_stored(state, &values, capacity, seed) };
        let mut columns = vec![WordColumn { buffer: Some(&keys), is_wide: form.key_bytes == 8, bias: 0 }];
        if form.value_bytes > 0 {
            columns.push(WordColumn { buffer: Some(&values), is_wide: form.value_bytes == 8, bias: 0 });
        }
        let words = RowWords { columns, key_masks: vec![u64::MAX], seed, validity: None };
        if cut == Cut::Segments
            && let Some((buckets, _)) = self.build_buckets(form, &words, state.keys, capacity, seed)?
        {
            state.buckets = buckets;
            return Ok(());
        }
        let mut capacity = capacity;
        for attempt in 0..TRIES_MAX {
            let seed = seed_of(seed, attempt);
            let buckets = self.empty(form, (capacity, Cut::One), seed, true)?;
            let words = RowWords { seed, ..words.clone() };
            let report = buckets.insert(self.device, &words, (0, state.keys), (Existing::Keep, true), None)?;
            if !report.is_full {
                state.buckets = buckets;
                return Ok(());
            }
            capacity += capacity / 4 + 1;
        }
        Err(Error::kernel_bound("a hash table is still full after the last retry"))
    }

    /// The same for stored rows: keeps only those that slots refer to, whose numbers are in `chosen`.
    fn rebuild_stored(
        &self,
        state: &mut State,
        chosen: &warpjoin_device::Buffer,
        capacity: u64,
        seed: u64,
    ) -> Result<()> {
        let kept = state.stored.kept(self.device, self.layout, chosen, state.keys)?;
        let mut capacity = capacity;
        for attempt in 0..TRIES_MAX {
            let seed = seed_of(seed, attempt);
            let buckets = self.empty(state.buckets.form, (capacity, Cut::One), seed, true)?;
            let words = kept.row_words(self.layout, seed);
            let report = buckets.insert(self.device, &words, (0, state.keys), (Existing::Keep, true), None)?;
            if !report.is_full {
                state.buckets = buckets;
                state.stored = kept;
                return Ok(());
            }
            capacity += capacity / 4 + 1;
        }
        Err(Error::kernel_bound("a hash table is still full after the last retry"))
    }
}
