//! Sinks that write rows: results, intermediates, build rows, rows for the exchange.

use arrow::datatypes::DataType;

use super::emitter::{Emitter, Environment};
use super::expr::evaluate;
use super::lookup;
use super::packing::{Packing, lower};
use super::params::Binding;
use super::shapes::{DirectSlots, JoinShape, PayloadForm, Slots, is_hashed};
use super::value::{CType, Kind, Range, Value};
use crate::Result;
use crate::column::ColumnType;
use crate::column::holds_strings;
use crate::expr::Expr;

/// Shared memory of a block that reserves places together.
pub(crate) const RESERVATION_BYTES: u32 = 8 + 32 * 4;

/// Starts a sink that writes rows: reserves a place for each row that is alive.
pub(super) fn reserve(emitter: &mut Emitter) {
    if emitter.is_reserved {
        return;
    }
    let control = emitter.params.once("u64*", Binding::Control);
    let alive = emitter.alive.clone();
    let reserve = if emitter.is_block_uniform {
        "reserve_rows_of_block(shared_as<BlockReservation>(), "
    } else {
        "reserve_rows("
    };
    emitter.line(&format!("const u64 place = {reserve}&{control}[WJ_CONTROL_ROWS], {alive});"));
    if let Some(wanted) = emitter.wanted.clone() {
        emitter.line(&format!("is_full = is_full || ({alive} && place >= {wanted});"));
    }
    let capacity = emitter.params.once("u64", Binding::OutputCapacity);
    emitter.line(&format!("{alive} = {alive} && place < {capacity};"));
}

/// Writes `values` as output columns; returns what the columns are.
pub(super) fn write(emitter: &mut Emitter, values: &[Value]) -> Vec<ColumnType> {
    for (index, value) in values.iter().enumerate() {
        let column = value.column_type();
        let layout = column.layout();
        let target = Binding::OutputValues(index);
        let stored = match (value.kind, layout.width_bytes) {
            (_, 0) => None,
            (Kind::F32, _) => Some((String::from("f32"), value.code.clone())),
            (Kind::F64, _) => Some((String::from("f64"), value.code.clone())),
            (Kind::Bool, _) => Some((String::from("u8"), format!("(u8){}", value.code))),
            (Kind::Int(_), 16) => Some((String::from("i128"), value.code_as(CType::I128))),
            (Kind::Int(_), width) => {
                let name = format!("u{}", width * 8);
                let base = emitter.params.number(layout.base as i64);
                // Modulo 2^64 the difference is exact, whatever the value's own C type.
                let code = format!("({name})((u64){} - (u64){base})", value.code);
                Some((name, code))
            }
        };
        if let Some((name, code)) = stored {
            let field = emitter.params.once(&format!("{name}*"), target);
            let statement = if emitter.is_streaming {
                format!("store_once({field} + place, {code});")
            } else {
                format!("{field}[place] = {code};")
            };
            emitter.statement(&statement);
        }
        if let Some(valid) = &value.valid {
            let field = emitter.params.once("u8*", Binding::OutputValidity(index));
            emitter.statement(&format!("{field}[place] = (u8){valid};"));
        }
    }
    emitter.flush();
    values.iter().map(Value::column_type).collect()
}

/// A raw 64-bit word as an output column.
fn word(code: impl Into<String>) -> Value {
    Value::new(code, Kind::Int(Range::new(0, u64::MAX.into())), DataType::UInt64)
}

/// Emits [`super::shapes::Sink::Materialise`].
pub(crate) fn materialise(
    emitter: &mut Emitter,
    environment: &Environment,
    columns: &[usize],
) -> Result<Vec<ColumnType>> {
    reserve(emitter);
    let values = columns.iter().map(|&c| emitter.column(environment, c)).collect::<Result<Vec<_>>>()?;
    Ok(write(emitter, &values))
}

/// Emits [`super::shapes::Sink::InPlace`].
pub(crate) fn in_place(emitter: &mut Emitter, environment: &Environment, columns: &[usize]) -> Result<Vec<ColumnType>> {
    emitter.line("const u64 place = row;");
    let values = columns.iter().map(|&c| emitter.column(environment, c)).collect::<Result<Vec<_>>>()?;
    Ok(write(emitter, &values))
}

/// Emits [`super::shapes::Sink::Conform`].
pub(crate) fn conform(
    emitter: &mut Emitter,
    environment: &Environment,
    columns: &[ColumnType],
) -> Result<Vec<ColumnType>> {
    reserve(emitter);
    let mut values = vec![];
    for (index, column) in columns.iter().enumerate() {
        let value = emitter.column(environment, index)?;
        let value = match &column.dictionary {
            Some(dictionary) => lookup::recode(emitter, &value, dictionary)?,
            None => value,
        };
        let kind = Kind::of_column(column)?;
        let code = value.code_as(kind.c_type());
        // What is stored for a null is within the bounds too.
        let code = match (&value.valid, kind) {
            (Some(valid), Kind::Int(range)) => format!("({valid} ? {code} : {})", lower(emitter, range)),
            _ => code,
        };
        let valid = column.has_nulls.then(|| value.valid.clone().unwrap_or_else(|| "true".into()));
        values.push(Value { code, valid, kind, ..value });
    }
    Ok(write(emitter, &values))
}

/// Columns that hold the values of all of `parts`, each of which lists columns of the same types.
pub(crate) fn common_columns(parts: &[Vec<ColumnType>]) -> Result<Vec<ColumnType>> {
    let width = parts.first().map_or(0, Vec::len);
    (0..width)
        .map(|index| {
            let values = parts
                .iter()
                .map(|part| {
                    let column = &part[index];
                    let value = Value::new("", Kind::of_column(column)?, column.data_type.clone());
                    Ok(Value { dictionary: column.dictionary.clone(), ..value })
                })
                .collect::<Result<Vec<_>>>()?;
            let has_nulls = parts.iter().any(|part| part[index].has_nulls);
            let first = &values[0];
            let (kind, dictionary) = if holds_strings(&first.data_type) {
                let dictionary = lookup::common_dictionary(&values)?;
                let codes = i128::try_from(dictionary.len()).unwrap_or(i128::MAX).max(1);
                (Kind::Int(Range::new(0, codes - 1)), Some(dictionary))
            } else {
                let ranges = values.iter().filter(|value| value.kind != Kind::Bool).filter_map(Value::range);
                (ranges.reduce(Range::union).map_or(first.kind, Kind::Int), None)
            };
            let data_type = first.data_type.clone();
            Ok(ColumnType { data_type, has_nulls, domain: kind.domain(), dictionary })
        })
        .collect()
}

/// Names a u64 expression.
fn word_temporary(emitter: &mut Emitter, code: &str) -> String {
    let name = emitter.fresh("t");
    emitter.statement(&format!("const u64 {name} = {code};"));
    name
}

/// The slot's key word (never 0) from packed words.
pub(crate) fn key_word(emitter: &mut Emitter, packing: &Packing, words: &[String]) -> String {
    let code = if is_hashed(packing) {
        let hash = words.iter().fold(String::from("0ULL"), |hash, word| format!("hash_combine({hash}, {word})"));
        format!("(hash_key({hash}) >> 1) + 1")
    } else {
        words.first().map_or("1ULL".into(), |word| format!("{word} + 1"))
    };
    word_temporary(emitter, &code)
}

/// What a build sink found out about keys and payload.
pub(crate) struct BuildOutput {
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
    let packing = Packing::of(values);
    (!has_floats && !is_hashed(keys) && packing.words() <= 1).then_some(packing)
}

/// Emits [`super::shapes::Sink::Direct`].
pub(crate) fn direct(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
    payload: &[usize],
    is_set: bool,
) -> Result<Option<JoinShape>> {
    let key_values = build_keys(emitter, environment, keys, null_equals_null)?;
    let packing = Packing::of(&key_values);
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

/// Emits [`super::shapes::Sink::Build`].
pub(crate) fn build(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    null_equals_null: bool,
    payload: &[usize],
) -> Result<BuildOutput> {
    let key_values = build_keys(emitter, environment, keys, null_equals_null)?;
    reserve(emitter);
    let packing = Packing::of(&key_values);
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

/// Rows on their way to the owners of their keys.
pub(crate) struct Route<'a> {
    pub shape: &'a JoinShape,
    pub keys: &'a [Expr],
    pub null_equals_null: bool,
    pub columns: &'a [usize],
}

/// Emits [`super::shapes::Sink::Route`]: key word, packed words of hashed tables, then `columns`.
pub(crate) fn route(
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
    let words = super::probe::probe_words(emitter, environment, shape, route.keys, route.null_equals_null)?;
    let key = if keeps_unmatched {
        let key = key_word(emitter, &shape.packing, &words);
        let key = super::probe::hoist_word(emitter, &key);
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

/// Emits [`super::shapes::Sink::RouteGroups`].
pub(crate) fn route_groups(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[usize],
    columns: &[usize],
) -> Result<Vec<ColumnType>> {
    reserve(emitter);
    let key_values = keys.iter().map(|&key| emitter.column(environment, key)).collect::<Result<Vec<_>>>()?;
    let packing = Packing::of(&key_values);
    let words = packing.pack(emitter, &key_values);
    let mut outputs = vec![word(key_word(emitter, &packing, &words))];
    for &column in columns {
        outputs.push(emitter.column(environment, column)?);
    }
    Ok(write(emitter, &outputs))
}
