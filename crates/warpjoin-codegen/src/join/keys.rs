//! Keys of one side as the other side packs them.

use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;

use crate::bind::{Binder, Environment, Value, hoist_word};
use crate::expr::evaluate;
use crate::lookup;
use crate::program::{Code, Op};
use crate::shapes::{JoinShape, Packing};

/// Binds the packed words of probe keys and drops rows that can't match: null keys, and keys beyond
/// the bounds of the build side. The words are hoisted.
pub(crate) fn probe_words(
    b: &mut Binder,
    environment: &Environment,
    shape: &JoinShape,
    keys: &[Expr],
    null_equals_null: bool,
) -> Result<Vec<Code>> {
    let (values, conditions) = probe_values(b, environment, &shape.packing, keys, null_equals_null)?;
    let words = shape.packing.pack(b, &values);
    let words: Vec<Code> = words.into_iter().map(|word| hoist_word(b, word)).collect();
    match b.chain(Op::And, conditions) {
        None => b.flush(),
        Some(all) => b.narrow(all),
    }
    Ok(words)
}

/// Evaluates keys for packing them as the first fields of `packing`, which is another side's: the
/// values, strings in that side's codes, and the conditions under which they can match there.
pub(crate) fn probe_values(
    b: &mut Binder,
    environment: &Environment,
    packing: &Packing,
    keys: &[Expr],
    null_equals_null: bool,
) -> Result<(Vec<Value>, Vec<Code>)> {
    let mut values: Vec<Value> = vec![];
    let mut conditions = vec![];
    for (key, field) in keys.iter().zip(&packing.fields) {
        let mut value = evaluate(b, key, environment)?;
        if let (Some(dictionary), true) = (&field.value.dictionary, value.dictionary.is_some()) {
            let translated = lookup::translate(b, &value, dictionary)?;
            let is_changed = match (value.valid, translated.valid) {
                (Some(before), Some(after)) => !b.is_same(before, after),
                (before, after) => before.is_some() != after.is_some(),
            };
            if let (true, Some(known)) = (null_equals_null && is_changed, translated.valid) {
                // A string that the build side lacks is not null: it matches nothing.
                let or_null = |valid| b.in_parens(known, Op::Or, b.not(valid));
                conditions.push(value.valid.map_or(known, or_null));
            }
            value = translated;
        }
        values.push(value);
    }
    conditions.extend(packing.within(b, &values, null_equals_null));
    Ok((values, conditions))
}
