//! The sink that writes partial groups, or rows, for the exchange.

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;

use crate::bind::{Binder, Environment, Value, key_word};
use crate::output::{reserve, word, write};
use crate::shapes::Packing;

/// Binds [`crate::Sink::RouteGroups`].
pub(crate) fn route_groups(
    b: &mut Binder,
    environment: &Environment,
    keys: &[usize],
    columns: &[usize],
) -> Result<Vec<ColumnType>> {
    reserve(b);
    let key_values = keys.iter().map(|&key| b.column(environment, key)).collect::<Result<Vec<_>>>()?;
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    let words = packing.pack(b, &key_values);
    let mut outputs = vec![word(key_word(b, &packing, &words))];
    for &column in columns {
        outputs.push(b.column(environment, column)?);
    }
    Ok(write(b, &outputs))
}
