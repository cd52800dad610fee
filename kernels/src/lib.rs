//! The kernel sources of warpjoin, as text.
//!
//! Owns which files exist and under which names a kernel may include them. Must not know how they
//! are compiled. Every header compiles with NVRTC and, through `common/simt.cuh`, with the system's
//! C++ compiler for simulated devices.

/// A source file: the name that `#include` takes, and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFile {
    /// Such as `common/simt.cuh`.
    pub name: &'static str,
    /// The whole text.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(KernelFile { name: $name, text: include_str!(concat!("../", $name)) }),*]
    };
}

/// Headers that kernels may include.
pub const HEADERS: &[KernelFile] = files![
    "common/simt.cuh",
    "common/warp.cuh",
    "common/control.cuh",
    "common/hash.cuh",
    "common/functions.cuh",
    "common/dates.cuh",
    "join/key_table.cuh",
    "join/runtime_filter.cuh",
    "group/group_table.cuh",
    "group/group_walk.cuh",
    "group/accumulate.cuh",
    "group/block_table.cuh",
    "group/sketch.cuh",
    "common/tiles.cuh",
    "partition/partition.cuh",
    "partition/words.cuh",
    "table/buckets.cuh",
    "table/segment_build.cuh",
    "join/matches.cuh",
    "common/pipeline.cuh",
    "common/scan.cuh",
    "window/window.cuh",
    "window/folds.cuh",
];

/// Hash tables of joins.
pub const JOIN_BUILD: KernelFile = KernelFile { name: "join_build.cu", text: include_str!("../join/join_build.cu") };

/// Runtime filters of joins.
pub const RUNTIME_FILTER: KernelFile =
    KernelFile { name: "runtime_filter.cu", text: include_str!("../join/runtime_filter.cu") };

/// Radix partition of rows of words.
pub const PARTITION: KernelFile = KernelFile { name: "partition.cu", text: include_str!("../partition/partition.cu") };

/// Radix sort by key words.
pub const SORT: KernelFile = KernelFile { name: "sort.cu", text: include_str!("../sort/sort.cu") };

/// First rows by key words, and the order of few rows.
pub const TOP_K: KernelFile = KernelFile { name: "top_k.cu", text: include_str!("../sort/top_k.cu") };

/// Window functions over sorted rows.
pub const WINDOW: KernelFile = KernelFile { name: "window.cu", text: include_str!("../window/window.cu") };

/// Frames of windows by distances.
pub const WINDOW_FRAMES: KernelFile =
    KernelFile { name: "window_frames.cu", text: include_str!("../window/window_frames.cu") };

/// Columns of tables to words, and back.
pub const WORDS: KernelFile = KernelFile { name: "words.cu", text: include_str!("../partition/words.cu") };

/// Hash tables of the Arrow-native API.
pub const HASH_TABLE: KernelFile = KernelFile { name: "hash_table.cu", text: include_str!("../table/hash_table.cu") };

/// Rows by key of multimaps.
pub const HASH_LISTS: KernelFile = KernelFile { name: "hash_lists.cu", text: include_str!("../table/hash_lists.cu") };

/// Tests of the strings of dictionaries.
pub const STRINGS: KernelFile = KernelFile { name: "strings.cu", text: include_str!("../string/strings.cu") };

/// Multisplit and transposition.
pub const EXCHANGE: KernelFile = KernelFile { name: "exchange.cu", text: include_str!("../exchange/exchange.cu") };

/// Headers that only the simulated device adds.
pub const SIMULATION_HEADERS: &[KernelFile] = files![
    "sim/abi.h",
    "sim/simt_cpu.h",
    "sim/simt_types.h",
    "sim/simt_collectives.h",
    "sim/simt_atomics.h",
    "sim/simt_math.h",
    "sim/simt_plain.h",
];

/// The fibre scheduler of the simulated device, compiled once and not with every kernel: the first
/// file, and what it includes.
pub const SIMULATION_RUNTIME: &[KernelFile] = files![
    "sim/runtime.cpp",
    "sim/races/race_calls.h",
    "sim/races/races.h",
    "sim/races/race_order.h",
    "sim/races/race_shadow.h",
    "sim/races/race_clock.h",
    "sim/worker.h",
    "sim/fibre.h",
    "sim/abi.h",
];

/// Validity bytes to bitmaps.
pub const VALIDITY: KernelFile = KernelFile { name: "validity.cu", text: include_str!("../common/validity.cu") };
