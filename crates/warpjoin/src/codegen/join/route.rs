//! The sink that writes probe rows for the exchange.

use super::keys::probe_words;
use crate::Result;
use crate::codegen::emit::{Emitter, Environment, hoist_word, key_word, word_temporary};
use crate::codegen::output::{reserve, word, write};
use crate::codegen::shapes::JoinShape;
use crate::column::ColumnType;
use crate::expr::Expr;

/// Rows on their way to the owners of their keys.
pub(in crate::codegen) struct Route<'a> {
    pub shape: &'a JoinShape,
    pub keys: &'a [Expr],
    pub null_equals_null: bool,
    pub columns: &'a [usize],
}

/// Emits [`crate::codegen::Sink::Route`]: key word, packed words of hashed tables, then `columns`.
pub(in crate::codegen) fn route(
    emitter: &mut Emitter,
    environment: &Environment,
    route: &Route<'_>,
    keeps_unmatched: bool,
) -> Result<Vec<ColumnType>> {
    let shape = route.shape;
    let alive = emitter.alive.clone();
    if keeps_unmatched {
        emitter.line(&format!("bool seek = {alive};"));
        emitter.alive = "seek".into();
    }
    let words = probe_words(emitter, environment, shape, route.keys, route.null_equals_null)?;
    let key = if keeps_unmatched {
        let key = key_word(emitter, &shape.packing, &words);
        let key = hoist_word(emitter, &key);
        emitter.flush();
        emitter.alive = alive;
        reserve(emitter);
        key
    } else {
        reserve(emitter);
        key_word(emitter, &shape.packing, &words)
    };
    let mut outputs = vec![word(key)];
    if shape.is_hashed() {
        for code in &words {
            outputs.push(word(word_temporary(emitter, code)));
        }
    }
    for &column in route.columns {
        outputs.push(emitter.column(environment, column)?);
    }
    Ok(write(emitter, &outputs))
}
