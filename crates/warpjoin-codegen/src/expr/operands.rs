//! Operands of functions.

use warpjoin_columns::function::Function;
use warpjoin_columns::{Error, Result};

use crate::bind::Value;

/// As many operands as the function takes.
pub(super) fn operands<const COUNT: usize>(function: Function, arguments: &[Value]) -> Result<&[Value; COUNT]> {
    arguments.try_into().map_err(|_| Error::internal(format!("{function} of {} arguments", arguments.len())))
}
