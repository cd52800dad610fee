//! What a kernel adds to a group table, and the loops that go with the table's form.

use std::sync::Arc;

use warpjoin_kernels::group::BLOCK_HEAD_WORDS;

use super::code::Code;
use super::params::Field;
use super::variable::Variable;
use crate::shapes::{AccumulatorKind, GroupMode, PreAggregation};
use crate::value::CType;

/// One word run to accumulate into, and what is added.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub kind: AccumulatorKind,
    /// Word within the accumulators.
    pub word: usize,
    /// Part of a 128-bit sum fits 64 bits, in a thread's register and in a block's table.
    pub narrow_partial: bool,
    /// A block sees less than 2^32 rows before it flushes its table.
    pub is_bounded: bool,
    /// Condition and value to accumulate.
    pub condition: Option<Code>,
    pub code: Code,
}

/// A group table, as far as kernels that add to it differ.
#[derive(Debug)]
pub(crate) struct GroupTarget {
    pub mode: GroupMode,
    pub front: PreAggregation,
    /// Type of a key in a block's table.
    pub key: CType,
    /// Words of a row, and of it before the accumulators.
    pub stride_words: usize,
    pub header_words: usize,
    /// Groups that are finished before the others are written to rows of their own.
    pub has_finished: bool,
    /// A frequent key has most rows: lanes of a warp that have it add together.
    pub shares: bool,
    pub slots: Vec<Slot>,
}

/// Merges a row into its group.
#[derive(Debug)]
pub(crate) struct Accumulate {
    pub target: Arc<GroupTarget>,
    /// The key as one word.
    pub packed: Code,
    /// The words of a wide key.
    pub key_words: Vec<Code>,
}

/// Fields of the group table: those of `GroupTable`, in order.
pub(crate) type TableFields = [Field; 9];

/// What stands around the loop over rows.
#[derive(Debug)]
pub(crate) enum GroupFrame {
    /// One row: registers, then one merge a warp.
    Global { rows: Field },
    /// A table in global memory.
    Table { fields: TableFields, rows: GroupLoop },
}

/// The loop over rows of a kernel with a group table.
#[derive(Debug)]
pub(crate) enum GroupLoop {
    /// One that knows nothing of the table.
    Other,
    Tiles(GroupTiles),
    Walk(GroupWalk),
}

/// Turns of several tiles, between which a block may flush its table (see `common/tiles.cuh`).
#[derive(Debug)]
pub(crate) struct GroupTiles {
    pub control: Field,
    pub cancel: Field,
    pub rows: Field,
    /// [`Variable::Row`] or [`Variable::SlicedRow`].
    pub row: Variable,
    pub cursors: Field,
    pub prefetch: Option<Prefetch>,
    /// Turns have lists of the rows that are left (see [`Front`](super::Front)).
    pub is_queued: bool,
}

/// Columns that are asked for ahead of time, and how many steps.
#[derive(Debug)]
pub(crate) struct Prefetch {
    pub steps: Field,
    pub columns: Vec<Field>,
}

/// Rows that lie by partition (see `group/group_walk.cuh`).
#[derive(Debug)]
pub(crate) struct GroupWalk {
    pub control: Field,
    pub cancel: Field,
    /// Fields of `GroupParts`, in order.
    pub parts: [Field; 5],
    /// Rows of finished groups, and how many there is room for.
    pub finished: Option<[Field; 2]>,
}

impl Slot {
    /// Words of an accumulator in a block's table.
    pub(crate) fn block_words(&self) -> usize {
        if self.narrow_partial { 1 } else { self.kind.words() }
    }
}

impl GroupTarget {
    /// Words of all accumulators in a slot of a block's table.
    pub(crate) fn block_words(&self) -> u32 {
        self.slots.iter().map(Slot::block_words).sum::<usize>() as u32
    }

    /// Bytes of a block's table.
    pub(crate) fn table_bytes(&self) -> u32 {
        8 * BLOCK_HEAD_WORDS + self.front.slots() * (self.key.bits() / 8 + 8 * self.block_words())
    }
}
