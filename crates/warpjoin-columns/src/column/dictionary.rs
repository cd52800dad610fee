//! The distinct values of a string column.

mod bytes;
mod interner;
mod merge;

use std::any::{Any, TypeId};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, LargeBinaryArray, LargeStringArray, StringViewArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::DataType;
use rayon::prelude::*;

use super::{bits, types};
use crate::{Error, Reason, Result};
use bytes::{adjacent_bytes, bytes_at, visit_bytes};
pub(super) use interner::{Interner, Seed};
use interner::{array_of, views_of};
use merge::MergedStrings;

/// Distinct strings of a column (n x 1, no nulls); a code is a position among them.
pub struct Dictionary {
    /// The values, or their bytes where views of many are made when somebody asks for them.
    stored: ArrayRef,
    value_type: DataType,
    values: OnceLock<ArrayRef>,
    sorted: bool,
    /// The same values in order, once somebody asked for them.
    twin: OnceLock<Twin>,
    is_ascii: OnceLock<bool>,
    /// What others keep as long as the dictionary lives.
    attachments: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// The values of a dictionary in order.
struct Twin {
    sorted: Arc<Dictionary>,
    /// The codes of `sorted` by those of the dictionary.
    ranks: Vec<u32>,
}

/// The codes of a union by those of each of its parts.
struct PartCodes(Vec<PartCode>);

/// The strings of a part, and the codes of the union by its own. `None`: they are the same.
type PartCode = (Weak<dyn Array>, Option<Vec<u32>>);

/// Of each of several interners: final codes by its own. `None`: they are the same.
pub(crate) type FinalCodes = Vec<Option<Vec<u32>>>;

/// Dictionaries up to this size are sorted, so that codes compare like strings.
pub(super) const SORTED_LEN_MAX: usize = 1 << 16;

/// Values that a core copies at a time.
const PIECE_VALUES: usize = 1 << 14;

/// Part of the values from which on all of them are made at once.
const FEW_SHARE: usize = 4;

impl Dictionary {
    /// The values (n x 1, no nulls), of the column's string type; for a column of a dictionary
    /// type, of its value type.
    pub fn values(&self) -> &ArrayRef {
        if *self.stored.data_type() == self.value_type {
            return &self.stored;
        }
        if let Some(views) = self.values.get() {
            return views;
        }
        // Outside of the cell: threads of the pool that make views take other work meanwhile, which may ask for them too.
        let views = views_of(&self.stored, &self.value_type);
        self.values.get_or_init(|| views)
    }

    /// Whether values for so many rows are cheaper made one by one than all at once.
    fn are_few(&self, rows: usize) -> bool {
        *self.stored.data_type() != self.value_type && self.values.get().is_none() && rows < self.len() / FEW_SHARE
    }

    /// Makes the values for so many rows that are about to be taken, by several threads maybe.
    #[doc(hidden)]
    pub fn prepare(&self, rows: usize) {
        if !self.are_few(rows) {
            self.values();
        }
    }

    /// The values of codes, null where a code is.
    ///
    /// # Errors
    /// When a code is no position of a value.
    #[doc(hidden)]
    pub fn take(&self, codes: &UInt32Array) -> Result<ArrayRef> {
        if !self.are_few(codes.len()) {
            return Ok(take(self.values(), codes, None)?);
        }
        let taken = take(&self.stored, codes, None)?;
        let (ends, bytes, nulls) = taken.as_binary::<i64>().clone().into_parts();
        if self.value_type == DataType::BinaryView {
            return Ok(Arc::new(BinaryViewArray::from(&LargeBinaryArray::try_new(ends, bytes, nulls)?)));
        }
        Ok(Arc::new(StringViewArray::from(&LargeStringArray::try_new(ends, bytes, nulls)?)))
    }

    /// Number of distinct values.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// The type of the values.
    #[doc(hidden)]
    pub fn value_type(&self) -> &DataType {
        &self.value_type
    }

    /// Whether the values ascend bytewise, so that codes compare like strings.
    pub fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// Whether all values are ASCII.
    #[doc(hidden)]
    pub fn is_ascii(&self) -> bool {
        let all = || (0..self.len() as u32).into_par_iter().all(|code| self.bytes(code).is_none_or(<[u8]>::is_ascii));
        *self.is_ascii.get_or_init(all)
    }

    /// The `T` that was attached last.
    #[doc(hidden)]
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let attachments = self.attachments.lock().unwrap_or_else(PoisonError::into_inner);
        attachments.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }

    /// The same; a default one is attached where there is none.
    #[doc(hidden)]
    pub fn attached_or_default<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut attachments = self.attachments.lock().unwrap_or_else(PoisonError::into_inner);
        let attached = attachments.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default());
        Arc::clone(attached).downcast().unwrap_or_default()
    }

    /// Keeps something as long as the dictionary lives, in place of the `T` that was attached before.
    pub(crate) fn attach<T: Any + Send + Sync>(&self, thing: Arc<T>) {
        self.attachments.lock().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<T>(), thing);
    }

    /// Takes the attached `T`, unless somebody else holds it.
    #[doc(hidden)]
    pub fn detach_unused<T: Any + Send + Sync>(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut attachments = self.attachments.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unused = |thing: &Arc<dyn Any + Send + Sync>| Arc::strong_count(thing) == 1;
        attachments.get(&TypeId::of::<T>()).filter(|thing| is_unused(thing))?;
        attachments.remove(&TypeId::of::<T>())
    }

    /// The value of a code; `None` past the end, and where it is no text.
    pub fn value(&self, code: u32) -> Option<&str> {
        std::str::from_utf8(self.bytes(code)?).ok()
    }

    /// The bytes of the value of a code; `None` past the end.
    pub fn bytes(&self, code: u32) -> Option<&[u8]> {
        let code = code as usize;
        if code < self.len() { bytes_at(&self.stored, code) } else { None }
    }

    /// The bytes of some values, one behind the other, if they lie so.
    #[doc(hidden)]
    pub fn adjacent_bytes(&self, codes: Range<usize>) -> Option<&[u8]> {
        if codes.end > self.len() {
            return None;
        }
        adjacent_bytes(&self.stored, codes)
    }

    /// Visits the bytes of some values, each with its place among them; `None` when `visit` gives that, or there are not as many.
    #[doc(hidden)]
    pub fn visit(&self, codes: Range<usize>, visit: &mut impl FnMut(usize, &[u8]) -> Option<()>) -> Option<()> {
        if codes.end > self.len() {
            return None;
        }
        visit_bytes(&self.stored, codes, visit)
    }

    /// The code in `to` of every code of `from`; `None` where `to` lacks the value. The two may be
    /// of different string types.
    pub fn translate(from: &Dictionary, to: &Dictionary) -> Vec<Option<u32>> {
        if Arc::ptr_eq(&from.stored, &to.stored) {
            return (0..from.len() as u32).map(Some).collect();
        }
        if let Some(twin) = from.twin.get().filter(|twin| Arc::ptr_eq(&twin.sorted.stored, &to.stored)) {
            return twin.ranks.par_iter().map(|&rank| Some(rank)).collect();
        }
        if let Some(parts) = to.attached::<PartCodes>()
            && let Some((_, codes)) = parts.0.iter().find(|(part, _)| part.as_ptr().addr() == from.address())
        {
            let code = |code: u32| Some(codes.as_ref().map_or(code, |codes| codes[code as usize]));
            return (0..from.len() as u32).into_par_iter().map(code).collect();
        }
        if to.sorted {
            return (0..from.len() as u32).into_par_iter().map(|code| to.code_of(from.bytes(code)?)).collect();
        }
        let mut known = Interner::default();
        // Distinct values get the codes 0, 1, 2, ...: their positions. A dictionary was interned
        // once already, so that it can't be too large to be interned again.
        if known.intern(&to.stored, None, &mut Vec::new()).is_err() {
            return vec![None; from.len()];
        }
        let text = |code| from.bytes(code).unwrap_or_default();
        (0..from.len() as u32).into_par_iter().map(|code| known.find(text(code))).collect()
    }

    /// The code of a value of a sorted dictionary.
    fn code_of(&self, text: &[u8]) -> Option<u32> {
        let (mut first, mut end) = (0, self.len() as u32);
        while first < end {
            let middle = first + (end - first) / 2;
            match self.bytes(middle)?.cmp(text) {
                Ordering::Less => first = middle + 1,
                Ordering::Equal => return Some(middle),
                Ordering::Greater => end = middle,
            }
        }
        None
    }

    /// The distinct values of an array of a string type, and the code of every row (`None`: null).
    ///
    /// # Errors
    /// When `array` is not of a string type, or has too many distinct values.
    pub fn of_array(array: &ArrayRef) -> Result<(Dictionary, Vec<Option<u32>>)> {
        if !types::is_string(array.data_type()) {
            return Err(Reason::Type(array.data_type().clone()).into());
        }
        let validity = array.nulls().map(|nulls| bits::packed_bytes(nulls.inner()));
        let (mut interner, mut codes) = (Interner::default(), Vec::new());
        interner.intern(array, validity.as_deref(), &mut codes)?;
        let (dictionary, final_codes) = Self::of_interners(&[interner], array.data_type(), SORTED_LEN_MAX)?;
        let final_codes = final_codes.into_iter().next().flatten();
        let code = |(row, code): (usize, u32)| {
            let valid = validity.as_ref().is_none_or(|bitmap| bits::is_set(bitmap, row));
            valid.then(|| final_codes.as_ref().map_or(code, |codes| codes[code as usize]))
        };
        Ok((dictionary, codes.into_iter().enumerate().map(code).collect()))
    }

    /// The same values in order, of any number: sorted once, on the host.
    ///
    /// # Errors
    /// When there are too many bytes of them.
    #[doc(hidden)]
    pub fn sorted(self: &Arc<Self>) -> Result<Arc<Dictionary>> {
        if self.sorted {
            return Ok(Arc::clone(self));
        }
        if let Some(twin) = self.twin.get() {
            return Ok(Arc::clone(&twin.sorted));
        }
        // The values are distinct.
        let values = (0..self.len() as u32).map(|code| (self.bytes(code).unwrap_or_default(), code)).collect();
        let (sorted, ranks) = Self::in_order(values, &self.value_type)?;
        Ok(Arc::clone(&self.twin.get_or_init(|| Twin { sorted: Arc::new(sorted), ranks }).sorted))
    }

    /// Whether `other` has the same values in their order, as [`Self::sorted`] has made it.
    #[doc(hidden)]
    pub fn is_sorted_by(&self, other: &Weak<Dictionary>) -> bool {
        self.twin.get().is_some_and(|twin| other.as_ptr() == Arc::as_ptr(&twin.sorted))
    }

    /// All values of several dictionaries; of the first one's type.
    ///
    /// # Errors
    /// When there are none, or too many distinct values.
    #[doc(hidden)]
    pub fn union(parts: &[&Arc<Dictionary>]) -> Result<Dictionary> {
        let first = parts.first().ok_or_else(|| Error::internal("a union of no dictionaries"))?;
        let seed = Seed::default();
        let interner = |part: &&Arc<Dictionary>| {
            let mut interner = Interner::new(seed);
            interner.intern(&part.stored, None, &mut Vec::new()).map(|()| interner)
        };
        let interners: Vec<Interner> = parts.par_iter().map(interner).collect::<Result<_>>()?;
        let (union, codes) = Self::of_interners(&interners, &first.value_type, SORTED_LEN_MAX)?;
        let of_parts = parts.iter().map(|part| Arc::downgrade(&part.stored)).zip(codes);
        union.attach(Arc::new(PartCodes(of_parts.collect())));
        Ok(union)
    }

    /// Where its strings are.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.stored).addr()
    }

    /// A dictionary of a string type that holds one value, or none.
    ///
    /// # Errors
    /// When the type is none of strings.
    #[doc(hidden)]
    pub fn of_values(value_type: &DataType, value: Option<&[u8]>) -> Result<Dictionary> {
        if !types::is_string(value_type) {
            return Err(Reason::Type(value_type.clone()).into());
        }
        let mut interner = Interner::default();
        if let Some(value) = value {
            interner.intern_bytes(value)?;
        }
        Ok(Self::of_interners(&[interner], value_type, SORTED_LEN_MAX)?.0)
    }

    /// The dictionary of the strings of all interners, and of each of these the final codes by its own, where they differ.
    ///
    /// # Errors
    /// When there are too many strings, or bytes of them.
    pub(super) fn of_interners(
        interners: &[Interner],
        value_type: &DataType,
        sorted_len_max: usize,
    ) -> Result<(Dictionary, FinalCodes)> {
        let merged = MergedStrings::of(interners)?;
        if merged.len() > sorted_len_max {
            let (bytes, ends) = merged.bytes_and_ends();
            return Ok((Self::new(array_of(bytes, ends, value_type)?, value_type, false), merged.into_codes()));
        }
        let (dictionary, by_merged) = Self::in_order(merged.iter().zip(0..).collect(), value_type)?;
        let all = |interner: &Interner| (0..interner.len() as u32).collect();
        let sorted = |(codes, interner): (Option<Vec<u32>>, &Interner)| {
            let mut codes = codes.unwrap_or_else(|| all(interner));
            codes.iter_mut().for_each(|code| *code = by_merged[*code as usize]);
            Some(codes)
        };
        Ok((dictionary, merged.into_codes().into_iter().zip(interners).map(sorted).collect()))
    }

    /// The dictionary of several lists of strings. Those of a list are distinct and lie side by side, each up to where it ends,
    /// behind a 0. And of each list the codes by its numbers, where they differ.
    ///
    /// # Errors
    /// When they are no values of the type, or too many bytes.
    #[doc(hidden)]
    pub fn of_distinct(mut lists: Vec<(Vec<u8>, Vec<i64>)>, value_type: &DataType) -> Result<(Dictionary, FinalCodes)> {
        if lists.len() > 1 {
            // One seed, or equal strings would not meet.
            let seed = Seed::default();
            let interner = |(bytes, ends)| {
                let mut interner = Interner::new(seed);
                interner.intern(&array_of(bytes, ends, value_type)?, None, &mut Vec::new())?;
                Ok(interner)
            };
            let interners: Vec<Interner> = lists.into_par_iter().map(interner).collect::<Result<_>>()?;
            return Self::of_interners(&interners, value_type, SORTED_LEN_MAX);
        }
        let (bytes, ends) = lists.pop().unwrap_or((vec![], vec![0]));
        if ends.len() - 1 > SORTED_LEN_MAX {
            return Ok((Self::new(array_of(bytes, ends, value_type)?, value_type, false), vec![None]));
        }
        let text = |place: &[i64]| &bytes[place[0] as usize..place[1] as usize];
        let (dictionary, codes) = Self::in_order(ends.windows(2).map(text).zip(0..).collect(), value_type)?;
        Ok((dictionary, vec![Some(codes)]))
    }

    /// Of what [`array_of`] has made.
    fn new(stored: ArrayRef, value_type: &DataType, sorted: bool) -> Self {
        Self {
            stored,
            value_type: value_type.clone(),
            values: OnceLock::new(),
            sorted,
            twin: OnceLock::new(),
            is_ascii: OnceLock::new(),
            attachments: Mutex::default(),
        }
    }

    /// The sorted dictionary of distinct strings, which are numbered from 0, and its codes by their numbers.
    fn in_order(order: Vec<(&[u8], u32)>, value_type: &DataType) -> Result<(Dictionary, Vec<u32>)> {
        let order = ordered(order);
        let mut ends = Vec::with_capacity(order.len() + 1);
        ends.push(0);
        let mut final_codes = vec![0; order.len()];
        let mut length = 0;
        for (position, (text, code)) in order.iter().enumerate() {
            length += text.len();
            ends.push(length as i64);
            final_codes[*code as usize] = position as u32;
        }
        let mut bytes = vec![0; length];
        let (mut rest, mut pieces) = (bytes.as_mut_slice(), vec![]);
        for piece in order.chunks(PIECE_VALUES) {
            let length = piece.iter().map(|(text, _)| text.len()).sum();
            let (own, behind) = rest.split_at_mut(length);
            pieces.push((own, piece));
            rest = behind;
        }
        pieces.into_par_iter().for_each(|(mut own, piece)| {
            for (text, _) in piece {
                let (place, behind) = own.split_at_mut(text.len());
                place.copy_from_slice(text);
                own = behind;
            }
        });
        Ok((Self::new(array_of(bytes, ends, value_type)?, value_type, true), final_codes))
    }
}

/// Strings in order, each with its number. The eight bytes behind those that all begin with are compared first: they are at hand.
fn ordered(order: Vec<(&[u8], u32)>) -> Vec<(&[u8], u32)> {
    let texts = || order.par_iter().map(|(text, _)| *text);
    let (Some(least), Some(greatest)) = (texts().min(), texts().max()) else { return order };
    let shared = least.iter().zip(greatest).take_while(|(a, b)| a == b).count();
    let head = |text: &[u8]| {
        let behind = &text[shared..];
        let mut head = [0; 8];
        let length = behind.len().min(8);
        head[..length].copy_from_slice(&behind[..length]);
        u64::from_be_bytes(head)
    };
    let mut with_heads: Vec<(u64, &[u8], u32)> =
        order.into_par_iter().map(|(text, number)| (head(text), text, number)).collect();
    // Strings that end within the head may have one head: then all of them is compared.
    with_heads.par_sort_unstable();
    with_heads.into_par_iter().map(|(_, text, number)| (text, number)).collect()
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, data_type) = (self.len(), &self.value_type);
        write!(f, "Dictionary({len} x {data_type}{})", if self.sorted { ", sorted" } else { "" })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    fn dictionary(values: impl IntoIterator<Item = String>) -> Arc<Dictionary> {
        let array: ArrayRef = Arc::new(values.into_iter().map(Some).collect::<StringArray>());
        Arc::new(Dictionary::of_array(&array).unwrap().0)
    }

    fn assert_translated(from: &Dictionary, to: &Dictionary) -> usize {
        let codes = Dictionary::translate(from, to);
        assert_eq!(codes.len(), from.len());
        let by_text: HashMap<&[u8], u32> = (0..to.len() as u32).map(|code| (to.bytes(code).unwrap(), code)).collect();
        for (code, translated) in (0..).zip(&codes) {
            assert_eq!(by_text.get(from.bytes(code).unwrap()), translated.as_ref());
        }
        codes.iter().flatten().count()
    }

    #[test]
    fn strings_are_ordered_bytewise() {
        let texts =
            ["", "a", "a\0", "a\0\0\0\0\0\0\0\0", "a\0\0\0\0\0\0\0\0b", "ab", "b", "\u{ff}", "abcdefghi", "abcdefgh"];
        for shared in ["", "x", "a long beginning of all"] {
            let texts: Vec<String> = texts.iter().map(|text| format!("{shared}{text}")).collect();
            let mut expected: Vec<(&[u8], u32)> = texts.iter().map(|text| text.as_bytes()).zip(0..).collect();
            let found = ordered(expected.clone());
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
        assert_eq!(ordered(vec![]), []);
        let many = dictionary((0..40_000u32).map(|number| (number.wrapping_mul(2_654_435_761)).to_string()));
        assert!((1..many.len() as u32).all(|code| many.bytes(code - 1) < many.bytes(code)), "sorted");
    }

    #[test]
    fn codes_are_translated_to_any_dictionary() {
        // Numbers in no order, more than dictionaries sort.
        let large = dictionary((0..100_000u32).map(|number| (number * 7_919 % 100_000).to_string()));
        let other = dictionary((50_000..150_000u32).map(|number| number.to_string()));
        let small = dictionary((0..1000u32).map(|number| (number * 3).to_string()));
        assert!(!large.is_sorted() && !other.is_sorted() && small.is_sorted());
        assert_eq!(assert_translated(&large, &other), 50_000);
        assert_eq!(assert_translated(&large, &small), 1000);
        assert_eq!(assert_translated(&small, &large), 1000);
        let sorted = large.sorted().unwrap();
        let values: Vec<&[u8]> = (0..sorted.len() as u32).map(|code| sorted.bytes(code).unwrap()).collect();
        assert!(sorted.is_sorted() && values.is_sorted() && values.len() == large.len());
        assert_eq!(assert_translated(&large, &sorted), large.len());
        assert_eq!(assert_translated(&other, &sorted), 50_000);
        assert_eq!(assert_translated(&sorted, &large), large.len());
    }
}
