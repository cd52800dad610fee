//! Tests of several rows a thread, and the loop over the rows that are left.

use super::body::Item;
use super::params::Field;

/// Rows of a thread that are tested together, so that their loads are under way together.
pub(crate) const FRONT_ITEMS: u32 = 4;
/// Most rows of a thread in a turn.
pub(crate) const TURN_ITEMS: u32 = 16;

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
