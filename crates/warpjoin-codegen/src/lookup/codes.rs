//! Strings as codes of another dictionary, or of one for several columns.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::column::{ColumnType, Dictionary, Domain, EncodedColumn};
use warpjoin_columns::{Error, Reason, Result};

use super::read::{place_of_code, read};
use crate::bind::{Binder, Value};
use crate::precomputed::{Made, plain_statistics, remembered, remembered_union};
use crate::program::Op;
use crate::value::{Kind, Range, RangeType};

/// Binds the code in `to` of each code in `from`; null where `to` lacks the value.
pub(crate) fn translate(b: &mut Binder, column: &Value, to: &Arc<Dictionary>) -> Result<Value> {
    let from = column.dictionary.as_ref().ok_or_else(|| Error::internal("translation of no codes"))?;
    if Arc::ptr_eq(from, to) {
        return Ok(column.clone());
    }
    let absent = to.len() as u32;
    let encoded = remembered(from, Made::CodesOf(Arc::downgrade(to)), || {
        let codes = Dictionary::translate(from, to);
        Ok(EncodedColumn {
            column_type: ColumnType {
                data_type: DataType::UInt32,
                has_nulls: false,
                // The full domain of u32: the width must not depend on the data.
                domain: Domain::Int { min: 0, max: u32::MAX.into() },
                dictionary: None,
            },
            rows: codes.len(),
            values: codes.iter().flat_map(|code| code.unwrap_or(absent).to_le_bytes()).collect(),
            offsets: None,
            validity: None,
            statistics: plain_statistics(),
        })
    })?;
    let index = place_of_code(b, column);
    if from.is_empty() {
        let valid = Some(b.truth(false));
        return Ok(Value { code: b.whole(0), valid, dictionary: Some(to.clone()), ..column.clone() });
    }
    let value = read(b, encoded, index)?;
    let code = b.temporary(value.c_type(), value.code);
    let absent = b.number(absent.into());
    let present = b.in_parens(code, Op::NotEqual, absent);
    let valid = Some(b.both(column.valid, present));
    Ok(Value { code, valid, dictionary: Some(to.clone()), data_type: column.data_type.clone(), ..value })
}

/// The strings of `values` as codes of one dictionary.
pub(crate) fn unify(b: &mut Binder, values: &[Value]) -> Result<Vec<Value>> {
    let common = dictionary_of_all(values)?;
    values.iter().map(|value| recode(b, value, &common)).collect()
}

/// The dictionary of all strings of `values`.
pub(crate) fn dictionary_of_all(values: &[Value]) -> Result<Arc<Dictionary>> {
    let first = values.first().ok_or_else(|| Error::internal("a dictionary of nothing"))?;
    common_dictionary(&first.data_type, values.iter().map(|value| value.dictionary.as_ref()))
}

/// The dictionary that has all strings of these; one without strings is of this type.
pub(crate) fn common_dictionary<'a>(
    data_type: &DataType,
    dictionaries: impl Iterator<Item = Option<&'a Arc<Dictionary>>>,
) -> Result<Arc<Dictionary>> {
    let mut parts: Vec<&Arc<Dictionary>> = vec![];
    for dictionary in dictionaries {
        let dictionary =
            dictionary.ok_or_else(|| Reason::Expression("a string without a dictionary beside others".into()))?;
        if !dictionary.is_empty() && !parts.iter().any(|known| Arc::ptr_eq(known, dictionary)) {
            parts.push(dictionary);
        }
    }
    match parts.as_slice() {
        [] => dictionary_of(data_type, None),
        [only] => Ok(Arc::clone(only)),
        parts => remembered_union(parts),
    }
}

/// The value's strings as codes of `to`, which has them all.
pub(crate) fn recode(b: &mut Binder, value: &Value, to: &Arc<Dictionary>) -> Result<Value> {
    let from = value.dictionary.as_ref().ok_or_else(|| Error::internal("codes without a dictionary"))?;
    if Arc::ptr_eq(from, to) {
        return Ok(value.clone());
    }
    let range = Range::new(0, i128::try_from(to.len()).unwrap_or(i128::MAX).max(1) - 1);
    let recoded = if from.is_empty() {
        Value { code: b.whole(0), ..value.clone() }
    } else {
        let translated = translate(b, value, to)?;
        Value { valid: value.valid, ..translated }
    };
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), recoded.code));
    Ok(Value { code, kind: Kind::Int(range), dictionary: Some(Arc::clone(to)), ..recoded })
}

/// A dictionary of one value, or of none.
pub(crate) fn dictionary_of(data_type: &DataType, value: Option<&[u8]>) -> Result<Arc<Dictionary>> {
    let value_type = match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    Ok(Arc::new(Dictionary::of_values(value_type, value)?))
}

/// Strings whose codes do not compare like them, as codes that do.
pub(crate) fn with_ordered_codes(b: &mut Binder, value: Value) -> Result<Value> {
    match &value.dictionary {
        Some(dictionary) if !dictionary.is_sorted() => {
            let sorted = dictionary.sorted()?;
            let ordered = translate(b, &value, &sorted)?;
            Ok(b.hoist(ordered))
        }
        _ => Ok(value),
    }
}
