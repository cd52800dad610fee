//! What `window/window.cu` and `window/window_frames.cu` share with the host.

use crate::constants::constants;
use crate::params::{Ptr, params};

constants! { "WJ_":
    /// Most words of the keys of a window.
    pub const WINDOW_WORDS: usize = 16;
    /// Values of a node of a window's tree: a lane each.
    pub const WINDOW_FANOUT: u64 = 32;
    /// Most levels of it: of 2^32 rows.
    pub const WINDOW_LEVELS_MAX: u64 = 7;
}

/// What the kernels of windows tell apart.
pub mod window_kind {
    crate::constants::constants! { "WJ_WINDOW_":
        /// Bound of a frame: that of the partition.
        pub const PARTITION: u64 = 0;
        /// Bound of a frame: rows away.
        pub const ROWS: u64 = 1;
        /// Bound of a frame: groups of peers away.
        pub const GROUPS: u64 = 2;
        /// Bound of a frame: a distance of keys away.
        pub const RANGE: u64 = 3;
        /// Distance of keys: units of their type.
        pub const UNITS: u64 = 0;
        /// Distance of keys: months, and days.
        pub const MONTHS: u64 = 1;
        /// Distance of keys: a double.
        pub const DOUBLE: u64 = 2;
        /// Stored values: integers.
        pub const INT: u64 = 0;
        /// Stored values: floats.
        pub const F32: u64 = 1;
        /// Stored values: doubles.
        pub const F64: u64 = 2;
        /// Place: the row's in its partition.
        pub const ROW_NUMBER: u64 = 0;
        /// Place: that of the first peer.
        pub const RANK: u64 = 1;
        /// Place: that of the group of peers.
        pub const DENSE_RANK: u64 = 2;
        /// Share of the partition's rows that are before the peers.
        pub const PERCENT_RANK: u64 = 3;
        /// Share of the partition's rows up to the peers.
        pub const CUME_DIST: u64 = 4;
        /// Place: the part of the partition that the row is in.
        pub const NTILE: u64 = 5;
        /// Whether another row is in the partition.
        pub const FOUND: u64 = 6;
        /// Rows or values of the frame.
        pub const COUNT: u64 = 7;
        /// Result of a frame: the difference of two rows of a scan.
        pub const DIFFERENCE: u64 = 0;
        /// Result of a frame: a row of a scan forward.
        pub const FORWARD: u64 = 1;
        /// Result of a frame: a row of a scan backward.
        pub const BACKWARD: u64 = 2;
        /// Result of a frame: of two scans over stretches of its length.
        pub const STRETCHES: u64 = 3;
        /// Result of a frame: from a tree.
        pub const TREE: u64 = 4;
        /// Value of another row: of one so far behind.
        pub const SHIFT: u64 = 0;
        /// Value of another row: of the frame's n-th.
        pub const NTH: u64 = 1;
    }
}

pub(crate) fn all_defines() -> String {
    [defines(), window_kind::defines()].concat()
}

params! {
    /// A stored column.
    pub struct WindowValues<'a, B> {
        /// Values; none: all are the base.
        values: Option<Ptr<'a, B, *const u8>>,
        /// A byte a row; none: all are there.
        validity: Option<Ptr<'a, B, *const u8>>,
        /// `window_kind::INT`, `F32` or `F64`.
        kind: u64,
        /// Bytes of a value.
        width: u64,
        /// Base of integers of up to 8 bytes.
        base: i64,
        /// What codes are XORed with: all ones, so that maxima are minima.
        flip: u64,
    }

    /// What tiles of a scan tell each other.
    pub struct WindowTiles<'a, B> {
        /// One word, zeroed: tiles that blocks have taken.
        next_tile: Ptr<'a, B, *mut u64>,
        /// Tiles, zeroed: what each has published.
        states: Ptr<'a, B, *mut u32>,
        /// Tiles: the result of each tile's rows.
        of_tile: Ptr<'a, B, *mut u8>,
        /// Tiles: the result of all rows up to the end of each.
        up_to_tile: Ptr<'a, B, *mut u8>,
    }

    /// Finds where partitions and groups of peers begin.
    pub struct WindowBoundsParams<'a, B> for ["window_bounds"] {
        /// Rows.
        rows: u64,
        /// Words of the keys.
        words: u64,
        /// Key words.
        keys: [Option<Ptr<'a, B, *const u8>>; WINDOW_WORDS],
        /// Bytes of each word: 4 or 8.
        widths: [u64; WINDOW_WORDS],
        /// Bits of each word that are of the partition.
        masks: [u64; WINDOW_WORDS],
        /// Rows: the number of each row's partition.
        partitions: Ptr<'a, B, *mut u32>,
        /// Rows: the number of each row's peers.
        groups: Ptr<'a, B, *mut u32>,
        /// Rows + 1: the first row of each partition, then all rows.
        partition_rows: Ptr<'a, B, *mut u32>,
        /// Rows + 1: the first row of each group of peers, then all rows.
        group_rows: Ptr<'a, B, *mut u32>,
        /// One word: how many groups of peers there are.
        total: Ptr<'a, B, *mut u64>,
        /// Results of 8 bytes.
        tiles: WindowTiles<'a, B>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Scans an argument by segments.
    pub struct WindowScanParams<'a, B> for [
        "window_count",
        "window_add_64",
        "window_add_128",
        "window_add_f64",
        "window_squares",
        "window_max_64",
        "window_max_128",
    ] {
        /// The argument.
        v: WindowValues<'a, B>,
        /// Rows: numbers of partitions or peers.
        segments: Ptr<'a, B, *const u32>,
        /// Segments also end after every multiple of this many rows; 0: they do not.
        period: u64,
        /// From the last row on.
        is_backward: bool,
        /// Rows.
        rows: u64,
        /// A result a row.
        out: Ptr<'a, B, *mut u8>,
        /// What tiles tell each other.
        tiles: WindowTiles<'a, B>,
        /// The control block.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Rows in the order of partitions and keys, and a frame of each.
    pub struct WindowRows<'a, B> {
        /// As `window_bounds` left them.
        partitions: Ptr<'a, B, *const u32>,
        /// The same.
        groups: Ptr<'a, B, *const u32>,
        /// The same.
        partition_rows: Ptr<'a, B, *const u32>,
        /// The same.
        group_rows: Ptr<'a, B, *const u32>,
        /// The same.
        total: Ptr<'a, B, *const u64>,
        /// Rows.
        rows: u64,
        /// `window_kind::PARTITION`, `ROWS`, `GROUPS` or `RANGE`.
        start_kind: u64,
        /// How far away the start is.
        start_offset: i64,
        /// As `start_kind`.
        end_kind: u64,
        /// How far away the end is.
        end_offset: i64,
        /// Rows: where frames begin, with `RANGE`.
        starts: Option<Ptr<'a, B, *const u32>>,
        /// Rows: where they end, with `RANGE`.
        ends: Option<Ptr<'a, B, *const u32>>,
    }

    /// Puts out places, shares and counts.
    pub struct WindowPlaceParams<'a, B> for ["window_place"] {
        /// The rows.
        w: WindowRows<'a, B>,
        /// `window_kind::ROW_NUMBER`, ..., `COUNT`.
        kind: u64,
        /// Parts, or the distance of the row that is looked for.
        number: i64,
        /// Rows: values that are there, by partition; none: rows are counted.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// A u32 a row, or of shares an f64.
        out: Ptr<'a, B, *mut u8>,
    }

    /// Puts out sums, squares, minima and maxima of frames.
    pub struct WindowOfParams<'a, B> for [
        "window_of_sums_64",
        "window_of_sums_128",
        "window_of_sums_f64",
        "window_of_squares",
        "window_of_maxima_64",
        "window_of_maxima_128",
    ] {
        /// The rows.
        w: WindowRows<'a, B>,
        /// `window_kind::DIFFERENCE`, `FORWARD`, `BACKWARD`, `STRETCHES` or `TREE`.
        form: u64,
        /// Rows of a stretch.
        period: u64,
        /// A scan, or of `TREE` level behind level.
        forward: Option<Ptr<'a, B, *const u8>>,
        /// The same from behind.
        backward: Option<Ptr<'a, B, *const u8>>,
        /// Rows: values that are there, by partition; none: all are.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// What the argument is, for minima and maxima: `window_kind::INT`, `F32` or `F64`.
        kind: u64,
        /// Bytes of a result.
        width: u64,
        /// Base of sums.
        base: i64,
        /// As `WindowValues::flip`.
        flip: u64,
        /// A result a row; none: all are the same.
        out: Option<Ptr<'a, B, *mut u8>>,
        /// A byte a row.
        validity: Ptr<'a, B, *mut u8>,
        /// The argument, for `TREE`.
        v: WindowValues<'a, B>,
        /// Levels of `TREE` from 1 on.
        totals: Option<Ptr<'a, B, *const u8>>,
    }

    /// Puts out values of other rows.
    pub struct WindowValueParams<'a, B> for ["window_value"] {
        /// The rows.
        w: WindowRows<'a, B>,
        /// `window_kind::SHIFT`: the row this far behind; `NTH`: the n-th row of the frame, from 1, or from its end if negative.
        kind: u64,
        /// How many.
        number: i64,
        /// Bytes of a value.
        width: u64,
        /// Values; none: all are the same.
        values: Option<Ptr<'a, B, *const u8>>,
        /// A byte a row; none: all are there.
        validity: Option<Ptr<'a, B, *const u8>>,
        /// Rows: values that are there, by partition, where others are skipped.
        counts: Option<Ptr<'a, B, *const u32>>,
        /// A value a row; none: all are the same.
        out: Option<Ptr<'a, B, *mut u8>>,
        /// A byte a row.
        out_validity: Ptr<'a, B, *mut u8>,
    }

    /// Finds bounds of frames by distances of keys.
    pub struct WindowRangeParams<'a, B> for ["window_range"] {
        /// The rows, whose frames are not asked for.
        w: WindowRows<'a, B>,
        /// The key.
        key: WindowValues<'a, B>,
        /// Nulls come first.
        is_nulls_first: bool,
        /// Keys descend.
        is_descending: bool,
        /// The bound is behind the row.
        is_following: bool,
        /// The row behind the bound is asked for.
        is_end: bool,
        /// `window_kind::UNITS`, `MONTHS` or `DOUBLE`.
        form: u64,
        /// An i128, low word first; months and days; bits of a double.
        amount: [u64; 2],
        /// The least key that there may be: an i128, low word first.
        least: [u64; 2],
        /// The greatest key that there may be.
        most: [u64; 2],
        /// Keys are unsigned.
        is_unsigned: bool,
        /// Rows: where the bound of each is.
        out: Ptr<'a, B, *mut u32>,
        /// The control block: OVERFLOW where no key is so far away, and there are nulls in this direction.
        control: Ptr<'a, B, *mut u64>,
    }

    /// Makes a level of a tree over rows.
    pub struct WindowTreeParams<'a, B> for [
        "window_tree_add_f64",
        "window_tree_squares",
        "window_tree_max_64",
        "window_tree_max_128",
    ] {
        /// The argument: values of level 0.
        v: WindowValues<'a, B>,
        /// Values of further levels; none: this is level 0.
        values: Option<Ptr<'a, B, *const u8>>,
        /// Values of the level.
        rows: u64,
        /// Rows: of each value, that of its run up to it.
        forward: Ptr<'a, B, *mut u8>,
        /// Rows: of each value, that of its run from it on.
        backward: Ptr<'a, B, *mut u8>,
        /// A value a run: the next level.
        totals: Ptr<'a, B, *mut u8>,
    }
}
