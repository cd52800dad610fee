//! Writes the body of a pipeline kernel, section by section.
//!
//! A section is what one step does for the rows that are still alive: declarations in front, then
//! statements under `if (alive)`. Collectives stand between sections, where all lanes are together.
//!
//! Architecture invariant: `alive` only narrows from section to section, so a column that was
//! loaded once, in a hoisted variable, is right wherever it is used later.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::params::{Binding, FetchPart, Params};
use super::shapes::{FetchStep, SourceShape};
use super::tabulated::Tabulations;
use super::value::{CType, Kind, Value};
use crate::column::ColumnType;
use crate::expr::Expr;
use crate::{Error, Result};

/// The columns that a step sees, computed when first asked for.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    cells: Rc<RefCell<Vec<Cell>>>,
}

/// One column of an environment.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    /// A variable.
    Ready(Value),
    /// Code that is worth a variable once it is used.
    Load(Value),
    /// Column of the source table.
    Source(usize),
    /// Column `column` of the payload of probe step `join`.
    Payload { join: usize, column: usize },
    /// A column that was said to be needed by nobody.
    Absent,
    /// An expression over an earlier environment.
    Computed(Expr, Environment),
    /// Column `column` of what a step fetches by row numbers of its input.
    Fetched { step: Arc<FetchStep>, column: usize, input: Environment },
}

impl Environment {
    pub(crate) fn new(cells: Vec<Cell>) -> Self {
        Self { cells: Rc::new(RefCell::new(cells)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.borrow().len()
    }

    /// The cells at these positions, shared with this environment's later knowledge only by value.
    pub(crate) fn cell(&self, index: usize) -> Result<Cell> {
        let cells = self.cells.borrow();
        cells.get(index).cloned().ok_or_else(|| Error::internal(format!("column {index} of {}", cells.len())))
    }

    /// These columns, and one more behind them.
    pub(crate) fn with(&self, cell: Option<Cell>) -> Self {
        Self::new(self.cells.borrow().iter().cloned().chain(cell).collect())
    }

    fn set(&self, index: usize, value: Value) {
        self.cells.borrow_mut()[index] = Cell::Ready(value);
    }

    /// The same columns, apart from this environment: what is loaded for some rows only is not known here.
    pub(crate) fn apart(&self) -> Self {
        self.apart_with(&mut HashMap::new())
    }

    fn apart_with(&self, copies: &mut HashMap<*const RefCell<Vec<Cell>>, Environment>) -> Self {
        if let Some(copy) = copies.get(&Rc::as_ptr(&self.cells)) {
            return copy.clone();
        }
        let cells = self.cells.borrow().iter().cloned().collect::<Vec<_>>();
        let cells = cells.into_iter().map(|cell| match cell {
            Cell::Computed(expr, inner) => Cell::Computed(expr, inner.apart_with(copies)),
            Cell::Fetched { step, column, input } => Cell::Fetched { step, column, input: input.apart_with(copies) },
            other => other,
        });
        let copy = Self::new(cells.collect());
        copies.insert(Rc::as_ptr(&self.cells), copy.clone());
        copy
    }

    /// Says that a column is worth this code, too.
    pub(crate) fn set_load(&self, index: usize, value: Value) {
        self.cells.borrow_mut()[index] = Cell::Load(value);
    }
}

/// How the source table stores validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ValidityForm {
    /// One bit a row.
    Bits,
    /// One byte a row.
    Bytes,
}

/// What the emitter must know of a probe step to load its payload.
#[derive(Debug, Clone)]
pub(crate) enum PayloadAccess {
    /// Values unpacked from a word variable.
    Unpacked(Vec<Value>),
    /// Columns of build rows, by the row number in a variable.
    Columns { row: String, columns: Vec<ColumnType> },
}

/// The payload of a probe step.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub access: PayloadAccess,
    /// Variable that says whether there is a match; without one the payload is null. `None`: there is one.
    pub matched: Option<String>,
}

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

/// Writes one kernel body.
pub(crate) struct Emitter {
    pub params: Params,
    /// The variable that says whether the lane's row is still in.
    pub alive: String,
    /// Columns of the source and their validity form.
    pub source: (Vec<ColumnType>, ValidityForm),
    /// Payload of each probe step so far.
    pub payloads: Vec<Payload>,
    /// `place` holds the row's place in the output already.
    pub is_reserved: bool,
    /// All threads of a block reach the sink together.
    pub is_block_uniform: bool,
    /// The body is that of the loop over tiles of rows.
    pub is_tiles: bool,
    /// Those rows lie by partition.
    pub is_partitioned: bool,
    /// No step drops rows: all of them are read.
    pub reads_all: bool,
    /// What is loaded and stored by row is not used again soon.
    pub is_streaming: bool,
    /// How many rows are wanted, a parameter; the variable `is_full` says that the lane has seen them taken.
    pub wanted: Option<String>,
    /// There is a loop over the matches of a row; the variable `is_vain` says that the warp has seen the launch fail.
    pub has_lists: bool,
    /// Distinct strings from which on devices test them.
    pub tested_strings_min: usize,
    /// What the host evaluated so far.
    pub tabulated: Tabulations,
    /// Lines behind blocks that are open, with the depth inside the block.
    behind: Vec<(usize, String)>,
    /// What a thread does once, before all loops.
    prologue: String,
    body: String,
    declarations: String,
    statements: String,
    depth: usize,
    names: usize,
}

/// Adds a line of these parts. A query writes thousands of lines: none is made as a string of its own first.
fn push_line(text: &mut String, depth: usize, parts: &[&str]) {
    for _ in 0..depth {
        text.push_str("    ");
    }
    for part in parts {
        text.push_str(part);
    }
    text.push('\n');
}

impl Emitter {
    pub(crate) fn new(source: Vec<ColumnType>, validity: ValidityForm) -> Self {
        Self {
            params: Params::default(),
            alive: "alive".into(),
            source: (source, validity),
            payloads: vec![],
            is_reserved: false,
            is_block_uniform: false,
            is_tiles: false,
            is_partitioned: false,
            reads_all: false,
            is_streaming: false,
            wanted: None,
            has_lists: false,
            tested_strings_min: usize::MAX,
            tabulated: Tabulations::default(),
            behind: vec![],
            prologue: String::new(),
            body: String::new(),
            declarations: String::new(),
            statements: String::new(),
            depth: 1,
            names: 0,
        }
    }

    /// For a kernel over the rows of `source`.
    pub(crate) fn of_source(source: &SourceShape) -> Self {
        match source {
            SourceShape::Columns(columns, form) => Self::new(columns.clone(), *form),
            SourceShape::Groups(_) | SourceShape::Matches { .. } | SourceShape::Words(_) => {
                Self::new(vec![], ValidityForm::Bytes)
            }
        }
    }

    /// A name not used before.
    pub(crate) fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Writes a line that all lanes execute, outside of sections.
    pub(crate) fn line(&mut self, text: &str) {
        self.flush();
        push_line(&mut self.body, self.depth, &[text]);
    }

    /// Writes a line in front of all others.
    pub(crate) fn first(&mut self, text: &str) {
        push_line(&mut self.prologue, 1, &[text]);
    }

    /// Opens a block that all lanes enter together.
    pub(crate) fn open(&mut self, text: &str) {
        self.flush();
        push_line(&mut self.body, self.depth, &[text, " {"]);
        self.depth += 1;
    }

    /// Closes the block that was opened last.
    pub(crate) fn close(&mut self) {
        self.close_with("}");
    }

    /// Closes the block that was opened last with this text.
    pub(crate) fn close_with(&mut self, text: &str) {
        self.flush();
        self.depth -= 1;
        self.line(text);
    }

    /// A line behind the block that is open now, once `finish` closes it.
    pub(crate) fn close_later(&mut self, text: &str) {
        self.flush();
        self.behind.push((self.depth, text.into()));
    }

    /// Opens a block whose first lines are known only when its inside is.
    pub(crate) fn begin_head(&mut self) -> usize {
        self.flush();
        self.depth += 1;
        self.body.len()
    }

    /// Writes the first lines of the block that `begin_head` opened.
    pub(crate) fn end_head(&mut self, head: usize, text: &str) {
        self.body.insert_str(head, text);
    }

    /// Adds a statement to the section.
    pub(crate) fn statement(&mut self, text: &str) {
        push_line(&mut self.statements, self.depth + 1, &[text]);
    }

    /// Adds a declaration in front of the section.
    pub(crate) fn declare(&mut self, text: &str) {
        push_line(&mut self.declarations, self.depth, &[text]);
    }

    /// Ends the section: `if (alive) { statements }`.
    pub(crate) fn flush(&mut self) {
        self.body.push_str(&self.declarations);
        self.declarations.clear();
        if !self.statements.is_empty() {
            push_line(&mut self.body, self.depth, &["if (", &self.alive, ") {"]);
            self.body.push_str(&self.statements);
            push_line(&mut self.body, self.depth, &["}"]);
            self.statements.clear();
        }
    }

    /// Takes what was written since `begin_capture`, for a branch.
    pub(crate) fn begin_capture(&mut self) -> String {
        std::mem::take(&mut self.statements)
    }

    /// Ends a capture: returns the branch's statements and puts the outer ones back.
    pub(crate) fn end_capture(&mut self, outer: String) -> String {
        std::mem::replace(&mut self.statements, outer)
    }

    /// Adds finished text to the section.
    pub(crate) fn append(&mut self, text: &str) {
        self.statements.push_str(text);
    }

    /// The body; closes all blocks that `open` opened.
    pub(crate) fn finish(mut self) -> (String, Params) {
        self.flush();
        while self.depth > 1 {
            self.depth -= 1;
            push_line(&mut self.body, self.depth, &["}"]);
            for (_, text) in self.behind.extract_if(.., |(depth, _)| *depth == self.depth + 1) {
                push_line(&mut self.body, self.depth, &[&text]);
            }
        }
        (self.prologue + &self.body, self.params)
    }

    /// A constant of this section.
    pub(crate) fn temporary(&mut self, c_type: CType, code: &str) -> String {
        let name = self.fresh("t");
        self.statement(&format!("const {} {name} = {code};", c_type.name()));
        name
    }

    /// Narrows `alive` to rows for which `condition` holds.
    pub(crate) fn narrow(&mut self, condition: &str) {
        let alive = self.alive.clone();
        self.statement(&format!("{alive} = {condition};"));
        self.flush();
    }

    /// Sets a status bit where `condition` holds.
    pub(crate) fn raise_if(&mut self, condition: &str, bit: &str) {
        let control = self.params.once("u64*", Binding::Control);
        self.statement(&format!("if ({condition}) raise_status({control}, {bit});"));
    }

    /// Column `index` of `environment`, loaded or computed on first use.
    pub(crate) fn column(&mut self, environment: &Environment, index: usize) -> Result<Value> {
        let value = match environment.cell(index)? {
            Cell::Ready(value) => return Ok(value),
            Cell::Load(value) => value,
            Cell::Absent => return Err(Error::internal(format!("column {index} was dropped"))),
            Cell::Source(column) => self.source_column(column)?,
            Cell::Payload { join, column } => self.payload_column(join, column)?,
            Cell::Computed(expr, inner) => super::expr::evaluate(self, &expr, &inner)?,
            Cell::Fetched { step, column, input } => self.fetched_column(&step, column, &input)?,
        };
        let value = self.hoist(value);
        environment.set(index, value.clone());
        Ok(value)
    }

    /// Puts a value into variables that stay visible after the section.
    pub(crate) fn hoist(&mut self, value: Value) -> Value {
        let is_plain = |code: &str| code.starts_with("p.a") && code[3..].bytes().all(|b| b.is_ascii_digit());
        let is_name =
            |code: &str| is_plain(code) || code.starts_with('h') && code[1..].bytes().all(|b| b.is_ascii_digit());
        if is_name(&value.code) && value.valid.as_deref().is_none_or(is_name) {
            return value;
        }
        let c_type = value.c_type().name();
        let name = self.fresh("h");
        self.declare(&format!("{c_type} {name} = 0;"));
        self.statement(&format!("{name} = {};", value.code));
        let valid = value.valid.clone().map(|code| {
            let valid = self.fresh("h");
            self.declare(&format!("bool {valid} = false;"));
            self.statement(&format!("{valid} = {code};"));
            valid
        });
        Value { code: name, valid, ..value }
    }

    fn source_column(&mut self, column: usize) -> Result<Value> {
        let column_type = self.source.0[column].clone();
        let form = self.source.1;
        let value = self.load(&column_type, "row", Binding::SourceValues(column))?;
        let valid = column_type.has_nulls.then(|| self.load_valid(form, "row", Binding::SourceValidity(column)));
        Ok(value.with_valid(valid))
    }

    fn payload_column(&mut self, join: usize, column: usize) -> Result<Value> {
        use super::params::JoinPart;
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
            Kind::Int(range) => super::packing::lower(self, range),
        };
        let code = format!("({there} ? {} : ({}){none})", value.code, value.c_type().name());
        let valid = value.valid.as_ref().map_or(there.to_string(), |valid| format!("({there} && {valid})"));
        Value { code, valid: Some(valid), ..value }
    }

    /// A column of a table at the row whose number a column of `input` holds.
    fn fetched_column(&mut self, step: &FetchStep, column: usize, input: &Environment) -> Result<Value> {
        let row = self.column(input, step.row)?;
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
