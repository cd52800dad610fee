//! What generated code must know of group-bys: accumulators, and the tables that have them.

use warpjoin_kernels::group::merge_kind;
use warpjoin_plan::options::GroupByForm;
use warpjoin_plan::plan::State;

use super::packing::Packing;
use crate::value::ValueType;

/// What decides how a group-by accumulates.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// Bits of a bound of the rows that come in, over all devices.
    pub rows_bits: u32,
    /// Most shared memory that a block may use.
    pub shared_bytes_max: u32,
    /// `None`: by the keys.
    pub form: Option<GroupByForm>,
    /// Slots of a block's table; `None`: what fits.
    pub block_slots: Option<u32>,
    /// Blocks that share a multiprocessor where rows lie by partition: 1 or 2.
    pub table_blocks: u32,
    /// Rows lie by partition, and some keys have most rows of theirs.
    pub is_skewed: bool,
    /// Rows come in the order of the keys, of which there may be as many as rows or a few times more.
    pub is_sorted: bool,
    /// Each device has keys of a range of its own: its table begins with the first of them.
    pub by_range: bool,
    /// There may be no room for a row for each value of the key.
    pub is_scarce: bool,
    /// Rows may be cut into pieces with no key in two of them.
    pub is_cut: bool,
}

/// One accumulated value.
#[derive(Debug, Clone)]
pub struct Accumulator {
    pub state: State,
    /// The argument is a partial result: its bounds hold for the total too.
    pub is_merge: bool,
}

/// How a group finds its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupMode {
    /// No keys: one row, accumulated in registers first.
    Global,
    /// The packed key is the row.
    Dense,
    /// Open addressing on the packed key.
    Narrow,
    /// An index over appended rows that hold the key words.
    Wide,
}

/// The table in a block's shared memory in front of the group table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PreAggregation {
    None,
    /// The packed key is the slot, with a slot for each of 2^replica_bits lanes.
    Keyed {
        slots: u32,
        replica_bits: u32,
    },
    /// Open addressing on the packed key; what finds no slot goes to the group table.
    Hashed {
        slots: u32,
    },
}

impl PreAggregation {
    /// Fewest slots that are worth a table: those of the key word 0 are 32 of them.
    pub(crate) const SLOTS_MIN: u32 = 64;

    pub fn is_keyed(self) -> bool {
        matches!(self, Self::Keyed { .. })
    }

    pub fn slots(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Keyed { slots, .. } | Self::Hashed { slots } => slots,
        }
    }
}

impl GroupMode {
    /// Rows are found by a hash of the key.
    pub fn is_hashed(self) -> bool {
        matches!(self, Self::Narrow | Self::Wide)
    }

    /// Words of a row before the accumulators.
    pub(crate) fn header_words(self, packing: &Packing) -> usize {
        if self == Self::Wide { 1 + packing.words() } else { 1 }
    }
}

/// A group table, as far as code depends on it.
#[derive(Debug, Clone)]
pub struct GroupShape {
    pub mode: GroupMode,
    /// Of a table that is indexed by the packed key: it begins with the first key of its device.
    pub by_range: bool,
    /// Blocks take pieces of the rows; the rows of a key are in one piece.
    pub is_cut: bool,
    pub front: PreAggregation,
    /// Groups that are finished before the others are written to rows of their own.
    pub has_finished: bool,
    pub packing: Packing,
    /// Words of a row.
    pub stride_words: usize,
    /// Kind and first word of everything that is accumulated.
    pub accumulators: Vec<(AccumulatorKind, usize)>,
    /// What each accumulator's result is.
    pub results: Vec<AccumulatorResult>,
}

impl GroupShape {
    /// How `regroup` merges the words of two rows: the kind and the first word of each accumulator.
    pub fn merges(&self) -> Vec<u64> {
        self.accumulators.iter().map(|&(kind, word)| u64::from(kind.merge_kind()) << 32 | word as u64).collect()
    }

    /// How groups are accumulated, in words.
    pub fn form(&self) -> &'static str {
        match (self.mode, self.front) {
            _ if self.is_cut => "shared, by piece",
            (GroupMode::Global, _) => "registers",
            (_, PreAggregation::Keyed { .. }) => "shared by key",
            (GroupMode::Dense, PreAggregation::Hashed { .. }) => "shared, by key",
            (_, PreAggregation::Hashed { .. }) => "shared, hashed",
            (GroupMode::Dense, PreAggregation::None) => "by key",
            (GroupMode::Narrow, PreAggregation::None) => "hashed",
            (GroupMode::Wide, PreAggregation::None) => "indexed",
        }
    }
}

/// The result of one accumulator: where it lies and how it is read.
#[derive(Debug, Clone)]
pub struct AccumulatorResult {
    /// First word in the row.
    pub word: usize,
    pub encoding: AccumulatorKind,
    pub(crate) value: ValueType,
    /// Word that is 0 where the result is null; `None`: never null.
    pub count_word: Option<usize>,
}

/// How a value is accumulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccumulatorKind {
    Count,
    /// Wraps in 64 bits.
    Sum64,
    /// Two words.
    Sum128,
    SumFloat,
    MaxInt,
    MinInt,
    MaxFloat,
    MinFloat,
    /// Of distances from the lowest value.
    MaxUnsigned,
    MinUnsigned,
    /// Merged as the complements' `BitOr`.
    BitAnd,
    BitOr,
    BitXor,
}

/// How two parts of an accumulator become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    Add,
    Max,
    Or,
    Xor,
}

impl AccumulatorKind {
    /// As kernels know it.
    pub(crate) fn merge_kind(self) -> u32 {
        match (self, self.merge()) {
            (Self::Sum128, _) => merge_kind::ADD_WIDE,
            (Self::SumFloat, _) => merge_kind::ADD_DOUBLE,
            (_, Merge::Add) => merge_kind::ADD,
            (_, Merge::Max) => merge_kind::MAX,
            (_, Merge::Or) => merge_kind::OR,
            (_, Merge::Xor) => merge_kind::XOR,
        }
    }

    /// What brings two values together.
    pub(crate) fn merge(self) -> Merge {
        match self {
            Self::Count | Self::Sum64 | Self::Sum128 | Self::SumFloat => Merge::Add,
            Self::MaxInt | Self::MinInt | Self::MaxFloat | Self::MinFloat | Self::MaxUnsigned | Self::MinUnsigned => {
                Merge::Max
            }
            Self::BitAnd | Self::BitOr => Merge::Or,
            Self::BitXor => Merge::Xor,
        }
    }

    pub fn words(self) -> usize {
        if self == Self::Sum128 { 2 } else { 1 }
    }
}
