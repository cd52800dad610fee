//! Distinct strings and their codes: the hash table behind dictionaries.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, GenericByteArray,
    GenericByteViewArray, LargeBinaryArray, LargeStringArray, StringArray, StringViewArray, new_null_array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::concat;
use arrow::datatypes::{ByteArrayType, ByteViewType, DataType};
use arrow::error::ArrowError;

use rayon::prelude::*;

use super::bytes::bytes_at;
use crate::column::bits;
use crate::{Error, Reason, Result};

/// Codes of distinct strings, 0, 1, 2, ... in the order in which they came.
///
/// An open-addressing table of (hash tag, code) slots, probed linearly and at most half full. Its
/// position is the top of the tag, so that growing rehashes without looking at a string. Entries
/// are laid out like Arrow's string views: up to 12 bytes inline, longer ones in an arena.
#[derive(Debug)]
pub(crate) struct Interner {
    /// 0, or tag << 32 | code + 1.
    slots: Vec<u64>,
    slots_log2: u32,
    /// Length (32 bits) and 12 bytes, or length, 4 bytes and offset in the arena (64 bits).
    entries: Vec<u128>,
    arena: Vec<u8>,
    seed: u64,
}

const INLINE_BYTES: usize = 12;
/// Strings that a core makes views of at a time.
const PIECE_STRINGS: usize = 1 << 18;
/// At least the bits of a shard of [`Interner::shard`].
pub(in crate::column) const FIRST_SLOTS_LOG2: u32 = 8;
/// Rows whose slots are loaded together, so that their cache misses overlap.
const BLOCK_ROWS: usize = 64;

/// A string about to be looked up: an entry without offset, and its hash.
#[derive(Clone, Copy, Default)]
struct Probe {
    key: u128,
    hash: u64,
    /// The first slot of its probe sequence, as loaded ahead.
    slot: u64,
    /// The entry of that slot if the tags agree, else 0, as loaded ahead.
    entry: u128,
}

/// Rows of one of Arrow's string arrays.
pub(super) trait StringRows {
    fn bytes(&self, row: usize) -> &[u8];
    /// The entry of a row, without offset.
    fn key(&self, row: usize) -> u128;
}

impl<T: ByteArrayType> StringRows for GenericByteArray<T> {
    fn bytes(&self, row: usize) -> &[u8] {
        self.value(row).as_ref()
    }

    fn key(&self, row: usize) -> u128 {
        key_of(self.bytes(row))
    }
}

impl StringRows for FixedSizeBinaryArray {
    fn bytes(&self, row: usize) -> &[u8] {
        self.value(row)
    }

    fn key(&self, row: usize) -> u128 {
        key_of(self.bytes(row))
    }
}

impl<T: ByteViewType + ?Sized> StringRows for GenericByteViewArray<T> {
    fn bytes(&self, row: usize) -> &[u8] {
        self.value(row).as_ref()
    }

    fn key(&self, row: usize) -> u128 {
        let view = self.views()[row];
        if view as u32 as usize <= INLINE_BYTES { view } else { u128::from(view as u64) }
    }
}

impl Default for Interner {
    fn default() -> Self {
        Self::new(Seed::default())
    }
}

/// What hashes begin with. Interners that are merged have one.
#[derive(Debug, Clone, Copy)]
pub(in crate::column) struct Seed(u64);

impl Default for Seed {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl Interner {
    pub(in crate::column) fn new(seed: Seed) -> Self {
        Self {
            slots: vec![0; 1 << FIRST_SLOTS_LOG2],
            slots_log2: FIRST_SLOTS_LOG2,
            entries: vec![],
            arena: vec![],
            seed: seed.0,
        }
    }

    /// The tag and code of each string whose tag begins with the `shard_log2` bits of `shard`.
    pub(in crate::column) fn shard(&self, shard: usize, shard_log2: u32) -> impl Iterator<Item = (u32, u32)> {
        let first = shard << (self.slots_log2 - shard_log2);
        let end = (shard + 1) << (self.slots_log2 - shard_log2);
        // Full slots push strings past the end of the shard, and from the last slot to the first one.
        let mask = self.slots.len() - 1;
        let pushed = (end..end + self.slots.len()).map(move |at| self.slots[at & mask]).take_while(|slot| *slot != 0);
        let slots = self.slots[first..end].iter().copied().filter(|slot| *slot != 0).chain(pushed);
        let is_of_shard = move |slot: &u64| (*slot >> (64 - shard_log2)) as usize == shard;
        slots.filter(is_of_shard).map(|slot| (tag(slot), slot as u32 - 1))
    }

    /// Whether a string is that of another interner.
    pub(in crate::column) fn is_same(&self, code: u32, other: &Self, other_code: u32) -> bool {
        let (entry, other_entry) = (self.entries[code as usize], other.entries[other_code as usize]);
        match entry as u32 as usize <= INLINE_BYTES {
            true => entry == other_entry,
            false => entry as u64 == other_entry as u64 && self.string(&entry) == other.string(&other_entry),
        }
    }

    /// Number of distinct strings.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The string of a code that was given out.
    pub(crate) fn get(&self, code: u32) -> &[u8] {
        self.string(&self.entries[code as usize])
    }

    fn string<'a>(&'a self, entry: &'a u128) -> &'a [u8] {
        let len_bytes = *entry as u32 as usize;
        if len_bytes <= INLINE_BYTES {
            &bytemuck::bytes_of(entry)[4..4 + len_bytes]
        } else {
            let start = (*entry >> 64) as usize;
            &self.arena[start..start + len_bytes]
        }
    }

    /// Appends the code of every row of `array`, of a string type; 0 for rows that `validity`
    /// declares null, which are not looked at.
    ///
    /// # Errors
    /// When there are more distinct strings than codes, or one of 4 GiB.
    pub(crate) fn intern(&mut self, array: &ArrayRef, validity: Option<&[u8]>, codes: &mut Vec<u32>) -> Result<()> {
        codes.reserve(array.len());
        match array.data_type() {
            DataType::Utf8 => self.intern_rows(array.as_string::<i32>(), array.len(), validity, codes),
            DataType::LargeUtf8 => self.intern_rows(array.as_string::<i64>(), array.len(), validity, codes),
            DataType::Utf8View => self.intern_rows(array.as_string_view(), array.len(), validity, codes),
            DataType::Binary => self.intern_rows(array.as_binary::<i32>(), array.len(), validity, codes),
            DataType::LargeBinary => self.intern_rows(array.as_binary::<i64>(), array.len(), validity, codes),
            DataType::BinaryView => self.intern_rows(array.as_binary_view(), array.len(), validity, codes),
            DataType::FixedSizeBinary(_) => {
                self.intern_rows(array.as_fixed_size_binary(), array.len(), validity, codes)
            }
            other => Err(Reason::Type(other.clone()).into()),
        }
    }

    /// The code of one row of `array`, of a string type.
    ///
    /// # Errors
    /// As [`Self::intern`].
    pub(crate) fn intern_one(&mut self, array: &ArrayRef, row: usize) -> Result<u32> {
        let bytes = bytes_at(array, row).ok_or_else(|| Reason::Type(array.data_type().clone()))?;
        self.intern_bytes(bytes)
    }

    /// The code of one string.
    ///
    /// # Errors
    /// As [`Self::intern`].
    pub(crate) fn intern_bytes(&mut self, text: &[u8]) -> Result<u32> {
        let probe = self.probe(key_of(text), || text)?;
        self.resolve(probe, || text)
    }

    /// The code of a string, if it has one.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        let probe = self.probe(key_of(text), || text).ok()?;
        self.search(&probe, || text).ok()
    }

    fn intern_rows<R: StringRows>(
        &mut self,
        strings: &R,
        rows: usize,
        validity: Option<&[u8]>,
        codes: &mut Vec<u32>,
    ) -> Result<()> {
        let is_valid = |row| validity.is_none_or(|bitmap| bits::is_set(bitmap, row));
        let mut probes = [Probe::default(); BLOCK_ROWS];
        for start in (0..rows).step_by(BLOCK_ROWS) {
            let block = start..(start + BLOCK_ROWS).min(rows);
            for (row, probe) in block.clone().zip(&mut probes) {
                *probe =
                    if is_valid(row) { self.probe(strings.key(row), || strings.bytes(row))? } else { Probe::default() };
            }
            for probe in &mut probes {
                probe.slot = self.slots[self.position(probe.hash)];
            }
            for probe in &mut probes {
                if probe.slot != 0 && tag(probe.slot) == tag(probe.hash) {
                    probe.entry = self.entries[probe.slot as u32 as usize - 1];
                }
            }
            for (row, probe) in block.zip(&probes) {
                let code = if is_valid(row) { self.resolve(*probe, || strings.bytes(row))? } else { 0 };
                codes.push(code);
            }
        }
        Ok(())
    }

    fn probe<'a>(&self, key: u128, text: impl Fn() -> &'a [u8]) -> Result<Probe> {
        let len_bytes = key as u32 as usize;
        let (low, high) = (key as u64, (key >> 64) as u64);
        let mut hash = fold(low ^ self.seed, high ^ MULTIPLIERS[0]);
        if len_bytes > INLINE_BYTES {
            let text = text();
            if u32::try_from(text.len()).is_err() {
                return Err(Reason::Limit(format!("a string of {} bytes", text.len())).into());
            }
            hash = hash_long(text, hash);
        }
        Ok(Probe { key, hash, slot: 0, entry: 0 })
    }

    /// The code of a string; a new one if it has none.
    fn resolve<'a>(&mut self, probe: Probe, text: impl Fn() -> &'a [u8]) -> Result<u32> {
        // The slot loaded ahead may have been filled or moved since, but entries are forever.
        if probe.slot != 0 && tag(probe.slot) == tag(probe.hash) && self.matches(probe.entry, probe.key, &text) {
            return Ok(probe.slot as u32 - 1);
        }
        match self.search(&probe, &text) {
            Ok(code) => Ok(code),
            Err(position) => self.insert(position, &probe, text()),
        }
    }

    /// The code of a string, else the free slot where its search ended.
    fn search<'a>(&self, probe: &Probe, text: impl Fn() -> &'a [u8]) -> Result<u32, usize> {
        let mut position = self.position(probe.hash);
        // Bounded: at least half of the slots are free.
        for _ in 0..self.slots.len() {
            let slot = self.slots[position];
            if slot == 0 {
                break;
            }
            let code = slot as u32 - 1;
            if tag(slot) == tag(probe.hash) && self.matches(self.entries[code as usize], probe.key, &text) {
                return Ok(code);
            }
            position = (position + 1) & (self.slots.len() - 1);
        }
        Err(position)
    }

    fn matches<'a>(&self, entry: u128, key: u128, text: impl Fn() -> &'a [u8]) -> bool {
        if key as u32 as usize <= INLINE_BYTES {
            entry == key
        } else {
            entry as u64 == key as u64 && self.string(&entry) == text()
        }
    }

    fn insert(&mut self, position: usize, probe: &Probe, text: &[u8]) -> Result<u32> {
        let code = u32::try_from(self.entries.len()).ok().filter(|code| *code < u32::MAX - 1).ok_or_else(|| {
            Error::from(Reason::Limit("4 G distinct strings in a dictionary; use raw strings".into()))
        })?;
        let mut entry = probe.key;
        if text.len() > INLINE_BYTES {
            entry |= (self.arena.len() as u128) << 64;
            self.arena.extend_from_slice(text);
        }
        self.entries.push(entry);
        self.slots[position] = probe.hash >> 32 << 32 | u64::from(code + 1);
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        Ok(code)
    }

    fn grow(&mut self) {
        self.slots_log2 += 2;
        let old = std::mem::replace(&mut self.slots, vec![0; 1 << self.slots_log2]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            let mut position = self.position(slot);
            while self.slots[position] != 0 {
                position = (position + 1) & (self.slots.len() - 1);
            }
            self.slots[position] = slot;
        }
    }

    /// Where the search for a hash, or for the tag of a slot, begins.
    fn position(&self, hash: u64) -> usize {
        (hash >> (64 - self.slots_log2)) as usize
    }
}

/// An array of `data_type` (a string type) of strings that lie one behind the other: `ends` is 0, then the end of each. Many strings
/// of a view type stay bytes (LargeBinary), of which [`views_of`] makes views.
///
/// # Errors
/// When an array of this type can't hold that number of bytes.
pub(in crate::column) fn array_of(bytes: Vec<u8>, ends: Vec<i64>, data_type: &DataType) -> Result<ArrayRef> {
    let bytes = Buffer::from_vec(bytes);
    if let DataType::FixedSizeBinary(size) = data_type {
        return Ok(Arc::new(FixedSizeBinaryArray::try_new(*size, bytes, None)?));
    }
    if let DataType::Utf8 | DataType::Binary = data_type {
        if i32::try_from(bytes.len()).is_err() {
            let what = format!(
                "a dictionary of {} bytes in a {data_type} column; use a large type or raw strings",
                bytes.len()
            );
            return Err(Reason::Limit(what).into());
        }
        let ends: Vec<i32> = ends.into_iter().map(|end| end as i32).collect();
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        return Ok(match data_type {
            DataType::Utf8 => Arc::new(StringArray::try_new(ends, bytes, None)?),
            _ => Arc::new(BinaryArray::try_new(ends, bytes, None)?),
        });
    }
    let is_view = matches!(data_type, DataType::Utf8View | DataType::BinaryView);
    if is_view && ends.len() > PIECE_STRINGS {
        if *data_type == DataType::Utf8View {
            check_text(&bytes, &ends)?;
        }
        return Ok(Arc::new(LargeBinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(ends)), bytes, None)?));
    }
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    if let DataType::LargeBinary | DataType::BinaryView = data_type {
        let large = LargeBinaryArray::try_new(ends, bytes, None)?;
        return Ok(match data_type {
            DataType::BinaryView => Arc::new(BinaryViewArray::from(&large)),
            _ => Arc::new(large),
        });
    }
    let large = LargeStringArray::try_new(ends, bytes, None)?;
    Ok(match data_type {
        DataType::Utf8View => Arc::new(StringViewArray::from(&large)),
        _ => Arc::new(large),
    })
}

/// Fails unless all strings are text.
fn check_text(bytes: &[u8], ends: &[i64]) -> Result<()> {
    let check = |ends: &[i64]| {
        let start = ends[0] as usize;
        let text = std::str::from_utf8(&bytes[start..ends[ends.len() - 1] as usize])
            .map_err(|error| ArrowError::InvalidArgumentError(format!("strings that are no text: {error}")))?;
        if ends.iter().all(|&end| text.is_char_boundary(end as usize - start)) {
            return Ok(());
        }
        Err(ArrowError::InvalidArgumentError("a string that ends within a character".into()))
    };
    // Pieces share the end of one and the beginning of the next.
    let firsts = (0..ends.len() - 1).into_par_iter().step_by(PIECE_STRINGS);
    Ok(firsts.map(|first| check(&ends[first..ends.len().min(first + PIECE_STRINGS + 1)])).collect::<Result<(), _>>()?)
}

/// Views of what [`array_of`] keeps as bytes, made on all cores.
pub(in crate::column) fn views_of(stored: &ArrayRef, data_type: &DataType) -> ArrayRef {
    let strings = stored.as_binary::<i64>();
    let firsts: Vec<usize> = (0..strings.len()).step_by(PIECE_STRINGS).collect();
    let piece = |&first: &usize| -> Result<ArrayRef, ArrowError> {
        let piece = strings.slice(first, PIECE_STRINGS.min(strings.len() - first));
        // Views have places of 32 bits, so each piece begins at 0.
        let (start, end) = (piece.value_offsets()[0], piece.value_offsets()[piece.len()]);
        let ends: Vec<i64> = piece.value_offsets().iter().map(|end| end - start).collect();
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        let bytes = piece.values().slice_with_length(start as usize, (end - start) as usize);
        if *data_type == DataType::BinaryView {
            return Ok(Arc::new(BinaryViewArray::from(&LargeBinaryArray::try_new(ends, bytes, None)?)));
        }
        Ok(Arc::new(StringViewArray::from(&LargeStringArray::try_new(ends, bytes, None)?)))
    };
    let pieces: Result<Vec<ArrayRef>, ArrowError> = firsts.par_iter().map(piece).collect();
    let views = pieces.and_then(|pieces| concat(&pieces.iter().map(|piece| &**piece).collect::<Vec<_>>()));
    views.unwrap_or_else(|error| {
        log::error!("a defect: strings were checked when they came, and are none now: {error}");
        new_null_array(data_type, stored.len())
    })
}

fn tag(hash_or_slot: u64) -> u32 {
    (hash_or_slot >> 32) as u32
}

/// The entry of a string, without offset.
fn key_of(text: &[u8]) -> u128 {
    let len = text.len();
    let four = |at: usize| text[at..].first_chunk::<4>().map_or(0, |raw| u64::from(u32::from_le_bytes(*raw)));
    let inline = match len {
        0 => 0,
        1..=3 => {
            let middle = u128::from(text[len / 2]) << (8 * (len / 2));
            u128::from(text[0]) | middle | u128::from(text[len - 1]) << (8 * (len - 1))
        }
        4..=7 => u128::from(four(0)) | u128::from(four(len - 4)) << (8 * (len - 4)),
        8..=INLINE_BYTES => {
            u128::from(four(0)) | u128::from(four(4)) << 32 | u128::from(four(len - 4)) << (8 * (len - 4))
        }
        _ => u128::from(four(0)),
    };
    inline << 32 | u128::from(len as u32)
}

const MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// Both halves of the 128-bit product, folded together (the mixer of wyhash).
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Hash of a string longer than 12 bytes.
fn hash_long(text: &[u8], seed: u64) -> u64 {
    let eight = |raw: &[u8]| raw.first_chunk::<8>().map_or(0, |raw| u64::from_le_bytes(*raw));
    let (pairs, _) = text.as_chunks::<16>();
    let mut hash = seed;
    for pair in pairs {
        hash = fold(hash ^ eight(pair), MULTIPLIERS[1] ^ eight(&pair[8..]));
    }
    // The last 16 bytes, which may overlap; 13 to 15 bytes are covered by two overlapping halves.
    let tail = &text[text.len().saturating_sub(16)..];
    fold(hash ^ eight(tail), MULTIPLIERS[2] ^ eight(&tail[tail.len() - 8..]))
}
