//! Encodings of string columns: codes of a dictionary, or raw bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use rayon::prelude::*;

use super::bits;
use super::chunk::{self, Chunk, Number};
use super::dictionary::Dictionary;
use super::dictionary::{Interner, Seed};
use super::encode::{ColumnStatistics, EncodedColumn, Encoding, Sealed, validity_of};
use super::order::Order;
use super::types::{ColumnType, Domain, Layout};
use crate::{Error, Result};

/// Columns of strings, or of a dictionary type over strings, as codes.
pub(super) struct DictionaryStrings {
    value_type: DataType,
    /// Most distinct strings that get codes in their order.
    sorted_len_max: usize,
    seed: Seed,
}

/// Rows with codes of their own.
pub(super) struct StringRun {
    interner: Interner,
    chunks: Vec<Chunk>,
    order: Order<u32>,
    null_count: u64,
}

impl DictionaryStrings {
    pub(super) fn new(value_type: DataType, sorted_len_max: usize) -> Self {
        Self { value_type, sorted_len_max, seed: Seed::default() }
    }
}

impl StringRun {
    fn push(&mut self, array: &ArrayRef, known: &mut Option<KnownValues>) -> Result<()> {
        let validity = validity_of(array).map(|(bitmap, nulls)| {
            self.null_count += nulls;
            self.order.break_off();
            bitmap
        });
        let mut codes = Vec::with_capacity(array.len());
        if let DataType::Dictionary(..) = array.data_type() {
            self.intern_keys(array, validity.as_deref(), known, &mut codes)?;
        } else {
            self.interner.intern(array, validity.as_deref(), &mut codes)?;
        }
        self.order.offer_with(&codes, |a, b| self.interner.get(a) < self.interner.get(b));
        let domain = u32::domain(u32::bounds(&codes, validity.as_deref()));
        self.chunks.push(Chunk::new(&codes, validity, domain));
        Ok(())
    }

    /// The first and the last string, if all are in order.
    fn ends(&self) -> Option<(&[u8], &[u8])> {
        let (first, last) = self.order.ends()?;
        Some((self.interner.get(first), self.interner.get(last)))
    }

    /// Codes of an array of a dictionary type. Only values that a valid row refers to get one.
    fn intern_keys(
        &mut self,
        array: &ArrayRef,
        validity: Option<&[u8]>,
        known: &mut Option<KnownValues>,
        codes: &mut Vec<u32>,
    ) -> Result<()> {
        let Some(dictionary) = array.as_any_dictionary_opt() else {
            return Err(Error::internal(format!("no dictionary array: {}", array.data_type())));
        };
        let values = dictionary.values();
        if values.is_empty() {
            codes.resize(array.len(), 0);
            return Ok(());
        }
        let same = known.take().filter(|known| Arc::ptr_eq(&known.values, values));
        let known = known
            .insert(same.unwrap_or_else(|| KnownValues { values: values.clone(), codes: vec![None; values.len()] }));
        for (row, key) in dictionary.normalized_keys().into_iter().enumerate() {
            let valid = validity.is_none_or(|bitmap| bits::is_set(bitmap, row));
            codes.push(match known.codes[key] {
                _ if !valid => 0,
                Some(code) => code,
                None => *known.codes[key].insert(self.interner.intern_one(values, key)?),
            });
        }
        Ok(())
    }
}

/// Values of an array of a dictionary type, and the codes that they have so far. Batches often share their values.
struct KnownValues {
    values: ArrayRef,
    codes: Vec<Option<u32>>,
}

/// Whether all rows of the runs are in the order of their strings.
fn are_sorted(runs: &[StringRun]) -> bool {
    runs.iter().all(|run| run.order.sorted)
        && runs.windows(2).all(|pair| match (pair[0].ends(), pair[1].ends()) {
            (Some((_, last)), Some((first, _))) => last <= first,
            _ => true,
        })
}

impl Encoding for DictionaryStrings {
    type Run = StringRun;

    fn encode(&self, arrays: &[&ArrayRef]) -> Result<StringRun> {
        let interner = Interner::new(self.seed);
        let mut run = StringRun { interner, chunks: vec![], order: Order::default(), null_count: 0 };
        let mut known = None;
        arrays.iter().try_for_each(|array| run.push(array, &mut known))?;
        Ok(run)
    }

    fn seal(&self, runs: Vec<StringRun>, data_type: DataType) -> Result<Sealed> {
        let sorted = are_sorted(&runs);
        let null_count = runs.iter().map(|run| run.null_count).sum();
        let (interners, chunks): (Vec<_>, Vec<_>) = runs.into_iter().map(|run| (run.interner, run.chunks)).unzip();
        let (dictionary, codes) = Dictionary::of_interners(&interners, &self.value_type, self.sorted_len_max)?;
        let distinct = dictionary.len() as u64;
        let domain = Domain::Int { min: 0, max: i128::from(distinct.saturating_sub(1)) };
        let row_bytes = Layout::of(domain).width_bytes.into();
        let finish = Box::new(move || {
            let codes = codes.iter().zip(&chunks).flat_map(|(codes, chunks)| chunks.iter().map(|_| codes.as_deref()));
            let codes = codes.collect();
            let joined = chunk::join_codes(chunks.into_iter().flatten().collect(), codes, Layout::of(domain));
            let has_nulls = joined.validity.is_some();
            let unique = !has_nulls && distinct == joined.rows as u64;
            Ok(EncodedColumn {
                column_type: ColumnType { data_type, has_nulls, domain, dictionary: Some(Arc::new(dictionary)) },
                rows: joined.rows,
                values: joined.values,
                offsets: None,
                validity: joined.validity,
                statistics: ColumnStatistics {
                    null_count,
                    distinct: Some(distinct),
                    sorted,
                    unique: unique.then_some(true),
                },
            })
        });
        Ok(Sealed { row_bytes, finish })
    }
}

/// Columns of strings as offsets and bytes. Null rows have no bytes.
pub(super) struct RawStrings;

/// Rows with their bytes.
pub(super) struct RawRun {
    chunks: Vec<RawChunk>,
    null_count: u64,
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

    fn last(&self) -> Option<&[u8]> {
        let (end, before) = self.ends.split_last()?;
        Some(&self.bytes[before.last().copied().unwrap_or(0) as usize..*end as usize])
    }
}

/// Whether strings, none of them null, ascend, and whether no two of them are the same besides.
fn order_of(chunks: &[RawChunk]) -> (bool, bool) {
    if chunks.iter().any(|chunk| chunk.validity.is_some()) {
        return (false, false);
    }
    let of_chunk = |chunk: &RawChunk| {
        let (mut sorted, mut strict) = (true, true);
        let mut strings = chunk.strings();
        let mut last = strings.next();
        for text in strings {
            let order = last.map_or(std::cmp::Ordering::Less, |last| last.cmp(text));
            (sorted, strict) = (order.is_le(), strict && order.is_lt());
            if !sorted {
                return (false, false);
            }
            last = Some(text);
        }
        (sorted, strict)
    };
    let all = |a: (bool, bool), b: (bool, bool)| (a.0 && b.0, a.1 && b.1);
    let within = chunks.par_iter().map(of_chunk).reduce(|| (true, true), all);
    let full = chunks.iter().filter(|chunk| !chunk.ends.is_empty()).collect::<Vec<_>>();
    full.windows(2).fold(within, |known, pair| match (pair[0].last(), pair[1].strings().next()) {
        (Some(last), Some(first)) => all(known, (last <= first, last < first)),
        _ => known,
    })
}

impl Encoding for RawStrings {
    type Run = RawRun;

    fn encode(&self, arrays: &[&ArrayRef]) -> Result<RawRun> {
        let mut null_count = 0;
        let chunk = |array: &&ArrayRef| {
            let validity = validity_of(array).map(|(bitmap, nulls)| {
                null_count += nulls;
                bitmap
            });
            match array.data_type() {
                DataType::Utf8 => RawChunk::new(array.as_string::<i32>().iter(), validity),
                DataType::LargeUtf8 => RawChunk::new(array.as_string::<i64>().iter(), validity),
                _ => RawChunk::new(array.as_string_view().iter(), validity),
            }
        };
        let chunks = arrays.iter().map(chunk).collect();
        Ok(RawRun { chunks, null_count })
    }

    fn seal(&self, runs: Vec<RawRun>, data_type: DataType) -> Result<Sealed> {
        let null_count = runs.iter().map(|run| run.null_count).sum();
        let chunks: Vec<RawChunk> = runs.into_iter().flat_map(|run| run.chunks).collect();
        let (sorted, strict) = order_of(&chunks);
        let rows: usize = chunks.iter().map(|chunk| chunk.ends.len()).sum();
        let text_bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let row_bytes = (size_of::<u64>() + text_bytes.div_ceil(rows.max(1))) as u64;
        let finish = Box::new(move || {
            let has_nulls = chunks.iter().any(|chunk| chunk.validity.is_some());
            let parts = chunks.iter().map(|chunk| (chunk.validity.as_deref(), chunk.ends.len()));
            let validity = has_nulls.then(|| bits::join(parts, rows));
            let (values, offsets) = join_raw(chunks, rows);
            Ok(EncodedColumn {
                column_type: ColumnType { data_type, has_nulls, domain: Domain::Bytes, dictionary: None },
                rows,
                values,
                offsets: Some(offsets),
                validity,
                statistics: ColumnStatistics { null_count, distinct: None, sorted, unique: strict.then_some(true) },
            })
        });
        Ok(Sealed { row_bytes, finish })
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
