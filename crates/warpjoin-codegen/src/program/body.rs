//! The body of a kernel: what all lanes do together, loops, and sections between them.

use super::batch::BatchItem;
use super::code::Code;
use super::matches::{MatchLookUp, MatchUnits};
use super::params::Field;
use super::partition::PartitionItem;
use super::probe::{Find, MatchLoop};
use super::statement::{Declaration, Statement};
use super::variable::Variable;

/// Part of a body.
#[derive(Debug)]
pub(crate) enum Item {
    /// Closes the block that was opened last.
    Close,
    /// Opens the loop over rows, with [`Variable::Row`] or [`Variable::SlicedRow`], and [`Variable::Alive`].
    Head(Head),
    /// Of all lanes.
    Statement(Statement),
    /// Variables that stay visible, then statements of the lanes for which `alive` holds.
    Section {
        alive: Variable,
        declarations: Vec<Declaration>,
        statements: Vec<Statement>,
    },
    Find(Find),
    /// Opens a block.
    OpenMatches(MatchLoop),
    Reserve(Reservation),
    /// The row of a group table, [`Variable::GroupRow`]: of finished groups first, if there are some, with their number.
    /// Narrows to rows that hold a group.
    OpenGroup {
        rows: Field,
        stride_words: usize,
        finished: Option<[Field; 2]>,
    },
    /// Lists the rows of a turn that are left of it.
    Front(Front),
    /// Opens the loop over the rows of the list, with [`Variable::Row`] and [`Variable::Alive`].
    OpenQueue {
        block_threads: u32,
    },
    /// Which lanes of the warp are alive, for the merge of rows.
    Ballot,
    /// Counts a key of a sample.
    AddToSketch {
        set: Field,
        control: Field,
        hash: Code,
        alive: Variable,
    },
    Batch(BatchItem),
    Partition(PartitionItem),
    /// Opens the loop over work items.
    MatchUnits(MatchUnits),
    /// Opens the function that tells whether a build row and a probe row are a match, of the key words that these bits select.
    OpenAccepts {
        key_masks: Vec<u64>,
    },
    CloseAccepts,
    /// Opens loops over probe rows, rounds and matches.
    MatchLookUp(MatchLookUp),
    /// Ends the rounds when no lane has another match.
    EndRound,
}

impl Item {
    /// How many more blocks are open behind it.
    pub(crate) fn opens(&self) -> isize {
        match self {
            Self::Head(_)
            | Self::OpenQueue { .. }
            | Self::OpenMatches(_)
            | Self::MatchUnits(_)
            | Self::OpenAccepts { .. } => 1,
            Self::Batch(item) => match item {
                BatchItem::Open { .. } | BatchItem::OpenKeys { .. } | BatchItem::OpenFound { .. } => 1,
                BatchItem::LookUp { .. } => 0,
            },
            Self::Partition(item) => match item {
                PartitionItem::OpenCount { .. } | PartitionItem::OpenRows { .. } => 1,
                PartitionItem::CloseCount { .. } => -1,
                PartitionItem::OpenTile { .. }
                | PartitionItem::Unplace
                | PartitionItem::Place { .. }
                | PartitionItem::MoveWord { .. } => 0,
            },
            Self::MatchLookUp(_) => 3,
            Self::Close | Self::CloseAccepts => -1,
            Self::Statement(_)
            | Self::Section { .. }
            | Self::Find(_)
            | Self::Reserve(_)
            | Self::OpenGroup { .. }
            | Self::Front(_)
            | Self::Ballot
            | Self::AddToSketch { .. }
            | Self::EndRound => 0,
        }
    }
}

/// The loop over tiles of rows.
#[derive(Debug)]
pub(crate) enum Head {
    /// Not known yet: the sink decides it.
    Open,
    /// A row a thread, grid stride. With the control block and how many rows are wanted, blocks stop once there are enough.
    GridStride { rows: Field, row: Variable, block_threads: u32, wanted: Option<[Field; 2]> },
    /// Turns of [`TURN_ITEMS`](super::TURN_ITEMS) rows a thread, grid stride, each with a list of the rows that are left.
    Turns { rows: Field, block_threads: u32 },
    /// One row of each stride, at a place within it that does not repeat.
    Sample { rows: Field, stride: Field, block_threads: u32 },
    /// That of a group table.
    Group,
}

/// Rows of a thread that are tested together, so that their loads are under way together.
pub(crate) const FRONT_ITEMS: u32 = 4;
/// Most rows of a thread in a turn.
pub(crate) const TURN_ITEMS: u32 = 16;

/// Bytes in front of the rows of a block's list (`common/row_queue.cuh`).
pub(crate) const QUEUE_HEAD_BYTES: u32 = 16;

/// Bytes of a block's list in shared memory (`common/row_queue.cuh`).
pub(crate) fn queue_bytes(block_threads: u32) -> u32 {
    QUEUE_HEAD_BYTES + TURN_ITEMS * block_threads * 2
}

/// What a block does with the rows of a turn before anything else: it lists those that tests leave.
#[derive(Debug)]
pub(crate) struct Front {
    pub rows: Field,
    pub block_threads: u32,
    /// Where the list begins in shared memory.
    pub offset: u32,
    /// The turn is one of the order of tiles, which knows how many rows of a thread it has.
    pub is_ordered: bool,
    /// Sections, statements and lookups of one row.
    pub items: Vec<Item>,
}

/// A place in the output for each row that is alive, [`Variable::Place`]. Narrows to rows for which there is room.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub alive: Variable,
    /// All threads of a block reserve together.
    pub of_block: bool,
    pub control: Field,
    /// Rows that are wanted.
    pub wanted: Option<Field>,
    pub capacity: Field,
    /// The loop over matches that has reserved the places.
    pub of_matches: Option<u32>,
}

/// What a thread does once, before all loops.
#[derive(Debug)]
pub(crate) enum First {
    /// Counts turns of the loops over matches.
    MatchTurns,
    /// Reads the bounds of a runtime filter.
    Bounds { number: u32, bounds: Field },
}

/// A kernel's body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub first: Vec<First>,
    pub items: Vec<Item>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_room_for_the_turns_of_kernels() {
        let defined = format!("#define WJ_TURN_ITEMS {TURN_ITEMS}\n");
        let tiles = warpjoin_kernels::HEADERS.iter().find(|header| header.name == "common/tiles.cuh");
        assert!(tiles.is_some_and(|tiles| tiles.text.contains(&defined)), "{defined}");
        let defined = format!("#define WJ_QUEUE_HEAD_BYTES {QUEUE_HEAD_BYTES}\n");
        let queue = warpjoin_kernels::HEADERS.iter().find(|header| header.name == "common/row_queue.cuh");
        assert!(queue.is_some_and(|queue| queue.text.contains(&defined)), "{defined}");
        // Rows of a turn are numbers of 16 bits.
        const { assert!(TURN_ITEMS * 1024 <= 1 << 16) }
    }
}
