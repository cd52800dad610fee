//! Keys of an order as words whose unsigned order is that of the keys.
//!
//! The first key has the highest bits. A value takes as many bits as its bounds need, a null one more bit in front of
//! them; bounds are parameters. A part of a key never lies in two words.

use arrow::datatypes::DataType;

use super::emitter::{Emitter, Environment};
use super::expr::evaluate;
use super::lookup;
use super::packing::lower;
use super::params::Binding;
use super::shapes::{SortShape, WindowKeys};
use super::store::{reserve, write};
use super::value::{CType, Kind, Range, Value};
use crate::column::ColumnType;
use crate::expr::ExprKind;
use crate::plan::SortKey;
use crate::{Error, Reason, Result};

/// Bits of a word that is stored in four bytes.
const NARROW_BITS: u32 = 32;

/// The lowest `bits` bits of a word to be: a C expression of u64.
struct Part {
    code: String,
    bits: u32,
}

/// Emits [`super::shapes::Sink::Sort`].
pub(crate) fn sort(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[SortKey],
    columns: &[usize],
    window: Option<&WindowKeys>,
) -> Result<SortShape> {
    reserve(emitter);
    let (mut parts, mut values, mut partition_parts) = (vec![], vec![], 0);
    for (index, key) in keys.iter().enumerate() {
        values.push(add_key(emitter, environment, key, &mut parts)?);
        if window.is_some_and(|window| index < window.partition_keys) {
            partition_parts = parts.len();
        }
    }
    let partition_masks = if window.is_some() { masks_of(&parts, partition_parts) } else { vec![] };
    let words = words_of(emitter, &parts);
    let word_bits: Vec<u32> = words.iter().map(|word| word.bits).collect();
    let key_column = match (keys, values.as_slice(), word_bits.as_slice()) {
        ([key], [value], &[bits]) if window.is_none() => key_column(key, value, bits, columns),
        _ => None,
    };
    let mut outputs: Vec<Value> = words.into_iter().map(stored_word).collect();
    for (position, &column) in columns.iter().enumerate() {
        if key_column.as_ref().is_none_or(|(of_key, _)| *of_key != position) {
            let value = emitter.column(environment, column)?;
            let is_compared = window.is_some_and(|window| window.compared.contains(&position));
            outputs.push(if is_compared { with_ordered_codes(emitter, value)? } else { value });
        }
    }
    Ok(SortShape { columns: write(emitter, &outputs), word_bits, key_column, partition_masks })
}

/// Adds the parts of a key; its value.
fn add_key(emitter: &mut Emitter, environment: &Environment, key: &SortKey, parts: &mut Vec<Part>) -> Result<Value> {
    let value = evaluate(emitter, &key.expr, environment)?;
    let value = with_ordered_codes(emitter, value)?;
    key_parts(emitter, &value, key, parts);
    Ok(value)
}

/// The column put out that is stored just as the word of the only key.
fn key_column(key: &SortKey, value: &Value, bits: u32, columns: &[usize]) -> Option<(usize, ColumnType)> {
    let (ExprKind::Column(column), Kind::Int(range), None, false) =
        (&key.expr.kind, value.kind, &value.valid, key.descending)
    else {
        return None;
    };
    let column_type = value.column_type();
    let layout = column_type.layout();
    let word_bytes = if bits <= NARROW_BITS { 4 } else { 8 };
    let is_word = layout.width_bytes == word_bytes && layout.base == range.min;
    let position = columns.iter().position(|other| other == column)?;
    is_word.then_some((position, column_type))
}

/// The words of keys, and the keys' values.
fn words_of_keys(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[SortKey],
) -> Result<(Vec<Part>, Vec<Value>)> {
    let (mut parts, mut values) = (vec![], vec![]);
    for key in keys {
        values.push(add_key(emitter, environment, key, &mut parts)?);
    }
    Ok((words_of(emitter, &parts), values))
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
fn with_ordered_codes(emitter: &mut Emitter, value: Value) -> Result<Value> {
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
fn key_parts(emitter: &mut Emitter, value: &Value, key: &SortKey, parts: &mut Vec<Part>) {
    if let Some(valid) = &value.valid {
        let code = if key.nulls_first { valid.clone() } else { format!("!{valid}") };
        parts.push(Part { code: format!("(u64)({code})"), bits: 1 });
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
    let mut push = |code: String, bits: u32| parts.push(Part { code: masked(directed(code, bits)), bits });
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

/// Bits of each word of parts that lie in it, as [`words_of`] puts them.
fn masks_of(parts: &[Part], wanted: usize) -> Vec<u64> {
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
fn words_of(emitter: &mut Emitter, parts: &[Part]) -> Vec<Part> {
    let mut words: Vec<Part> = vec![];
    for part in parts {
        match words.last_mut() {
            Some(word) if word.bits + part.bits <= 64 => {
                word.code = format!("({} << {} | {})", word.code, part.bits, part.code);
                word.bits += part.bits;
            }
            _ => words.push(Part { code: part.code.clone(), bits: part.bits }),
        }
    }
    for word in &mut words {
        let name = emitter.fresh("t");
        emitter.statement(&format!("const u64 {name} = {};", word.code));
        word.code = name;
    }
    words
}

/// A word as an output column of 4 or 8 bytes.
fn stored_word(word: Part) -> Value {
    let max = if word.bits <= NARROW_BITS { u32::MAX.into() } else { u64::MAX.into() };
    Value::new(word.code, Kind::Int(Range::new(0, max)), DataType::UInt64)
}
