//! The sink that writes rows whose order is to be found: the words of their keys, then columns.

use arrow::datatypes::DataType;
use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::ExprKind;
use warpjoin_plan::plan::SortKey;

use super::store::{reserve, write};
use crate::bind::{Binder, Environment, Value};
use crate::expr::{KeyPart, add_order_key, masks_of_parts, with_sorted_codes, words_of_parts};
use crate::shapes::{SortShape, WindowKeys};
use crate::value::{Kind, Range};

/// Bits of a word that is stored in four bytes.
const NARROW_BITS: u32 = 32;

/// Binds [`crate::Sink::Sort`].
pub(crate) fn sort(
    b: &mut Binder,
    environment: &Environment,
    keys: &[SortKey],
    columns: &[usize],
    window: Option<&WindowKeys>,
) -> Result<SortShape> {
    reserve(b);
    let (mut parts, mut values, mut partition_parts) = (vec![], vec![], 0);
    for (index, key) in keys.iter().enumerate() {
        values.push(add_order_key(b, environment, key, &mut parts)?);
        if window.is_some_and(|window| index < window.partition_keys) {
            partition_parts = parts.len();
        }
    }
    let partition_masks = if window.is_some() { masks_of_parts(&parts, partition_parts) } else { vec![] };
    let words = words_of_parts(b, &parts);
    let word_bits: Vec<u32> = words.iter().map(|word| word.bits).collect();
    let key_column = match (keys, values.as_slice(), word_bits.as_slice()) {
        ([key], [value], &[bits]) if window.is_none() => key_column(key, value, bits, columns),
        _ => None,
    };
    let mut outputs: Vec<Value> = words.into_iter().map(stored_word).collect();
    for (position, &column) in columns.iter().enumerate() {
        if key_column.as_ref().is_none_or(|(of_key, _)| *of_key != position) {
            let value = b.column(environment, column)?;
            let is_compared = window.is_some_and(|window| window.compared.contains(&position));
            outputs.push(if is_compared { with_sorted_codes(b, value)? } else { value });
        }
    }
    Ok(SortShape { columns: write(b, &outputs), word_bits, key_column, partition_masks })
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

/// A word as an output column of 4 or 8 bytes.
fn stored_word(word: KeyPart) -> Value {
    let max = if word.bits <= NARROW_BITS { u32::MAX.into() } else { u64::MAX.into() };
    Value::new(word.code, Kind::Int(Range::new(0, max)), DataType::UInt64)
}
