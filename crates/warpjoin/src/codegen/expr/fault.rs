//! What generated code does about a value that does not exist: an overflow, a failed cast.

use super::cast::constant;
use super::validity::where_valid;
use crate::codegen::emit::Emitter;
use crate::codegen::value::{CType, Kind, Range, Value};

/// What becomes of a row without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The query ends with this status bit.
    Raise(&'static str),
    /// The value is null.
    Null,
}

pub(super) const OVERFLOW: Fault = Fault::Raise("WJ_STATUS_OVERFLOW");
pub(super) const CAST: Fault = Fault::Raise("WJ_STATUS_CAST");

impl Fault {
    /// The validity of a value that does not exist where `condition` holds.
    pub(super) fn at(self, emitter: &mut Emitter, condition: &str, valid: Option<String>) -> Option<String> {
        match self {
            Self::Raise(bit) => {
                emitter.raise_if(&where_valid(&valid, condition), bit);
                valid
            }
            Self::Null => {
                let exists = where_valid(&valid, &format!("!({condition})"));
                Some(emitter.temporary(CType::Bool, &exists))
            }
        }
    }

    /// An integer kept within `bounds`. Values beyond are replaced as well, for an address may be
    /// computed of them before the launch ends.
    pub(super) fn within(self, emitter: &mut Emitter, value: Value, bounds: Range) -> Value {
        let Some(range) = value.range() else { return value };
        if range.min >= bounds.min && range.max <= bounds.max {
            return value;
        }
        let name = emitter.temporary(range.c_type(), &value.code_as(range.c_type()));
        let mut tests = vec![];
        if range.max > bounds.max {
            tests.push(format!("{name} > {}", constant(bounds.max, range.c_type())));
        }
        if range.min < bounds.min {
            tests.push(format!("{name} < {}", constant(bounds.min, range.c_type())));
        }
        let is_beyond = emitter.temporary(CType::Bool, &tests.join(" || "));
        let valid = self.at(emitter, &is_beyond, value.valid.clone());
        let clamped = |value: i128| value.clamp(bounds.min, bounds.max);
        let range = Range::new(clamped(range.min), clamped(range.max));
        let c_type = range.c_type();
        let code = format!("{is_beyond} ? {} : ({})({name})", constant(range.min, c_type), c_type.name());
        let code = emitter.temporary(c_type, &code);
        Value { code, valid, kind: Kind::Int(range), ..value }
    }
}
