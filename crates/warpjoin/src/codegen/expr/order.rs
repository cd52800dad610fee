//! Keys of an order as words whose unsigned order is that of the keys.
//!
//! The first key has the highest bits. A value takes as many bits as its bounds need, a null one more bit in front of
//! them; bounds are parameters. A part of a key never lies in two words.

use arrow::datatypes::DataType;

use super::evaluate::evaluate;
use crate::codegen::emit::{Binding, Emitter, Environment, lower};
use crate::codegen::lookup;
use crate::codegen::value::{CType, Kind, Range, Value};
use crate::plan::SortKey;
use crate::{Error, Reason, Result};

/// The lowest `bits` bits of a word to be: a C expression of u64.
pub(in crate::codegen) struct KeyPart {
    pub code: String,
    pub bits: u32,
}

/// Adds the parts of a key; its value.
pub(in crate::codegen) fn add_order_key(
    emitter: &mut Emitter,
    environment: &Environment,
    key: &SortKey,
    parts: &mut Vec<KeyPart>,
) -> Result<Value> {
    let value = evaluate(emitter, &key.expr, environment)?;
    let value = with_sorted_codes(emitter, value)?;
    add_parts(emitter, &value, key, parts);
    Ok(value)
}

/// The words of keys, and the keys' values.
fn words_of_keys(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[SortKey],
) -> Result<(Vec<KeyPart>, Vec<Value>)> {
    let (mut parts, mut values) = (vec![], vec![]);
    for key in keys {
        values.push(add_order_key(emitter, environment, key, &mut parts)?);
    }
    Ok((words_of_parts(emitter, &parts), values))
}

/// Emits [`crate::expr::ExprKind::OrderWord`].
pub(super) fn word(emitter: &mut Emitter, environment: &Environment, keys: &[SortKey], index: usize) -> Result<Value> {
    let (words, _) = words_of_keys(emitter, environment, keys)?;
    let word = words.get(index).ok_or_else(|| Error::internal(format!("word {index} of {}", words.len())))?;
    let range = Range::new(0, (1i128 << word.bits) - 1);
    let code = format!("(({}){})", range.c_type().name(), word.code);
    // Sinks use it in later sections.
    Ok(emitter.hoist(Value::new(code, Kind::Int(range), DataType::UInt64)))
}

/// Emits [`crate::expr::ExprKind::RowNumber`].
pub(super) fn row_number(emitter: &mut Emitter, max: u64) -> Value {
    let range = Range::new(0, max.into());
    let first = emitter.params.once("u64", Binding::SourceFirstRow);
    let code = format!("(({})({first} + row))", range.c_type().name());
    Value::new(code, Kind::Int(range), DataType::UInt64)
}

/// Strings as codes that compare like them.
pub(in crate::codegen) fn with_sorted_codes(emitter: &mut Emitter, value: Value) -> Result<Value> {
    match &value.dictionary {
        Some(dictionary) => {
            let sorted = dictionary.sorted()?;
            lookup::recode(emitter, &value, &sorted)
        }
        None if crate::column::holds_strings(&value.data_type) => {
            Err(Reason::Expression("an order of strings without a dictionary".into()).into())
        }
        None => Ok(value),
    }
}

/// Adds the parts of one key.
fn add_parts(emitter: &mut Emitter, value: &Value, key: &SortKey, parts: &mut Vec<KeyPart>) {
    if let Some(valid) = &value.valid {
        let code = if key.nulls_first { valid.clone() } else { format!("!{valid}") };
        parts.push(KeyPart { code: format!("(u64)({code})"), bits: 1 });
    }
    // Nulls have one code, so that later keys tell them apart.
    let masked = |code: String| match &value.valid {
        Some(valid) => format!("({valid} ? {code} : 0)"),
        None => code,
    };
    let directed = |code: String, bits: u32| match (key.descending, bits) {
        (false, _) => code,
        (true, 64) => format!("~{code}"),
        (true, bits) => format!("({code} ^ {:#x}ULL)", (1u64 << bits) - 1),
    };
    let mut push = |code: String, bits: u32| parts.push(KeyPart { code: masked(directed(code, bits)), bits });
    match value.kind {
        Kind::Bool => push(format!("(u64){}", value.code), 1),
        Kind::F32 => push(format!("(u64)order_code_f32({})", value.code), 32),
        Kind::F64 => push(format!("order_code_f64({})", value.code), 64),
        Kind::Int(range) => match range.span_bits() {
            0 => {}
            // Modulo 2^64 the difference is exact.
            bits @ 1..=64 => {
                let min = lower(emitter, range);
                push(format!("((u64){} - (u64){min})", value.code), bits);
            }
            bits => {
                let min = lower(emitter, range);
                let code = format!("(i128)((u128){} - (u128){min})", value.code_as(CType::I128));
                let wide = emitter.temporary(CType::I128, &code);
                push(format!("(u64)((u128){wide} >> 64)"), bits - 64);
                push(format!("(u64){wide}"), 64);
            }
        },
    }
}

/// Bits of each word of parts that lie in it, as [`words_of_parts`] puts them.
pub(in crate::codegen) fn masks_of_parts(parts: &[KeyPart], wanted: usize) -> Vec<u64> {
    // Parts of each word: bits, and whether they are wanted.
    let mut words: Vec<(u32, u64)> = vec![];
    for (index, part) in parts.iter().enumerate() {
        let ones = if part.bits == 64 { u64::MAX } else { (1u64 << part.bits) - 1 };
        let own = if index < wanted { ones } else { 0 };
        match words.last_mut() {
            Some((bits, mask)) if *bits + part.bits <= 64 => {
                *mask = mask.checked_shl(part.bits).unwrap_or(0) | own;
                *bits += part.bits;
            }
            _ => words.push((part.bits, own)),
        }
    }
    words.into_iter().map(|(_, mask)| mask).collect()
}

/// Puts parts side by side, each into the word before it if there is room.
pub(in crate::codegen) fn words_of_parts(emitter: &mut Emitter, parts: &[KeyPart]) -> Vec<KeyPart> {
    let mut words: Vec<KeyPart> = vec![];
    for part in parts {
        match words.last_mut() {
            Some(word) if word.bits + part.bits <= 64 => {
                word.code = format!("({} << {} | {})", word.code, part.bits, part.code);
                word.bits += part.bits;
            }
            _ => words.push(KeyPart { code: part.code.clone(), bits: part.bits }),
        }
    }
    for word in &mut words {
        let name = emitter.fresh("t");
        emitter.statement(&format!("const u64 {name} = {};", word.code));
        word.code = name;
    }
    words
}
