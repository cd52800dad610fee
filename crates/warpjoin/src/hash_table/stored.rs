//! Rows that a hash table stores outside its slots: long keys and values, and all rows of a multimap.

use warpjoin_columns::{Error, Reason, Result};
use warpjoin_device::Buffer;

use super::device::TableDevice;
use super::layout::RowLayout;
use super::words::{PackedRows, Word};
use crate::exec::partition::{RowWords, WordColumn};

/// Rows of words, appended to.
#[derive(Debug, Default)]
pub(super) struct StoredRows {
    /// A buffer a word, once there are rows.
    words: Vec<Buffer>,
    pub rows: u64,
    capacity_rows: u64,
}

impl StoredRows {
    pub(super) fn bytes(&self) -> u64 {
        self.words.iter().map(Buffer::bytes).sum()
    }

    pub(super) fn words(&self) -> &[Buffer] {
        &self.words
    }

    pub(super) fn row_words<'a>(&'a self, layout: &RowLayout, seed: u64) -> RowWords<'a> {
        let column = |(word, buffer): (usize, &'a Buffer)| WordColumn {
            buffer: Some(buffer),
            is_wide: layout.is_wide(word),
            bias: 0,
        };
        let columns = self.words.iter().enumerate().map(column).collect();
        RowWords { columns, key_masks: vec![u64::MAX; layout.key_words], seed, validity: None }
    }

    /// Appends rows that were packed into buffers of their own.
    pub(super) fn append(&mut self, device: &TableDevice, layout: &RowLayout, rows: &PackedRows) -> Result<()> {
        let total = self.rows + rows.rows;
        if total >= u64::from(u32::MAX) {
            return Err(Reason::Limit(format!("{total} rows in a hash table")).into());
        }
        if total > self.capacity_rows || self.words.is_empty() {
            self.grow(device, layout, total.max(self.capacity_rows * 2))?;
        }
        for (word, target) in self.words.iter().enumerate() {
            let source = rows.plain(word).ok_or_else(|| Error::internal("rows to be stored are not packed"))?;
            let width = u64::from(layout.word_bytes[word]);
            device.stream.copy((source, 0), (target, self.rows * width), rows.rows * width)?;
        }
        self.rows = total;
        Ok(())
    }

    /// Room for `rows` rows.
    fn grow(&mut self, device: &TableDevice, layout: &RowLayout, rows: u64) -> Result<()> {
        let mut words = vec![];
        for (word, &width) in layout.word_bytes.iter().enumerate() {
            let buffer = device.alloc(rows * u64::from(width))?;
            if let Some(old) = self.words.get(word) {
                device.stream.copy((old, 0), (&buffer, 0), self.rows * u64::from(width))?;
            }
            words.push(buffer);
        }
        self.words = words;
        self.capacity_rows = rows;
        Ok(())
    }

    /// The `rows` rows whose numbers are in `chosen`, in that order.
    pub(super) fn kept(&self, device: &TableDevice, layout: &RowLayout, chosen: &Buffer, rows: u64) -> Result<Self> {
        let mut words = vec![];
        for (word, buffer) in self.words.iter().enumerate() {
            words.push(device.gather(chosen, rows, buffer, self.rows, layout.is_wide(word))?);
        }
        Ok(Self { words, rows, capacity_rows: rows })
    }

    /// All rows.
    pub(super) fn copies(&self, device: &TableDevice, layout: &RowLayout) -> Result<Vec<Word>> {
        let mut words = vec![];
        for (word, &width) in layout.word_bytes.iter().enumerate() {
            let bytes = self.rows * u64::from(width);
            let copy = device.alloc(bytes)?;
            if let Some(buffer) = self.words.get(word) {
                device.stream.copy((buffer, 0), (&copy, 0), bytes)?;
            }
            words.push(Word::new(copy, layout.is_wide(word)));
        }
        Ok(words)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
