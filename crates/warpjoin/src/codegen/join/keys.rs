//! Keys of one side as the other side packs them.

use crate::Result;
use crate::codegen::emit::{Emitter, Environment, hoist_word};
use crate::codegen::expr::evaluate;
use crate::codegen::lookup;
use crate::codegen::shapes::{JoinShape, Packing};
use crate::codegen::value::Value;
use crate::expr::Expr;

/// Emits the packed words of probe keys and drops rows that can't match: null keys, and keys beyond
/// the bounds of the build side. The words are hoisted.
pub(in crate::codegen) fn probe_words(
    emitter: &mut Emitter,
    environment: &Environment,
    shape: &JoinShape,
    keys: &[Expr],
    null_equals_null: bool,
) -> Result<Vec<String>> {
    let (values, conditions) = probe_values(emitter, environment, &shape.packing, keys, null_equals_null)?;
    let words = shape.packing.pack(emitter, &values);
    let words: Vec<String> = words.iter().map(|word| hoist_word(emitter, word)).collect();
    if conditions.is_empty() {
        emitter.flush();
    } else {
        emitter.narrow(&conditions.join(" && "));
    }
    Ok(words)
}

/// Evaluates keys for packing them as the first fields of `packing`, which is another side's: the
/// values, strings in that side's codes, and the conditions under which they can match there.
pub(in crate::codegen) fn probe_values(
    emitter: &mut Emitter,
    environment: &Environment,
    packing: &Packing,
    keys: &[Expr],
    null_equals_null: bool,
) -> Result<(Vec<Value>, Vec<String>)> {
    let mut values: Vec<Value> = vec![];
    let mut conditions = vec![];
    for (key, field) in keys.iter().zip(&packing.fields) {
        let mut value = evaluate(emitter, key, environment)?;
        if let (Some(dictionary), true) = (&field.value.dictionary, value.dictionary.is_some()) {
            let translated = lookup::translate(emitter, &value, dictionary)?;
            if let (true, Some(known)) = (null_equals_null && translated.valid != value.valid, &translated.valid) {
                // A string that the build side lacks is not null: it matches nothing.
                conditions.push(value.valid.as_ref().map_or(known.clone(), |valid| format!("({known} || !{valid})")));
            }
            value = translated;
        }
        values.push(value);
    }
    conditions.extend(packing.within(emitter, &values, null_equals_null));
    Ok((values, conditions))
}
