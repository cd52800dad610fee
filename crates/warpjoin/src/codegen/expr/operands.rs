//! Operands of functions.

use crate::codegen::bind::Value;
use crate::function::Function;
use crate::{Error, Result};

/// As many operands as the function takes.
pub(super) fn operands<const COUNT: usize>(function: Function, arguments: &[Value]) -> Result<&[Value; COUNT]> {
    arguments.try_into().map_err(|_| Error::internal(format!("{function} of {} arguments", arguments.len())))
}
