//! Sinks that write the build side of a join: rows of which a table is made, or the table itself.

use crate::Result;
use crate::codegen::emit::{Binding, Emitter, Environment, key_word};
use crate::codegen::expr::evaluate;
use crate::codegen::output::{reserve, word, write};
use crate::codegen::shapes::{DirectSlots, JoinShape, Packing, PayloadForm, Slots, is_hashed};
use crate::codegen::value::{Kind, Value};
use crate::column::ColumnType;
use crate::expr::Expr;

/// What a build sink found out about keys and payload.
pub(in crate::codegen) struct BuildOutput {
    pub packing: Packing,
    pub payload: PayloadForm,
    /// Output columns: key word, then the payload word or the payload columns.
    pub columns: Vec<ColumnType>,
}

/// The keys of a build side. Rows with a null key that never match end here.
fn build_keys(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
) -> Result<Vec<Value>> {
    let mut values = vec![];
    for key in keys {
        let value = evaluate(emitter, key, environment)?;
        values.push(emitter.hoist(value));
    }
    if !null_equals_null {
        let valid: Vec<String> = values.iter_mut().filter_map(|key| key.valid.take()).collect();
        if !valid.is_empty() {
            emitter.narrow(&valid.join(" && "));
        }
    }
    Ok(values)
}

/// The payload as one word, where keys are not hashed, and no float would lose bits.
fn packed_payload(keys: &Packing, values: &[Value]) -> Option<Packing> {
    let has_floats = values.iter().any(|value| matches!(value.kind, Kind::F32 | Kind::F64));
    let packing = Packing::of(values.iter().map(Value::value_type));
    (!has_floats && !is_hashed(keys) && packing.words() <= 1).then_some(packing)
}

/// Emits [`crate::codegen::Sink::Direct`].
pub(in crate::codegen) fn direct(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
    payload: &[usize],
    is_set: bool,
) -> Result<Option<JoinShape>> {
    let key_values = build_keys(emitter, environment, keys, null_equals_null)?;
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    let values = payload.iter().map(|&c| emitter.column(environment, c)).collect::<Result<Vec<_>>>()?;
    let Some(payload_packing) = packed_payload(&packing, &values) else { return Ok(None) };
    let form = PayloadForm::Packed(payload_packing.clone());
    let slots = DirectSlots::of(&form);
    if packing.span().is_none() || !slots.holds_payload {
        return Ok(None);
    }
    let one = |words: Vec<String>| words.into_iter().next().unwrap_or_else(|| "0ULL".into());
    let key = one(packing.pack(emitter, &key_values));
    let word = one(payload_packing.pack(emitter, &values));
    let c_type = format!("u{}", slots.bytes * 8);
    let table = emitter.params.once(&format!("{c_type}*"), Binding::OutputSlots);
    let control = emitter.params.once("u64*", Binding::Control);
    let fill = if is_set { "set_slot" } else { "fill_slot" };
    emitter.statement(&format!("{fill}({table}, {key}, ({c_type})({word} + 1), {control});"));
    emitter.statement("++written;");
    emitter.flush();
    Ok(Some(JoinShape { packing, payload: form, unique: true, slots: Slots::Direct(slots) }))
}

/// Emits [`crate::codegen::Sink::Build`].
pub(in crate::codegen) fn build(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
    payload: &[usize],
) -> Result<BuildOutput> {
    let key_values = build_keys(emitter, environment, keys, null_equals_null)?;
    reserve(emitter);
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    let words = packing.pack(emitter, &key_values);
    let mut outputs = vec![word(key_word(emitter, &packing, &words))];
    let values = payload.iter().map(|&c| emitter.column(environment, c)).collect::<Result<Vec<_>>>()?;
    let form = if let Some(payload_packing) = packed_payload(&packing, &values) {
        outputs.extend(payload_packing.pack(emitter, &values).into_iter().map(word));
        PayloadForm::Packed(payload_packing)
    } else {
        outputs.extend(values);
        if is_hashed(&packing) {
            outputs.extend(words.into_iter().map(word));
        }
        PayloadForm::Columns(outputs[1..].iter().map(Value::column_type).collect())
    };
    let columns = write(emitter, &outputs);
    Ok(BuildOutput { packing, payload: form, columns })
}
