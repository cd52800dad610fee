//! Keys of an order as words whose unsigned order is that of the keys.
//!
//! The first key has the highest bits. A value takes as many bits as its bounds need, a null one more bit in front of
//! them; bounds are parameters. A part of a key never lies in two words.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{KeyPiece, OrderPart};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_plan::plan::SortKey;

use super::evaluate::evaluate;
use crate::bind::{Binder, Environment, Value};
use crate::lookup;
use crate::program::{Binding, Code, Function, Op, Type, Variable};
use crate::value::{CType, Kind, Range, RangeType};

/// The lowest `bits` bits of a word to be: a u64.
#[derive(Clone, Copy)]
pub(crate) struct KeyPart {
    pub code: Code,
    pub bits: u32,
}

/// Adds the parts of a key; its value.
pub(crate) fn add_order_key(
    b: &mut Binder,
    environment: &Environment,
    key: &SortKey,
    parts: &mut Vec<KeyPart>,
) -> Result<Value> {
    let value = evaluate(b, &key.expr, environment)?;
    let value = with_sorted_codes(b, value)?;
    add_parts(b, &value, key, parts);
    Ok(value)
}

/// Binds [`warpjoin_columns::expr::ExprKind::OrderWord`].
pub(super) fn word(b: &mut Binder, environment: &Environment, parts: &[OrderPart]) -> Result<Value> {
    let mut placed = vec![];
    for part in parts {
        let value = evaluate(b, &part.key.expr, environment)?;
        let value = with_sorted_codes(b, value)?;
        placed.push(planned_part(b, &value, part)?);
    }
    let words = words_of_parts(b, &placed);
    let [word] = words.as_slice() else { return Err(Error::internal(format!("{} words in one", words.len()))) };
    let range = Range::new(0, (1i128 << word.bits) - 1);
    let code = b.cast_in_parens(range.c_type(), word.code);
    // Sinks use it in later sections.
    Ok(b.hoist(Value::new(code, Kind::Int(range), DataType::UInt64)))
}

/// Binds [`warpjoin_columns::expr::ExprKind::RowNumber`].
pub(super) fn row_number(b: &mut Binder, max: u64) -> Value {
    let range = Range::new(0, max.into());
    let first = b.params.once(Type::Value(CType::U64), Binding::SourceFirstRow);
    let number = b.in_parens(b.field(first), Op::Add, b.variable(Variable::Row, CType::U64));
    Value::new(b.cast_in_parens(range.c_type(), number), Kind::Int(range), DataType::UInt64)
}

/// Strings as codes that compare like them.
pub(crate) fn with_sorted_codes(b: &mut Binder, value: Value) -> Result<Value> {
    match &value.dictionary {
        Some(dictionary) => {
            let sorted = dictionary.sorted()?;
            lookup::recode(b, &value, &sorted)
        }
        None if warpjoin_columns::column::holds_strings(&value.data_type) => {
            Err(Reason::Expression("an order of strings without a dictionary".into()).into())
        }
        None => Ok(value),
    }
}

/// Adds the parts of one key.
fn add_parts(b: &mut Binder, value: &Value, key: &SortKey, parts: &mut Vec<KeyPart>) {
    if value.valid.is_some() {
        parts.push(KeyPart { code: null_code(b, value, key), bits: 1 });
    }
    let mut push = |b: &Binder, code, bits| parts.push(KeyPart { code: directed(b, code, bits, value, key), bits });
    match (whole_code(b, value), value.kind) {
        (Some((_, 0)), _) => {}
        (Some((code, bits)), _) => push(b, code, bits),
        (None, Kind::Int(range)) => {
            let wide = wide_distance(b, value, range.min, range.c_type());
            push(b, high_code(b, wide), range.span_bits() - u64::BITS);
            push(b, b.cast(CType::U64, wide), u64::BITS);
        }
        (None, _) => {}
    }
}

/// A part of a key whose bits were planned. What a pipeline knows of the key's bounds may be less than what was known of the plan: its
/// rows are those of the plan all the same.
fn planned_part(b: &mut Binder, value: &Value, part: &OrderPart) -> Result<KeyPart> {
    let OrderPart { key, piece, bits, least } = part;
    let beyond = || Error::internal(format!("{} in {bits} bits of an order", key.expr));
    let code = match (piece, value.kind) {
        (KeyPiece::Null, _) => return Ok(KeyPart { code: null_code(b, value, key), bits: *bits }),
        (KeyPiece::Whole, Kind::Int(_)) => {
            let most = (1i128 << bits) - 1;
            distance(b, value, Range::new(*least, least.saturating_add(most)))
        }
        (KeyPiece::Whole, _) => match whole_code(b, value) {
            Some((code, own_bits)) if own_bits <= *bits => code,
            _ => return Err(beyond()),
        },
        (KeyPiece::High | KeyPiece::Low, Kind::Int(_)) => {
            let wide = wide_distance(b, value, *least, CType::I128);
            if *piece == KeyPiece::High { high_code(b, wide) } else { b.cast(CType::U64, wide) }
        }
        (KeyPiece::High | KeyPiece::Low, _) => return Err(beyond()),
    };
    Ok(KeyPart { code: directed(b, code, *bits, value, key), bits: *bits })
}

/// Whether a value comes behind null, or a null behind values.
fn null_code(b: &Binder, value: &Value, key: &SortKey) -> Code {
    let code = match (value.valid, key.nulls_first) {
        (Some(valid), true) => valid,
        (Some(valid), false) => b.not(valid),
        (None, nulls_first) => b.truth(nulls_first),
    };
    b.cast(CType::U64, b.parens(code))
}

/// A value as an unsigned number, and its bits; `None`: it takes more than 64.
fn whole_code(b: &mut Binder, value: &Value) -> Option<(Code, u32)> {
    match value.kind {
        Kind::Bool => Some((b.cast(CType::U64, value.code), 1)),
        Kind::F32 => Some((b.cast(CType::U64, b.call(Function::OrderCodeSingle, &[value.code])), 32)),
        Kind::F64 => Some((b.call(Function::OrderCodeDouble, &[value.code]), 64)),
        Kind::Int(range) => match range.span_bits() {
            0 => Some((b.word(0), 0)),
            bits @ 1..=u64::BITS => Some((distance(b, value, range), bits)),
            _ => None,
        },
    }
}

/// What is above the lowest 64 bits.
fn high_code(b: &Binder, wide: Code) -> Code {
    b.cast(CType::U64, b.in_parens(b.cast(CType::U128, wide), Op::ShiftRight, b.whole(64)))
}

/// A part of a value in the direction of its key. Nulls have one code, so that later keys tell them apart.
fn directed(b: &Binder, code: Code, bits: u32, value: &Value, key: &SortKey) -> Code {
    let code = match (key.descending, bits) {
        (false, _) => code,
        (true, 64) => b.complement(code),
        (true, bits) => b.in_parens(code, Op::BitXor, b.mask(bits)),
    };
    value.valid.map_or(code, |valid| b.parens(b.select(valid, code, b.whole(0))))
}

/// How far an integer is above the lower bound of a range of up to 64 bits, which has it.
fn distance(b: &mut Binder, value: &Value, range: Range) -> Code {
    let min = b.bound(range.min, range.c_type());
    // Modulo 2^64 the difference is exact.
    b.in_parens(b.cast(CType::U64, value.code), Op::Subtract, b.cast(CType::U64, min))
}

/// How far an integer is above a lower bound of that type, in 128 bits.
fn wide_distance(b: &mut Binder, value: &Value, min: i128, c_type: CType) -> Code {
    let min = b.bound(min, c_type);
    let [code, min] = [b.code_as(value, CType::I128), min].map(|code| b.cast(CType::U128, code));
    b.temporary(CType::I128, b.cast(CType::I128, b.in_parens(code, Op::Subtract, min)))
}

/// Bits of each word of parts that lie in it, as [`words_of_parts`] puts them.
pub(crate) fn masks_of_parts(parts: &[KeyPart], wanted: usize) -> Vec<u64> {
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
pub(crate) fn words_of_parts(b: &mut Binder, parts: &[KeyPart]) -> Vec<KeyPart> {
    let mut words: Vec<KeyPart> = vec![];
    for part in parts {
        match words.last_mut() {
            Some(word) if word.bits + part.bits <= 64 => {
                let shifted = b.binary(word.code, Op::ShiftLeft, b.whole(part.bits.into()));
                word.code = b.in_parens(shifted, Op::BitOr, part.code);
                word.bits += part.bits;
            }
            _ => words.push(*part),
        }
    }
    for word in &mut words {
        word.code = b.temporary(CType::U64, word.code);
    }
    words
}
