//! Rows as columns of words.

use warpjoin_device::{Buffer, Ptr};
use warpjoin_kernels::{padded, partition};

/// A word of each row: 4 or 8 bytes of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordColumn<'a> {
    pub buffer: Option<&'a Buffer>,
    pub is_wide: bool,
    /// Added to the stored value, modulo 2^bits of the word.
    pub bias: u64,
}

/// Rows of words, those of the key first.
#[derive(Debug, Clone)]
pub(crate) struct RowWords<'a> {
    pub columns: Vec<WordColumn<'a>>,
    /// Bits of each key word that belong to the key.
    pub key_masks: Vec<u64>,
    pub seed: u64,
    /// One bit for each row: whether it counts. `None`: all rows count.
    pub validity: Option<&'a Buffer>,
}

impl<'a> RowWords<'a> {
    /// As kernels take them.
    pub(crate) fn params(&self) -> partition::RowWords<'a, Buffer> {
        let columns = || self.columns.iter();
        partition::RowWords {
            columns: padded(columns().map(|column| column.buffer.map(Ptr::of)), None),
            is_wide: padded(columns().map(|column| column.is_wide), false),
            biases: padded(columns().map(|column| column.bias), 0),
            key_masks: padded(self.key_masks.iter().copied(), 0),
            key_words: self.key_masks.len() as u64,
            words: self.columns.len() as u64,
            seed: self.seed,
            validity: self.validity.map(Ptr::of),
        }
    }
}
