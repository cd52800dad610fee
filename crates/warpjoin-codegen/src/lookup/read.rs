//! Reads columns that the host made.

use std::sync::Arc;

use warpjoin_columns::Result;

use crate::bind::{Binder, Value};
use crate::precomputed::{Lookup, LookupColumn};
use crate::program::{Binding, Code, Function, Type};
use crate::value::CType;

/// Loads a value of a host-made column.
pub(super) fn read(b: &mut Binder, column: Arc<LookupColumn>, index: Code) -> Result<Value> {
    let column_type = column.encoded().column_type.clone();
    let number = b.params.lookup(Lookup::Column(column));
    let value = b.load_column(&column_type, index, Binding::LookupValues(number))?;
    let code = b.temporary(value.c_type(), value.code);
    let valid = column_type.has_nulls.then(|| {
        let bits = b.params.once(Type::Input(CType::U8), Binding::LookupValidity(number));
        let bit = b.call(Function::BitAt, &[b.field(bits), index]);
        b.temporary(CType::Bool, bit)
    });
    Ok(Value { code, valid, ..value })
}

/// Where the value of a code is: a null row may hold any code.
pub(super) fn place_of_code(b: &mut Binder, column: &Value) -> Code {
    match column.valid {
        Some(valid) => {
            let code = b.select(valid, b.cast(CType::I64, column.code), b.whole(0));
            b.temporary(CType::I64, code)
        }
        None => column.code,
    }
}
