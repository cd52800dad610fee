//! Orders of rows as numbers.

use arrow::datatypes::DataType;

use super::emitter::{Emitter, Environment};
use super::expr::evaluate;
use super::lookup;
use super::params::Binding;
use super::value::{CType, Kind, Range, Value};
use crate::expr::OrderKey;
use crate::{Reason, Result};

/// Bits of a word.
pub(crate) const WORD_BITS: u32 = 64;

/// Emits [`crate::expr::ExprKind::OrderWord`]. A null key is 0, as its lowest value is: a key in front tells them apart.
pub(super) fn word(emitter: &mut Emitter, keys: &[OrderKey], environment: &Environment) -> Result<Value> {
    let mut code = "0ULL".to_string();
    let mut bits = 0;
    for key in keys {
        let value = evaluate(emitter, &key.expr, environment)?;
        let value = lookup::with_ordered_codes(emitter, value)?;
        let (rank, span) = rank(emitter, &value)?;
        let rank = if key.descending {
            let span = emitter.params.number(span as i64);
            format!("((u64){span} - {rank})")
        } else {
            rank
        };
        let rank = value.valid.as_ref().map_or(rank.clone(), |valid| format!("({valid} ? {rank} : 0ULL)"));
        let key_bits = 64 - span.leading_zeros();
        code = if bits == 0 { rank } else { format!("({code} << {key_bits} | {rank})") };
        bits += key_bits;
    }
    if bits > WORD_BITS {
        return Err(Reason::Limit(format!("an order of {bits} bits")).into());
    }
    let range = Range::new(0, (1i128 << bits) - 1);
    let c_type = range.c_type();
    let code = emitter.temporary(c_type, &format!("({})({code})", c_type.name()));
    Ok(Value::new(code, Kind::Int(range), DataType::UInt64))
}

/// A value's distance from the lowest one, as u64, and that of the highest one.
fn rank(emitter: &mut Emitter, value: &Value) -> Result<(String, u64)> {
    Ok(match value.kind {
        Kind::Bool => (format!("(u64)({})", value.code), 1),
        Kind::F32 | Kind::F64 => (format!("order_code_f64((f64){})", value.code), u64::MAX),
        Kind::Int(range) => {
            if range.span_bits() > WORD_BITS {
                let what = format!("an order of {} that spans more than 64 bits", value.data_type);
                return Err(Reason::Limit(what).into());
            }
            let span = (range.max - range.min) as u64;
            let code = if range.c_type() == CType::I128 {
                let base = emitter.params.wide_number(range.min);
                format!("(u64)((u128){} - (u128){base})", value.code)
            } else {
                let base = emitter.params.number(range.min as i64);
                format!("((u64)(i64){} - (u64){base})", value.code)
            };
            (code, span)
        }
    })
}

/// Emits [`crate::expr::ExprKind::RowNumber`].
pub(super) fn row_number(emitter: &mut Emitter, bits: u32) -> Value {
    let range = Range::new(0, (1i128 << bits) - 1);
    let first = emitter.params.once("u64", Binding::SourceFirstRow);
    let code = format!("({})({first} + row)", range.c_type().name());
    Value::new(code, Kind::Int(range), DataType::UInt64)
}
