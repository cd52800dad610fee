//! Code that reads columns that the host made.

use std::sync::Arc;

use crate::Result;
use crate::codegen::emit::{Binding, Emitter};
use crate::codegen::precomputed::Lookup;
use crate::codegen::value::{CType, Value};
use crate::column::EncodedColumn;

/// Loads a value of a host-made column.
pub(super) fn read(emitter: &mut Emitter, column: Arc<EncodedColumn>, index: &str) -> Result<Value> {
    let column_type = column.column_type.clone();
    let number = emitter.params.lookup(Lookup::Column(column));
    let value = emitter.load(&column_type, index, Binding::LookupValues(number))?;
    let code = emitter.temporary(value.c_type(), &value.code);
    let valid = column_type.has_nulls.then(|| {
        let bits = emitter.params.once("const u8*", Binding::LookupValidity(number));
        emitter.temporary(CType::Bool, &format!("bit_at({bits}, {index})"))
    });
    Ok(Value { code, valid, ..value })
}
