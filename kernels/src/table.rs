//! What `table/hash_table.cu` and `table/hash_lists.cu` share with the host.

use crate::constants::constants;
use crate::params::{Ptr, params};
use crate::partition::RowWords;

constants! { "WJ_":
    /// The place of a key that has none.
    pub const NO_PLACE: u64 = u64::MAX;
    /// Rows that a thread takes in a tile of sums, or of matches.
    pub const LIST_ITEMS: u64 = 8;
    /// Most threads of a block that builds a segment.
    pub const BUILD_THREADS_MAX: u32 = 512;
    /// Found rows of a warp that are put out together.
    pub const FOUND_BATCH: u32 = 256;
    /// Room for these, and for a warp's next ones.
    pub const FOUND_ROWS: u32 = FOUND_BATCH + 32;
}

params! {
    /// A table of buckets: see `table/buckets.cuh`.
    pub struct Buckets<'a, B> {
        /// The slots.
        slots: Ptr<'a, B, *mut u8>,
        /// A byte a bucket: which keys have passed it.
        passed: Ptr<'a, B, *mut u32>,
        /// 2^segment_bits segments.
        segment_bits: u64,
        /// Buckets of a segment.
        segment_buckets: u64,
        /// Seed of the hash.
        seed: u64,
        /// Slots were freed: an empty one ends no search.
        has_gaps: bool,
        /// Two words: whether key 0 is there, and its value.
        side: Ptr<'a, B, *mut u64>,
        /// The rows whose numbers slots hold.
        rows: RowWords<'a, B>,
    }

    /// Builds a segment a block from partitioned rows.
    pub struct BuildParams<'a, B> for ["build_segments"] {
        /// The table; its slots may hold anything.
        table: Buckets<'a, B>,
        /// Partitioned rows: key, then value.
        rows: RowWords<'a, B>,
        /// Segments + 1: where the rows of each begin; with `bin_rows`, how many each has.
        offsets: Ptr<'a, B, *const u32>,
        /// Room of a bin; 0: rows lie side by side.
        bin_rows: u64,
        /// Rows of a segment that may find their home bucket full, before it takes longer.
        late_max: u64,
        /// The control block: FULL where a bin was; its rows are the keys.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Inserts rows one by one.
    pub struct InsertParams<'a, B> for ["insert_rows", "claim_rows"] {
        /// The table.
        table: Buckets<'a, B>,
        /// The rows: key, then value.
        rows: RowWords<'a, B>,
        /// The first one that is looked at. For slots that hold row numbers, they are those of these rows.
        first_row: u64,
        /// Rows that are looked at.
        count: u64,
        /// Whether keys that are there get the value.
        assigns: bool,
        /// The control block: FULL where a key found no slot; its rows are the new keys.
        control: Ptr<'a, B, *mut u64>,
        /// The slot of each row's key, or `NO_PLACE`; none: not wanted.
        places: Option<Ptr<'a, B, *mut u64>>,
    }

    /// Bins of keys that were partitioned.
    pub struct KeyBins<'a, B> {
        /// Keys in each bin.
        rows: Ptr<'a, B, *const u32>,
        /// Keys that a bin has room for, a multiple of 32; FULL where one had more.
        room: u64,
        /// Blocks of a bin.
        blocks: u64,
    }

    /// Finds keys.
    pub struct FindParams<'a, B> for ["find_rows", "find_bins"] {
        /// The table.
        table: Buckets<'a, B>,
        /// The keys.
        wanted: RowWords<'a, B>,
        /// Keys.
        count: u64,
        /// The value of each (row numbers and places: 8 bytes), 0 where it is not found; none: not wanted.
        values: Option<Ptr<'a, B, *mut u8>>,
        /// A bit a key: whether it is found; none: not wanted.
        found: Option<Ptr<'a, B, *mut u32>>,
        /// A byte a key: the same.
        found_bytes: Option<Ptr<'a, B, *mut u8>>,
        /// Whether the place of the key's slot is put out instead of its value.
        wants_places: bool,
        /// The control block; its rows are those found.
        control: Ptr<'a, B, *mut u64>,
        /// Of `find_bins`; none: keys lie side by side.
        bins: Option<KeyBins<'a, B>>,
    }

    /// Frees the slots of keys.
    pub struct EraseParams<'a, B> for ["erase_rows"] {
        /// The table.
        table: Buckets<'a, B>,
        /// The keys.
        wanted: RowWords<'a, B>,
        /// Keys.
        count: u64,
        /// The control block; its rows are the slots freed.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Puts out keys that are found with their values, in any order.
    pub struct ProbeParams<'a, B> for ["probe_rows"] {
        /// The table.
        table: Buckets<'a, B>,
        /// The keys.
        wanted: RowWords<'a, B>,
        /// Keys.
        count: u64,
        /// Their bins; none: keys lie side by side.
        bins: Option<KeyBins<'a, B>>,
        /// `count`: keys that were found.
        keys: Ptr<'a, B, *mut u8>,
        /// `count`: their values.
        values: Ptr<'a, B, *mut u8>,
        /// The control block; its rows are those put out.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Puts out the keys and values of a table, in any order.
    pub struct ExportParams<'a, B> for ["export_slots"] {
        /// The table.
        table: Buckets<'a, B>,
        /// Slots, and the one beside.
        places: u64,
        /// Rows that there is room for.
        rows_max: u64,
        /// `rows_max` keys; none of slots that hold row numbers.
        keys: Option<Ptr<'a, B, *mut u8>>,
        /// `rows_max` values, or row numbers of 8 bytes.
        values: Ptr<'a, B, *mut u8>,
        /// The control block; its rows are those put out.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Makes lists of rows from the place of each.
    pub struct ListParams<'a, B> for ["count_places", "list_offsets", "fill_lists"] {
        /// A row's place, or `NO_PLACE`.
        places: Ptr<'a, B, *const u64>,
        /// Rows; for `list_offsets`, places.
        count: u64,
        /// The number of the first row.
        first_row: u64,
        /// A list a place, zeroed.
        lists: Ptr<'a, B, *mut u64>,
        /// A u32 a place: where its next row goes.
        cursors: Ptr<'a, B, *mut u32>,
        /// Rows by place.
        row_list: Ptr<'a, B, *mut u32>,
        /// The control block; its rows are those in lists.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Takes lists away.
    pub struct TakeParams<'a, B> for ["take_lists"] {
        /// A wanted row's place, or `NO_PLACE`.
        places: Ptr<'a, B, *const u64>,
        /// Wanted rows.
        count: u64,
        /// The lists.
        lists: Ptr<'a, B, *mut u64>,
        /// The control block; its rows are those of the lists.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Finds the rows whose lists were not taken away.
    pub struct LiveParams<'a, B> for ["live_rows"] {
        /// An indexed row's place, or `NO_PLACE`.
        places: Ptr<'a, B, *const u64>,
        /// Rows that are in lists.
        indexed: u64,
        /// Rows: those behind the indexed ones are not in lists yet.
        count: u64,
        /// The lists.
        lists: Ptr<'a, B, *const u64>,
        /// `count`: numbers of the rows, in any order.
        live: Ptr<'a, B, *mut u64>,
        /// The control block; its rows are those put out.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Counts the rows of each wanted key.
    pub struct CountRowsParams<'a, B> for ["count_rows"] {
        /// A wanted row's place, or `NO_PLACE`; none: by `found`.
        places: Option<Ptr<'a, B, *const u64>>,
        /// The lists, with `places`.
        lists: Option<Ptr<'a, B, *const u64>>,
        /// A bit a wanted row: it has one row, else none.
        found: Option<Ptr<'a, B, *const u32>>,
        /// Wanted rows.
        count: u64,
        /// Rows of each wanted row's key; none: not wanted.
        counts: Option<Ptr<'a, B, *mut u64>>,
        /// A byte a wanted row: whether there are any; none: not wanted.
        flags: Option<Ptr<'a, B, *mut u8>>,
    }

    /// Sums counts, tile by tile.
    pub struct SumParams<'a, B> for ["tile_sums", "scan_sums", "row_offsets"] {
        /// `count`.
        counts: Ptr<'a, B, *const u64>,
        /// How many there are.
        count: u64,
        /// Tiles + 1: sums before each.
        tiles: Ptr<'a, B, *mut u64>,
        /// Tiles.
        tile_count: u64,
        /// `count` + 1: sums before each.
        offsets: Ptr<'a, B, *mut u64>,
    }

    /// Puts out the wanted row and the stored row of each match.
    pub struct EmitParams<'a, B> for ["emit_matches"] {
        /// Wanted rows + 1: matches before each.
        offsets: Ptr<'a, B, *const u64>,
        /// Wanted rows.
        count: u64,
        /// A wanted row's place; none: a row has one match at most.
        places: Option<Ptr<'a, B, *const u64>>,
        /// The lists, with `places`.
        lists: Option<Ptr<'a, B, *const u64>>,
        /// Rows by place, with `places`.
        row_list: Option<Ptr<'a, B, *const u32>>,
        /// Matches.
        matches: u64,
        /// `matches`: the wanted row of each.
        wanted_rows: Ptr<'a, B, *mut u64>,
        /// `matches`: the stored row of each; none: not wanted.
        stored_rows: Option<Ptr<'a, B, *mut u64>>,
    }
}
