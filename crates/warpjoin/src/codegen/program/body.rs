//! The body of a kernel: lines that all lanes execute together, blocks, and sections between them.

use super::code::Code;
use super::params::Field;
use super::probe::{Find, MatchLoop};
use super::statement::{Declaration, Statement};
use super::variable::Variable;

/// Part of a body.
#[derive(Debug)]
pub(crate) enum Item {
    Line(String),
    /// Opens a block.
    Open(String),
    /// Closes it with this text.
    Close(String),
    /// Opens the loop over rows, with [`Variable::Row`] and [`Variable::Alive`].
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
    /// Which lanes of the warp are alive, for the merge of rows.
    Ballot,
    /// Counts a key of a sample.
    AddToSketch {
        set: Field,
        control: Field,
        hash: Code,
        alive: Variable,
    },
}

/// The loop over tiles of rows.
#[derive(Debug)]
pub(crate) enum Head {
    /// Not known yet: the sink decides it.
    Open,
    /// A row a thread, grid stride. With the control block and how many rows are wanted, blocks stop once there are enough.
    GridStride { rows: Field, block_threads: u32, wanted: Option<[Field; 2]> },
    /// One row of each stride, at a place within it that does not repeat.
    Sample { rows: Field, stride: Field, block_threads: u32 },
    /// That of a group table.
    Group,
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
