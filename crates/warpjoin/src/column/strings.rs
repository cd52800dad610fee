//! Encoders of string columns: codes of a dictionary, or raw bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use rayon::prelude::*;

use super::bits;
use super::chunk::{self, Chunk, Number};
use super::dictionary::Dictionary;
use super::encode::{ColumnEncoder, ColumnStatistics, EncodedColumn, validity_of};
use super::interner::Interner;
use super::order::Order;
use super::types::{ColumnType, Domain, Layout};
use crate::{Error, Result};

/// Columns of strings, or of a dictionary type over strings, as codes.
pub(crate) struct DictionaryEncoder {
    value_type: DataType,
    interner: Interner,
    chunks: Vec<Chunk>,
    order: Order<u32>,
    null_count: u64,
    /// Columns of a dictionary type: the values of the last batch, and their codes so far.
    /// Batches often share their values.
    known: Option<(ArrayRef, Vec<Option<u32>>)>,
    /// Made by `seal`: the dictionary, and the final codes by the interner's.
    sealed: Option<(Dictionary, Option<Vec<u32>>)>,
}

impl DictionaryEncoder {
    pub(crate) fn new(value_type: DataType) -> Self {
        Self {
            value_type,
            interner: Interner::default(),
            chunks: vec![],
            order: Order::default(),
            null_count: 0,
            known: None,
            sealed: None,
        }
    }

    /// Codes of an array of a dictionary type. Only values that a valid row refers to get one.
    fn intern_keys(&mut self, array: &ArrayRef, validity: Option<&[u8]>, codes: &mut Vec<u32>) -> Result<()> {
        let Some(dictionary) = array.as_any_dictionary_opt() else {
            return Err(Error::internal(format!("no dictionary array: {}", array.data_type())));
        };
        let values = dictionary.values();
        let known = self.known.take().filter(|(known, _)| Arc::ptr_eq(known, values));
        let mut known = known.map_or_else(|| vec![None; values.len()], |(_, codes)| codes);
        if values.is_empty() {
            codes.resize(array.len(), 0);
            return Ok(());
        }
        for (row, key) in dictionary.normalized_keys().into_iter().enumerate() {
            let valid = validity.is_none_or(|bitmap| bits::is_set(bitmap, row));
            codes.push(match known[key] {
                _ if !valid => 0,
                Some(code) => code,
                None => *known[key].insert(self.interner.intern_one(values, key)?),
            });
        }
        self.known = Some((values.clone(), known));
        Ok(())
    }
}

impl ColumnEncoder for DictionaryEncoder {
    fn push(&mut self, array: &ArrayRef) -> Result<()> {
        let validity = validity_of(array).map(|(bitmap, nulls)| {
            self.null_count += nulls;
            self.order.break_off();
            bitmap
        });
        let mut codes = Vec::with_capacity(array.len());
        if let DataType::Dictionary(..) = array.data_type() {
            self.intern_keys(array, validity.as_deref(), &mut codes)?;
        } else {
            self.interner.intern(array, validity.as_deref(), &mut codes)?;
        }
        self.order.offer_with(&codes, |a, b| self.interner.get(a) < self.interner.get(b));
        let domain = u32::domain(u32::bounds(&codes, validity.as_deref()));
        self.chunks.push(Chunk::new(&codes, validity, domain));
        Ok(())
    }

    fn seal(&mut self) -> Result<()> {
        let interner = std::mem::take(&mut self.interner);
        self.sealed = Some(Dictionary::of_interner(&interner, &self.value_type)?);
        Ok(())
    }

    fn finish(mut self: Box<Self>, data_type: DataType) -> Result<EncodedColumn> {
        let (dictionary, codes) = self.sealed.take().ok_or_else(|| Error::internal("a column was not sealed"))?;
        let distinct = dictionary.len() as u64;
        let domain = Domain::Int { min: 0, max: i128::from(distinct.saturating_sub(1)) };
        let joined = chunk::join(self.chunks, Layout::of(domain), codes.as_deref());
        let has_nulls = joined.validity.is_some();
        let unique = !has_nulls && distinct == joined.rows as u64;
        Ok(EncodedColumn {
            column_type: ColumnType { data_type, has_nulls, domain, dictionary: Some(Arc::new(dictionary)) },
            rows: joined.rows,
            values: joined.values,
            offsets: None,
            validity: joined.validity,
            statistics: ColumnStatistics {
                null_count: self.null_count,
                distinct: Some(distinct),
                sorted: self.order.sorted,
                unique: unique.then_some(true),
            },
        })
    }
}

/// Columns of strings as offsets and bytes. Null rows have no bytes.
#[derive(Default)]
pub(crate) struct RawEncoder {
    chunks: Vec<RawChunk>,
    null_count: u64,
    sorted: bool,
    strict: bool,
    last: Option<Vec<u8>>,
}

struct RawChunk {
    bytes: Vec<u8>,
    /// Where each string ends in `bytes`.
    ends: Vec<u64>,
    validity: Option<Vec<u8>>,
}

impl RawChunk {
    fn new<'a>(rows: impl Iterator<Item = Option<&'a str>>, validity: Option<Vec<u8>>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(rows.size_hint().0));
        for text in rows {
            bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
            ends.push(bytes.len() as u64);
        }
        bytes.shrink_to_fit();
        Self { bytes, ends, validity }
    }

    fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start as usize..*end as usize])
    }
}

impl RawEncoder {
    fn offer(&mut self, chunk: &RawChunk) {
        let first = self.chunks.is_empty();
        self.sorted = (first || self.sorted) && chunk.validity.is_none();
        self.strict = (first || self.strict) && self.sorted;
        if !self.sorted {
            return;
        }
        let mut last = self.last.as_deref();
        for text in chunk.strings() {
            let order = last.map_or(std::cmp::Ordering::Less, |last| last.cmp(text));
            self.sorted &= order.is_le();
            self.strict &= order.is_lt();
            if !self.sorted {
                break;
            }
            last = Some(text);
        }
        self.last = last.map(<[u8]>::to_vec);
    }
}

impl ColumnEncoder for RawEncoder {
    fn push(&mut self, array: &ArrayRef) -> Result<()> {
        let validity = validity_of(array).map(|(bitmap, nulls)| {
            self.null_count += nulls;
            bitmap
        });
        let chunk = match array.data_type() {
            DataType::Utf8 => RawChunk::new(array.as_string::<i32>().iter(), validity),
            DataType::LargeUtf8 => RawChunk::new(array.as_string::<i64>().iter(), validity),
            _ => RawChunk::new(array.as_string_view().iter(), validity),
        };
        self.offer(&chunk);
        self.chunks.push(chunk);
        Ok(())
    }

    fn finish(self: Box<Self>, data_type: DataType) -> Result<EncodedColumn> {
        let rows = self.chunks.iter().map(|chunk| chunk.ends.len()).sum();
        let has_nulls = self.chunks.iter().any(|chunk| chunk.validity.is_some());
        let parts = self.chunks.iter().map(|chunk| (chunk.validity.as_deref(), chunk.ends.len()));
        let validity = has_nulls.then(|| bits::join(parts, rows));
        let empty = self.chunks.is_empty();
        let (values, offsets) = join_raw(self.chunks, rows);
        Ok(EncodedColumn {
            column_type: ColumnType { data_type, has_nulls, domain: Domain::Bytes, dictionary: None },
            rows,
            values,
            offsets: Some(offsets),
            validity,
            statistics: ColumnStatistics {
                null_count: self.null_count,
                distinct: None,
                sorted: empty || self.sorted,
                unique: (empty || self.strict).then_some(true),
            },
        })
    }
}

/// Bytes, and rows + 1 offsets, of all chunks.
fn join_raw(chunks: Vec<RawChunk>, rows: usize) -> (Vec<u8>, Vec<u8>) {
    const OFFSET_BYTES: usize = size_of::<u64>();
    let mut values = vec![0u8; chunks.iter().map(|chunk| chunk.bytes.len()).sum()];
    let mut offsets = vec![0u8; (rows + 1) * OFFSET_BYTES];
    let (mut values_rest, mut offsets_rest) = (values.as_mut_slice(), &mut offsets[OFFSET_BYTES..]);
    let mut targets = Vec::with_capacity(chunks.len());
    let mut first_byte = 0u64;
    for chunk in &chunks {
        let (bytes, after) = values_rest.split_at_mut(chunk.bytes.len());
        let (ends, ends_after) = offsets_rest.split_at_mut(chunk.ends.len() * OFFSET_BYTES);
        targets.push((bytes, ends, first_byte));
        first_byte += chunk.bytes.len() as u64;
        (values_rest, offsets_rest) = (after, ends_after);
    }
    chunks.into_par_iter().zip(targets).for_each(|(chunk, (bytes, ends, first_byte))| {
        bytes.copy_from_slice(&chunk.bytes);
        for (slot, end) in ends.as_chunks_mut::<OFFSET_BYTES>().0.iter_mut().zip(&chunk.ends) {
            *slot = (first_byte + end).to_le_bytes();
        }
    });
    (values, offsets)
}
