//! From DataFusion's physical expressions to those of the device plan.
//!
//! Owns what is supported, and the reason where something is not. Must not know plan nodes.

mod dictionary;
mod expr;
mod functions;
mod literal;

use arrow::datatypes::{DataType, Schema};

pub(crate) use expr::{substitute, translate};

/// The columns that an expression sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// Their types.
    pub schema: &'a Schema,
}

/// Whether values of the type live in a dictionary on the devices.
pub(crate) fn is_string(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => true,
        DataType::Dictionary(_, values) => is_string(values),
        _ => false,
    }
}
