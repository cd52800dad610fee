//! Translates DataFusion's physical expressions to expressions of device plans.
//!
//! Owns which expressions devices support, and the reasons for the others. Must not know plan nodes of DataFusion.

mod expr;
mod functions;
mod host;
mod literal;
mod precompute;
mod safety;

use std::cell::Cell;

use arrow::datatypes::{DataType, Schema};
use warpjoin::plan::Plan;

pub(crate) use expr::{substitute, translate};

/// The columns that an expression sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// Names and types of the columns.
    pub schema: &'a Schema,
    /// The plan whose output they are; `None` for the columns of both sides of a join.
    pub plan: Option<&'a Plan>,
}

/// The translation of one expression.
struct Translation<'a> {
    scope: Scope<'a>,
    /// Number of attempts to precompute a part. Each attempt translates the part's operands again.
    trials: Cell<u32>,
}

impl<'a> Translation<'a> {
    fn new(scope: Scope<'a>) -> Self {
        Self { scope, trials: Cell::new(0) }
    }
}

/// Whether devices store values of the type as dictionary codes.
pub(crate) fn is_string(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => true,
        DataType::Dictionary(_, values) => is_string(values),
        _ => false,
    }
}
