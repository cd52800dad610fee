//! The words of 64 bits that an order's keys are packed into.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{Expr, KeyPiece, OrderPart};

use crate::plan::SortKey;
use crate::plan::bounds::Bounds;

/// The words of an order: parts side by side, each in the word before it if there is room.
pub(crate) fn words_of(order: &[SortKey], bounds: &Bounds) -> Vec<Vec<OrderPart>> {
    let mut words: Vec<(u32, Vec<OrderPart>)> = vec![];
    for key in order {
        let least = bounds.of(&key.expr).range.map_or(0, |range| range.min);
        for (piece, bits) in pieces_of(&key.expr, bounds) {
            let part = OrderPart { key: key.clone(), piece, bits, least };
            match words.last_mut() {
                Some((taken, word)) if *taken + bits <= u64::BITS => {
                    *taken += bits;
                    word.push(part);
                }
                _ => words.push((bits, vec![part])),
            }
        }
    }
    words.into_iter().map(|(_, word)| word).collect()
}

/// The parts of a key, and the bits that each takes at most.
fn pieces_of(key: &Expr, bounds: &Bounds) -> Vec<(KeyPiece, u32)> {
    let known = bounds.of(key);
    let bits = match (known.range, &key.data_type) {
        (Some(range), _) => range.span_bits(),
        (None, DataType::Float32) => u32::BITS,
        (None, _) => u64::BITS,
    };
    let mut pieces = vec![];
    if known.has_nulls {
        pieces.push((KeyPiece::Null, 1));
    }
    match bits {
        0 => {}
        1..=u64::BITS => pieces.push((KeyPiece::Whole, bits)),
        _ => pieces.extend([(KeyPiece::High, bits - u64::BITS), (KeyPiece::Low, u64::BITS)]),
    }
    pieces
}
