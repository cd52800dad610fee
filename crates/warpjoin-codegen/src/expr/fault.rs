//! What becomes of a value that does not exist: an overflow, a failed cast.

use crate::bind::{Binder, Value};
use crate::program::{Code, Op, Status};
use crate::value::{CType, Kind, Range, RangeType};

/// What becomes of a row without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The query ends with this status bit.
    Raise(Status),
    /// The value is null.
    Null,
}

pub(super) const OVERFLOW: Fault = Fault::Raise(Status::Overflow);
pub(super) const CAST: Fault = Fault::Raise(Status::Cast);

impl Fault {
    /// The validity of a value that does not exist where `condition` holds.
    pub(super) fn at(self, b: &mut Binder, condition: Code, valid: Option<Code>) -> Option<Code> {
        match self {
            Self::Raise(status) => {
                b.raise_if(b.where_valid(valid, condition), status);
                valid
            }
            Self::Null => {
                let exists = b.where_valid(valid, b.not(b.parens(condition)));
                Some(b.temporary(CType::Bool, exists))
            }
        }
    }

    /// An integer kept within `bounds`. Values beyond are replaced as well, for an address may be
    /// computed of them before the launch ends.
    pub(super) fn within(self, b: &mut Binder, value: Value, bounds: Range) -> Value {
        let Some(range) = value.range() else { return value };
        if range.min >= bounds.min && range.max <= bounds.max {
            return value;
        }
        let number = b.temporary(range.c_type(), b.code_as(&value, range.c_type()));
        let is_above = b.binary(number, Op::Greater, b.constant(bounds.max, range.c_type()));
        let is_below = b.binary(number, Op::Less, b.constant(bounds.min, range.c_type()));
        let is_beyond = match (range.max > bounds.max, range.min < bounds.min) {
            (true, true) => b.binary(is_above, Op::Or, is_below),
            (true, false) => is_above,
            _ => is_below,
        };
        let is_beyond = b.temporary(CType::Bool, is_beyond);
        let valid = self.at(b, is_beyond, value.valid);
        let clamped = |value: i128| value.clamp(bounds.min, bounds.max);
        let range = Range::new(clamped(range.min), clamped(range.max));
        let c_type = range.c_type();
        let kept = b.select(is_beyond, b.constant(range.min, c_type), b.cast(c_type, b.parens(number)));
        let code = b.temporary(c_type, kept);
        Value { code, valid, kind: Kind::Int(range), ..value }
    }
}
