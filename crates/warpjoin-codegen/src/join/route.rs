//! The sink that writes probe rows for the exchange.

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::Expr;

use super::keys::probe_words;
use crate::bind::{Binder, Environment, hoist_word, key_word, word_temporary};
use crate::output::{reserve, word, write};
use crate::program::{Declaration, Statement, Variable};
use crate::shapes::JoinShape;
use crate::value::CType;

/// Rows on their way to the owners of their keys.
pub(crate) struct Route<'a> {
    pub shape: &'a JoinShape,
    pub keys: &'a [Expr],
    pub null_equals_null: bool,
    pub keeps_words: bool,
    pub columns: &'a [usize],
}

/// Binds [`crate::Sink::Route`]: key word, packed words of hashed tables if it keeps words, then `columns`.
pub(crate) fn route(
    b: &mut Binder,
    environment: &Environment,
    route: &Route<'_>,
    keeps_unmatched: bool,
) -> Result<Vec<ColumnType>> {
    let shape = route.shape;
    let alive = b.alive;
    if keeps_unmatched {
        b.alive = Variable::SeekRow;
        let initial = b.truth_of(alive);
        b.all(Statement::Declare(Declaration { variable: b.alive, c_type: CType::Bool, initial }));
    }
    let words = probe_words(b, environment, shape, route.keys, route.null_equals_null)?;
    let key = if keeps_unmatched {
        let key = key_word(b, &shape.packing, &words);
        let key = hoist_word(b, key);
        b.flush();
        b.alive = alive;
        reserve(b);
        key
    } else {
        reserve(b);
        key_word(b, &shape.packing, &words)
    };
    let mut outputs = vec![word(key)];
    if route.keeps_words && shape.is_hashed() {
        for code in words {
            outputs.push(word(word_temporary(b, code)));
        }
    }
    for &column in route.columns {
        outputs.push(b.column(environment, column)?);
    }
    Ok(write(b, &outputs))
}
