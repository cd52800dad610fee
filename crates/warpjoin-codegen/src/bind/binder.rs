//! Binds the body of a pipeline kernel, section by section.
//!
//! A section is what one step does for the rows that are still alive: declarations in front, then
//! statements under `if (alive)`. Collectives stand between sections, where all lanes are together.
//!
//! Architecture invariant: `alive` only narrows from section to section, so a column that was
//! loaded once, in a hoisted variable, is right wherever it is used later.

use warpjoin_columns::column::ColumnType;
use warpjoin_columns::{Error, Result};

use super::environment::Payload;
use super::value::Value;
use crate::precomputed::Tabulations;
use crate::program::{
    Binding, Body, Code, Codes, Declaration, Field, First, Front, Head, Item, Node, Nodes, Params, Slices, Statement,
    Status, Type, Variable,
};
use crate::shapes::{ProbeKind, SourceShape, ValidityForm};
use crate::value::CType;

/// Binds one kernel.
pub(crate) struct Binder {
    pub params: Params,
    /// The variable that says whether the lane's row is still in.
    pub alive: Variable,
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
    /// The rows are those of a block's list.
    pub is_queued: bool,
    /// The variable of the loop over rows.
    pub row: Variable,
    /// Lanes that share the matches of a row; the loop that they share takes them.
    pub slices: Option<Slices>,
    /// What is loaded and stored by row is not used again soon.
    pub is_streaming: bool,
    /// How many rows are wanted, a parameter; the variable `is_full` says that the lane has seen them taken.
    pub wanted: Option<Field>,
    /// There is a loop over the matches of a row; the variable `is_vain` says that the warp has seen the launch fail.
    pub has_lists: bool,
    /// Distinct strings from which on devices test them.
    pub tested_strings_min: usize,
    /// What the host evaluated so far.
    pub tabulated: Tabulations,
    codes: Codes,
    body: Body,
    /// Parts behind blocks that are open, with the depth inside the block.
    behind: Vec<(usize, Item)>,
    declarations: Vec<Declaration>,
    statements: Vec<Statement>,
    /// Blocks that are open.
    depth: usize,
    names: u32,
}

/// Where the form of the loop over rows is missing.
pub(crate) struct HeadPlace(usize);

/// Where the tests in front of a list of rows stand.
pub(crate) struct FrontPlace(usize);

impl Binder {
    pub(crate) fn new(source: Vec<ColumnType>, validity: ValidityForm) -> Self {
        Self {
            params: Params::default(),
            alive: Variable::Alive,
            source: (source, validity),
            payloads: vec![],
            is_reserved: false,
            is_block_uniform: false,
            is_tiles: false,
            is_partitioned: false,
            reads_all: false,
            is_queued: false,
            row: Variable::Row,
            slices: None,
            is_streaming: false,
            wanted: None,
            has_lists: false,
            tested_strings_min: usize::MAX,
            tabulated: Tabulations::default(),
            codes: Codes::default(),
            body: Body::default(),
            behind: vec![],
            declarations: vec![],
            statements: vec![],
            depth: 0,
            names: 0,
        }
    }

    /// For a kernel over the rows of `source`.
    pub(crate) fn of_source(source: &SourceShape) -> Self {
        match source {
            SourceShape::Columns(columns, form) => Self::new(columns.clone(), *form),
            SourceShape::Groups(_) | SourceShape::Matches { .. } | SourceShape::Words { .. } => {
                Self::new(vec![], ValidityForm::Bytes)
            }
        }
    }

    pub(crate) fn codes(&self) -> &Codes {
        &self.codes
    }

    pub(crate) fn node(&self, code: Code) -> Node {
        self.codes.node(code)
    }

    /// Whether both compute the same.
    pub(crate) fn is_same(&self, left: Code, right: Code) -> bool {
        self.codes.is_same(left, right)
    }

    /// A number not used before.
    pub(crate) fn fresh(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    /// How far the loop over rows goes.
    pub(crate) fn rows(&mut self) -> Field {
        let binding = if self.row == Variable::Row { Binding::SourceRows } else { Binding::SlicedRows };
        self.params.once(Type::Value(CType::U64), binding)
    }

    /// Adds a part that all lanes execute, outside of sections.
    pub(crate) fn item(&mut self, item: Item) {
        self.flush();
        self.depth = self.depth.saturating_add_signed(item.opens());
        self.body.items.push(item);
    }

    /// Adds a statement that all lanes execute, outside of sections.
    pub(crate) fn all(&mut self, statement: Statement) {
        self.item(Item::Statement(statement));
    }

    /// Adds what comes before all others.
    pub(crate) fn first(&mut self, first: First) {
        self.body.first.push(first);
    }

    /// Closes the block that was opened last.
    pub(crate) fn close(&mut self) {
        self.item(Item::Close);
    }

    /// Adds a part behind the block that is open now, once `finish` closes it.
    pub(crate) fn close_later(&mut self, item: Item) {
        self.flush();
        self.behind.push((self.depth, item));
    }

    /// Opens the loop over rows, whose form is known only when its inside is.
    pub(crate) fn begin_head(&mut self) -> HeadPlace {
        self.item(Item::Head(Head::Open));
        HeadPlace(self.body.items.len() - 1)
    }

    /// The form of the loop that `begin_head` opened.
    pub(crate) fn end_head(&mut self, place: &HeadPlace, head: Head) {
        self.body.items[place.0] = Item::Head(head);
    }

    /// Ends the tests that come first of all, and opens the loop over the rows that they leave; see [`Front`].
    ///
    /// # Errors
    /// When the tests have loops.
    pub(crate) fn end_front(&mut self, head: &HeadPlace, rows: Field) -> Result<FrontPlace> {
        self.flush();
        let place = head.0 + 1;
        let items: Vec<Item> = self.body.items.drain(place..).collect();
        let is_of_row = |item: &Item| matches!(item, Item::Section { .. } | Item::Statement(_) | Item::Find(_));
        if self.alive != Variable::Alive || !items.iter().all(is_of_row) {
            return Err(Error::internal("a test of more than one row"));
        }
        let front = Front { rows, block_threads: 0, offset: 0, is_ordered: false, items };
        self.item(Item::Front(front));
        self.item(Item::OpenQueue { block_threads: 0 });
        self.is_queued = true;
        Ok(FrontPlace(place))
    }

    /// Says how blocks go over the rows that `end_front` has ended the tests of.
    ///
    /// # Errors
    /// When that stands somewhere else.
    pub(crate) fn place_front(&mut self, place: &FrontPlace, threads: u32, at: u32, of_order: bool) -> Result<()> {
        let Some([Item::Front(front), Item::OpenQueue { block_threads }]) =
            self.body.items.get_mut(place.0..place.0 + 2)
        else {
            return Err(Error::internal("tests that stand somewhere else"));
        };
        (front.block_threads, front.offset, front.is_ordered) = (threads, at, of_order);
        *block_threads = threads;
        Ok(())
    }

    /// Has the loop over matches around reserve the places of all of them, if each becomes a row: returns its number.
    pub(crate) fn reserve_matches(&mut self) -> Option<u32> {
        self.flush();
        let alive = self.alive;
        let place = self.body.items.iter().rposition(|item| matches!(item, Item::OpenMatches(_)))?;
        let sets = |statement: &Statement| matches!(statement, Statement::Assign(variable, _) if *variable == alive);
        let keeps_all = |item: &Item| match item {
            Item::Statement(statement) => !sets(statement),
            Item::Section { statements, .. } => !statements.iter().any(sets),
            _ => false,
        };
        let (before, behind) = self.body.items.split_at_mut(place + 1);
        let Some(Item::OpenMatches(matches)) = before.last_mut() else { return None };
        let is_each = matches.kind == ProbeKind::Matches
            && !matches.stops_when_full
            && alive == Variable::AliveInTurn(matches.number)
            && behind.iter().all(keeps_all);
        matches.reserves = is_each;
        is_each.then_some(matches.number)
    }

    /// Adds a statement to the section.
    pub(crate) fn push(&mut self, statement: Statement) {
        self.statements.push(statement);
    }

    /// Ends the section.
    pub(crate) fn flush(&mut self) {
        if self.declarations.is_empty() && self.statements.is_empty() {
            return;
        }
        self.body.items.push(Item::Section {
            alive: self.alive,
            declarations: std::mem::take(&mut self.declarations),
            statements: std::mem::take(&mut self.statements),
        });
    }

    /// Takes what is added until `end_capture`, for a branch.
    pub(crate) fn begin_capture(&mut self) -> Vec<Statement> {
        std::mem::take(&mut self.statements)
    }

    /// Ends a capture: returns the branch's statements and puts the outer ones back.
    pub(crate) fn end_capture(&mut self, outer: Vec<Statement>) -> Vec<Statement> {
        std::mem::replace(&mut self.statements, outer)
    }

    /// The kernel's code, body and parameters; closes all blocks.
    pub(crate) fn finish(mut self) -> (Nodes, Body, Params) {
        self.flush();
        while self.depth > 0 {
            let depth = self.depth;
            self.close();
            let behind = self.behind.extract_if(.., |(inside, _)| *inside == depth);
            self.body.items.extend(behind.map(|(_, item)| item));
        }
        (self.codes.finish(), self.body, self.params)
    }

    /// A constant of this section.
    pub(crate) fn temporary(&mut self, c_type: CType, code: Code) -> Code {
        let variable = Variable::Temporary(self.fresh());
        self.push(Statement::Constant(variable, c_type, code));
        self.variable(variable, c_type)
    }

    /// A variable that stays visible after the section; `initial` where rows are not alive.
    pub(crate) fn hoisted(&mut self, c_type: CType, initial: Code, code: Code) -> Code {
        let variable = Variable::Hoisted(self.fresh());
        self.declarations.push(Declaration { variable, c_type, initial });
        self.push(Statement::Assign(variable, code));
        self.variable(variable, c_type)
    }

    /// Narrows `alive` to rows for which `condition` holds.
    pub(crate) fn narrow(&mut self, condition: Code) {
        self.push(Statement::Assign(self.alive, condition));
        self.flush();
    }

    /// Sets a status bit where `condition` holds.
    pub(crate) fn raise_if(&mut self, condition: Code, status: Status) {
        let control = self.params.control();
        self.push(Statement::Raise { condition, status, control });
    }

    /// Puts a value into variables that stay visible after the section.
    pub(crate) fn hoist(&mut self, value: Value) -> Value {
        let is_visible = |code| matches!(self.node(code), Node::Field(_) | Node::Variable(Variable::Hoisted(_)));
        if is_visible(value.code) && value.valid.is_none_or(is_visible) {
            return value;
        }
        let code = self.hoisted(value.c_type(), self.whole(0), value.code);
        let valid = value.valid.map(|valid| self.hoisted(CType::Bool, self.truth(false), valid));
        Value { code, valid, ..value }
    }
}
