//! Kernels that count or move rows by partition (see `partition/partition.cuh`), several rows a thread.

use super::params::Field;

/// What all lanes do together.
#[derive(Debug)]
pub(crate) enum PartitionItem {
    /// Counters in shared memory; opens the loop over tiles.
    OpenCount { rows: Field, bits: Field },
    /// Counts the rows of a tile, closes the loop, and adds the counters to those of the relation.
    CloseCount { counts: Field },
    /// Opens the tile of the block.
    OpenTile { rows: Field, bits: Field },
    /// Opens the loop over the thread's rows of the tile: of all, or of those that have a place. Beyond the last row it is
    /// the last once more, so that no load waits for a branch.
    OpenRows { of_placed: bool },
    /// No partition for the row yet.
    Unplace,
    /// Gives each row its place.
    Place { cursors: Field },
    /// Moves a word of all rows through shared memory.
    MoveWord { output: Field, bytes: u32 },
}
