//! Writes the body of a pipeline kernel, section by section.
//!
//! A section is what one step does for the rows that are still alive: declarations in front, then
//! statements under `if (alive)`. Collectives stand between sections, where all lanes are together.
//!
//! Architecture invariant: `alive` only narrows from section to section, so a column that was
//! loaded once, in a hoisted variable, is right wherever it is used later.

use super::environment::Payload;
use super::params::{Binding, Params};
use crate::codegen::precomputed::Tabulations;
use crate::codegen::shapes::{SourceShape, ValidityForm};
use crate::codegen::value::{CType, Value};
use crate::column::ColumnType;

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
}
