//! What `decode/*.cu` share with the host.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_":
    /// Moments of 12 bytes: nanoseconds of the day in 8, and the Julian day in 4.
    pub const VALUES_INT96: u64 = 3;
    /// Threads of a block.
    pub const DECODE_THREADS: u32 = 128;
    /// Runs of a hybrid encoding that a block knows at a time.
    pub const HYBRID_RUNS: usize = 64;
    /// Bytes of shared memory for these runs.
    pub const HYBRID_BYTES: u32 = (HYBRID_RUNS as u32 + 2) * 4 + HYBRID_RUNS as u32 * 8 + 8;
    /// Bytes of a compressed page that a block reads at a time, and bytes that it puts out at a time.
    pub const ELEMENTS_TILE: usize = 2048;
    /// Bytes of shared memory for both.
pub const ELEMENTS_BYTES: u32 =
        (ELEMENTS_TILE + 8 + ELEMENTS_TILE / 2 * 8 + 8 + ELEMENTS_TILE * 7 + ELEMENTS_TILE / 4 + 8 + 32 * 8 + 8) as u32;
    /// A page has no levels: no row is null.
    pub const LEVELS_NONE: u64 = 0;
    /// Levels stand before the values, and before them their length in 4 bytes.
    pub const LEVELS_PREFIXED: u64 = 1;
    /// Levels stand before the values; the page's words have their length.
    pub const LEVELS_GIVEN: u64 = 2;
    /// Signed integers, the lowest byte first; or bits to be kept.
    pub const VALUES_SIGNED: u64 = 0;
    /// Unsigned integers, the lowest byte first.
    pub const VALUES_UNSIGNED: u64 = 1;
    /// Signed integers, the highest byte first.
    pub const VALUES_BIG_ENDIAN: u64 = 2;
    /// No string: an entry that no row has, a row without a value.
    pub const TEXT_NONE: u32 = u32::MAX;
    /// Words of a page in which a warp looks for strings at a time.
    pub const TEXT_TILE_WORDS: usize = 256;
    /// Bytes of shared memory for these, and a word behind them.
    pub const TEXT_TILE_BYTES: u32 = (TEXT_TILE_WORDS as u32 + 1) * 8;
    /// Status: a value is less than the one before it.
    pub const FACT_UNSORTED: u64 = 1;
    /// Status: a value occurs twice.
    pub const FACT_REPEATED: u64 = 2;
}

/// Words that describe a page.
pub mod page {
    crate::constants::constants! { "WJ_PAGE_":
        /// Where it begins among the bytes that were uploaded.
        pub const SOURCE_AT: usize = 0;
        /// Its bytes there.
        pub const SOURCE_BYTES: usize = 1;
        /// The first ones of these that are not compressed.
        pub const RAW_BYTES: usize = 2;
        /// Where it begins without compression.
        pub const AT: usize = 3;
        /// Its bytes there.
        pub const BYTES: usize = 4;
        /// Where its levels are: one of `LEVELS_*`.
        pub const LEVELS: usize = 5;
        /// Bytes of the levels, if they are given.
        pub const LEVELS_BYTES: usize = 6;
        /// Rows, nulls among them.
        pub const ROWS: usize = 7;
        /// The first of these in the column.
        pub const FIRST_ROW: usize = 8;
        /// The first entry of its dictionary.
        pub const DICTIONARY: usize = 9;
        /// Entries of its dictionary.
        pub const ENTRIES: usize = 10;
        /// Words of a page.
        pub const WORDS: usize = 11;
    }
}

pub(crate) fn all_defines() -> String {
    [defines(), page::defines()].concat()
}

params! {
    /// Decompresses pages.
    pub struct DecompressParams<'a, B> for ["decompress_snappy"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// What was uploaded, and 16 bytes more.
        source: Ptr<'a, B, *const u8>,
        /// The pages without compression.
        target: Ptr<'a, B, *mut u8>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Decodes definition levels.
    pub struct LevelsParams<'a, B> for ["decode_levels"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// A byte a row of the column; 0: null.
        validity: Ptr<'a, B, *mut u8>,
        /// Values of each page that are not null.
        counts: Ptr<'a, B, *mut u32>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Decodes values that are stored one after the other.
    pub struct PlainParams<'a, B> for [
        "decode_plain_1",
        "decode_plain_2",
        "decode_plain_4",
        "decode_plain_8",
        "decode_plain_16",
        "decode_split_1",
        "decode_split_2",
        "decode_split_4",
        "decode_split_8",
        "decode_split_16",
        "decode_delta_1",
        "decode_delta_2",
        "decode_delta_4",
        "decode_delta_8",
        "decode_delta_16",
    ] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Values of each page; none: as many as rows.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// One of `VALUES_*`.
        kind: u64,
        /// Bytes of a value: 4 or 8, or up to 16 with the highest byte first.
        value_bytes: u64,
        /// What is subtracted from each value, its low and high half.
        base_low: u64,
        /// The high half.
        base_high: u64,
        /// The largest result. A page with a larger one is damaged.
        span_low: u64,
        /// The high half.
        span_high: u64,
        /// A value a row.
        target: Ptr<'a, B, *mut u8>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Decodes values of a bit each.
    pub struct BitsParams<'a, B> for ["decode_bits"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Values of each page; none: as many as rows.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// They are runs, behind their length.
        is_hybrid: bool,
        /// A byte a row.
        target: Ptr<'a, B, *mut u8>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Decodes indices of dictionaries.
    pub struct IndicesParams<'a, B> for [
        "decode_indices_1",
        "decode_indices_2",
        "decode_indices_4",
        "decode_indices_8",
        "decode_indices_16",
    ] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Values of each page; none: as many as rows.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// The entries of all dictionaries.
        dictionary: Ptr<'a, B, *const u8>,
        /// A value a row.
        target: Ptr<'a, B, *mut u8>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Looks for values that are less than the one before, or equal to it.
    pub struct OrderParams<'a, B> for [
        "column_order_1",
        "column_order_2",
        "column_order_4",
        "column_order_8",
        "column_order_16",
    ] {
        /// Rows.
        rows: u64,
        /// A value a row.
        values: Ptr<'a, B, *const u8>,
        /// The control block; its status has `FACT_*`.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Looks for values that occur twice.
    pub struct RepeatsParams<'a, B> for ["column_repeats_1", "column_repeats_2", "column_repeats_4", "column_repeats_8"] {
        /// Rows.
        rows: u64,
        /// A value a row.
        values: Ptr<'a, B, *const u8>,
        /// A bit for each number up to the largest value, zeroed.
        seen: Ptr<'a, B, *mut u32>,
        /// The control block; its status has `FACT_REPEATED`.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Takes some rows of a column.
    pub struct TakeParams<'a, B> for ["take_rows_1", "take_rows_2", "take_rows_4", "take_rows_8", "take_rows_16", "take_valid"] {
        /// How many.
        count: u64,
        /// Their numbers.
        rows: Ptr<'a, B, *const u64>,
        /// A value a row; of `take_valid` a bit a row.
        values: Ptr<'a, B, *const u8>,
        /// A value for each that is taken; of `take_valid` a byte.
        target: Ptr<'a, B, *mut u8>,
    }

    /// Brings values to the rows that are not null.
    pub struct SpreadParams<'a, B> for ["spread_1", "spread_2", "spread_4", "spread_8", "spread_16"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// A byte a row of the column; 0: null.
        validity: Ptr<'a, B, *const u8>,
        /// The values of each page, side by side from its first row on.
        values: Ptr<'a, B, *const u8>,
        /// A value a row.
        target: Ptr<'a, B, *mut u8>,
    }

    /// Finds the strings of plain pages.
    pub struct FindStringsParams<'a, B> for ["find_strings", "find_packed_strings"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Values of each page; none: as many as rows.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// The string of row 0.
        first_string: u64,
        /// Where each string begins in `bytes`.
        starts: Ptr<'a, B, *mut u64>,
        /// Its bytes; `TEXT_NONE` before.
        lengths: Ptr<'a, B, *mut u32>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Marks the entries of dictionaries that rows have.
    pub struct MarkEntriesParams<'a, B> for ["mark_entries"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Values of each page; none: as many as rows.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// A word an entry of all dictionaries, zeroed.
        marks: Ptr<'a, B, *mut u32>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Brings equal strings to the same slot.
    pub struct InternParams<'a, B> for ["intern_strings"] {
        /// Strings.
        count: u64,
        /// The first of these that are entries of dictionaries.
        entry_count: u64,
        /// Of each of these, whether a row has it.
        marks: Ptr<'a, B, *const u32>,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Where each string begins.
        starts: Ptr<'a, B, *const u64>,
        /// Its bytes, or `TEXT_NONE`.
        lengths: Ptr<'a, B, *const u32>,
        /// What hashes begin with.
        seed: u64,
        /// Slots of the table, a power of two of at least twice the strings, less 1.
        slot_mask: u64,
        /// The slots, zeroed.
        table: Ptr<'a, B, *mut u64>,
        /// The slot of each string, or `TEXT_NONE`.
        slots: Ptr<'a, B, *mut u32>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Numbers distinct strings. The control block counts them.
    pub struct NumberStringsParams<'a, B> for ["number_strings"] {
        /// Strings.
        count: u64,
        /// The bytes of each string.
        lengths: Ptr<'a, B, *const u32>,
        /// The slot of each string, or `TEXT_NONE`.
        slots: Ptr<'a, B, *const u32>,
        /// The slots.
        table: Ptr<'a, B, *const u64>,
        /// The code of each string that is the first of its kind.
        codes: Ptr<'a, B, *mut u32>,
        /// The first string of each code.
        firsts: Ptr<'a, B, *mut u32>,
        /// Where the bytes of each code end, behind a 0.
        ends: Ptr<'a, B, *mut u64>,
        /// What tiles of the scan tell each other: a counter, zeroed.
        next_tile: Ptr<'a, B, *mut u64>,
        /// A word a tile, zeroed.
        states: Ptr<'a, B, *mut u32>,
        /// 16 bytes a tile.
        of_tile: Ptr<'a, B, *mut u8>,
        /// 16 bytes a tile.
        up_to_tile: Ptr<'a, B, *mut u8>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Brings the bytes of distinct strings together.
    pub struct GatherStringsParams<'a, B> for ["gather_strings"] {
        /// Distinct strings.
        distinct: u64,
        /// The first string of each.
        firsts: Ptr<'a, B, *const u32>,
        /// Where the bytes of each end, behind a 0.
        ends: Ptr<'a, B, *const u64>,
        /// The pages without compression.
        bytes: Ptr<'a, B, *const u8>,
        /// Where each string begins.
        starts: Ptr<'a, B, *const u64>,
        /// The bytes of all distinct strings.
        target: Ptr<'a, B, *mut u8>,
    }

    /// Writes the codes of the strings of plain pages.
    pub struct CodeStringsParams<'a, B> for ["code_strings_1", "code_strings_2", "code_strings_4"] {
        /// `page::WORDS` words a page.
        pages: Ptr<'a, B, *const u64>,
        /// Pages.
        page_count: u64,
        /// The pages without compression, and 16 bytes more.
        bytes: Ptr<'a, B, *const u8>,
        /// Values of each page; none: as many as rows.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// The string of row 0.
        first_string: u64,
        /// The slot of each string, or `TEXT_NONE`.
        slots: Ptr<'a, B, *const u32>,
        /// The slots.
        table: Ptr<'a, B, *const u64>,
        /// The code of each string that is the first of its kind.
        codes: Ptr<'a, B, *const u32>,
        /// What is written for each code; none: the code.
        ranks: Option<Ptr<'a, B, *const u32>>,
        /// A code a row.
        target: Ptr<'a, B, *mut u8>,
    }

    /// Finds the smallest and the largest value of the rows that are not null.
    pub struct BoundsParams<'a, B> for ["column_bounds_1", "column_bounds_4", "column_bounds_8", "column_bounds_16"] {
        /// Rows.
        rows: u64,
        /// A value a row.
        values: Ptr<'a, B, *const u8>,
        /// A byte a row, 0: null; none: no row is null.
        validity: Option<Ptr<'a, B, *const u8>>,
        /// Two values of 16 bytes a warp: the smallest and the largest one, the wrong way round where there is none.
        bounds: Ptr<'a, B, *mut u8>,
    }

    /// Stores values in fewer bytes.
    pub struct NarrowParams<'a, B> for ["narrow_4", "narrow_8", "narrow_16"] {
        /// Rows.
        rows: u64,
        /// A value a row.
        values: Ptr<'a, B, *const u8>,
        /// A byte a row, 0: null; none: no row is null.
        validity: Option<Ptr<'a, B, *const u8>>,
        /// What is subtracted from each, its low and high half.
        base_low: u64,
        /// The high half.
        base_high: u64,
        /// Bytes of a result: 1, 2, 4, 8 or 16.
        width_bytes: u64,
        /// A value a row; 0 where null.
        target: Ptr<'a, B, *mut u8>,
    }

    /// Puts distinct strings into the tiles of `string/strings.cu`.
    pub struct TileStringsParams<'a, B> for ["tile_strings"] {
        /// Distinct strings.
        distinct: u64,
        /// Where the bytes of each end, behind a 0.
        ends: Ptr<'a, B, *const u64>,
        /// Tiles + 1: where the bytes of each tile begin, and where the last ones end.
        tile_starts: Ptr<'a, B, *mut u64>,
        /// Where each string ends, from the beginning of its tile.
        tile_ends: Ptr<'a, B, *mut u32>,
    }
}
