//! Validity of operations.

use crate::codegen::value::Value;

/// Validity of an operation that is null when an operand is.
pub(super) fn both_valid(left: &Value, right: &Value) -> Option<String> {
    match (&left.valid, &right.valid) {
        (None, None) => None,
        (Some(valid), None) | (None, Some(valid)) => Some(valid.clone()),
        // Else a chain of operations, whose sides both have the nulls of all before, would grow by powers of two.
        (Some(left), Some(right)) if left == right => Some(left.clone()),
        (Some(left), Some(right)) => Some(format!("({left} && {right})")),
    }
}

/// `condition`, only where `valid` holds.
pub(super) fn where_valid(valid: &Option<String>, condition: &str) -> String {
    valid.as_ref().map_or(condition.into(), |valid| format!("{valid} && ({condition})"))
}
