//! Several values in the bits of few words: join keys, payloads in slots, group keys.
//!
//! A value takes as many bits as its bounds need, and a null one more bit. The bounds themselves are
//! parameters; only widths and places are part of the code.

use warpjoin_columns::identity::identify_fields;

use crate::value::{Kind, Range, ValueType};

/// Places of values in words.
#[derive(Debug, Clone)]
pub struct Packing {
    pub fields: Vec<PackedField>,
    /// Bits used in each word.
    pub word_bits: Vec<u32>,
}

/// Place of one value.
#[derive(Debug, Clone)]
pub struct PackedField {
    pub(crate) value: ValueType,
    pub(crate) place: Place,
    pub(crate) null_place: Option<Place>,
    /// Floats keep all their bits, rather than those that tell keys apart.
    pub(crate) is_exact: bool,
}

/// Bits of a word. A value of more than 64 bits takes two whole words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub word: usize,
    pub shift: u32,
    pub bits: u32,
}

identify_fields! {
    Packing { fields, word_bits }
    PackedField { value, place, null_place, is_exact }
    Place { word, shift, bits }
}

impl Packing {
    /// Packs `values` in order, each into the first word with room.
    pub(crate) fn of(values: impl IntoIterator<Item = ValueType>) -> Self {
        let mut packing = Self { fields: vec![], word_bits: vec![] };
        packing.push_all(values, false);
        packing
    }

    /// The fields of a key as this packing has them, and `payload` after them with all its bits.
    pub(crate) fn with_payload(&self, payload: impl IntoIterator<Item = ValueType>) -> Self {
        let mut packing = self.clone();
        packing.push_all(payload, true);
        packing
    }

    fn push_all(&mut self, values: impl IntoIterator<Item = ValueType>, is_exact: bool) {
        for value in values {
            let bits = if is_exact && value.kind == Kind::F32 { 32 } else { value_bits(value.kind) };
            let place = self.place(bits);
            let null_place = value.nullable.then(|| self.place(1));
            self.fields.push(PackedField { value, place, null_place, is_exact });
        }
    }

    /// The bounds of the one field, if that is an integer and never null: the word is the value less the lower one.
    pub fn single_integer(&self) -> Option<Range> {
        match self.fields.as_slice() {
            [PackedField { value: ValueType { kind: Kind::Int(range), .. }, null_place: None, .. }] => Some(*range),
            _ => None,
        }
    }

    /// Numbers that a single word can be, from 0 on; `None` for several words and for 2^63 numbers and more.
    pub fn span(&self) -> Option<u64> {
        if self.single_integer().is_some() {
            return self.integer_span();
        }
        self.single_word_bits().filter(|&bits| bits < 63).map(|bits| 1 << bits)
    }

    /// How many numbers the only key may have, an integer.
    pub fn integer_span(&self) -> Option<u64> {
        let range = self.single_integer()?;
        u64::try_from(range.max.checked_sub(range.min)?).ok()?.checked_add(1)
    }

    /// Bytes of a bitmap with a bit for each number that [`Self::span`] tells of: words of 32 bits.
    pub fn bitmap_bytes(&self) -> u64 {
        self.span().unwrap_or(0).div_ceil(32) * 4
    }

    /// Bits of each word that the first `fields` fields take.
    pub(crate) fn masks_of(&self, fields: usize) -> Vec<u64> {
        let mut masks = vec![0u64; self.words()];
        let mut add = |place: Place| match place.bits {
            0 => {}
            64 | 128 => (0..place.bits as usize / 64).for_each(|part| masks[place.word + part] = u64::MAX),
            bits => masks[place.word] |= ((1u64 << bits) - 1) << place.shift,
        };
        for field in &self.fields[..fields] {
            add(field.place);
            field.null_place.into_iter().for_each(&mut add);
        }
        masks
    }

    /// Whether a field belongs to a word: has bits in it or, where it takes none, is evaluated with the first one, for
    /// the errors that it may raise.
    pub(crate) fn is_in(&self, field: usize, word: usize) -> bool {
        let holds = |place: Place| (place.word..=place.word + usize::from(place.bits == 128)).contains(&word);
        let field = &self.fields[field];
        holds(field.place) || field.null_place.is_some_and(holds)
    }

    fn place(&mut self, bits: u32) -> Place {
        if bits > 64 {
            self.word_bits.extend([64, 64]);
            return Place { word: self.word_bits.len() - 2, shift: 0, bits: 128 };
        }
        if bits == 0 {
            return Place { word: 0, shift: 0, bits: 0 };
        }
        let word = match self.word_bits.iter().position(|used| used + bits <= 64) {
            Some(word) => word,
            None => {
                self.word_bits.push(0);
                self.word_bits.len() - 1
            }
        };
        let shift = self.word_bits[word];
        self.word_bits[word] += bits;
        Place { word, shift, bits }
    }

    /// Words needed.
    pub fn words(&self) -> usize {
        self.word_bits.len()
    }

    /// Bits needed if one word does, so that every packed word is below 2^bits.
    pub fn single_word_bits(&self) -> Option<u32> {
        match self.word_bits.as_slice() {
            [] => Some(0),
            [bits] => Some(*bits),
            _ => None,
        }
    }
}

/// Bits that a value's bounds need.
fn value_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Bool => 1,
        Kind::F32 | Kind::F64 => 64,
        Kind::Int(range) => range.span_bits(),
    }
}
