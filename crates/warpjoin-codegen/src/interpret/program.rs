//! A finished program.

use warpjoin_kernels::interpret::{INTERPRET_VALUES, Operation, REGISTER, SCOPES, group_list};

use super::allocate::{Registers, allocate};
use super::builder::{Builder, Made, Unknown};
use super::operand::{ListEntry, Next, Operand, ProgramKind, Shared, Step};
use super::passes::shorten;
use crate::program::Kernel;
use crate::shapes::PreAggregation;

/// The program of a pipeline: what the kernels of `kernels/interpret` take, but for places in shared memory.
#[derive(Debug)]
pub struct Program {
    pub kind: ProgramKind,
    steps: Vec<Step>,
    /// Numbers of the parameters that it reads.
    fields: Vec<u32>,
    /// Constants, then values that the block computes once.
    constants: Vec<u64>,
    /// Words before the latter.
    uniforms_at: u32,
    /// What describes a group table, then what describes matches.
    list: Vec<ListEntry>,
    match_list: usize,
    registers: Registers,
    shared: Shared,
}

/// Shared memory of a block that interprets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBytes {
    /// In front of the program.
    before: u32,
    /// Slots of the table in front of the group table.
    slots: u32,
    /// All of it.
    pub bytes: u32,
}

/// A program for blocks of one shape.
#[derive(Debug)]
pub struct EncodedProgram {
    pub words: Vec<u64>,
    /// Parameters that it reads.
    pub fields: u64,
    /// Words before the instructions, and before the list.
    pub instructions: u64,
    pub list: u64,
    /// Where the list has what describes matches.
    pub match_list: u64,
    /// Words of shared memory in front of it.
    pub shared_words: u64,
}

impl Program {
    /// The program of a kernel; the reason why there is none.
    pub fn of(kernel: &Kernel) -> Result<Self, &'static str> {
        Self::made(kernel).map_err(|Unknown(what)| what)
    }

    fn made(kernel: &Kernel) -> Made<Self> {
        if kernel.params.len() > INTERPRET_VALUES {
            return Err(Unknown("too many parameters"));
        }
        let mut builder = Builder::new(kernel);
        builder.kernel(kernel)?;
        shorten(&mut builder)?;
        if !builder.steps.iter().all(|step| builder.kind.has(step.operation)) {
            return Err(Unknown("an instruction that its kernel lacks"));
        }
        if scopes(&builder.steps) >= SCOPES {
            return Err(Unknown("too many scopes within each other"));
        }
        let registers = allocate(&builder)?;
        let placed = |step: &Step| match step.next {
            Next::Label(label) => Ok(step.with(Next::Label(builder.placed(label)?))),
            _ => Ok(*step),
        };
        let steps = builder.steps.iter().map(placed).collect::<Made<_>>()?;
        let Builder { kind, fields, mut constants, uniforms, mut list, match_list, shared, .. } = builder;
        let uniforms_at = (fields.len() + constants.len()) as u32;
        constants.resize(constants.len() + uniforms as usize, 0);
        // Instructions lie at places of 16 bytes.
        if !(fields.len() + constants.len()).is_multiple_of(2) {
            constants.push(0);
        }
        let match_list_at = list.len();
        list.extend(match_list);
        Ok(Self { kind, steps, fields, constants, uniforms_at, list, match_list: match_list_at, registers, shared })
    }

    /// Whether a block has a table in front of the group table.
    pub fn has_front(&self) -> bool {
        self.shared.slots > 0
    }

    /// The entry that interprets it.
    pub fn entry(&self) -> &'static str {
        match self.kind {
            ProgramKind::Rows => "interpret_rows",
            ProgramKind::Groups => "interpret_groups",
            ProgramKind::Matches => "interpret_matches",
            ProgramKind::Count | ProgramKind::Scatter => "interpret_partition",
        }
    }

    /// Bytes of a register of all threads of a block.
    fn register_bytes(&self, threads: u32) -> u32 {
        8 * threads * self.kind.rows()
    }

    /// Words of shared memory that it takes, so that the registers behind it are aligned.
    fn words(&self) -> u32 {
        let words = self.uniform_words() + (self.steps.len() * STEP_WORDS + self.list.len().div_ceil(2)) as u32;
        words.next_multiple_of(self.kind.rows())
    }

    /// Those of parameters and constants, which stand there once for each row.
    fn uniform_words(&self) -> u32 {
        (self.fields.len() + self.constants.len()) as u32 * self.kind.rows()
    }

    /// Shared memory of a block of so many threads behind `before_bytes` of the pipeline's own; `None`: there is not enough.
    pub fn shared_bytes(&self, before_bytes: u32, threads: u32, bytes_max: u32) -> Option<SharedBytes> {
        let behind = 8 * self.words() + self.register_bytes(threads) * u32::from(self.registers.count);
        let Shared { head_words, slots, slot_bytes, keeps_slots } = self.shared;
        let before = before_bytes.max(8 * head_words).next_multiple_of(16);
        let room = bytes_max.checked_sub(behind)?.checked_sub(before + 16)?;
        let fitting = (room / slot_bytes.max(1)).min(slots);
        let slots_min = if keeps_slots { slots } else { PreAggregation::SLOTS_MIN.min(slots) };
        if fitting < slots_min {
            return None;
        }
        let fitting = if keeps_slots { fitting } else { fitting & !1 };
        let before = (before + fitting * slot_bytes).next_multiple_of(16);
        Some(SharedBytes { before, slots: fitting, bytes: before + behind })
    }

    /// The program for blocks of so many threads.
    pub fn encoded(&self, shared: SharedBytes, threads: u32) -> EncodedProgram {
        let encoder = Encoder { program: self, shared, threads };
        let mut words: Vec<u64> = self.fields.iter().map(|&field| u64::from(field)).collect();
        words.extend(&self.constants);
        let instructions = words.len() as u64;
        self.steps.iter().for_each(|step| words.extend(encoder.step(step)));
        let list = words.len() as u64;
        let numbers = self.list.iter().enumerate().map(|(place, entry)| match entry {
            // A table is described before its size is known.
            _ if place == group_list::SLOTS && self.match_list > 0 => shared.slots,
            ListEntry::Number(number) => u32::from(*number),
            ListEntry::Operand(operand) => encoder.operand(*operand),
        });
        let numbers: Vec<u32> = numbers.collect();
        words.extend(
            numbers.chunks(2).map(|pair| pair.iter().rev().fold(0, |word, &number| word << 32 | u64::from(number))),
        );
        EncodedProgram {
            words,
            fields: self.fields.len() as u64,
            instructions,
            list,
            match_list: self.match_list as u64,
            shared_words: u64::from(shared.before) / 8,
        }
    }
}

/// Words of an instruction.
const STEP_WORDS: usize = 4;

/// Knows where everything is in shared memory.
struct Encoder<'p> {
    program: &'p Program,
    shared: SharedBytes,
    threads: u32,
}

impl Encoder<'_> {
    fn operand(&self, operand: Operand) -> u32 {
        let (program, before) = (self.program, self.shared.before);
        let uniform = |place: u32| before + 8 * program.kind.rows() * place;
        match operand {
            Operand::Lane(value, word) => {
                let register = u32::from(program.registers.first[value as usize] + word);
                before + 8 * program.words() + register * program.register_bytes(self.threads) + REGISTER
            }
            Operand::Field(place) => uniform(place),
            Operand::Constant(place) => uniform(program.fields.len() as u32 + place),
            Operand::Uniform(place) => uniform(program.uniforms_at + place),
            Operand::Plain(number) => number.into(),
        }
    }

    fn step(&self, step: &Step) -> [u64; STEP_WORDS] {
        let Step { operation, to, from: [a, b, c, d], next } = *step;
        let operands = [to, a, b, c, d];
        let is_place = |operand: Operand| !matches!(operand, Operand::Plain(_)) || fetches(operation);
        let (next, next_is_place) = match next {
            Next::Number(number) => (number, false),
            Next::Label(number) => (self.instruction(number), true),
            Next::Operand(operand) => (self.operand(operand), true),
        };
        let are_places = operands.map(is_place).into_iter().chain([next_is_place]);
        let places = are_places.enumerate().fold(0, |bits, (at, is_place)| bits | u32::from(is_place) << at);
        let [to, a, b, c, d] = operands.map(|operand| match operand {
            // Operands that computing instructions lack are read, too: words that never change.
            Operand::Plain(_) if fetches(operation) => self.shared.before,
            operand => self.operand(operand),
        });
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        [pair(operation as u32, to), pair(a, b), pair(c, d), pair(next, places)]
    }

    /// Where an instruction is.
    fn instruction(&self, number: u32) -> u32 {
        self.shared.before + 8 * (self.program.uniform_words() + STEP_WORDS as u32 * number)
    }
}

/// Most scopes that are open at once.
fn scopes(steps: &[Step]) -> u32 {
    let (mut open, mut most) = (0u32, 0);
    for step in steps {
        match (step.operation, step.from[0]) {
            (Operation::Push | Operation::PushNot, _) => open += 1,
            (Operation::Pop, _) => open = open.saturating_sub(1),
            (Operation::Jump, Operand::Plain(ended)) => open = open.saturating_sub(ended.into()),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// Whether the kernel reads `a` and `b` before it looks at the instruction.
fn fetches(operation: Operation) -> bool {
    operation as u16 >= Operation::Divide as u16
}
