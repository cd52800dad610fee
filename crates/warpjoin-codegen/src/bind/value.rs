//! Values of the current row: code, and what is known of it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::column::{ColumnType, Dictionary};

use super::binder::Binder;
use crate::program::{Code, Node, Op};
use crate::value::{CType, Kind, Range, ValueType, scale_of};

/// A value of the current row.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub code: Code,
    /// True where the value is not null; `None`: never null.
    pub valid: Option<Code>,
    pub kind: Kind,
    pub data_type: DataType,
    /// For codes of strings: the distinct values.
    pub dictionary: Option<Arc<Dictionary>>,
}

impl Value {
    /// A value that is never null.
    pub(crate) fn new(code: Code, kind: Kind, data_type: DataType) -> Self {
        Self { code, valid: None, kind, data_type, dictionary: None }
    }

    /// A value of which this is known.
    pub(crate) fn of_type(code: Code, valid: Option<Code>, known: &ValueType) -> Self {
        let ValueType { kind, data_type, dictionary, nullable: _ } = known;
        Self { code, valid, kind: *kind, data_type: data_type.clone(), dictionary: dictionary.clone() }
    }

    /// The value with this validity.
    pub(crate) fn with_valid(mut self, valid: Option<Code>) -> Self {
        self.valid = valid;
        self
    }

    pub(crate) fn c_type(&self) -> CType {
        self.kind.c_type()
    }

    /// Bounds; a boolean is 0 or 1. `None` for floats.
    pub(crate) fn range(&self) -> Option<Range> {
        match self.kind {
            Kind::Bool => Some(Range::new(0, 1)),
            Kind::Int(range) => Some(range),
            Kind::F32 | Kind::F64 => None,
        }
    }

    /// Scale of a decimal; 0 for everything else.
    pub(crate) fn scale(&self) -> i8 {
        scale_of(&self.data_type)
    }

    /// What is known of it.
    pub(crate) fn value_type(&self) -> ValueType {
        ValueType {
            kind: self.kind,
            data_type: self.data_type.clone(),
            dictionary: self.dictionary.clone(),
            nullable: self.valid.is_some(),
        }
    }

    /// Table-level facts of a column that holds such values.
    pub(crate) fn column_type(&self) -> ColumnType {
        ColumnType {
            data_type: self.data_type.clone(),
            has_nulls: self.valid.is_some(),
            domain: self.kind.domain(),
            dictionary: self.dictionary.clone(),
        }
    }
}

impl Binder {
    /// The value in another C type.
    pub(crate) fn code_as(&self, value: &Value, c_type: CType) -> Code {
        if value.c_type() == c_type { value.code } else { self.cast(c_type, self.parens(value.code)) }
    }

    /// True where the value is true and not null.
    pub(crate) fn is_true(&self, value: &Value) -> Code {
        self.both(value.valid, value.code)
    }

    /// `condition` and, if there is one, `valid`, as one operand.
    pub(crate) fn both(&self, valid: Option<Code>, condition: Code) -> Code {
        valid.map_or(condition, |valid| self.in_parens(valid, Op::And, condition))
    }

    /// `condition`, only where `valid` holds.
    pub(crate) fn where_valid(&self, valid: Option<Code>, condition: Code) -> Code {
        valid.map_or(condition, |valid| self.binary(valid, Op::And, self.parens(condition)))
    }

    /// Validity of an operation that is null when an operand is.
    pub(crate) fn both_valid(&self, left: &Value, right: &Value) -> Option<Code> {
        match (left.valid, right.valid) {
            (None, None) => None,
            (Some(valid), None) | (None, Some(valid)) => Some(valid),
            // Else a chain of operations, whose sides both have the nulls of all before, would grow by powers of two.
            (Some(left), Some(right)) if self.is_same(left, right) => Some(left),
            (Some(left), Some(right)) => Some(self.in_parens(left, Op::And, right)),
        }
    }

    /// Whether the value is null in every row.
    pub(crate) fn is_null(&self, value: &Value) -> bool {
        value.valid.is_some_and(|valid| self.node(valid) == Node::Truth(false))
    }
}
