//! The sink that writes partial groups, or rows, for the exchange.

use crate::Result;
use crate::codegen::emit::{Emitter, Environment, key_word};
use crate::codegen::output::{reserve, word, write};
use crate::codegen::shapes::Packing;
use crate::codegen::value::Value;
use crate::column::ColumnType;

/// Emits [`crate::codegen::Sink::RouteGroups`].
pub(in crate::codegen) fn route_groups(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[usize],
    columns: &[usize],
) -> Result<Vec<ColumnType>> {
    reserve(emitter);
    let key_values = keys.iter().map(|&key| emitter.column(environment, key)).collect::<Result<Vec<_>>>()?;
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    let words = packing.pack(emitter, &key_values);
    let mut outputs = vec![word(key_word(emitter, &packing, &words))];
    for &column in columns {
        outputs.push(emitter.column(environment, column)?);
    }
    Ok(write(emitter, &outputs))
}
