//! A finished program.

use warpjoin_kernels::interpret::{INTERPRET_VALUES, Operation, UNIFORM};

use super::allocate::{Registers, allocate};
use super::builder::{Builder, Made, Unknown};
use super::operand::{ListEntry, Next, Operand, Step};
use crate::codegen::program::Kernel;

/// Which of the kernels interprets a program, and what its blocks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// A row a thread, or several.
    Rows,
    /// The same into a group table.
    Groups,
    /// Matches of partitioned relations, which may go into a group table.
    Matches,
    /// Tiles of rows, counted by partition.
    Count,
    /// Tiles of rows, moved to their partitions.
    Scatter,
}

/// A block's table in front of a group table.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shared {
    pub head_words: u32,
    pub slots: u32,
    pub slot_bytes: u32,
    /// There must be all of these slots.
    pub keeps_slots: bool,
}

/// The program of a pipeline, as the kernels of `kernels/interpret` take it.
#[derive(Debug)]
pub(crate) struct Program {
    pub kind: ProgramKind,
    /// Instructions, numbers of parameters, constants, list.
    words: Vec<u64>,
    pub instructions: u32,
    pub fields: u32,
    pub constants: u32,
    /// Words of the list.
    pub list_words: u32,
    /// Where the list has what describes matches.
    pub match_list: u32,
    /// Registers of a lane.
    pub registers: u32,
    shared: Shared,
}

/// Shared memory of a block that interprets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedBytes {
    /// Words in front of the program.
    pub words: u32,
    /// Slots of the table in front of the group table.
    pub slots: u32,
    /// All of it.
    pub bytes: u32,
}

impl Program {
    /// The program of a kernel; the reason why there is none.
    pub(crate) fn of(kernel: &Kernel) -> Result<Self, &'static str> {
        Self::made(kernel).map_err(|Unknown(what)| what)
    }

    fn made(kernel: &Kernel) -> Made<Self> {
        if kernel.params.len() > INTERPRET_VALUES {
            return Err(Unknown("so many parameters"));
        }
        let mut builder = Builder::new(kernel);
        builder.kernel(kernel)?;
        let registers = allocate(&builder).ok_or(Unknown("so many registers"))?;
        let encoder = Encoder { builder: &builder, registers: &registers };
        let mut words = vec![];
        for step in &builder.steps {
            words.extend(encoder.step(step)?);
        }
        words.extend(builder.fields.iter().map(|&field| u64::from(field)));
        words.extend(&builder.constants);
        let list = builder.list.iter().chain(&builder.match_list).map(|entry| match entry {
            ListEntry::Number(number) => Ok(*number),
            ListEntry::Operand(operand) => encoder.operand(*operand),
        });
        let mut list = list.collect::<Made<Vec<u16>>>()?;
        list.resize(list.len().next_multiple_of(4), 0);
        let of_four = |four: &[u16; 4]| four.iter().rev().fold(0, |word, &number| word << 16 | u64::from(number));
        words.extend(list.as_chunks::<4>().0.iter().map(of_four));
        Ok(Self {
            kind: builder.kind,
            words,
            instructions: builder.steps.len() as u32,
            fields: builder.fields.len() as u32,
            constants: builder.constants.len() as u32,
            list_words: list.len() as u32 / 4,
            match_list: builder.list.len() as u32,
            registers: registers.count.into(),
            shared: builder.shared,
        })
    }

    /// Whether a block has a table in front of the group table.
    pub(crate) fn has_front(&self) -> bool {
        self.shared.slots > 0
    }

    /// The entry that interprets it.
    pub(crate) fn entry(&self) -> &'static str {
        match self.kind {
            ProgramKind::Rows => "interpret_rows",
            ProgramKind::Groups => "interpret_groups",
            ProgramKind::Matches => "interpret_matches",
            ProgramKind::Count | ProgramKind::Scatter => "interpret_partition",
        }
    }

    /// Shared memory of a block of so many threads behind `before_bytes` of the pipeline's own; `None`: there is not enough.
    pub(crate) fn shared_bytes(&self, before_bytes: u32, threads: u32, bytes_max: u32) -> Option<SharedBytes> {
        let program = 16 * self.instructions + 8 * (self.fields + self.constants + self.list_words);
        let behind = program + 8 * threads * self.registers;
        let Shared { head_words, slots, slot_bytes, keeps_slots } = self.shared;
        let before = before_bytes.max(8 * head_words).next_multiple_of(16);
        let room = bytes_max.checked_sub(behind)?.checked_sub(before + 16)?;
        let fitting = (room / slot_bytes.max(1)).min(slots) & !1;
        if (keeps_slots && fitting < slots) || (slots > 0 && fitting < SLOTS_MIN) {
            return None;
        }
        let bytes = (before + fitting * slot_bytes).next_multiple_of(16);
        Some(SharedBytes { words: bytes / 8, slots: fitting, bytes: bytes + behind })
    }

    /// The program for blocks with so many slots.
    pub(crate) fn words(&self, slots: u32) -> Vec<u64> {
        let mut words = self.words.clone();
        if self.match_list > 0 {
            let list = words.len() - self.list_words as usize;
            let (word, place) = (SLOTS_AT / 4, SLOTS_AT % 4);
            words[list + word] |= u64::from(slots) << (16 * place);
        }
        words
    }
}

/// Fewest slots of a table, those of key word 0 included.
const SLOTS_MIN: u32 = 64;
const SLOTS_AT: usize = warpjoin_kernels::interpret::group_list::SLOTS;

struct Encoder<'b> {
    builder: &'b Builder<'b>,
    registers: &'b Registers,
}

impl Encoder<'_> {
    fn operand(&self, operand: Operand) -> Made<u16> {
        let number = match operand {
            Operand::Lane(value, word) => u32::from(self.registers.first[value as usize] + word),
            Operand::Field(place) => u32::from(UNIFORM) + place,
            Operand::Constant(place) => u32::from(UNIFORM) + self.builder.fields.len() as u32 + place,
            Operand::Plain(number) => number.into(),
        };
        u16::try_from(number).map_err(|_| Unknown("so many operands"))
    }

    fn step(&self, step: &Step) -> Made<[u64; 2]> {
        let Step { operation, to, from, next } = *step;
        let next = match next {
            Next::Number(number) => number,
            Next::Label(label) => self.builder.placed(label)?,
            Next::Operand(operand) => self.operand(operand)?.into(),
        };
        let [a, b, c, d] = from;
        let [to, a, b, c, d] =
            [self.operand(to)?, self.operand(a)?, self.operand(b)?, self.operand(c)?, self.operand(d)?].map(u64::from);
        let operation = operation as Operation as u64;
        Ok([operation | to << 16 | a << 32 | b << 48, c | d << 16 | u64::from(next) << 32])
    }
}
