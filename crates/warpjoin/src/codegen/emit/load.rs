//! Code that loads stored columns: of the source, of a probe's payload, of a table by row numbers.

use super::emitter::Emitter;
use super::environment::{Payload, PayloadAccess};
use super::packing::lower;
use super::params::{Binding, FetchPart, JoinPart, Params};
use crate::Result;
use crate::codegen::shapes::{FetchStep, ValidityForm};
use crate::codegen::value::{CType, Kind, Value};
use crate::column::ColumnType;

/// Where a table has a row.
struct FetchPlace<'a> {
    step: &'a FetchStep,
    /// C expression of the row's number.
    row: String,
}

impl FetchPlace<'_> {
    /// The address of a part's first row on the device that has the row, and the row's place there.
    fn shard(&self, params: &mut Params, c_type: &str, part: &dyn Fn(usize) -> FetchPart) -> (String, String) {
        let step = self.step.number;
        let mut field = |c_type: &str, part| params.once(c_type, Binding::Fetched { step, part });
        let (mut bytes, mut first) = (field(c_type, part(0)), "0ULL".to_string());
        // Devices have rows in order; of one without rows nothing is read.
        for shard in 1..self.step.shards {
            let begins = field("u64", FetchPart::FirstRow { shard });
            let own = field(c_type, part(shard));
            bytes = format!("({} >= {begins} ? {own} : {bytes})", self.row);
            first = format!("({} >= {begins} ? {begins} : {first})", self.row);
        }
        let row = if self.step.shards > 1 { format!("({} - {first})", self.row) } else { self.row.clone() };
        (bytes, row)
    }

    /// Code that loads a stored value.
    fn field(&self, params: &mut Params, c_type: &str, part: &dyn Fn(usize) -> FetchPart) -> String {
        let (field, row) = self.shard(params, c_type, part);
        format!("{field}[{row}]")
    }
}

impl Emitter {
    /// A column of the source.
    pub(in crate::codegen) fn source_column(&mut self, column: usize) -> Result<Value> {
        let column_type = self.source.0[column].clone();
        let form = self.source.1;
        let value = self.load(&column_type, "row", Binding::SourceValues(column))?;
        let valid = column_type.has_nulls.then(|| self.load_valid(form, "row", Binding::SourceValidity(column)));
        Ok(value.with_valid(valid))
    }

    /// A column of the payload of a probe step.
    pub(in crate::codegen) fn payload_column(&mut self, join: usize, column: usize) -> Result<Value> {
        let Payload { access, matched } = self.payloads[join].clone();
        let value = match access {
            PayloadAccess::Unpacked(values) => values[column].clone(),
            PayloadAccess::Columns { row, columns } => {
                let column_type = &columns[column];
                let part = |part| Binding::Join(join, part);
                let value = self.load(column_type, &row, part(JoinPart::PayloadValues(column)))?;
                let valid = column_type
                    .has_nulls
                    .then(|| self.load_valid(ValidityForm::Bytes, &row, part(JoinPart::PayloadValidity(column))));
                value.with_valid(valid)
            }
        };
        Ok(match matched {
            Some(matched) => self.or_null(value, &matched),
            None => value,
        })
    }

    /// The value where the variable `there` is true, null elsewhere: nothing is loaded there.
    fn or_null(&mut self, value: Value, there: &str) -> Value {
        // Within the bounds of the others, which code may rely on.
        let none = match value.kind {
            Kind::Bool => "false".into(),
            Kind::F32 | Kind::F64 => "0".into(),
            Kind::Int(range) => lower(self, range),
        };
        let code = format!("({there} ? {} : ({}){none})", value.code, value.c_type().name());
        let valid = value.valid.as_ref().map_or(there.to_string(), |valid| format!("({there} && {valid})"));
        Value { code, valid: Some(valid), ..value }
    }

    /// A column of a table at the row whose number is `row`.
    pub(in crate::codegen) fn fetched_column(&mut self, step: &FetchStep, column: usize, row: &Value) -> Result<Value> {
        let (column_type, column) = (&step.types[column], step.columns[column]);
        let place = FetchPlace { step, row: format!("(u64){}", row.code) };
        let values = |shard| FetchPart::Values { shard, column };
        let value = self.load_with(column_type, &mut |params, c_type| place.field(params, c_type, &values))?;
        let validity = |shard| FetchPart::Validity { shard, column };
        let valid = column_type.has_nulls.then(|| {
            let (bytes, row) = place.shard(&mut self.params, "const u8*", &validity);
            format!("bit_at({bytes}, {row})")
        });
        let value = value.with_valid(valid);
        Ok(match &row.valid {
            Some(there) => self.or_null(value, there),
            None => value,
        })
    }

    /// Code that loads a value of a stored column at `row`.
    pub(crate) fn load(&mut self, column: &ColumnType, row: &str, values: Binding) -> Result<Value> {
        let is_once = self.is_streaming && matches!(values, Binding::SourceValues(_));
        self.load_with(column, &mut |params, c_type| {
            let field = params.once(c_type, values.clone());
            if is_once { format!("load_once({field} + {row})") } else { format!("{field}[{row}]") }
        })
    }

    /// Code that reads a value of a stored column, of which `at` loads what is stored as a C type that a pointer has.
    fn load_with(&mut self, column: &ColumnType, at: &mut dyn FnMut(&mut Params, &str) -> String) -> Result<Value> {
        let kind = Kind::of_column(column)?;
        let layout = column.layout();
        let stored = match (kind, layout.width_bytes) {
            (_, 0) => String::new(),
            (Kind::F32, _) => at(&mut self.params, "const f32*"),
            (Kind::F64, _) => at(&mut self.params, "const f64*"),
            (_, 16) => at(&mut self.params, "const i128*"),
            (_, width) => at(&mut self.params, &format!("const u{}*", width * 8)),
        };
        let code = match kind {
            Kind::F32 | Kind::F64 => stored,
            Kind::Bool if layout.width_bytes == 0 => format!("({} != 0)", self.params.number(layout.base as i64)),
            Kind::Bool => format!("({stored} != 0)"),
            Kind::Int(range) => {
                let c_type = range.c_type();
                if layout.width_bytes == 16 {
                    stored
                } else {
                    let base = self.params.number(layout.base as i64);
                    let name = c_type.name();
                    match layout.width_bytes {
                        0 => format!("(({name}){base})"),
                        // The sum of an i64 base and a u64 offset may pass through 2^63.
                        8 if c_type == CType::I64 => format!("((i64)((u64){base} + {stored}))"),
                        // And that of an i32 base and a u32 offset through 2^31.
                        4 if c_type == CType::I32 => format!("((i32)((u32){base} + {stored}))"),
                        _ => format!("(({name}){base} + ({name}){stored})"),
                    }
                }
            }
        };
        let mut value = Value::new(code, kind, column.data_type.clone());
        value.dictionary = column.dictionary.clone();
        Ok(value)
    }

    fn load_valid(&mut self, form: ValidityForm, row: &str, validity: Binding) -> String {
        let bytes = self.params.once("const u8*", validity);
        match form {
            ValidityForm::Bits => format!("bit_at({bytes}, {row})"),
            ValidityForm::Bytes => format!("({bytes}[{row}] != 0)"),
        }
    }
}
