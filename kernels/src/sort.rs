//! What `sort/sort.cu` and `sort/top_k.cu` share with the host.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_":
    /// Bits of a digit of a radix sort.
    pub const SORT_DIGIT_BITS: u32 = 8;
    /// The digits of a pass.
    pub const SORT_DIGITS: u32 = 1 << SORT_DIGIT_BITS;
    /// Rows of a tile of a radix sort that one thread takes.
    pub const SORT_ITEMS: u32 = 22;
    /// Threads of a block of a pass.
    pub const SORT_THREADS: u32 = 384;
    /// Threads of a block that counts digits.
    pub const SORT_COUNT_THREADS: u32 = 512;
    /// Rows that one block sorts by itself.
    pub const SORT_FEW_ROWS: u32 = 4096;
    /// Most words of the keys of these.
    pub const SORT_FEW_WORDS: usize = 8;
    /// Columns that one launch brings into an order.
    pub const GATHER_COLUMNS: usize = 16;
    /// Bits of a step of a top-k.
    pub const TOP_K_DIGIT_BITS: u32 = 11;
    /// The digits of a step.
    pub const TOP_K_DIGITS: u32 = 1 << TOP_K_DIGIT_BITS;
}

/// Words of the state of a top-k, zeroed before the first step.
pub mod top_k_state {
    crate::constants::constants! { "WJ_TOP_K_":
        /// Digits chosen so far.
        pub const PREFIX: usize = 0;
        /// Their bits.
        pub const DECIDED: usize = 1;
        /// Rows before that prefix.
        pub const BELOW: usize = 2;
        /// Rows with it.
        pub const WITHIN: usize = 3;
        /// Few enough rows have it.
        pub const DONE: usize = 4;
        /// Blocks of the step under way that have ended.
        pub const FINISHED: usize = 5;
        /// Rows that were collected.
        pub const COLLECTED: usize = 6;
        /// Those of them that have the last digits.
        pub const TIES: usize = 7;
        /// Length of the state.
        pub const WORDS: usize = 8;
    }
}

pub(crate) fn all_defines() -> String {
    [defines(), top_k_state::defines()].concat()
}

params! {
    /// Counts the rows of each digit, of all passes.
    pub struct CountDigitsParams<'a, B> for ["sort_count_4", "sort_count_8"] {
        /// Key words, of 4 or of 8 bytes: `rows`.
        keys: Ptr<'a, B, *const u8>,
        /// Rows.
        rows: u64,
        /// Bits of a key, from the lowest one on.
        bits: u64,
        /// Bits of each pass but maybe the last.
        digit_bits: u64,
        /// Passes x `SORT_DIGITS`, zeroed: rows before each digit.
        sums: Ptr<'a, B, *mut u64>,
        /// One word, zeroed: blocks that have counted.
        finished: Ptr<'a, B, *mut u64>,
    }

    /// Moves rows to the places that a digit of their keys has, in the order in which they came.
    pub struct SortPassParams<'a, B> for ["sort_pass_4", "sort_pass_8", "sort_pass_8_4"] {
        /// Key words, of 4 or of 8 bytes: `rows`.
        keys: Ptr<'a, B, *const u8>,
        /// Numbers of the rows, or any values that move with them; none: the places of the rows.
        numbers: Option<Ptr<'a, B, *const u32>>,
        /// Rows.
        rows: u64,
        /// Bits below the digit.
        shift: u64,
        /// Bits of the digit, at most 8.
        bits: u64,
        /// Low bits that narrower keys are written without.
        dropped_bits: u64,
        /// `SORT_DIGITS`: rows before each digit.
        sums: Ptr<'a, B, *const u64>,
        /// Tiles x `SORT_DIGITS`, zeroed: what tiles tell each other.
        published: Ptr<'a, B, *mut u64>,
        /// One word, zeroed: tiles that blocks have taken.
        next_tile: Ptr<'a, B, *mut u64>,
        /// Moved key words; none: not needed.
        keys_out: Option<Ptr<'a, B, *mut u8>>,
        /// Moved numbers; none: not needed.
        numbers_out: Option<Ptr<'a, B, *mut u32>>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Brings columns into the order of row numbers.
    pub struct GatherParams<'a, B> for ["sort_gather"] {
        /// Numbers of the rows wanted; none: rows as they lie.
        numbers: Option<Ptr<'a, B, *const u32>>,
        /// The first one of these that is wanted.
        first: u64,
        /// Rows wanted.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Values of each column.
        sources: [Option<Ptr<'a, B, *const u8>>; GATHER_COLUMNS],
        /// `rows` values of each column.
        targets: [Option<Ptr<'a, B, *mut u8>>; GATHER_COLUMNS],
        /// Bytes of a value of each column: 1, 2, 4, 8 or 16.
        widths: [u64; GATHER_COLUMNS],
    }

    /// Takes every `stride`-th key word.
    pub struct SampleWordsParams<'a, B> for ["sort_sample_4", "sort_sample_8"] {
        /// Key words, of 4 or of 8 bytes.
        keys: Ptr<'a, B, *const u8>,
        /// Rows from one sample to the next.
        stride: u64,
        /// Samples.
        count: u64,
        /// `count` words.
        samples: Ptr<'a, B, *mut u64>,
    }

    /// Finds the key of the last row wanted, digit by digit, and collects the rows up to it.
    pub struct TopKParams<'a, B> for ["top_k_digit_4", "top_k_digit_8", "top_k_collect_4", "top_k_collect_8"] {
        /// Key words, of 4 or of 8 bytes: `rows`.
        keys: Ptr<'a, B, *const u8>,
        /// Rows.
        rows: u64,
        /// Bits of a key, at least 1.
        bits: u64,
        /// Rows wanted, from 1 to `rows`.
        wanted: u64,
        /// Rows that may be collected, at least `wanted`.
        capacity: u64,
        /// Of rows with the same key any may be taken.
        cuts_ties: bool,
        /// `top_k_state::WORDS` words, zeroed before the first step.
        state: Ptr<'a, B, *mut u64>,
        /// `TOP_K_DIGITS`, zeroed: rows of each next digit.
        counts: Ptr<'a, B, *mut u32>,
        /// `capacity`: numbers of the rows that were collected.
        numbers: Ptr<'a, B, *mut u32>,
    }

    /// Sorts few rows by all their words, in one block.
    pub struct FewParams<'a, B> for ["sort_few"] {
        /// Key words, the most significant one first.
        words: [Option<Ptr<'a, B, *const u8>>; SORT_FEW_WORDS],
        /// Words of 8 bytes, instead of 4.
        is_wide: [bool; SORT_FEW_WORDS],
        /// Words of a key.
        word_count: u64,
        /// Numbers of the rows; none: their places.
        numbers: Option<Ptr<'a, B, *const u32>>,
        /// Rows, at most `SORT_FEW_ROWS`.
        rows: u64,
        /// A power of two, at least `rows`.
        slots: u64,
        /// `rows`: their numbers in order.
        order: Ptr<'a, B, *mut u32>,
    }
}
