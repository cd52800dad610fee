//! Loads of stored columns: of the source, of a probe's payload, of a table by row numbers.

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;

use super::binder::Binder;
use super::environment::{Payload, PayloadAccess};
use super::value::Value;
use crate::program::{Binding, Code, FetchPart, Function, JoinPart, Op, Type, Variable};
use crate::shapes::{FetchStep, ValidityForm};
use crate::value::{CType, Kind, RangeType};

/// Where a table has a row.
struct FetchPlace<'a> {
    step: &'a FetchStep,
    /// The row's number.
    row: Code,
}

impl FetchPlace<'_> {
    /// The address of a part's first row on the device that has the row, and the row's place there.
    fn shard(&self, b: &mut Binder, element: CType, part: &dyn Fn(usize) -> FetchPart) -> (Code, Code) {
        let step = self.step.number;
        let field = |b: &mut Binder, of_type, part| {
            let field = b.params.once(of_type, Binding::Fetched { step, part });
            b.field(field)
        };
        let (mut address, mut first) = (field(b, Type::Input(element), part(0)), b.word(0));
        // Devices have rows in order; of one without rows nothing is read.
        for shard in 1..self.step.shards {
            let begins = field(b, Type::Value(CType::U64), FetchPart::FirstRow { shard });
            let own = field(b, Type::Input(element), part(shard));
            let is_behind = b.binary(self.row, Op::GreaterOrEqual, begins);
            address = b.parens(b.select(is_behind, own, address));
            first = b.parens(b.select(is_behind, begins, first));
        }
        let row = if self.step.shards > 1 { b.in_parens(self.row, Op::Subtract, first) } else { self.row };
        (address, row)
    }
}

impl Binder {
    /// A column of the source.
    pub(crate) fn source_column(&mut self, column: usize) -> Result<Value> {
        let column_type = self.source.0[column].clone();
        let form = self.source.1;
        let row = self.variable(Variable::Row, CType::U64);
        let value = self.load_column(&column_type, row, Binding::SourceValues(column))?;
        let valid = column_type.has_nulls.then(|| self.load_valid(form, row, Binding::SourceValidity(column)));
        Ok(value.with_valid(valid))
    }

    /// A column of the payload of a probe step.
    pub(crate) fn payload_column(&mut self, join: usize, column: usize) -> Result<Value> {
        let Payload { access, matched } = self.payloads[join].clone();
        let value = match access {
            PayloadAccess::Unpacked(values) => values[column].clone(),
            PayloadAccess::Columns { row, columns } => {
                let column_type = &columns[column];
                let part = |part| Binding::Join(join, part);
                let value = self.load_column(column_type, row, part(JoinPart::PayloadValues(column)))?;
                let valid = column_type
                    .has_nulls
                    .then(|| self.load_valid(ValidityForm::Bytes, row, part(JoinPart::PayloadValidity(column))));
                value.with_valid(valid)
            }
        };
        Ok(match matched {
            Some(matched) => self.or_null(value, matched),
            None => value,
        })
    }

    /// The value where the variable `there` is true, null elsewhere: nothing is loaded there.
    fn or_null(&mut self, value: Value, there: Code) -> Value {
        // Within the bounds of the others, which code may rely on.
        let none = match value.kind {
            Kind::Bool => self.truth(false),
            Kind::F32 | Kind::F64 => self.whole(0),
            Kind::Int(range) => self.bound(range.min, range.c_type()),
        };
        let code = self.parens(self.select(there, value.code, self.cast(value.c_type(), none)));
        let valid = value.valid.map_or(there, |valid| self.in_parens(there, Op::And, valid));
        Value { code, valid: Some(valid), ..value }
    }

    /// A column of a table at the row whose number is `row`.
    pub(crate) fn fetched_column(&mut self, step: &FetchStep, column: usize, row: &Value) -> Result<Value> {
        let (column_type, column) = (&step.types[column], step.columns[column]);
        let place = FetchPlace { step, row: self.cast(CType::U64, row.code) };
        let value = self.load_with(column_type, &mut |b, element| {
            let (address, row) = place.shard(b, element, &|shard| FetchPart::Values { shard, column });
            b.load(address, row)
        })?;
        let valid = column_type.has_nulls.then(|| {
            let (bits, row) = place.shard(self, CType::U8, &|shard| FetchPart::Validity { shard, column });
            self.call(Function::BitAt, &[bits, row])
        });
        let value = value.with_valid(valid);
        Ok(match row.valid {
            Some(there) => self.or_null(value, there),
            None => value,
        })
    }

    /// A value of a stored column at `row`.
    pub(crate) fn load_column(&mut self, column: &ColumnType, row: Code, values: Binding) -> Result<Value> {
        let is_once = self.is_streaming && matches!(values, Binding::SourceValues(_));
        self.load_with(column, &mut |b, element| {
            let field = b.params.once(Type::Input(element), values.clone());
            let field = b.field(field);
            if is_once { b.call(Function::LoadOnce, &[b.offset(field, row)]) } else { b.load(field, row) }
        })
    }

    /// A value of a stored column, of which `at` loads what is stored.
    fn load_with(&mut self, column: &ColumnType, at: &mut dyn FnMut(&mut Self, CType) -> Code) -> Result<Value> {
        let kind = Kind::of_column(column)?;
        let layout = column.layout();
        let stored = match (kind, layout.width_bytes) {
            (_, 0) => None,
            (Kind::F32, _) => Some(at(self, CType::F32)),
            (Kind::F64, _) => Some(at(self, CType::F64)),
            (_, 16) => Some(at(self, CType::I128)),
            (_, width_bytes) => Some(at(self, CType::unsigned(width_bytes))),
        };
        let code = match (kind, stored) {
            (Kind::F32 | Kind::F64, Some(stored)) => stored,
            // A float is never left out.
            (Kind::F32 | Kind::F64, None) => self.whole(0),
            (Kind::Bool, stored) => {
                let stored = stored.unwrap_or_else(|| self.number(layout.base as i64));
                self.in_parens(stored, Op::NotEqual, self.whole(0))
            }
            (Kind::Int(range), Some(stored)) if layout.width_bytes < 16 => {
                self.stored_number(stored, layout.width_bytes, layout.base as i64, range.c_type())
            }
            (Kind::Int(_), Some(stored)) => stored,
            (Kind::Int(range), None) => self.bound(layout.base, range.c_type()),
        };
        Ok(Value { dictionary: column.dictionary.clone(), ..Value::new(code, kind, column.data_type.clone()) })
    }

    /// The number that is stored as its distance from a base.
    fn stored_number(&mut self, stored: Code, width_bytes: u32, base: i64, c_type: CType) -> Code {
        let base = self.number(base);
        let sum = |b: &Self, c_type, stored| b.in_parens(b.cast(c_type, base), Op::Add, stored);
        match (width_bytes, c_type) {
            // The sum of an i64 base and a u64 offset may pass through 2^63.
            (8, CType::I64) => self.cast_in_parens(CType::I64, sum(self, CType::U64, stored)),
            // And that of an i32 base and a u32 offset through 2^31.
            (4, CType::I32) => self.cast_in_parens(CType::I32, sum(self, CType::U32, stored)),
            _ => sum(self, c_type, self.cast(c_type, stored)),
        }
    }

    fn load_valid(&mut self, form: ValidityForm, row: Code, validity: Binding) -> Code {
        let field = self.params.once(Type::Input(CType::U8), validity);
        let bytes = self.field(field);
        match form {
            ValidityForm::Bits => self.call(Function::BitAt, &[bytes, row]),
            ValidityForm::Bytes => self.in_parens(self.load(bytes, row), Op::NotEqual, self.whole(0)),
        }
    }
}
