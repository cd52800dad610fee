//! Rows that a sink writes: a place for each, and its columns. Results and intermediates.

use arrow::datatypes::DataType;
use warpjoin_columns::Result;
use warpjoin_columns::column::{ColumnType, holds_strings};

use crate::bind::{Binder, Environment, Value};
use crate::lookup;
use crate::program::{Binding, Code, Item, Op, Reservation, Statement, Type, Variable};
use crate::value::{CType, Kind, Range, RangeType};

/// Starts a sink that writes rows: reserves a place for each row that is alive.
pub(crate) fn reserve(b: &mut Binder) {
    if b.is_reserved {
        return;
    }
    let (alive, of_block, control) = (b.alive, b.is_block_uniform, b.params.control());
    let capacity = b.params.once(Type::Value(CType::U64), Binding::OutputCapacity);
    let of_matches = b.reserve_matches();
    b.item(Item::Reserve(Reservation { alive, of_block, control, wanted: b.wanted, capacity, of_matches }));
}

/// Writes `values` as output columns; returns what the columns are.
pub(crate) fn write(b: &mut Binder, values: &[Value]) -> Vec<ColumnType> {
    for (index, value) in values.iter().enumerate() {
        if let Some((element, code)) = stored(b, value) {
            let field = b.params.once(Type::Output(element), Binding::OutputValues(index));
            b.push(Statement::Store { field, code, is_once: b.is_streaming });
        }
        if let Some(valid) = value.valid {
            let field = b.params.once(Type::Output(CType::U8), Binding::OutputValidity(index));
            let code = b.cast(CType::U8, valid);
            b.push(Statement::Store { field, code, is_once: false });
        }
    }
    b.flush();
    values.iter().map(Value::column_type).collect()
}

/// What is stored of a value, and as which type; `None`: nothing, for all values are the same.
fn stored(b: &mut Binder, value: &Value) -> Option<(CType, Code)> {
    let layout = value.column_type().layout();
    Some(match (value.kind, layout.width_bytes) {
        (_, 0) => return None,
        (Kind::F32, _) => (CType::F32, value.code),
        (Kind::F64, _) => (CType::F64, value.code),
        (Kind::Bool, _) => (CType::U8, b.cast(CType::U8, value.code)),
        (Kind::Int(_), 16) => (CType::I128, b.code_as(value, CType::I128)),
        (Kind::Int(_), width_bytes) => {
            let element = CType::unsigned(width_bytes);
            let base = b.number(layout.base as i64);
            // Modulo 2^64 the difference is exact, whatever the value's own C type.
            let distance = b.in_parens(b.cast(CType::U64, value.code), Op::Subtract, b.cast(CType::U64, base));
            (element, b.cast(element, distance))
        }
    })
}

/// A raw 64-bit word as an output column.
pub(crate) fn word(code: Code) -> Value {
    Value::new(code, Kind::Int(Range::new(0, u64::MAX.into())), DataType::UInt64)
}

/// Binds [`crate::Sink::Materialise`].
pub(crate) fn materialise(b: &mut Binder, environment: &Environment, columns: &[usize]) -> Result<Vec<ColumnType>> {
    reserve(b);
    let values = columns.iter().map(|&c| b.column(environment, c)).collect::<Result<Vec<_>>>()?;
    Ok(write(b, &values))
}

/// Binds [`crate::Sink::InPlace`].
pub(crate) fn in_place(b: &mut Binder, environment: &Environment, columns: &[usize]) -> Result<Vec<ColumnType>> {
    let row = b.variable(Variable::Row, CType::U64);
    b.all(Statement::Constant(Variable::Place, CType::U64, row));
    let values = columns.iter().map(|&c| b.column(environment, c)).collect::<Result<Vec<_>>>()?;
    Ok(write(b, &values))
}

/// Binds [`crate::Sink::Conform`].
pub(crate) fn conform(b: &mut Binder, environment: &Environment, columns: &[ColumnType]) -> Result<Vec<ColumnType>> {
    reserve(b);
    let mut values = vec![];
    for (index, column) in columns.iter().enumerate() {
        let value = b.column(environment, index)?;
        let value = match &column.dictionary {
            Some(dictionary) => lookup::recode(b, &value, dictionary)?,
            None => value,
        };
        let kind = Kind::of_column(column)?;
        let code = b.code_as(&value, kind.c_type());
        // What is stored for a null is within the bounds too.
        let code = match (value.valid, kind) {
            (Some(valid), Kind::Int(range)) => {
                let least = b.bound(range.min, range.c_type());
                b.parens(b.select(valid, code, least))
            }
            _ => code,
        };
        let valid = column.has_nulls.then(|| value.valid.unwrap_or_else(|| b.truth(true)));
        values.push(Value { code, valid, kind, ..value });
    }
    Ok(write(b, &values))
}

/// Columns that hold the values of all of `parts`, each of which lists columns of the same types.
pub fn common_columns(parts: &[Vec<ColumnType>]) -> Result<Vec<ColumnType>> {
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
