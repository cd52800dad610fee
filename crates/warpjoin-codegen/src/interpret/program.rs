//! A finished program.

use warpjoin_kernels::interpret::{INTERPRET_VALUES, LAST, REGISTER, group_list};

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
        let registers = allocate(&builder)?;
        let placed = |step: &Step| match step.next {
            Next::Label(label) => Ok(step.with(Next::Number(builder.placed(label)?))),
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

    fn words(&self) -> u32 {
        let uniform = self.fields.len() + self.constants.len();
        (uniform + self.steps.len() * STEP_WORDS + self.list.len().div_ceil(2)) as u32
    }

    /// Shared memory of a block of so many threads behind `before_bytes` of the pipeline's own; `None`: there is not enough.
    pub fn shared_bytes(&self, before_bytes: u32, threads: u32, bytes_max: u32) -> Option<SharedBytes> {
        let behind = 8 * self.words() + 8 * threads * u32::from(self.registers.count);
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
        match operand {
            Operand::Lane(value, word) => {
                let register = u32::from(program.registers.first[value as usize] + word);
                before + 8 * (program.words() + register * self.threads) + REGISTER
            }
            Operand::Field(place) => before + 8 * place,
            Operand::Constant(place) => before + 8 * (program.fields.len() as u32 + place),
            Operand::Uniform(place) => before + 8 * (program.uniforms_at + place),
            Operand::Last => LAST,
            Operand::Plain(number) => number.into(),
        }
    }

    fn step(&self, step: &Step) -> [u64; STEP_WORDS] {
        let Step { operation, to, from: [a, b, c, d], next } = *step;
        let next = match next {
            Next::Number(number) | Next::Label(number) => number,
            Next::Operand(operand) => self.operand(operand),
        };
        let [to, a, b, c, d] = [to, a, b, c, d].map(|operand| self.operand(operand));
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        [pair(operation as u32, to), pair(a, b), pair(c, d), pair(next, 0)]
    }
}
