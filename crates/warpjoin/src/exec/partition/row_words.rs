//! Rows as columns of words, as kernels take them: the arguments of `RowWords` in `partition/words.cuh`.

use warpjoin_device::{Arg, Buffer};

use crate::codegen::ROW_WORDS_MAX;

/// A word of each row: 4 or 8 bytes of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordColumn<'a> {
    pub buffer: Option<&'a Buffer>,
    pub is_wide: bool,
    /// Added to what is stored, modulo the size of the word.
    pub bias: u64,
}

/// Rows of words, those of the key first.
#[derive(Debug, Clone)]
pub(crate) struct RowWords<'a> {
    pub columns: Vec<WordColumn<'a>>,
    /// Bits of each key word that belong to the key.
    pub key_masks: Vec<u64>,
    pub seed: u64,
    /// A bit a row: rows that count.
    pub validity: Option<&'a Buffer>,
}

impl<'a> RowWords<'a> {
    /// The fields of the kernel's struct, in order.
    pub(crate) fn args(&self) -> Vec<Arg<'a>> {
        let mut args = vec![];
        let mut pad = |of: &dyn Fn(&WordColumn<'a>) -> Arg<'a>| {
            args.extend((0..ROW_WORDS_MAX).map(|index| self.columns.get(index).map_or(Arg::Null, of)));
        };
        pad(&|column| Arg::or_null(column.buffer));
        pad(&|column| Arg::U64(column.is_wide.into()));
        pad(&|column| Arg::U64(column.bias));
        args.extend((0..ROW_WORDS_MAX).map(|index| Arg::U64(self.key_masks.get(index).copied().unwrap_or(0))));
        args.extend([Arg::U64(self.key_masks.len() as u64), Arg::U64(self.columns.len() as u64), Arg::U64(self.seed)]);
        args.push(Arg::or_null(self.validity));
        args
    }
}
