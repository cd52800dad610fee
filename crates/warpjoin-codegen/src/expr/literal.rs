//! Constants of expressions, as parameters.

use arrow::datatypes::DataType;
use warpjoin_columns::column::{holds_strings, range_of_literal};
use warpjoin_columns::expr::Scalar;
use warpjoin_columns::{Error, Result};

use crate::bind::{Binder, Value};
use crate::lookup;
use crate::program::{Binding, Type};
use crate::value::{CType, Kind, Range, RangeType};

/// Kind of null and of other values of a type whose bounds nobody knows.
fn empty_kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::Float32 => Kind::F32,
        DataType::Float64 => Kind::F64,
        _ => Kind::Int(Range::new(0, 0)),
    }
}

/// A constant, as a parameter.
pub(super) fn literal(b: &mut Binder, scalar: &Scalar, data_type: &DataType) -> Result<Value> {
    Ok(match scalar {
        Scalar::Null => {
            let value = Value::new(b.whole(0), empty_kind(data_type), data_type.clone());
            let dictionary = holds_strings(data_type).then(|| lookup::dictionary_of(data_type, None)).transpose()?;
            Value { valid: Some(b.truth(false)), dictionary, ..value }
        }
        Scalar::Parameter(number) => return Err(Error::internal(format!("constant {number} is not bound"))),
        Scalar::Deferred(scalar) => literal(b, &scalar.value()?, data_type)?,
        Scalar::Bytes(bytes) => {
            let dictionary = lookup::dictionary_of(data_type, Some(bytes))?;
            Value { dictionary: Some(dictionary), ..Value::new(b.whole(0), empty_kind(data_type), data_type.clone()) }
        }
        Scalar::Boolean(value) => Value::new(b.truth(*value), Kind::Bool, data_type.clone()),
        Scalar::Int(value) => {
            let range = range_of_literal(*value, data_type);
            Value::new(b.bound(*value, range.c_type()), Kind::Int(range), data_type.clone())
        }
        Scalar::Float(value) => {
            let field = b.params.add(Type::Value(CType::F64), Binding::Word(value.to_bits()));
            let field = b.field(field);
            if *data_type == DataType::Float32 {
                Value::new(b.cast_in_parens(CType::F32, field), Kind::F32, data_type.clone())
            } else {
                Value::new(field, Kind::F64, data_type.clone())
            }
        }
    })
}
