//! The body of a kernel as instructions: loops, sections, and what all lanes do together.

use std::sync::Arc;

use warpjoin_kernels::interpret::{INTERPRET_ITEMS, INTERPRET_ROWS, Operation as Do};

use super::builder::{Builder, Made, Unknown};
use super::operand::{Next, Operand, Step};
use super::probe::lookup;
use crate::program::{
    Around, BatchItem, Code, First, GroupFrame, GroupTarget, Head, Item, Kernel, Reservation, Statement, Variable,
};
use crate::value::CType;

/// Registers for the warp's queue: as many rows as are left of a step, and those that a warp takes at once less one.
const QUEUE_REGISTERS: u16 = 2;

/// A block of the body that is open.
pub(super) enum Open {
    /// A loop, from this instruction on.
    Loop { begin: u32, end: u32 },
    /// One that needs no instruction.
    Nothing,
    /// The loop over the rows of a warp's queue, within the loop from `rows` on that fills it.
    Queue { rows: u32, begin: u32, end: u32 },
    /// The loop over the matches of a row, with the number of the match.
    Matches { begin: u32, end: u32, index: Operand, step: Operand },
}

impl<'k> Builder<'k> {
    /// Everything between the beginning of the kernel and its end.
    pub(super) fn kernel(&mut self, kernel: &'k Kernel) -> Made<()> {
        match &kernel.around {
            Around::Nothing => {}
            Around::CountRows { .. } => self.open_written(),
            Around::Groups { target, frame } => self.open_frame(target, frame)?,
        }
        for first in &kernel.body.first {
            self.first(first)?;
        }
        let mut open = vec![];
        for item in &kernel.body.items {
            self.item(item, kernel, &mut open)?;
        }
        if !open.is_empty() {
            return Err(Unknown("a block that is not closed"));
        }
        match &kernel.around {
            Around::Nothing => {}
            Around::CountRows { control } => {
                let (control, written) = (self.field(*control), self.written()?);
                self.emit(Do::AddRows, Operand::NONE, &[control, written]);
            }
            Around::Groups { target, frame } => self.close_frame(target, frame)?,
        }
        if let Some(end) = self.end {
            self.place(end);
        }
        self.emit(Do::End, Operand::NONE, &[]);
        Ok(())
    }

    fn first(&mut self, first: &First) -> Made<()> {
        match first {
            First::MatchTurns => {}
            First::Bounds { number, bounds } => {
                let pointer = self.field(*bounds);
                let [zero, one] = [0, 1].map(|index| self.constant(index));
                let low = self.word(Do::Load64, &[pointer, zero]);
                let low = self.word(Do::Complement, &[low]);
                let high = self.word(Do::Load64, &[pointer, one]);
                self.set_variable(Variable::Lowest(*number), low, CType::U64);
                self.set_variable(Variable::Highest(*number), high, CType::U64);
            }
        }
        Ok(())
    }

    pub(super) fn item(&mut self, item: &'k Item, kernel: &'k Kernel, open: &mut Vec<Open>) -> Made<()> {
        if let Some(matching) = self.matching.as_mut().filter(|matching| matching.is_collecting) {
            match item {
                Item::CloseAccepts => matching.is_collecting = false,
                item => matching.accepts.push(item),
            }
            return Ok(());
        }
        match item {
            Item::Close => match open.pop().ok_or(Unknown("a block that is not open"))? {
                Open::Nothing => {}
                Open::Loop { begin, end } => self.close_loop(begin, end),
                Open::Queue { rows, begin, end } => {
                    self.close_loop(begin, end);
                    self.push(Step::new(Do::NextTurn, Operand::NONE, &[]).with(Next::Label(rows)));
                    let behind = self.label_here();
                    self.loops.push((rows, behind));
                    // Its rows come from one turn of the loop to a later one.
                    self.arrays.extend(self.queue.map(|queue| (queue, behind)));
                }
                Open::Matches { begin, end, index, step } => {
                    self.emit(Do::Add, index, &[index, step]);
                    self.close_loop(begin, end);
                }
            },
            Item::Head(head) => {
                let head = self.head(head, kernel)?;
                open.push(head);
            }
            Item::Statement(statement) => self.statement(statement)?,
            Item::Section { alive, declarations, statements } => {
                // Rows that are sought may be fewer than those that go on, which then have the first value.
                let is_of_all = matches!(alive, Variable::Alive | Variable::Matched | Variable::AliveInTurn(_));
                for declaration in declarations {
                    if is_of_all && is_assigned_once(declaration.variable, statements) {
                        self.expected.push((declaration.variable, declaration.c_type));
                    } else {
                        self.declaration(declaration)?;
                    }
                }
                if statements.is_empty() {
                    return Ok(());
                }
                let alive = self.variable(*alive)?.operand;
                let end = self.push_scope(Do::Push, alive)?;
                for statement in statements {
                    self.statement(statement)?;
                }
                self.pop_scope(end);
            }
            Item::Find(find) => self.find(find)?,
            Item::OpenMatches(matches) => {
                let matches = self.open_matches(matches)?;
                open.push(matches);
            }
            Item::Reserve(reservation) => self.reserve(reservation)?,
            Item::OpenGroup { rows, stride_words, finished } => {
                let row = self.variable(Variable::Row)?.operand;
                let stride = self.constant(*stride_words as u64 * 8);
                let rows = self.field(*rows);
                let (base, row) = match finished {
                    Some([finished, count]) => {
                        let (finished, count) = (self.field(*finished), self.field(*count));
                        let is_finished = self.word(Do::LessUnsigned, &[row, count]);
                        let behind = self.word(Do::Subtract, &[row, count]);
                        let row = self.word(Do::Select, &[is_finished, row, behind]);
                        (self.word(Do::Select, &[is_finished, finished, rows]), row)
                    }
                    None => (rows, row),
                };
                let distance = self.word(Do::Multiply, &[row, stride]);
                let group = self.word(Do::Add, &[base, distance]);
                self.set_variable(Variable::GroupRow, group, CType::U64);
                let alive = self.variable(Variable::Alive)?.operand;
                let end = self.push_scope(Do::Push, alive)?;
                let zero = self.constant(0);
                let word = self.word(Do::Load64, &[group, zero]);
                let is_group = self.word(Do::Truth, &[word]);
                self.emit(Do::MoveIf, alive, &[is_group]);
                self.pop_scope(end);
                self.forget();
            }
            Item::Front(front) => {
                let Some(&Open::Loop { begin, .. }) = open.last() else {
                    return Err(Unknown("tests outside of a loop"));
                };
                front.items.iter().try_for_each(|item| self.item(item, kernel, open))?;
                let [row, alive] = [self.variable(Variable::Row)?, self.variable(Variable::Alive)?];
                let queue = self.lanes(QUEUE_REGISTERS);
                self.arrays.push((queue, begin));
                self.queue = Some(queue);
                let step = Step::new(Do::Enqueue, Operand::NONE, &[queue, row.operand, alive.operand]);
                self.push(step.with(Next::Label(begin)));
            }
            Item::OpenQueue { .. } => self.open_queue(open)?,
            // Rows of a frequent key are merged one by one.
            Item::Ballot => {}
            Item::AddToSketch { set, control, hash, alive } => {
                let hash = self.code_as(*hash, CType::U64)?;
                let (set, control) = (self.field(*set), self.field(*control));
                let alive = self.variable(*alive)?.operand;
                self.emit(Do::AddToSketch, Operand::NONE, &[set, control, hash, alive]);
            }
            Item::Batch(item) => self.batch(item, open)?,
            Item::Partition(item) => self.partition(item, open)?,
            Item::MatchUnits(units) => self.match_units(units, open),
            Item::OpenAccepts { .. } => {
                let matching = self.matching.as_mut().ok_or(Unknown("matches of nothing"))?;
                matching.is_collecting = true;
            }
            Item::CloseAccepts => return Err(Unknown("a function that is not open")),
            Item::MatchLookUp(look_up) => self.match_look_up(look_up, kernel, open)?,
            // The loop ends where no lane has another match.
            Item::EndRound => {}
        }
        Ok(())
    }

    /// Opens the loop over the rows of a warp's queue, where the loop around it leads when there is no other row.
    fn open_queue(&mut self, open: &mut Vec<Open>) -> Made<()> {
        let (Some(Open::Loop { begin: rows, end: rows_end }), Some(queue)) = (open.pop(), self.queue) else {
            return Err(Unknown("a queue outside of a loop"));
        };
        self.place(rows_end);
        let begin = self.open_loop();
        let end = self.label();
        let row = self.declare(Variable::Row, CType::U64);
        let alive = self.declare(Variable::Alive, CType::Bool);
        let step = Step::new(Do::Dequeue, row, &[queue, Operand::NONE, Operand::NONE, alive]);
        self.push(step.with(Next::Label(end)));
        open.extend([Open::Nothing, Open::Queue { rows, begin, end }]);
        Ok(())
    }

    fn head(&mut self, head: &Head, kernel: &Kernel) -> Made<Open> {
        let begin = self.open_loop();
        let end = self.label();
        let row = match head {
            Head::GridStride { row, .. } => *row,
            Head::Group => Self::row_of_groups(kernel),
            Head::Open | Head::Turns { .. } | Head::Sample { .. } => Variable::Row,
        };
        let row = self.declare(row, CType::U64);
        let alive = self.declare(Variable::Alive, CType::Bool);
        let step = match head {
            Head::Open => return Err(Unknown("a loop without a form")),
            Head::GridStride { rows, wanted: None, .. } | Head::Turns { rows, .. } => {
                let rows = self.field(*rows);
                Step::new(Do::Grid, row, &[rows, Operand::NONE, Operand::NONE, alive])
            }
            Head::GridStride { rows, wanted: Some([control, wanted]), .. } => {
                let [rows, control, wanted] = [rows, control, wanted].map(|&field| self.field(field));
                Step::new(Do::GridWanted, row, &[rows, control, wanted, alive])
            }
            Head::Sample { rows, stride, .. } => {
                let [rows, stride] = [rows, stride].map(|&field| self.field(field));
                Step::new(Do::Sample, row, &[rows, stride, Operand::NONE, alive])
            }
            Head::Group => self.group_head(kernel, row, alive)?,
        };
        self.push(step.with(Next::Label(end)));
        Ok(Open::Loop { begin, end })
    }

    fn reserve(&mut self, reservation: &Reservation) -> Made<()> {
        let Reservation { alive, of_block, control, wanted, capacity, of_matches } = reservation;
        let alive = self.variable(*alive)?.operand;
        if let Some(number) = of_matches {
            let (next, capacity) = (self.variable(Variable::NextPlace(*number))?.operand, self.field(*capacity));
            let place = self.declare(Variable::Place, CType::U64);
            self.emit(Do::PlaceMatch, place, &[next, alive, capacity]);
            self.forget();
            return Ok(());
        }
        let [control, capacity] = [control, capacity].map(|&field| self.field(field));
        let wanted = match wanted {
            Some(wanted) => self.field(*wanted),
            None => self.constant(u64::MAX),
        };
        let place = self.declare(Variable::Place, CType::U64);
        // Warps with queues are at different rows.
        let operation = if *of_block && self.queue.is_none() { Do::ReserveOfBlock } else { Do::Reserve };
        self.emit(operation, place, &[control, alive, capacity, wanted]);
        self.forget();
        Ok(())
    }

    fn batch(&mut self, item: &BatchItem, open: &mut Vec<Open>) -> Made<()> {
        match item {
            BatchItem::Open { rows, items, .. } => {
                if *items > INTERPRET_ITEMS {
                    return Err(Unknown("too many rows a thread"));
                }
                let begin = self.open_loop();
                let end = self.label();
                let rows = self.field(*rows);
                self.items = *items as u16;
                let step = Step::new(Do::Batch, Operand::NONE, &[rows, Operand::Plain(self.items)]);
                self.push(step.with(Next::Label(end)));
                for array in [Variable::Keys, Variable::Values] {
                    let operand = self.array(self.item_registers());
                    self.set_variable(array, operand, CType::U64);
                }
                open.push(Open::Loop { begin, end });
            }
            BatchItem::OpenKeys { rows } => {
                let rows = self.field(*rows);
                let row = self.open_items(open);
                let is_there = self.word(Do::LessUnsigned, &[row, rows]);
                let alive = self.declare(Variable::Alive, CType::Bool);
                self.emit(Do::Move, alive, &[is_there]);
            }
            BatchItem::LookUp { form, slots, windows } => {
                let (keys, values) = (self.variable(Variable::Keys)?.operand, self.variable(Variable::Values)?.operand);
                let slots = self.field(*slots);
                let windows = match windows {
                    Some(windows) => self.field(*windows),
                    None => self.constant(0),
                };
                let (operation, form) = lookup(*form)?;
                let next = Next::Number(operation as u32 | form << 16);
                let from = [Operand::Plain(self.items), keys, slots, windows];
                self.push(Step::new(Do::BatchFind, values, &from).with(next));
            }
            BatchItem::OpenFound { control, capacity } => {
                let [control, capacity] = [control, capacity].map(|&field| self.field(field));
                let places = self.lanes(self.item_registers());
                self.emit(Do::BatchReserve, places, &[control, Operand::Plain(self.items)]);
                let values = self.variable(Variable::Values)?.operand;
                self.open_items(open);
                let place = self.declare(Variable::Place, CType::U64);
                let found = self.declare(Variable::Found, CType::U64);
                let alive = self.declare(Variable::Alive, CType::Bool);
                let step = Step::new(Do::BatchFound, place, &[places, values, found, alive]);
                self.push(step.with(Next::Operand(capacity)));
            }
        }
        Ok(())
    }

    /// Registers for a word of each row of a batch.
    fn item_registers(&self) -> u16 {
        self.items.div_ceil(INTERPRET_ROWS as u16)
    }

    /// Opens the loop over a thread's rows; returns the row.
    fn open_items(&mut self, open: &mut Vec<Open>) -> Operand {
        self.emit(Do::OpenItems, Operand::NONE, &[]);
        let begin = self.open_loop();
        let end = self.label();
        let row = self.declare(Variable::Row, CType::U64);
        let step = Step::new(Do::BatchItem, row, &[Operand::NONE, Operand::Plain(self.items)]);
        self.push(step.with(Next::Label(end)));
        // The number of the row is that of the machine.
        self.set_variable(Variable::Item, row, CType::U32);
        open.push(Open::Loop { begin, end });
        row
    }

    /// Whether an operand is a variable's own.
    pub(super) fn is_variable(&self, operand: Operand) -> bool {
        operand.lane().is_some_and(|lane| self.variable_lanes.contains(&lane))
    }

    /// The number of rows that a thread has written.
    pub(super) fn written(&self) -> Made<Operand> {
        self.written.ok_or(Unknown("rows that nobody counts"))
    }

    fn open_written(&mut self) {
        let (written, zero) = (self.lanes(1), self.constant(0));
        self.emit(Do::Move, written, &[zero]);
        self.written = Some(written);
    }

    /// A condition, or true.
    pub(super) fn truth(&mut self, condition: Option<Code>) -> Made<Operand> {
        match condition {
            Some(condition) => self.code_as(condition, CType::Bool),
            None => Ok(self.constant(1)),
        }
    }

    fn open_frame(&mut self, target: &Arc<GroupTarget>, frame: &GroupFrame) -> Made<()> {
        match frame {
            GroupFrame::Global { .. } => self.open_gathered(target),
            GroupFrame::Table { fields, rows } => self.open_table(target, fields, rows),
        }
    }

    fn close_frame(&mut self, target: &GroupTarget, frame: &GroupFrame) -> Made<()> {
        match frame {
            GroupFrame::Global { rows } => self.close_gathered(target, *rows),
            GroupFrame::Table { rows, .. } => self.close_table(rows),
        }
    }
}

/// Whether one of these statements sets a variable that stays visible, for all lanes that take part: nobody reads another value.
fn is_assigned_once(variable: Variable, statements: &[Statement]) -> bool {
    let sets = |statement: &&Statement| matches!(statement, Statement::Assign(set, _) if *set == variable);
    matches!(variable, Variable::Hoisted(_)) && statements.iter().filter(sets).count() == 1
}
