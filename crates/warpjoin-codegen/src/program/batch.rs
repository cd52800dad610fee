//! A probe of several rows a thread, so that several accesses to the table are in flight.

use super::params::Field;
use crate::shapes::Slots;

/// What all lanes do together.
#[derive(Debug)]
pub(crate) enum BatchItem {
    /// Opens the loop over tiles, with this number of rows for each thread.
    Open { rows: Field, items: u32, block_threads: u32 },
    /// Opens the loop that makes the key words of the thread's rows.
    OpenKeys { rows: Field },
    /// Looks all keys up.
    LookUp { form: Slots, slots: Field, windows: Option<Field> },
    /// Reserves places for the rows that found something, and opens the loop over them.
    OpenFound { control: Field, capacity: Field },
}
