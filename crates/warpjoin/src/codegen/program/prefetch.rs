//! Columns that blocks ask for ahead of the rows at hand.

use super::params::Field;

/// Steps after which a block notes which of its rows are still alive.
pub(crate) const NOTES_MAX: u32 = 4;

/// Columns of the source that L2 is asked for before their rows' turn, so that loads do not wait for device memory.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// Turns of the loop ahead; `None`: [`TURNS_AHEAD`].
    pub turns: Option<Field>,
    pub columns: Vec<PrefetchedColumn>,
}

/// Turns of the loop over rows that a block asks ahead for.
pub(crate) const TURNS_AHEAD: u32 = 2;

/// A column, and when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefetchedColumn {
    pub column: Field,
    pub value_bytes: u32,
    /// Only rows that are alive at this note are read; `None`: all rows.
    pub note: Option<u32>,
}

impl Prefetch {
    /// Whether rows that are alive have to be noted.
    pub(crate) fn has_notes(&self) -> bool {
        self.columns.iter().any(|column| column.note.is_some())
    }
}

impl PrefetchedColumn {
    /// Of eight rows, those that must have been alive lately: then most sectors of the column are read.
    pub(crate) fn alive_min(&self) -> u32 {
        match self.value_bytes {
            1 | 2 => 1,
            4 => 2,
            8 => 3,
            _ => 4,
        }
    }
}
