//! The kernel sources of warpjoin, as text, and what kernels and host share.
//!
//! Owns which files exist, under which names a kernel may include them, and the parameters of the kernels that are not
//! generated: a module declares what the files of the folder of its name take. Must not know how kernels are compiled.
//! Every header compiles with NVRTC and, through `common/simt.cuh`, with the system's C++ compiler for simulated devices.

use std::sync::LazyLock;

pub mod common;
mod constants;
pub mod decode;
pub mod exchange;
pub mod group;
pub mod interpret;
pub mod join;
mod params;
pub mod partition;
pub mod sort;
pub mod string;
pub mod table;
pub mod window;

pub use params::{Arg, Field, KernelParams, Pointer, Ptr, padded};

/// A source file: the name that `#include` takes, and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFile {
    /// Such as `common/simt.cuh`.
    pub name: &'static str,
    /// The whole text.
    pub text: &'static str,
}

impl KernelFile {
    /// Names of its entries.
    pub fn entries(&self) -> impl Iterator<Item = &'static str> {
        entries(self.text).map(|(name, _)| name)
    }
}

/// Entries of a text, each with the struct that it takes.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("WJ_ENTRY")?.split_once('('));
    heads.map(|(_, rest)| {
        let mut names = rest.split(',').map(str::trim);
        (names.next().unwrap_or_default(), names.next().unwrap_or_default())
    })
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(KernelFile { name: $name, text: include_str!(concat!("../", $name)) }),*]
    };
}

/// PTX of the kernels that any query may want, which `cargo run -p warpjoin --example prebuilt` writes: for GPUs without a compiler.
pub const PREBUILT: &[u8] = include_bytes!("../prebuilt.zst");

/// Headers that kernels may include.
pub static HEADERS: LazyLock<Vec<KernelFile>> = LazyLock::new(|| [FILES, &declared()].concat());

/// Headers that say in C what is declared here.
fn declared() -> Vec<KernelFile> {
    const TYPES: &str = "common/simt.cuh";
    let constants = [
        ("common/constants.cuh", common::all_defines()),
        ("decode/constants.cuh", decode::all_defines()),
        ("group/constants.cuh", group::all_defines()),
        ("interpret/constants.cuh", interpret::all_defines()),
        ("exchange/constants.cuh", exchange::all_defines()),
        ("partition/constants.cuh", partition::all_defines()),
        ("sort/constants.cuh", sort::all_defines()),
        ("string/constants.cuh", string::defines()),
        ("table/constants.cuh", table::defines()),
        ("window/constants.cuh", window::all_defines()),
    ];
    let structs = [
        ("common/params.cuh", TYPES, common::structs()),
        ("decode/params.cuh", TYPES, decode::structs()),
        ("exchange/params.cuh", TYPES, exchange::structs()),
        ("group/params.cuh", TYPES, group::structs()),
        ("interpret/params.cuh", TYPES, interpret::structs()),
        ("join/params.cuh", TYPES, join::structs()),
        ("partition/params.cuh", TYPES, partition::structs()),
        ("sort/params.cuh", TYPES, sort::structs()),
        ("string/params.cuh", TYPES, string::structs()),
        ("table/params.cuh", "partition/params.cuh", table::structs()),
        ("window/params.cuh", TYPES, window::structs()),
    ];
    let constants = constants.map(|(name, text)| (name, format!("#pragma once\n{text}")));
    let structs = structs.map(|(name, types, text)| (name, format!("#pragma once\n#include \"{types}\"\n\n{text}")));
    // Made once, and as static as the files.
    constants.into_iter().chain(structs).map(|(name, text)| KernelFile { name, text: text.leak() }).collect()
}

const FILES: &[KernelFile] = files![
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
    "common/row_queue.cuh",
    "partition/partition.cuh",
    "partition/words.cuh",
    "table/buckets.cuh",
    "table/segment_build.cuh",
    "join/matches.cuh",
    "common/pipeline.cuh",
    "common/scan.cuh",
    "interpret/machine.cuh",
    "interpret/rare.cuh",
    "interpret/values.cuh",
    "interpret/rows.cuh",
    "interpret/groups.cuh",
    "interpret/matches.cuh",
    "interpret/partitions.cuh",
    "window/window.cuh",
    "window/folds.cuh",
    "decode/pages.cuh",
    "decode/elements.cuh",
    "decode/delta.cuh",
];

/// Hash tables of joins.
pub const JOIN_BUILD: KernelFile = KernelFile { name: "join_build.cu", text: include_str!("../join/join_build.cu") };

/// Runtime filters of joins.
pub const RUNTIME_FILTER: KernelFile =
    KernelFile { name: "runtime_filter.cu", text: include_str!("../join/runtime_filter.cu") };

/// Interpreters of pipelines.
pub const INTERPRET: KernelFile = KernelFile { name: "interpret.cu", text: include_str!("../interpret/interpret.cu") };

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

/// Decompression of pages of Parquet columns.
pub const DECODE_SNAPPY: KernelFile = KernelFile { name: "snappy.cu", text: include_str!("../decode/snappy.cu") };

/// What decoded columns tell.
pub const DECODE_FACTS: KernelFile = KernelFile { name: "facts.cu", text: include_str!("../decode/facts.cu") };

/// Strings of Parquet columns, and which of them are the same.
pub const DECODE_TEXT: KernelFile = KernelFile { name: "text.cu", text: include_str!("../decode/text.cu") };

/// Decoding of pages of Parquet columns.
pub const DECODE_VALUES: KernelFile = KernelFile { name: "values.cu", text: include_str!("../decode/values.cu") };

/// Rows in the order of a key, cut between keys.
pub const CUT: KernelFile = KernelFile { name: "cut.cu", text: include_str!("../group/cut.cu") };

/// Group tables that grow.
pub const REGROUP: KernelFile = KernelFile { name: "regroup.cu", text: include_str!("../group/regroup.cu") };

/// Validity bytes to bitmaps.
pub const VALIDITY: KernelFile = KernelFile { name: "validity.cu", text: include_str!("../common/validity.cu") };

/// The files of entries: all kernels that are not generated.
pub const SOURCES: [KernelFile; 20] = [
    CUT,
    DECODE_FACTS,
    DECODE_SNAPPY,
    DECODE_TEXT,
    DECODE_VALUES,
    EXCHANGE,
    HASH_LISTS,
    HASH_TABLE,
    INTERPRET,
    JOIN_BUILD,
    PARTITION,
    RUNTIME_FILTER,
    SORT,
    REGROUP,
    STRINGS,
    TOP_K,
    VALIDITY,
    WINDOW,
    WINDOW_FRAMES,
    WORDS,
];

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kernel_takes_the_struct_that_is_declared_for_it() {
        let written: BTreeSet<_> = SOURCES.iter().flat_map(|file| entries(file.text)).collect();
        let modules = [
            common::KERNELS,
            decode::KERNELS,
            exchange::KERNELS,
            group::KERNELS,
            interpret::KERNELS,
            join::KERNELS,
            partition::KERNELS,
            sort::KERNELS,
            string::KERNELS,
            table::KERNELS,
            window::KERNELS,
        ];
        let declared: BTreeSet<_> = modules
            .into_iter()
            .flatten()
            .flat_map(|(params, entries)| entries.iter().map(move |entry| (*entry, *params)))
            .collect();
        assert!(written.len() > 80, "{written:?}");
        assert_eq!(declared, written);
    }

    #[test]
    fn declarations_are_the_same_in_c() {
        let header = |name: &str| HEADERS.iter().find(|header| header.name == name).map_or("", |header| header.text);
        let few = "struct FewParams {\n    const u8* words[8];\n    u64 is_wide[8];\n    u64 word_count;\n    \
                   const u32* numbers;\n    u64 rows;\n    u64 slots;\n    u32* order;\n};\n";
        assert!(header("sort/params.cuh").contains(few), "{}", header("sort/params.cuh"));
        let nested = "struct RegroupParams {\n    u64* rows;\n    u64 only;\n    u64 count;\n    u64 zero_row;\n    \
                      GroupTable table;\n    u64 stride;\n    u64 key_words;\n    const u64* merges;\n    u64 merge_count;\n};\n";
        assert!(header("group/params.cuh").contains(nested), "{}", header("group/params.cuh"));
        for define in ["WJ_STATUS_GROW 32", "WJ_SORT_DIGITS 256", "WJ_NO_PLACE 0xffffffffffffffffULL"] {
            let line = format!("#define {define}\n");
            assert!(HEADERS.iter().any(|header| header.text.contains(&line)), "{line}");
        }
    }

    #[test]
    fn fields_are_passed_in_the_order_in_which_they_are_declared() {
        let (words, order) = ([1u64, 2], [3u64]);
        let params = sort::FewParams {
            words: padded(words.iter().map(|word| Some(Ptr::of(word))), None),
            is_wide: padded([true], false),
            word_count: 2,
            numbers: None,
            rows: 5,
            slots: 8,
            order: Ptr::at(&order[0], 4),
        };
        let mut passed = vec![];
        KernelParams::pass(&params, &mut |arg| {
            passed.push(match arg {
                Arg::U64(number) => number,
                Arg::Buffer(buffer) => 100 * buffer,
                Arg::BufferAt(buffer, offset) => 100 * buffer + offset,
                Arg::Null => 0,
            });
        });
        let expected = [[100, 200, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(passed, [expected, vec![2, 0, 5, 8, 316]].concat());
    }
}
