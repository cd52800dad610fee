//! What group-bys share with the host: words of their tables. Their kernels are generated.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_":
    /// Slots of the set that counts the keys of a sample, in bits: four a row.
    pub const SKETCH_BITS: u32 = 18;
    /// The lowest bit of a filter of hashes: those below choose devices, those above [`SKETCH_FILTER_BITS_MAX`] of them the slot.
    pub const SKETCH_FILTER_SHIFT: u32 = 16;
    /// Most bits of a filter.
    pub const SKETCH_FILTER_BITS_MAX: u32 = 24;
    /// Where the counter of rows has that of different keys.
    pub const SKETCH_KEYS_SHIFT: u32 = 26;
    /// Where it has that of keys that came again.
    pub const SKETCH_REPEATED_SHIFT: u32 = 45;
    /// Words in front of the slots of a block's table.
    pub const BLOCK_HEAD_WORDS: u32 = 2;
    /// Most turns of a run of tiles, in bits.
    pub const RUN_BITS_MAX: u32 = 2;
    /// Words at the front of the shared memory of a block that takes rows by partition.
    pub const WALK_WORDS: u32 = 5;
    /// Words of the places of all blocks: next chunk, finished groups.
    pub const PLACES_HEAD: u64 = 2;
    /// Words of the place of each block.
    pub const PLACES_EACH: u64 = 4;
    /// Other devices have rows of the first key of rows that are cut.
    pub const OPEN_FIRST: u64 = 1;
    /// The same of the last key.
    pub const OPEN_LAST: u64 = 2;
}

/// Words that a group table counts in, over all launches that fill it.
pub mod group_counter {
    crate::constants::constants! { "WJ_GROUP_":
        /// Rows appended, for long keys.
        pub const APPENDED: usize = 0;
        /// Rows of keys that found no room.
        pub const SPILLED: usize = 1;
        /// How many there are.
        pub const WORDS: usize = 2;
    }
}

/// How an accumulator merges values.
pub mod merge_kind {
    crate::constants::constants! { "WJ_MERGE_":
        /// Adds words.
        pub const ADD: u32 = 0;
        /// Adds 128 bits.
        pub const ADD_WIDE: u32 = 1;
        /// Adds doubles.
        pub const ADD_DOUBLE: u32 = 2;
        /// The unsigned maximum.
        pub const MAX: u32 = 3;
        /// Or.
        pub const OR: u32 = 4;
        /// Exclusive or.
        pub const XOR: u32 = 5;
    }
}

pub(crate) fn all_defines() -> String {
    [defines(), group_counter::defines(), merge_kind::defines()].concat()
}

params! {
    /// A table that groups are placed in: see `group/group_table.cuh`.
    pub struct GroupTable<'a, B> {
        /// `capacity` + 1 rows, cleared, and `spill_rows` behind them.
        rows: Ptr<'a, B, *mut u64>,
        /// Rows that keys are placed in.
        capacity: u64,
        /// `index_slots` words, zeroed, of long keys.
        index: Option<Ptr<'a, B, *mut u64>>,
        /// Slots of the index.
        index_slots: u64,
        /// Slots that are read for a key.
        steps_max: u64,
        /// Slots that are read before a larger table is asked for.
        grow_steps: u64,
        /// Rows that may be spilled.
        spill_rows: u64,
        /// `group_counter::WORDS`: rows so far.
        counters: Ptr<'a, B, *mut u64>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Cuts rows that lie in the order of a key, which is never null.
    pub struct CutParams<'a, B> for ["count_changes", "cut_rows"] {
        /// The keys as they are stored: `rows`.
        keys: Ptr<'a, B, *const u8>,
        /// Bytes of a key: 1, 2, 4 or 8.
        width: u64,
        /// Rows, less than 2^32.
        rows: u64,
        /// One word, zeroed: rows that begin another key.
        changes: Option<Ptr<'a, B, *mut u64>>,
        /// Rows of a piece, more or less.
        rows_each: u64,
        /// Pieces.
        pieces: u64,
        /// `pieces` + 1: the first row of each, and all rows.
        offsets: Option<Ptr<'a, B, *mut u32>>,
    }

    /// Merges a row into another one, if it is a group, and makes it none.
    pub struct MergeRowParams<'a, B> for ["merge_row"] {
        /// The row that goes.
        from: Ptr<'a, B, *mut u64>,
        /// The row that stays; a group or not.
        to: Ptr<'a, B, *mut u64>,
        /// `merge_kind` << 32 | word of the row, of each accumulator.
        merges: Ptr<'a, B, *const u64>,
        /// Accumulators.
        merge_count: u64,
    }

    /// Merges the rows of a table, spilled ones included, into another one; or one of them, which leaves its table.
    pub struct RegroupParams<'a, B> for ["regroup"] {
        /// The rows.
        rows: Ptr<'a, B, *mut u64>,
        /// The first word of the row to merge; 0: all rows.
        only: u64,
        /// How many there are.
        count: u64,
        /// The row whose key word is 0.
        zero_row: u64,
        /// The other table.
        table: GroupTable<'a, B>,
        /// Words of a row.
        stride: u64,
        /// Words of a long key; 0: the first word of a row has the key.
        key_words: u64,
        /// `merge_kind` << 32 | word of the row, of each accumulator.
        merges: Ptr<'a, B, *const u64>,
        /// Accumulators.
        merge_count: u64,
    }
}
