//! Constants in generated code.

use arrow::datatypes::DataType;

use crate::codegen::emit::{Binding, Emitter};
use crate::codegen::lookup;
use crate::codegen::value::{CType, Kind, Range, Value};
use crate::column::holds_strings;
use crate::expr::Scalar;
use crate::{Error, Result};

/// Kind of null and of other values of a type whose bounds nobody knows.
fn empty_kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::Float32 => Kind::F32,
        DataType::Float64 => Kind::F64,
        _ => Kind::Int(Range::new(0, 0)),
    }
}

/// A constant, as a field of the parameter struct.
pub(super) fn literal(emitter: &mut Emitter, scalar: &Scalar, data_type: &DataType) -> Result<Value> {
    Ok(match scalar {
        Scalar::Null => {
            let value = Value::new("0", empty_kind(data_type), data_type.clone());
            let dictionary = holds_strings(data_type).then(|| lookup::dictionary_of(data_type, None)).transpose()?;
            Value { valid: Some("false".into()), dictionary, ..value }
        }
        Scalar::Parameter(number) => return Err(Error::internal(format!("constant {number} is not bound"))),
        Scalar::Bytes(bytes) => {
            let dictionary = lookup::dictionary_of(data_type, Some(bytes))?;
            Value { dictionary: Some(dictionary), ..Value::new("0", empty_kind(data_type), data_type.clone()) }
        }
        Scalar::Boolean(value) => Value::new(value.to_string(), Kind::Bool, data_type.clone()),
        Scalar::Int(value) => {
            let range = Range::of_literal(*value);
            let c_type = range.c_type();
            let code = if c_type == CType::I128 {
                emitter.params.wide_number(*value)
            } else {
                format!("(({}){})", c_type.name(), emitter.params.number(*value as i64))
            };
            Value::new(code, Kind::Int(range), data_type.clone())
        }
        Scalar::Float(value) => {
            let field = emitter.params.add("f64", Binding::Word(value.to_bits()));
            if *data_type == DataType::Float32 {
                Value::new(format!("((f32){field})"), Kind::F32, data_type.clone())
            } else {
                Value::new(field, Kind::F64, data_type.clone())
            }
        }
    })
}
