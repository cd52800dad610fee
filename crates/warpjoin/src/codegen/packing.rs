//! Several values in the bits of few words: join keys, payloads in slots, group keys.
//!
//! A value takes as many bits as its bounds need, and a null one more bit. The bounds themselves are
//! parameters; only widths and places are part of the code.

use super::emitter::Emitter;
use super::value::{CType, Kind, Range, Value};
use crate::identity::identify_fields;

/// Places of values in words.
#[derive(Debug, Clone)]
pub(crate) struct Packing {
    pub fields: Vec<PackedField>,
    /// Bits used in each word.
    pub word_bits: Vec<u32>,
}

/// Place of one value.
#[derive(Debug, Clone)]
pub(crate) struct PackedField {
    /// What is packed; its code and validity are those of the packing side.
    pub value: Value,
    place: Place,
    null_place: Option<Place>,
    /// Floats keep all their bits, rather than those that tell keys apart.
    is_exact: bool,
}

/// Bits of a word. A value of more than 64 bits takes two whole words.
#[derive(Debug, Clone, Copy)]
struct Place {
    word: usize,
    shift: u32,
    bits: u32,
}

identify_fields! {
    Packing { fields, word_bits }
    PackedField { value, place, null_place, is_exact }
    Place { word, shift, bits }
}

impl Packing {
    /// Packs `values` in order, each into the first word with room.
    pub(crate) fn of(values: &[Value]) -> Self {
        let mut packing = Self { fields: vec![], word_bits: vec![] };
        packing.push_all(values, false);
        packing
    }

    /// The fields of a key as this packing has them, and `payload` after them with all its bits.
    pub(crate) fn with_payload(&self, payload: &[Value]) -> Self {
        let mut packing = self.clone();
        packing.push_all(payload, true);
        packing
    }

    fn push_all(&mut self, values: &[Value], is_exact: bool) {
        for value in values {
            let bits = if is_exact && value.kind == Kind::F32 { 32 } else { value_bits(value) };
            let place = self.place(bits);
            let null_place = value.valid.is_some().then(|| self.place(1));
            self.fields.push(PackedField { value: value.clone(), place, null_place, is_exact });
        }
    }

    /// Numbers that a single word can be, from 0 on; `None` for several words and for 2^63 numbers and more.
    pub(crate) fn span(&self) -> Option<u64> {
        if let [field] = self.fields.as_slice()
            && let (Kind::Int(range), None) = (field.value.kind, field.null_place)
        {
            return u64::try_from(range.max.checked_sub(range.min)?).ok()?.checked_add(1);
        }
        self.single_word_bits().filter(|&bits| bits < 63).map(|bits| 1 << bits)
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
    pub(crate) fn words(&self) -> usize {
        self.word_bits.len()
    }

    /// Bits needed if one word does, so that every packed word is below 2^bits.
    pub(crate) fn single_word_bits(&self) -> Option<u32> {
        match self.word_bits.as_slice() {
            [] => Some(0),
            [bits] => Some(*bits),
            _ => None,
        }
    }

    /// Emits the words of `values`, which are within the bounds of this packing.
    pub(crate) fn pack(&self, emitter: &mut Emitter, values: &[Value]) -> Vec<String> {
        let mut parts: Vec<Vec<String>> = vec![vec![]; self.words()];
        for (field, value) in self.fields.iter().zip(values) {
            for (word, code) in field.parts(emitter, value) {
                parts[word].push(code);
            }
        }
        parts.into_iter().map(|parts| joined(emitter, &parts)).collect()
    }

    /// Emits one word: of each field that has bits in it, `values` holds the value.
    pub(crate) fn pack_word(&self, emitter: &mut Emitter, values: &[(usize, Value)], wanted: usize) -> String {
        let mut parts = vec![];
        for (field, value) in values {
            let of_field = self.fields[*field].parts(emitter, value);
            parts.extend(of_field.into_iter().filter(|(word, _)| *word == wanted).map(|(_, code)| code));
        }
        joined(emitter, &parts)
    }

    /// The values, read back from words.
    pub(crate) fn unpack(&self, emitter: &mut Emitter, words: &[String]) -> Vec<Value> {
        self.fields.iter().map(|field| field.unpack(emitter, words)).collect()
    }

    /// C conditions under which `values` of another side lie within this packing's bounds and are
    /// not null; what bounds prove is left out.
    pub(crate) fn within(&self, emitter: &mut Emitter, values: &[Value], nulls_are_values: bool) -> Vec<String> {
        let mut conditions = vec![];
        for (field, value) in self.fields.iter().zip(values) {
            let accepts_null = nulls_are_values && field.null_place.is_some();
            let mut tests = vec![];
            if let (Kind::Int(bounds), Some(range)) = (field.value.kind, value.range()) {
                let c_type = bounds.union(range).c_type();
                let code = value.code_as(c_type);
                if range.min < bounds.min {
                    tests.push(format!("{code} >= {}", bound(emitter, bounds.min, c_type)));
                }
                if range.max > bounds.max {
                    tests.push(format!("{code} <= {}", bound(emitter, bounds.max, c_type)));
                }
            }
            match (&value.valid, accepts_null) {
                (Some(valid), false) => tests.push(valid.clone()),
                (Some(valid), true) if !tests.is_empty() => {
                    tests = vec![format!("(!{valid} || ({}))", tests.join(" && "))]
                }
                _ => {}
            }
            conditions.extend(tests);
        }
        conditions
    }
}

/// Names a word made of parts.
fn joined(emitter: &mut Emitter, parts: &[String]) -> String {
    let name = emitter.fresh("t");
    let code = if parts.is_empty() { "0".into() } else { parts.join(" | ") };
    emitter.statement(&format!("const u64 {name} = {code};"));
    name
}

impl PackedField {
    /// The parts of words that a value makes: word, and code with the bits in their place.
    fn parts(&self, emitter: &mut Emitter, value: &Value) -> Vec<(usize, String)> {
        let mut parts = vec![];
        let offset = self.offset_code(emitter, value);
        let masked = match (&value.valid, self.null_place) {
            (Some(valid), Some(null)) => {
                parts.push((null.word, format!("((u64)!{valid} << {})", null.shift)));
                offset.map(|code| format!("({valid} ? {code} : 0)"))
            }
            _ => offset,
        };
        let Some(code) = masked else { return parts };
        if self.place.bits == 128 {
            let wide = emitter.temporary(CType::I128, &code);
            parts.push((self.place.word, format!("(u64){wide}")));
            parts.push((self.place.word + 1, format!("(u64)((u128){wide} >> 64)")));
        } else {
            parts.push((self.place.word, format!("((u64){code} << {})", self.place.shift)));
        }
        parts
    }

    /// The value's number from its lower bound on; `None` if it takes no bits.
    fn offset_code(&self, emitter: &mut Emitter, value: &Value) -> Option<String> {
        if self.place.bits == 0 {
            return None;
        }
        Some(match self.value.kind {
            Kind::Bool => format!("(u64){}", value.code),
            Kind::F32 if self.is_exact => format!("(u64)__float_as_uint({})", value.code),
            Kind::F64 if self.is_exact => format!("(u64)__double_as_longlong({})", value.code),
            Kind::F32 | Kind::F64 => format!("float_key((f64){})", value.code),
            Kind::Int(_) if self.place.bits == 128 => value.code_as(CType::I128),
            Kind::Int(range) => {
                // Modulo 2^64 the difference is exact, and what is out of bounds does not overflow.
                let min = lower(emitter, range);
                format!("((u64){} - (u64){min})", value.code)
            }
        })
    }

    fn unpack(&self, emitter: &mut Emitter, words: &[String]) -> Value {
        let Place { word, shift, bits } = self.place;
        let raw = match bits {
            0 => "0ULL".to_string(),
            64 | 128 => words[word].clone(),
            _ => format!("({} >> {shift} & {:#x}ULL)", words[word], (1u64 << bits) - 1),
        };
        let code = match self.value.kind {
            Kind::Bool => format!("({raw} != 0)"),
            Kind::F32 if self.is_exact => format!("__uint_as_float((u32){raw})"),
            Kind::F32 => format!("(f32)__longlong_as_double((i64){raw})"),
            Kind::F64 => format!("__longlong_as_double((i64){raw})"),
            Kind::Int(_) if bits == 128 => format!("(i128)((u128){} << 64 | {})", words[word + 1], words[word]),
            Kind::Int(range) => {
                let min = lower(emitter, range);
                match range.c_type() {
                    CType::I128 => format!("({min} + (i128){raw})"),
                    c_type => format!("(({})((u64){min} + {raw}))", c_type.name()),
                }
            }
        };
        let valid = self.null_place.map(|null| format!("(({} >> {} & 1) == 0)", words[null.word], null.shift));
        Value { code, valid, ..self.value.clone() }
    }
}

/// Bits that a value's bounds need.
fn value_bits(value: &Value) -> u32 {
    match value.kind {
        Kind::Bool => 1,
        Kind::F32 | Kind::F64 => 64,
        Kind::Int(range) => range.span_bits(),
    }
}

/// The lower bound as a parameter.
pub(super) fn lower(emitter: &mut Emitter, range: Range) -> String {
    bound(emitter, range.min, range.c_type())
}

fn bound(emitter: &mut Emitter, value: i128, c_type: CType) -> String {
    if c_type == CType::I128 {
        emitter.params.wide_number(value)
    } else {
        format!("(({}){})", c_type.name(), emitter.params.number(value as i64))
    }
}
