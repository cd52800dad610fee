//! What a program is made of: operands before registers are numbered, instructions that have them, and its kind.

use warpjoin_kernels::interpret::{INTERPRET_ROWS, Operation};

use crate::program::Field;
use crate::value::CType;

/// What an instruction reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operand {
    /// A word of a value that each lane has: its number, and which word of it.
    Lane(u32, u16),
    /// A parameter that the program reads, by its place among those.
    Field(u32),
    /// A constant, by its place.
    Constant(u32),
    /// A value that is the same for all lanes, which the block computes once, by its place.
    Uniform(u32),
    /// A number that is no operand.
    Plain(u16),
}

impl Operand {
    pub(super) const NONE: Self = Self::Plain(0);

    /// The upper word of 128 bits.
    pub(super) fn high(self) -> Self {
        match self {
            Self::Lane(value, word) => Self::Lane(value, word + 1),
            Self::Field(place) => Self::Field(place + 1),
            Self::Constant(place) => Self::Constant(place + 1),
            Self::Uniform(_) | Self::Plain(_) => self,
        }
    }

    /// Whether all lanes read the same word, which never changes.
    pub(super) fn is_uniform(self) -> bool {
        matches!(self, Self::Field(_) | Self::Constant(_) | Self::Uniform(_))
    }

    /// The value whose word it is.
    pub(super) fn lane(self) -> Option<u32> {
        if let Self::Lane(value, _) = self { Some(value) } else { None }
    }
}

/// A value, or an address of elements of this type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Typed {
    pub operand: Operand,
    pub c_type: CType,
}

/// The last part of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Next {
    Number(u32),
    /// An instruction that is not known yet, or its place.
    Label(u32),
    Operand(Operand),
}

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub operation: Operation,
    pub to: Operand,
    /// `a` to `d`.
    pub from: [Operand; 4],
    pub next: Next,
}

impl Step {
    pub(super) fn new(operation: Operation, to: Operand, from: &[Operand]) -> Self {
        let mut all = [Operand::NONE; 4];
        all[..from.len()].copy_from_slice(from);
        Self { operation, to, from: all, next: Next::Number(0) }
    }

    pub(super) fn with(self, next: Next) -> Self {
        Self { next, ..self }
    }

    /// Everything that it reads or writes.
    pub(super) fn operands(&self) -> impl Iterator<Item = Operand> {
        let next = if let Next::Operand(operand) = self.next { Some(operand) } else { None };
        std::iter::once(self.to).chain(self.from).chain(next)
    }
}

/// Part of the list that describes a group table.
#[derive(Debug, Clone, Copy)]
pub(super) enum ListEntry {
    Number(u16),
    Operand(Operand),
}

/// The number of a parameter.
pub(super) fn number_of(field: Field) -> u32 {
    field.index() as u32
}

/// Which of the kernels interprets a program, and what its blocks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
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

impl ProgramKind {
    /// Rows of a lane that an instruction takes at once.
    pub fn rows(self) -> u32 {
        if self == Self::Matches { 1 } else { INTERPRET_ROWS }
    }

    /// Whether its kernel has an instruction. What a kernel does not need takes it long to compile, so that heads of loops over
    /// all rows, and sinks other than group tables and partitions, are only in some (`interpret` in `interpret/interpret.cu`).
    pub(super) fn has(self, operation: Operation) -> bool {
        match operation {
            Operation::Grid
            | Operation::GridWanted
            | Operation::Sample
            | Operation::Batch
            | Operation::OpenItems
            | Operation::BatchItem
            | Operation::BatchFind
            | Operation::BatchReserve
            | Operation::BatchFound
            | Operation::KeepKey
            | Operation::LoadKey => self == Self::Rows,
            Operation::IsFull
            | Operation::Reserve
            | Operation::ReserveOfBlock
            | Operation::ReserveMatches
            | Operation::PlaceMatch
            | Operation::AddToSketch
            | Operation::FillSlot4
            | Operation::FillSlot8
            | Operation::SetBit
            | Operation::MergeAdd
            | Operation::MergeAddWide
            | Operation::MergeAddDouble
            | Operation::MergeMax
            | Operation::MergeOr
            | Operation::MergeXor => matches!(self, Self::Rows | Self::Matches),
            _ => true,
        }
    }
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
