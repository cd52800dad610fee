//! The index of a multimap: which rows a key has.
//!
//! Inserting only appends rows. The next operation that needs keys updates the index, once for all rows appended since.

use warpjoin_columns::{Error, Result, Table};
use warpjoin_device::Buffer;

use super::buckets::{Existing, FindOutputs};
use super::fill::{Cut, TRIES_MAX, seed_of};
use super::lists::Lists;
use super::words::{PackMode, PackedRows};
use super::{Parts, State};

/// The row lists of a multimap, and how many rows they cover.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub lists: Option<Lists>,
    /// Stored rows that are in lists, erased ones too.
    rows: u64,
    /// Erased rows among them.
    pub erased: u64,
}

impl Parts<'_> {
    /// Appends rows to a multimap.
    pub(super) fn append(&self, state: &mut State, rows: &Table) -> Result<u64> {
        let rows = self.device.pack(self.layout, rows, PackMode::Compact)?;
        state.stored.append(self.device, self.layout, &rows)?;
        Ok(rows.rows)
    }

    /// Updates the lists.
    pub(super) fn update_index(&self, state: &mut State) -> Result<()> {
        let is_current = state.index.lists.is_some() && state.index.rows == state.stored.rows;
        if is_current || state.stored.rows == 0 {
            return Ok(());
        }
        self.drop_erased(state)?;
        let (capacity, seed) = (self.capacity_of(&state.buckets).max(state.stored.rows), state.buckets.seed);
        self.make_index(state, capacity, seed)
    }

    /// Puts all stored rows into new lists.
    pub(super) fn make_index(&self, state: &mut State, capacity: u64, seed: u64) -> Result<()> {
        let rows = state.stored.rows;
        let mut capacity = capacity;
        for attempt in 0..TRIES_MAX {
            let seed = seed_of(seed, attempt);
            if self.capacity_of(&state.buckets) >= capacity && state.buckets.seed == seed {
                state.buckets.clear(self.device)?;
            } else {
                state.buckets = self.empty(state.buckets.form, (capacity, Cut::One), seed, true)?;
            }
            state.index = Index::default();
            let places = self.device.alloc(rows * 8)?;
            let stored = state.stored.row_words(self.layout, seed);
            let report =
                state.buckets.insert(self.device, &stored, (0, rows), (Existing::Keep, false), Some(&places))?;
            if !report.is_full {
                let lists = Lists::new(self.device, &places, rows, state.buckets.slot_count() + 1)?;
                state.index = Index { lists: Some(lists), rows, erased: 0 };
                state.keys = report.rows;
                return Ok(());
            }
            capacity = capacity.max(self.capacity_of(&state.buckets)) * 5 / 4 + 1;
        }
        Err(Error::kernel_bound("a hash table is still full after the last retry"))
    }

    /// Compacts the rows that were not erased. On failure the lists still know the erased rows.
    pub(super) fn drop_erased(&self, state: &mut State) -> Result<()> {
        let Some(lists) = state.index.lists.as_ref().filter(|_| state.index.erased > 0) else { return Ok(()) };
        let indexed = state.index.rows;
        let places = self.device.alloc(indexed * 8)?;
        let outputs = FindOutputs { places: Some(&places), ..FindOutputs::default() };
        let stored = state.stored.row_words(self.layout, state.buckets.seed);
        state.buckets.find(self.device, &stored, &stored, indexed, &outputs)?;
        let (live, count) = lists.live_rows(self.device, &places, indexed, state.stored.rows)?;
        state.stored = state.stored.kept(self.device, self.layout, &live, count)?;
        state.index = Index::default();
        Ok(())
    }

    /// Removes the rows of keys.
    pub(super) fn erase_lists(&self, state: &mut State, wanted: &PackedRows) -> Result<u64> {
        self.update_index(state)?;
        let places = self.places(state, wanted)?;
        let Some(lists) = &state.index.lists else { return Ok(0) };
        let erased = lists.take(self.device, &places, wanted.rows)?;
        state.index.erased += erased;
        Ok(erased)
    }

    /// The position of each wanted key's slot.
    pub(super) fn places(&self, state: &State, wanted: &PackedRows) -> Result<Buffer> {
        let seed = state.buckets.seed;
        let places = self.device.alloc(wanted.rows * 8)?;
        let outputs = FindOutputs { places: Some(&places), ..FindOutputs::default() };
        let stored = state.stored.row_words(self.layout, seed);
        state.buckets.find(self.device, &wanted.row_words(seed), &stored, wanted.rows, &outputs)?;
        Ok(places)
    }
}
