//! From DataFusion's physical expressions to those of the device plan.
//!
//! Owns what is supported, and the reason where something is not. Must not know plan nodes.

mod expr;
mod functions;
mod host;
mod literal;
mod safety;
mod tabulate;

use std::cell::Cell;

use arrow::datatypes::{DataType, Schema};
use warpjoin::plan::Plan;

pub(crate) use expr::{substitute, translate};

/// The columns that an expression sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// Their types.
    pub schema: &'a Schema,
    /// The plan that puts them out, if it is one.
    pub plan: Option<&'a Plan>,
}

/// The translation of one expression.
struct Translation<'a> {
    scope: Scope<'a>,
    /// How often parts were tried as operands of a table: each time they are translated once more.
    trials: Cell<u32>,
}

impl<'a> Translation<'a> {
    fn new(scope: Scope<'a>) -> Self {
        Self { scope, trials: Cell::new(0) }
    }
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
