//! Rows that a sink writes: a place for each, and its columns. Results and intermediates.

use arrow::datatypes::DataType;

use crate::Result;
use crate::codegen::emit::{Binding, Emitter, Environment, lower};
use crate::codegen::lookup;
use crate::codegen::value::{CType, Kind, Range, Value};
use crate::column::{ColumnType, holds_strings};

/// Shared memory of a block that reserves places together.
pub(crate) const RESERVATION_BYTES: u32 = 8 + 32 * 4;

/// Starts a sink that writes rows: reserves a place for each row that is alive.
pub(in crate::codegen) fn reserve(emitter: &mut Emitter) {
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
pub(in crate::codegen) fn write(emitter: &mut Emitter, values: &[Value]) -> Vec<ColumnType> {
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
pub(in crate::codegen) fn word(code: impl Into<String>) -> Value {
    Value::new(code, Kind::Int(Range::new(0, u64::MAX.into())), DataType::UInt64)
}

/// Emits [`crate::codegen::Sink::Materialise`].
pub(in crate::codegen) fn materialise(
    emitter: &mut Emitter,
    environment: &Environment,
    columns: &[usize],
) -> Result<Vec<ColumnType>> {
    reserve(emitter);
    let values = columns.iter().map(|&c| emitter.column(environment, c)).collect::<Result<Vec<_>>>()?;
    Ok(write(emitter, &values))
}

/// Emits [`crate::codegen::Sink::InPlace`].
pub(in crate::codegen) fn in_place(
    emitter: &mut Emitter,
    environment: &Environment,
    columns: &[usize],
) -> Result<Vec<ColumnType>> {
    emitter.line("const u64 place = row;");
    let values = columns.iter().map(|&c| emitter.column(environment, c)).collect::<Result<Vec<_>>>()?;
    Ok(write(emitter, &values))
}

/// Emits [`crate::codegen::Sink::Conform`].
pub(in crate::codegen) fn conform(
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
            let columns = || parts.iter().map(|part| &part[index]);
            let has_nulls = columns().any(|column| column.has_nulls);
            let first = &parts[0][index];
            let kinds = columns().map(Kind::of_column).collect::<Result<Vec<_>>>()?;
            let (kind, dictionary) = if holds_strings(&first.data_type) {
                let dictionaries = columns().map(|column| column.dictionary.as_ref());
                let dictionary = lookup::common_dictionary(&first.data_type, dictionaries)?;
                let codes = i128::try_from(dictionary.len()).unwrap_or(i128::MAX).max(1);
                (Kind::Int(Range::new(0, codes - 1)), Some(dictionary))
            } else {
                let ranges = kinds.iter().filter_map(|kind| kind.range());
                (ranges.reduce(Range::union).map_or(kinds[0], Kind::Int), None)
            };
            let data_type = first.data_type.clone();
            Ok(ColumnType { data_type, has_nulls, domain: kind.domain(), dictionary })
        })
        .collect()
}
