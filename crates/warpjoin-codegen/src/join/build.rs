//! Sinks that write the build side of a join: rows of which a table is made, or the table itself.

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::Expr;

use crate::bind::{Binder, Environment, Value, key_word};
use crate::expr::evaluate;
use crate::output::{reserve, word, write};
use crate::program::{Binding, Code, Op, Statement, Type};
use crate::shapes::{DirectSlots, JoinShape, Packing, PayloadForm, Slots, is_hashed};
use crate::value::{CType, Kind};

/// What a build sink found out about keys and payload.
pub(crate) struct BuildOutput {
    pub packing: Packing,
    pub payload: PayloadForm,
    /// Output columns: key word, then the payload word or the payload columns.
    pub columns: Vec<ColumnType>,
}

/// The keys of a build side. Rows with a null key that never match end here.
fn build_keys(b: &mut Binder, environment: &Environment, keys: &[Expr], null_equals_null: bool) -> Result<Vec<Value>> {
    let mut values = vec![];
    for key in keys {
        let value = evaluate(b, key, environment)?;
        values.push(b.hoist(value));
    }
    if !null_equals_null {
        let valid: Vec<Code> = values.iter_mut().filter_map(|key| key.valid.take()).collect();
        if let Some(valid) = b.chain(Op::And, valid) {
            b.narrow(valid);
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

/// Binds [`crate::Sink::Direct`].
pub(crate) fn direct(
    b: &mut Binder,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
    payload: &[usize],
    is_set: bool,
) -> Result<Option<JoinShape>> {
    let key_values = build_keys(b, environment, keys, null_equals_null)?;
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    let values = payload.iter().map(|&c| b.column(environment, c)).collect::<Result<Vec<_>>>()?;
    let Some(payload_packing) = packed_payload(&packing, &values) else { return Ok(None) };
    let form = PayloadForm::Packed(payload_packing.clone());
    if packing.span().is_none() {
        return Ok(None);
    }
    if is_set && form.is_empty() {
        let words = packing.pack(b, &key_values);
        let key = key_word(b, &packing, &words);
        let table = b.params.once(Type::Output(CType::U32), Binding::OutputSlots);
        b.push(Statement::SetBit { table, key });
        b.flush();
        return Ok(Some(JoinShape { packing, payload: form, unique: true, slots: Slots::Bits }));
    }
    let slots = DirectSlots::of(&form);
    if !slots.holds_payload {
        return Ok(None);
    }
    let key_words = packing.pack(b, &key_values);
    let words = payload_packing.pack(b, &values);
    let [key, word] = [key_words, words].map(|words| words.first().copied().unwrap_or_else(|| b.word(0)));
    let element = CType::unsigned(slots.bytes);
    let table = b.params.once(Type::Output(element), Binding::OutputSlots);
    let control = b.params.control();
    let value = b.cast(element, b.in_parens(word, Op::Add, b.whole(1)));
    b.push(Statement::FillSlot { table, key, value, control });
    b.flush();
    Ok(Some(JoinShape { packing, payload: form, unique: true, slots: Slots::Direct(slots) }))
}

/// Binds [`crate::Sink::Build`].
pub(crate) fn build(
    b: &mut Binder,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
    payload: &[usize],
) -> Result<BuildOutput> {
    let key_values = build_keys(b, environment, keys, null_equals_null)?;
    reserve(b);
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    let words = packing.pack(b, &key_values);
    let mut outputs = vec![word(key_word(b, &packing, &words))];
    let values = payload.iter().map(|&c| b.column(environment, c)).collect::<Result<Vec<_>>>()?;
    let form = if let Some(payload_packing) = packed_payload(&packing, &values) {
        outputs.extend(payload_packing.pack(b, &values).into_iter().map(word));
        PayloadForm::Packed(payload_packing)
    } else {
        outputs.extend(values);
        if is_hashed(&packing) {
            outputs.extend(words.into_iter().map(word));
        }
        PayloadForm::Columns(outputs[1..].iter().map(Value::column_type).collect())
    };
    let columns = write(b, &outputs);
    Ok(BuildOutput { packing, payload: form, columns })
}
