//! Makes the instructions of a program.

use std::collections::{HashMap, HashSet};

use warpjoin_kernels::interpret::Operation;

use super::operand::{ListEntry, Next, Operand, ProgramKind, Shared, Step, Typed, number_of};
use crate::program::{Field, Item, Kernel, MatchUnits, Nodes, Type, Variable};
use crate::value::CType;

/// Scopes within each other, of which a lane keeps a bit each.
const SCOPES_MAX: usize = 28;

/// Why a kernel has no program: an item or function that the interpreter lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unknown(pub &'static str);

pub(super) type Made<T> = Result<T, Unknown>;

/// Relations whose matches are looked up.
pub(super) struct Matching<'k> {
    pub units: &'k MatchUnits,
    /// First build row of the work item.
    pub build_first: Operand,
    /// What tells whether a build row and a probe row of one key are a match.
    pub accepts: Vec<&'k Item>,
    /// These are being collected.
    pub is_collecting: bool,
}

/// A program under way.
pub(super) struct Builder<'k> {
    pub nodes: &'k Nodes,
    pub steps: Vec<Step>,
    /// Words of each value that lanes have.
    pub widths: Vec<u16>,
    /// Arrays that loops fill, with labels of where they are there.
    pub arrays: Vec<(Operand, u32)>,
    /// Labels of the first instruction of each loop, and of that behind it.
    pub loops: Vec<(u32, u32)>,
    /// Numbers of the parameters that the program reads, and its constants.
    pub fields: Vec<u32>,
    pub constants: Vec<u64>,
    /// How many values are the same for all lanes.
    pub uniforms: u32,
    pub list: Vec<ListEntry>,
    pub match_list: Vec<ListEntry>,
    pub matching: Option<Matching<'k>>,
    /// Rows of a thread that are looked up together.
    pub items: u16,
    /// The queue of a warp's rows that are left.
    pub queue: Option<Operand>,
    /// How many rows a thread has written.
    pub written: Option<Operand>,
    /// What each lane has gathered for each accumulator.
    pub gathered: Vec<Operand>,
    /// Shared memory that the pipeline needs.
    pub shared: Shared,
    pub kind: ProgramKind,
    /// Where the kernel ends, if something leads there.
    pub end: Option<u32>,
    /// Types of the kernel's parameters.
    types: &'k [Type],
    /// Variables that the section at hand computes.
    pub expected: Vec<(Variable, CType)>,
    /// Values that variables hold which may change.
    pub variable_lanes: HashSet<u32>,
    /// Variables, with their types.
    variables: Vec<(Variable, Typed)>,
    /// Values that are known already, the newest last.
    known: Vec<(Step, Operand)>,
    known_at: HashMap<Step, usize>,
    /// How many were known where each scope began, and its condition.
    scopes: Vec<(usize, Operand)>,
    /// The scope that ended last: where, and its condition.
    ended: Option<(u32, Operand)>,
    /// The instruction that each label stands for.
    labels: Vec<Option<u32>>,
}

impl<'k> Builder<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Self {
        Self {
            nodes: &kernel.nodes,
            types: &kernel.params,
            items: 1,
            queue: None,
            written: None,
            gathered: vec![],
            shared: Shared::default(),
            kind: ProgramKind::Rows,
            end: None,
            expected: vec![],
            variable_lanes: HashSet::new(),
            steps: vec![],
            widths: vec![],
            arrays: vec![],
            loops: vec![],
            fields: vec![],
            constants: vec![],
            uniforms: 0,
            list: vec![],
            match_list: vec![],
            matching: None,
            variables: vec![],
            known: vec![],
            known_at: HashMap::new(),
            scopes: vec![],
            ended: None,
            labels: vec![],
        }
    }

    /// A value of `words` words for each lane.
    pub(super) fn lanes(&mut self, words: u16) -> Operand {
        self.widths.push(words);
        Operand::Lane(self.widths.len() as u32 - 1, 0)
    }

    /// An array of words that a loop fills.
    pub(super) fn array(&mut self, words: u16) -> Operand {
        let array = self.lanes(words);
        let here = self.label_here();
        self.arrays.push((array, here));
        array
    }

    pub(super) fn field_type(&self, field: Field) -> Type {
        self.types[field.index()]
    }

    pub(super) fn field(&mut self, field: Field) -> Operand {
        let number = number_of(field);
        let place = self.fields.iter().position(|&known| known == number).unwrap_or_else(|| {
            self.fields.push(number);
            self.fields.len() - 1
        });
        Operand::Field(place as u32)
    }

    /// Two parameters, one behind the other.
    pub(super) fn field_pair(&mut self, low: Field, high: Field) -> Operand {
        let pair = [number_of(low), number_of(high)];
        let place = self.fields.windows(2).position(|known| known == pair).unwrap_or_else(|| {
            self.fields.extend(pair);
            self.fields.len() - 2
        });
        Operand::Field(place as u32)
    }

    pub(super) fn constant(&mut self, value: u64) -> Operand {
        let place = self.constants.iter().position(|&known| known == value).unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        Operand::Constant(place as u32)
    }

    /// A 128-bit constant.
    pub(super) fn wide_constant(&mut self, value: i128) -> Operand {
        let pair = [value as u64, (value >> 64) as u64];
        let place = self.constants.windows(2).position(|known| known == pair).unwrap_or_else(|| {
            self.constants.extend(pair);
            self.constants.len() - 2
        });
        Operand::Constant(place as u32)
    }

    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(super) fn emit(&mut self, operation: Operation, to: Operand, from: &[Operand]) {
        self.push(Step::new(operation, to, from));
    }

    /// The result of an instruction that only computes, in a value of `words` words.
    pub(super) fn value(&mut self, step: Step, words: u16) -> Operand {
        if let Some(&place) = self.known_at.get(&step) {
            return self.known[place].1;
        }
        if words == 1
            && let Some(operand) = self.simplified(&step)
        {
            return operand;
        }
        let to = self.lanes(words);
        self.push(Step { to, ..step });
        self.known_at.insert(step, self.known.len());
        self.known.push((step, to));
        to
    }

    /// The instruction that computes a value, if its operands are what they were.
    pub(super) fn known_step(&self, operand: Operand) -> Option<Step> {
        self.known.iter().rev().find(|(_, known)| *known == operand).map(|(step, _)| *step)
    }

    /// The same of one word.
    pub(super) fn word(&mut self, operation: Operation, from: &[Operand]) -> Operand {
        if let Some(sum) = self.sum_with_load(operation, from) {
            return sum;
        }
        self.value(Step::new(operation, Operand::NONE, from), 1)
    }

    /// The sum of a value of a column, which was loaded just now, and its base. If nobody else reads the value, its load goes later.
    fn sum_with_load(&mut self, operation: Operation, from: &[Operand]) -> Option<Operand> {
        if !matches!(operation, Operation::Add | Operation::AddInt) {
            return None;
        }
        let last = *self.steps.last()?;
        let operation = match last.operation {
            Operation::Load8 => Operation::LoadAdd8,
            Operation::Load16 => Operation::LoadAdd16,
            Operation::Load32 => Operation::LoadAdd32,
            _ => return None,
        };
        // In 32 bits the sum may wrap, if the base is no parameter.
        let (Operand::Field(_), true) = (from[0], from[1] == last.to) else { return None };
        let [pointer, index, ..] = last.from;
        Some(self.value(Step::new(operation, Operand::NONE, &[pointer, index, from[0]]), 1))
    }

    /// The same of 128 bits.
    pub(super) fn wide(&mut self, operation: Operation, from: &[Operand]) -> Operand {
        self.value(Step::new(operation, Operand::NONE, from), 2)
    }

    /// Forgets what is known: a variable changes.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.known_at.clear();
        self.scopes.iter_mut().for_each(|(known, _)| *known = 0);
    }

    /// Narrows the lanes that take part; `pop` ends it.
    pub(super) fn push_scope(&mut self, operation: Operation, condition: Operand) -> Made<u32> {
        if self.scopes.len() == SCOPES_MAX {
            return Err(Unknown("scopes within each other"));
        }
        let end = self.label();
        let step = Step::new(operation, Operand::NONE, &[condition]).with(Next::Label(end));
        if operation == Operation::Push && self.ended == Some((self.here(), condition)) {
            // The same lanes as before or fewer: the scope goes on with these. Where it was left before, there are none.
            self.steps.pop();
            self.push(Step { operation: Operation::Narrow, ..step });
        } else {
            self.push(step);
        }
        self.scopes.push((self.known.len(), condition));
        Ok(end)
    }

    /// Ends a scope; what was computed in it is known no longer.
    pub(super) fn pop_scope(&mut self, end: u32) {
        self.place(end);
        self.emit(Operation::Pop, Operand::NONE, &[]);
        let (known, condition) = self.scopes.pop().unwrap_or((0, Operand::NONE));
        for (step, _) in self.known.drain(known.min(self.known.len())..) {
            self.known_at.remove(&step);
        }
        self.ended = Some((self.here(), condition));
    }

    /// A label that is placed later.
    pub(super) fn label(&mut self) -> u32 {
        self.labels.push(None);
        self.labels.len() as u32 - 1
    }

    /// Places a label before the next instruction.
    pub(super) fn place(&mut self, label: u32) {
        self.place_at(label, self.here());
    }

    /// Places a label before an instruction.
    pub(super) fn place_at(&mut self, label: u32, at: u32) {
        self.labels[label as usize] = Some(at);
    }

    /// A label of the next instruction.
    pub(super) fn label_here(&mut self) -> u32 {
        let label = self.label();
        self.place(label);
        label
    }

    /// The number of the next instruction.
    fn here(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Instructions that others lead to.
    pub(super) fn targets(&self) -> Made<HashSet<u32>> {
        let label = |step: &Step| if let Next::Label(label) = step.next { Some(label) } else { None };
        self.steps.iter().filter_map(label).map(|label| self.placed(label)).collect()
    }

    /// The first instruction of each loop, and that behind it.
    pub(super) fn loops_placed(&self) -> Made<Vec<(u32, u32)>> {
        self.loops.iter().map(|&(begin, end)| Ok((self.placed(begin)?, self.placed(end)?))).collect()
    }

    /// Drops instructions; labels of these stand for what follows them.
    pub(super) fn retain(&mut self, keep: &[bool]) {
        let mut before = vec![0];
        for &keeps in keep {
            before.push(before[before.len() - 1] + u32::from(keeps));
        }
        let kept = self.steps.iter().zip(keep).filter(|(_, keeps)| **keeps).map(|(step, _)| *step);
        self.replace_all(kept.collect(), &before);
    }

    /// Puts other instructions in place of all; labels of each old one, and of the end, stand for the new one at its place.
    pub(super) fn replace_all(&mut self, steps: Vec<Step>, places: &[u32]) {
        for label in self.labels.iter_mut().flatten() {
            *label = places[*label as usize];
        }
        self.steps = steps;
    }

    /// Puts instructions in front of all others; labels stand for the same ones as before.
    pub(super) fn put_first(&mut self, steps: Vec<Step>) {
        for label in self.labels.iter_mut().flatten() {
            *label += steps.len() as u32;
        }
        self.steps.splice(0..0, steps);
    }

    /// A value that is the same for all lanes.
    pub(super) fn uniform(&mut self) -> Operand {
        self.uniforms += 1;
        Operand::Uniform(self.uniforms - 1)
    }

    /// The instruction that a label stands for.
    pub(super) fn placed(&self, label: u32) -> Made<u32> {
        self.labels[label as usize].ok_or(Unknown("a label without a place"))
    }

    /// Begins a loop here, whose label it returns: what comes later may have changed what is known.
    pub(super) fn open_loop(&mut self) -> u32 {
        self.forget();
        self.label_here()
    }

    /// Goes back to the beginning of a loop, whose end this is.
    pub(super) fn close_loop(&mut self, begin: u32, end: u32) {
        self.push(Step::new(Operation::Jump, Operand::NONE, &[]).with(Next::Label(begin)));
        self.place(end);
        self.loops.push((begin, end));
        self.forget();
    }

    /// What a variable holds.
    pub(super) fn variable(&self, variable: Variable) -> Made<Typed> {
        let known = self.variables.iter().rev().find(|(known, _)| *known == variable);
        known.map(|(_, value)| *value).ok_or(Unknown("a variable of another frame"))
    }

    /// Says what a variable is.
    pub(super) fn set_variable(&mut self, variable: Variable, operand: Operand, c_type: CType) {
        self.variables.push((variable, Typed { operand, c_type }));
    }

    /// A variable with a register of its own.
    pub(super) fn declare(&mut self, variable: Variable, c_type: CType) -> Operand {
        let operand = self.lanes(if c_type.bits() == 128 { 2 } else { 1 });
        self.variable_lanes.extend(operand.lane());
        self.set_variable(variable, operand, c_type);
        operand
    }
}
