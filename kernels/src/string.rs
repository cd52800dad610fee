//! What `string/strings.cu` shares with the host.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_STRING_":
    /// Strings of a tile.
    pub const TILE: usize = 256;
    /// Bytes of a tile that are brought into shared memory.
    pub const STAGE_BYTES: u32 = 24 << 10;
    /// Most runs of bytes of a pattern that is searched run by run.
    pub const RUNS_MAX: usize = 32;
    /// Element of a pattern: `_`. Smaller ones are bytes.
    pub const ANY_CHARACTER: u16 = 256;
    /// Element of a pattern: `%`.
    pub const ANY_STRING: u16 = 257;
}

params! {
    /// Tests strings, each against the same constant or pattern.
    pub struct TestParams<'a, B> for [
        "test_compare",
        "test_search_long",
        "test_search",
        "test_search_short",
        "test_like",
        "test_like_wide",
        "test_like_long",
    ] {
        /// The strings, followed by 16 bytes of padding.
        bytes: Ptr<'a, B, *const u8>,
        /// Tiles + 1: where the bytes of each tile begin, and where the last ones end.
        tile_starts: Ptr<'a, B, *const u64>,
        /// Where each string ends, from the beginning of its tile.
        ends: Ptr<'a, B, *const u32>,
        /// Strings.
        strings: u64,
        /// Bytes of the constant, or elements of the pattern.
        elements: Ptr<'a, B, *const u16>,
        /// How many there are.
        element_count: u64,
        /// Patterns: ASCII letters of strings and pattern are lower-case letters.
        folds_case: bool,
        /// Comparisons: bit 0 less, bit 1 equal, bit 2 greater.
        accepts: u64,
        /// A byte a string: 1 where it passes.
        results: Ptr<'a, B, *mut u8>,
    }
}
