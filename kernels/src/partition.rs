//! What `partition/partition.cu` and `partition/words.cu` share with the host.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_":
    /// Rows of a tile of a partition that one thread takes.
    pub const PARTITION_ITEMS: u32 = 16;
    /// Threads of a block that moves a tile with few partitions: two blocks a multiprocessor, and registers for a thread's rows.
    pub const PARTITION_THREADS_FEW: u32 = 384;
    /// The same with many partitions, whose runs want a large tile; and of a block that counts.
    pub const PARTITION_THREADS_MANY: u32 = 1024;
    /// The same with many partitions of rows of one word: two blocks have the registers, and one moves while one ranks.
    pub const PARTITION_THREADS_WORD: u32 = 512;
    /// Slots of a block that looks for repeated keys in a partition: a power of two.
    pub const SAMPLE_SLOTS: u32 = 8192;
    /// Most words of a row that is partitioned.
    pub const ROW_WORDS_MAX: usize = 8;
    /// Most columns of a table whose rows are packed into words.
    pub const PACK_FIELDS_MAX: usize = 8;
}

/// What the bits of a packed field are made from.
pub mod field_kind {
    crate::constants::constants! { "WJ_FIELD_":
        /// Integers.
        pub const INTEGER: u64 = 0;
        /// Floats as keys: one zero, one not-a-number.
        pub const FLOAT32_KEY: u64 = 1;
        /// Doubles as keys.
        pub const FLOAT64_KEY: u64 = 2;
    }
}

pub(crate) fn all_defines() -> String {
    [defines(), field_kind::defines()].concat()
}

params! {
    /// Rows as columns of words, the key's words first.
    pub struct RowWords<'a, B> {
        /// Words of each column, of 4 or of 8 bytes; none: not read.
        columns: [Option<Ptr<'a, B, *const u8>>; ROW_WORDS_MAX],
        /// Words of 8 bytes, instead of 4.
        is_wide: [bool; ROW_WORDS_MAX],
        /// Added to what is stored, modulo the word's size.
        biases: [u64; ROW_WORDS_MAX],
        /// Bits of each word that belong to the key.
        key_masks: [u64; ROW_WORDS_MAX],
        /// Words of the key.
        key_words: u64,
        /// Words.
        words: u64,
        /// Seed of the hash.
        seed: u64,
        /// A bit a row: rows that count; none: all.
        validity: Option<Ptr<'a, B, *const u32>>,
    }

    /// Counts the rows of each partition.
    pub struct CountParams<'a, B> for ["partition_count"] {
        /// The rows.
        input: RowWords<'a, B>,
        /// How many there are.
        rows: u64,
        /// Bits of a hash that are its partition.
        bits: u64,
        /// 2^bits, zeroed.
        counts: Ptr<'a, B, *mut u32>,
    }

    /// Finds where partitions begin from the counts of their rows.
    pub struct ScanParams<'a, B> for ["partition_scan"] {
        /// 2^(first_bits + second_bits): rows of each partition.
        counts: Ptr<'a, B, *const u32>,
        /// Bits of the first pass.
        first_bits: u64,
        /// Bits of the second pass; 0: there is none.
        second_bits: u64,
        /// Rows of a tile of the second pass.
        tile_rows: u64,
        /// Partitions + 1: where each begins.
        offsets: Ptr<'a, B, *mut u32>,
        /// Partitions: the same, for the second pass to move on.
        cursors: Ptr<'a, B, *mut u32>,
        /// 2^first_bits: the same for the first pass.
        first_cursors: Ptr<'a, B, *mut u32>,
        /// 2^first_bits + 1: where each partition of the first pass begins.
        first_offsets: Ptr<'a, B, *mut u32>,
        /// 2^first_bits + 1: tiles of the second pass before each.
        first_tiles: Ptr<'a, B, *mut u32>,
    }

    /// Counts the rows of each partition of a second pass, after the first.
    pub struct CountWithinParams<'a, B> for ["partition_count_within"] {
        /// The rows.
        input: RowWords<'a, B>,
        /// How many there are.
        rows: u64,
        /// Bits of the pass before.
        first_bits: u64,
        /// Bits of this pass.
        bits: u64,
        /// 2^first_bits + 1: where each partition of the pass before begins.
        first_offsets: Ptr<'a, B, *const u32>,
        /// 2^first_bits + 1: tiles before each.
        first_tiles: Ptr<'a, B, *const u32>,
        /// 2^(first_bits + bits), zeroed.
        counts: Ptr<'a, B, *mut u32>,
    }

    /// Moves rows to their partitions.
    pub struct PassParams<'a, B> for [
        "partition_pass_4",
        "partition_pass_8",
        "partition_pass_multiple",
        "partition_pass_noted_4",
        "partition_pass_noted_8",
    ] {
        /// The rows.
        input: RowWords<'a, B>,
        /// Moved words of each column; none: there is no such word.
        outputs: [Option<Ptr<'a, B, *mut u8>>; ROW_WORDS_MAX],
        /// Rows.
        rows: u64,
        /// Bits of the pass before; 0: there is none.
        first_bits: u64,
        /// Bits of this pass.
        bits: u64,
        /// 2^(first_bits + bits): the next free place of each partition.
        cursors: Ptr<'a, B, *mut u32>,
        /// 2^first_bits + 1: where each partition of the pass before begins; none without such a pass.
        first_offsets: Option<Ptr<'a, B, *const u32>>,
        /// 2^first_bits + 1: tiles before each; none without such a pass.
        first_tiles: Option<Ptr<'a, B, *const u32>>,
        /// Room of each partition where they were not counted; 0: cursors begin where partitions do.
        bin_rows: u64,
        /// Rows: where each went; only of `partition_pass_noted_4` and `_8`.
        places: Option<Ptr<'a, B, *mut u32>>,
    }

    /// Brings what was found for partitioned rows back to where they came from.
    pub struct RestoreParams<'a, B> for ["restore_rows"] {
        /// Rows: where each is among the partitioned ones.
        places: Ptr<'a, B, *const u32>,
        /// Rows.
        rows: u64,
        /// A value a place, 0 where nothing was found; none: no values are wanted.
        values: Option<Ptr<'a, B, *const u8>>,
        /// Values of 8 bytes, instead of 4.
        is_wide: bool,
        /// A bit a place: what was found; none: not wanted.
        found: Option<Ptr<'a, B, *const u32>>,
        /// A value a row; none: no values are wanted.
        restored: Option<Ptr<'a, B, *mut u8>>,
        /// A bit a row: what was found; none: not wanted.
        found_bits: Option<Ptr<'a, B, *mut u32>>,
        /// A byte a row: what was found; none: not wanted.
        found_bytes: Option<Ptr<'a, B, *mut u8>>,
        /// The control block of the launch that found them: FULL where a bin was, whose answers don't count.
        control: Ptr<'a, B, *const u64>,
    }

    /// Counts the work items of a join before each partition: see `join/matches.cuh`.
    pub struct ItemsParams<'a, B> for ["match_items"] {
        /// Partitions.
        partitions: u64,
        /// Partitions + 1: where the build rows of each begin.
        build_offsets: Ptr<'a, B, *const u32>,
        /// Partitions + 1: where the probe rows of each begin.
        probe_offsets: Ptr<'a, B, *const u32>,
        /// Build rows of an item.
        capacity: u64,
        /// Probe rows of an item.
        chunk_rows: u64,
        /// Partitions + 1.
        items: Ptr<'a, B, *mut u64>,
        /// One word, zeroed: not 0 if a partition has more build rows than `capacity`.
        oversize: Ptr<'a, B, *mut u64>,
    }

    /// Counts how many build rows of some partitions repeat a key.
    pub struct SampleParams<'a, B> for ["match_sample"] {
        /// The partitioned build rows.
        rows: RowWords<'a, B>,
        /// Partitions + 1: where each begins.
        offsets: Ptr<'a, B, *const u32>,
        /// Partitions.
        partitions: u64,
        /// Two words, zeroed: rows that were looked at, and those among them whose key came before.
        counters: Ptr<'a, B, *mut u64>,
    }

    /// A column of a table, and its place in the words of rows.
    pub struct PackField<'a, B> {
        /// Stored values; none with width 0.
        values: Option<Ptr<'a, B, *const u8>>,
        /// A bit a row; none: there are no nulls.
        validity: Option<Ptr<'a, B, *const u32>>,
        /// Bytes of a stored value: 0, 1, 2, 4, 8 or 16.
        width: u64,
        /// Added to what is stored, modulo 2^128: the low word.
        bias_low: u64,
        /// The high word.
        bias_high: u64,
        /// A `field_kind`.
        kind: u64,
        /// Bits of a packed value: 1 to 64, or 128 for two whole words.
        bits: u64,
        /// The word that has it.
        word: u64,
        /// Bits of the word below it.
        shift: u64,
        /// Whether it is part of the key.
        is_key: bool,
        /// The word with the bit that is set for null.
        null_word: u64,
        /// That bit; 64: values are never null.
        null_bit: u64,
    }

    /// Packs the columns of a table into words.
    pub struct PackParams<'a, B> for ["pack_rows"] {
        /// The columns.
        fields: [Option<PackField<'a, B>>; PACK_FIELDS_MAX],
        /// How many there are.
        field_count: u64,
        /// Words of each column; none: there is no such word.
        columns: [Option<Ptr<'a, B, *mut u8>>; ROW_WORDS_MAX],
        /// Words of 8 bytes, instead of 4.
        is_wide: [bool; ROW_WORDS_MAX],
        /// Words of a row.
        words: u64,
        /// Rows.
        rows: u64,
        /// Whether rows with a null key are left out.
        compacts: bool,
        /// A bit a row: rows whose key is not null; none: not wanted.
        validity: Option<Ptr<'a, B, *mut u32>>,
        /// The control block; its rows are those put out.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Unpacks one column of a table from words.
    pub struct UnpackParams<'a, B> for ["unpack_column"] {
        /// The word that has the values; none with 0 bits.
        column: Option<Ptr<'a, B, *const u8>>,
        /// The word has 8 bytes, instead of 4.
        is_wide: bool,
        /// The word behind it, for 128 bits.
        second: Option<Ptr<'a, B, *const u8>>,
        /// Bits of a value.
        bits: u64,
        /// Bits of the word below it.
        shift: u64,
        /// Added, modulo 2^128: the low word.
        bias_low: u64,
        /// The high word.
        bias_high: u64,
        /// The word with the bit that is set for null; none: values are never null.
        null_column: Option<Ptr<'a, B, *const u8>>,
        /// That word has 8 bytes, instead of 4.
        null_is_wide: bool,
        /// That bit.
        null_bit: u64,
        /// A bit a row: what is not found is null; none: all are found.
        found: Option<Ptr<'a, B, *const u32>>,
        /// Rows.
        rows: u64,
        /// Bytes of a value that is stored.
        width: u64,
        /// `rows` values; none with width 0.
        values: Option<Ptr<'a, B, *mut u8>>,
        /// A bit a row; none: there are no nulls.
        validity: Option<Ptr<'a, B, *mut u32>>,
        /// The control block; its rows are the nulls.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Gathers a word of chosen rows.
    pub struct GatherWordsParams<'a, B> for ["gather_words"] {
        /// Numbers of rows of the input; 0 is put out for those beyond it.
        from: Ptr<'a, B, *const u64>,
        /// How many there are.
        rows: u64,
        /// The word of all rows.
        input: Ptr<'a, B, *const u8>,
        /// Rows of the input.
        input_rows: u64,
        /// Words of 8 bytes, instead of 4.
        is_wide: bool,
        /// `rows` words.
        output: Ptr<'a, B, *mut u8>,
    }
}
