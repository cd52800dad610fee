//! Constants that kernels and host share: they live here and reach kernels as definitions.

use std::sync::OnceLock;

/// Words of a control block, and what they hold.
pub(crate) mod control {
    /// Status bits.
    pub(crate) const STATUS: usize = 0;
    /// Rows put out, list places taken, or rows appended.
    pub(crate) const ROWS: usize = 1;
    /// Lookups in tables of joins, where they are counted.
    pub(crate) const PROBES: usize = 2;
    /// Rows that runtime filters dropped, where they are counted.
    pub(crate) const PRUNED: usize = 3;
    /// Length of a control block.
    pub(crate) const WORDS: usize = 4;
}

/// Words that a group table counts in, over all launches that fill it.
pub(crate) mod group_counter {
    /// Rows appended, for long keys.
    pub(crate) const APPENDED: usize = 0;
    /// Rows of keys that found no room.
    pub(crate) const SPILLED: usize = 1;
    /// How many there are.
    pub(crate) const WORDS: usize = 2;
}

/// Status bits of a control block.
pub(crate) mod status {
    /// A table has no room for a key.
    pub(crate) const FULL: u64 = 1;
    /// A build key occurs twice.
    pub(crate) const DUPLICATE: u64 = 2;
    /// Decimal or integer overflow.
    pub(crate) const OVERFLOW: u64 = 4;
    /// Division by zero.
    pub(crate) const DIVISION: u64 = 8;
    /// A value that a cast can't represent.
    pub(crate) const CAST: u64 = 16;
    /// A group table has little room left: blocks stop, and go on when it was made larger.
    pub(crate) const GROW: u64 = 32;
    /// Nobody wants the result any more. Set by the host, while the kernel runs.
    pub(crate) const CANCELLED: u64 = 64;
    /// After these bits the rest of the launch is in vain.
    /// Those that no more room would mend: the query ends.
    pub(crate) const ERRORS: u64 = OVERFLOW | DIVISION | CAST | CANCELLED;
    pub(crate) const ABORT: u64 = FULL | DUPLICATE | ERRORS;
}

/// Threads of a block of a pipeline whose sink asks for no others.
pub(crate) const PIPELINE_BLOCK_THREADS: u32 = 256;
/// Threads of a block in the kernels that are not generated.
pub(crate) const BLOCK_THREADS: u32 = 256;
/// Most devices of a session.
pub(crate) const DEVICES_MAX: usize = warpjoin_device::DEVICES_MAX;

/// Rows of a tile of a partition that one thread takes.
pub(crate) const PARTITION_ITEMS: u32 = 16;
/// Slots of a block that looks for repeated keys in a partition: a power of two.
pub(crate) const SAMPLE_SLOTS: u32 = 8192;
/// Threads of a block that moves a tile with few partitions: two blocks a multiprocessor, and registers
/// for a thread's rows.
pub(crate) const PARTITION_THREADS_FEW: u32 = 384;
/// The same with many partitions, whose runs want a large tile; and of a block that counts.
pub(crate) const PARTITION_THREADS_MANY: u32 = 1024;
/// The same with many partitions of rows of one word: two blocks have the registers, and one moves while one ranks.
pub(crate) const PARTITION_THREADS_WORD: u32 = 512;
/// Most words of a row that is partitioned.
pub(crate) const ROW_WORDS_MAX: usize = 8;

/// Bits of a digit of a radix sort, and the digits of a pass.
pub(crate) const SORT_DIGIT_BITS: u32 = 8;
pub(crate) const SORT_DIGITS: u32 = 1 << SORT_DIGIT_BITS;
/// Rows of a tile of a radix sort that one thread takes, and threads of a block.
pub(crate) const SORT_ITEMS: u32 = 16;
pub(crate) const SORT_THREADS: u32 = 384;
/// Rows that one block sorts by itself, by so many words at most.
pub(crate) const SORT_FEW_ROWS: u32 = 4096;
pub(crate) const SORT_FEW_WORDS: usize = 8;
/// Columns that one launch brings into an order.
pub(crate) const GATHER_COLUMNS: usize = 16;
/// Bits of a step of a top-k, and words of its state.
pub(crate) const TOP_K_DIGIT_BITS: u32 = 11;
pub(crate) mod top_k_state {
    pub(crate) const BELOW: usize = 2;
    pub(crate) const WITHIN: usize = 3;
    pub(crate) const WORDS: usize = 8;
}

/// Rows of a tile of a window's scan that one thread takes, and words of the keys that it looks at.
pub(crate) const WINDOW_ITEMS: u32 = 8;
pub(crate) const WINDOW_WORDS: usize = 16;
/// Values of a node of a window's tree: a lane each.
pub(crate) const WINDOW_FANOUT: u64 = 32;
/// Levels of it, of 2^32 rows.
const WINDOW_LEVELS_MAX: u64 = 7;

/// What the kernels of windows tell apart.
pub(crate) mod window_kind {
    /// Bounds of frames.
    pub(crate) const PARTITION: u64 = 0;
    pub(crate) const ROWS: u64 = 1;
    pub(crate) const GROUPS: u64 = 2;
    pub(crate) const RANGE: u64 = 3;
    /// Distances of keys.
    pub(crate) const UNITS: u64 = 0;
    pub(crate) const MONTHS: u64 = 1;
    pub(crate) const DOUBLE: u64 = 2;
    /// Stored values.
    pub(crate) const INT: u64 = 0;
    pub(crate) const F32: u64 = 1;
    pub(crate) const F64: u64 = 2;
    /// Places and counts.
    pub(crate) const ROW_NUMBER: u64 = 0;
    pub(crate) const RANK: u64 = 1;
    pub(crate) const DENSE_RANK: u64 = 2;
    pub(crate) const PERCENT_RANK: u64 = 3;
    pub(crate) const CUME_DIST: u64 = 4;
    pub(crate) const NTILE: u64 = 5;
    pub(crate) const FOUND: u64 = 6;
    pub(crate) const COUNT: u64 = 7;
    /// How scans make the result of a frame.
    pub(crate) const DIFFERENCE: u64 = 0;
    pub(crate) const FORWARD: u64 = 1;
    pub(crate) const BACKWARD: u64 = 2;
    pub(crate) const STRETCHES: u64 = 3;
    pub(crate) const TREE: u64 = 4;
    /// Which row's value.
    pub(crate) const SHIFT: u64 = 0;
    pub(crate) const NTH: u64 = 1;
}

/// What the kernels of windows are compiled with besides.
pub(crate) fn window_defines() -> Vec<String> {
    use window_kind as kind;
    let words: [(&str, u64); 29] = [
        ("ITEMS", WINDOW_ITEMS.into()),
        ("FANOUT", WINDOW_FANOUT),
        ("LEVELS_MAX", WINDOW_LEVELS_MAX),
        ("WORDS", WINDOW_WORDS as u64),
        ("PARTITION", kind::PARTITION),
        ("ROWS", kind::ROWS),
        ("GROUPS", kind::GROUPS),
        ("RANGE", kind::RANGE),
        ("UNITS", kind::UNITS),
        ("MONTHS", kind::MONTHS),
        ("DOUBLE", kind::DOUBLE),
        ("INT", kind::INT),
        ("F32", kind::F32),
        ("F64", kind::F64),
        ("ROW_NUMBER", kind::ROW_NUMBER),
        ("RANK", kind::RANK),
        ("DENSE_RANK", kind::DENSE_RANK),
        ("PERCENT_RANK", kind::PERCENT_RANK),
        ("CUME_DIST", kind::CUME_DIST),
        ("NTILE", kind::NTILE),
        ("FOUND", kind::FOUND),
        ("COUNT", kind::COUNT),
        ("DIFFERENCE", kind::DIFFERENCE),
        ("FORWARD", kind::FORWARD),
        ("BACKWARD", kind::BACKWARD),
        ("STRETCHES", kind::STRETCHES),
        ("TREE", kind::TREE),
        ("SHIFT", kind::SHIFT),
        ("NTH", kind::NTH),
    ];
    words.iter().map(|(name, value)| format!("WJ_WINDOW_{name}={value}")).collect()
}

/// What modules that sort are compiled with besides.
pub(crate) fn sort_defines() -> Vec<String> {
    let words: [(&str, u64); 9] = [
        ("SORT_DIGIT_BITS", SORT_DIGIT_BITS.into()),
        ("SORT_DIGITS", SORT_DIGITS.into()),
        ("SORT_ITEMS", SORT_ITEMS.into()),
        ("SORT_THREADS", SORT_THREADS.into()),
        ("SORT_FEW_ROWS", SORT_FEW_ROWS.into()),
        ("SORT_FEW_WORDS", SORT_FEW_WORDS as u64),
        ("GATHER_COLUMNS", GATHER_COLUMNS as u64),
        ("TOP_K_DIGIT_BITS", TOP_K_DIGIT_BITS.into()),
        ("TOP_K_DIGITS", 1 << TOP_K_DIGIT_BITS),
    ];
    words.iter().map(|(name, value)| format!("WJ_{name}={value}")).collect()
}

/// Slots of the set that counts the keys of a sample, in bits: four a row.
pub(crate) const SKETCH_BITS: u32 = 18;
/// Where the counter of rows has that of keys, and of keys that came again.
pub(crate) const SKETCH_KEYS_SHIFT: u32 = 26;
pub(crate) const SKETCH_REPEATED_SHIFT: u32 = 45;

/// Constants that vary between modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Constants {
    /// Bits of a key hash that are kept; 64 but for tests of collisions.
    pub hash_bits: u32,
    /// Lanes of a probe group in modules that build tables.
    pub lanes: u32,
}

impl Constants {
    /// The definitions for the preprocessor.
    pub(crate) fn defines(self) -> Vec<String> {
        /// Those of every generated kernel, but in tests of collisions.
        static USUAL: OnceLock<Vec<String>> = OnceLock::new();
        match self {
            Self { hash_bits: 64, lanes: 1 } => USUAL.get_or_init(|| self.written()).clone(),
            _ => self.written(),
        }
    }

    fn written(self) -> Vec<String> {
        let words: [(&str, u64); 24] = [
            ("CONTROL_STATUS", control::STATUS as u64),
            ("CONTROL_ROWS", control::ROWS as u64),
            ("CONTROL_PROBES", control::PROBES as u64),
            ("CONTROL_PRUNED", control::PRUNED as u64),
            ("STATUS_FULL", status::FULL),
            ("STATUS_DUPLICATE", status::DUPLICATE),
            ("STATUS_OVERFLOW", status::OVERFLOW),
            ("STATUS_DIVISION", status::DIVISION),
            ("STATUS_CAST", status::CAST),
            ("STATUS_GROW", status::GROW),
            ("SKETCH_BITS", SKETCH_BITS.into()),
            ("SKETCH_KEYS_SHIFT", SKETCH_KEYS_SHIFT.into()),
            ("SKETCH_REPEATED_SHIFT", SKETCH_REPEATED_SHIFT.into()),
            ("GROUP_APPENDED", group_counter::APPENDED as u64),
            ("GROUP_SPILLED", group_counter::SPILLED as u64),
            ("STATUS_ABORT", status::ABORT),
            ("BLOCK_THREADS", BLOCK_THREADS.into()),
            ("DEVICES_MAX", DEVICES_MAX as u64),
            ("PARTITION_ITEMS", PARTITION_ITEMS.into()),
            ("PARTITION_THREADS", PARTITION_THREADS_FEW.into()),
            ("SAMPLE_SLOTS", SAMPLE_SLOTS.into()),
            ("ROW_WORDS_MAX", ROW_WORDS_MAX as u64),
            ("HASH_BITS", self.hash_bits.into()),
            ("LANES", self.lanes.into()),
        ];
        let mut defines: Vec<String> = words.iter().map(|(name, value)| format!("WJ_{name}={value}")).collect();
        for (name, value) in crate::hash::MULTIPLIERS {
            defines.push(format!("WJ_HASH_MULTIPLIER_{name}={value:#x}ULL"));
        }
        defines
    }
}
