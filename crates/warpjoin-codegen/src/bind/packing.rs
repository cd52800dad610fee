//! Packs values into the words of a [`Packing`], and reads them back.

use super::binder::Binder;
use super::value::Value;
use crate::program::{Code, Function, Op};
use crate::shapes::{PackedField, Packing, Place};
use crate::value::{CType, Kind, RangeType};

impl Packing {
    /// Binds the words of `values`, which are within the bounds of this packing.
    pub(crate) fn pack(&self, b: &mut Binder, values: &[Value]) -> Vec<Code> {
        let mut parts: Vec<Vec<Code>> = vec![vec![]; self.words()];
        for (field, value) in self.fields.iter().zip(values) {
            for (word, code) in field.parts(b, value) {
                parts[word].push(code);
            }
        }
        parts.into_iter().map(|parts| joined(b, parts)).collect()
    }

    /// Binds one word: of each field that has bits in it, `values` holds the value.
    pub(crate) fn pack_word(&self, b: &mut Binder, values: &[(usize, Value)], wanted: usize) -> Code {
        let mut parts = vec![];
        for (field, value) in values {
            let of_field = self.fields[*field].parts(b, value);
            parts.extend(of_field.into_iter().filter(|(word, _)| *word == wanted).map(|(_, code)| code));
        }
        joined(b, parts)
    }

    /// The values, read back from words.
    pub(crate) fn unpack(&self, b: &mut Binder, words: &[Code]) -> Vec<Value> {
        self.fields.iter().map(|field| field.unpack(b, words)).collect()
    }

    /// Conditions under which `values` of another side lie within this packing's bounds and are
    /// not null; what bounds prove is left out.
    pub(crate) fn within(&self, b: &mut Binder, values: &[Value], nulls_are_values: bool) -> Vec<Code> {
        let mut conditions = vec![];
        for (field, value) in self.fields.iter().zip(values) {
            let accepts_null = nulls_are_values && field.null_place.is_some();
            let mut tests = vec![];
            if let (Kind::Int(bounds), Some(range)) = (field.value.kind, value.range()) {
                let c_type = bounds.union(range).c_type();
                let code = b.code_as(value, c_type);
                if range.min < bounds.min {
                    let least = b.bound(bounds.min, c_type);
                    tests.push(b.binary(code, Op::GreaterOrEqual, least));
                }
                if range.max > bounds.max {
                    let most = b.bound(bounds.max, c_type);
                    tests.push(b.binary(code, Op::LessOrEqual, most));
                }
            }
            match (value.valid, accepts_null, b.chain(Op::And, tests.iter().copied())) {
                (Some(valid), false, _) => tests.push(valid),
                (Some(valid), true, Some(all)) => tests = vec![b.in_parens(b.not(valid), Op::Or, b.parens(all))],
                _ => {}
            }
            conditions.extend(tests);
        }
        conditions
    }
}

/// Names a word made of parts.
fn joined(b: &mut Binder, parts: Vec<Code>) -> Code {
    let code = b.chain(Op::BitOr, parts).unwrap_or_else(|| b.whole(0));
    b.temporary(CType::U64, code)
}

impl PackedField {
    /// The parts of words that a value makes: word, and code with the bits in their place.
    fn parts(&self, b: &mut Binder, value: &Value) -> Vec<(usize, Code)> {
        let mut parts = vec![];
        let offset = self.offset_code(b, value);
        let shifted = |b: &Binder, code, shift: u32| b.in_parens(code, Op::ShiftLeft, b.whole(shift.into()));
        let masked = match (value.valid, self.null_place) {
            (Some(valid), Some(null)) => {
                parts.push((null.word, shifted(b, b.cast(CType::U64, b.not(valid)), null.shift)));
                offset.map(|code| b.parens(b.select(valid, code, b.whole(0))))
            }
            _ => offset,
        };
        let Some(code) = masked else { return parts };
        if self.place.bits == 128 {
            let wide = b.temporary(CType::I128, code);
            parts.push((self.place.word, b.cast(CType::U64, wide)));
            let high = b.in_parens(b.cast(CType::U128, wide), Op::ShiftRight, b.whole(64));
            parts.push((self.place.word + 1, b.cast(CType::U64, high)));
        } else {
            parts.push((self.place.word, shifted(b, b.cast(CType::U64, code), self.place.shift)));
        }
        parts
    }

    /// The value's number from its lower bound on; `None` if it takes no bits.
    fn offset_code(&self, b: &mut Binder, value: &Value) -> Option<Code> {
        if self.place.bits == 0 {
            return None;
        }
        let word = |b: &Binder, function| b.cast(CType::U64, b.call(function, &[value.code]));
        Some(match self.value.kind {
            Kind::Bool => b.cast(CType::U64, value.code),
            Kind::F32 if self.is_exact => word(b, Function::BitsOfSingle),
            Kind::F64 if self.is_exact => word(b, Function::BitsOfDouble),
            Kind::F32 | Kind::F64 => b.call(Function::FloatKey, &[b.cast(CType::F64, value.code)]),
            Kind::Int(_) if self.place.bits == 128 => b.code_as(value, CType::I128),
            Kind::Int(range) => {
                // Modulo 2^64 the difference is exact, and what is out of bounds does not overflow.
                let min = b.bound(range.min, range.c_type());
                b.in_parens(b.cast(CType::U64, value.code), Op::Subtract, b.cast(CType::U64, min))
            }
        })
    }

    fn unpack(&self, b: &mut Binder, words: &[Code]) -> Value {
        let Place { word, shift, bits } = self.place;
        let raw = match bits {
            0 => b.word(0),
            64 | 128 => words[word],
            _ => {
                let shifted = b.binary(words[word], Op::ShiftRight, b.whole(shift.into()));
                b.in_parens(shifted, Op::BitAnd, b.mask(bits))
            }
        };
        let code = match self.value.kind {
            Kind::Bool => b.in_parens(raw, Op::NotEqual, b.whole(0)),
            Kind::F32 if self.is_exact => b.call(Function::SingleOfBits, &[b.cast(CType::U32, raw)]),
            Kind::F32 => b.cast(CType::F32, double_of(b, raw)),
            Kind::F64 => double_of(b, raw),
            Kind::Int(_) if bits == 128 => {
                let high = b.binary(b.cast(CType::U128, words[word + 1]), Op::ShiftLeft, b.whole(64));
                b.cast(CType::I128, b.in_parens(high, Op::BitOr, words[word]))
            }
            Kind::Int(range) => {
                let min = b.bound(range.min, range.c_type());
                match range.c_type() {
                    CType::I128 => b.in_parens(min, Op::Add, b.cast(CType::I128, raw)),
                    c_type => {
                        let sum = b.in_parens(b.cast(CType::U64, min), Op::Add, raw);
                        b.cast_in_parens(c_type, sum)
                    }
                }
            }
        };
        let valid = self.null_place.map(|null| {
            let shifted = b.binary(words[null.word], Op::ShiftRight, b.whole(null.shift.into()));
            let bit = b.in_parens(shifted, Op::BitAnd, b.whole(1));
            b.in_parens(bit, Op::Equal, b.whole(0))
        });
        Value::of_type(code, valid, &self.value)
    }
}

fn double_of(b: &Binder, bits: Code) -> Code {
    b.call(Function::DoubleOfBits, &[b.cast(CType::I64, bits)])
}
