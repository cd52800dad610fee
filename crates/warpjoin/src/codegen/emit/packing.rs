//! Code that packs values into the words of a [`Packing`], and reads them back.

use super::emitter::Emitter;
use crate::codegen::shapes::{PackedField, Packing, Place};
use crate::codegen::value::{CType, Kind, Range, Value};

impl Packing {
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
        Value::of_type(code, valid, &self.value)
    }
}

/// The lower bound as a parameter.
pub(in crate::codegen) fn lower(emitter: &mut Emitter, range: Range) -> String {
    bound(emitter, range.min, range.c_type())
}

fn bound(emitter: &mut Emitter, value: i128, c_type: CType) -> String {
    if c_type == CType::I128 {
        emitter.params.wide_number(value)
    } else {
        format!("(({}){})", c_type.name(), emitter.params.number(value as i64))
    }
}
