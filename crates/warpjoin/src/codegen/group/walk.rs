//! The loop of an aggregation over rows that lie by partition (see `group/group_walk.cuh`).

use super::aggregate::AggregateOutput;
use super::block::{
    HEAD_WORDS, TABLE_BLOCK_THREADS, array_of, choose_replicas, flush_text, key_bytes, key_type, words,
};
use super::slot::Slots;
use crate::codegen::emit::{Binding, Emitter, GroupPart};
use crate::codegen::shapes::{GroupLimits, GroupShape};

/// Words of a `GroupWalk`: WJ_WALK_WORDS.
const WALK_WORDS: u32 = 5;
/// Threads of a block that has a multiprocessor to itself.
const LONE_BLOCK_THREADS: u32 = 1024;
/// Threads of a block that adds up rows of a warp: they need more registers.
pub(in crate::codegen) const SKEWED_BLOCK_THREADS: u32 = 640;
/// Words of the places of all blocks, and of each: WJ_PLACES_HEAD, WJ_PLACES_EACH.
pub(crate) const PLACES_HEAD: u64 = 2;
pub(crate) const PLACES_EACH: u64 = 4;

/// Opens the table, and writes the loop over items and their turns with the flush in it.
pub(super) fn frame(emitter: &mut Emitter, slots: &Slots, output: &mut AggregateOutput, limits: GroupLimits) {
    let shape = output.shape.clone();
    let control = emitter.params.once("u64*", Binding::Control);
    let mut field = |c_type: &str, binding| emitter.params.once(c_type, binding);
    let parts = [
        field("const u32*", Binding::SourceOffsets),
        field("u64", Binding::SourcePartitions),
        field("u64", Binding::Group(GroupPart::ChunkRows)),
        field("u64*", Binding::Group(GroupPart::Cursors)),
    ];
    let table_slots = shape.front.slots();
    if table_slots > 0 {
        output.block_threads = match limits.table_blocks {
            1 => LONE_BLOCK_THREADS,
            _ if limits.is_skewed => SKEWED_BLOCK_THREADS,
            _ => TABLE_BLOCK_THREADS,
        };
    }
    let threads = output.block_threads;
    output.prologue.push_str(&format!(
        "    const GroupParts parts = {{{}}};\n    GroupWalk& walk = open_walk(parts);\n",
        parts.join(", ")
    ));
    output.shared_bytes = 8 * WALK_WORDS;
    let (mut flush, mut restart, mut choose) = (String::new(), "", String::new());
    if table_slots > 0 {
        let words = words(slots);
        let table_bytes = 8 * HEAD_WORDS + table_slots * (key_bytes(&shape.packing) + 8 * words);
        output.shared_bytes += table_bytes;
        output.prologue.push_str(&format!(
            "    BlockTable<{key}> cache = open_block_table<{key}>(&shared_as<u64>() + {WALK_WORDS}, {table_slots}, {words});\n",
            key = key_type(&shape.packing)
        ));
        let (mut before, mut behind) = (String::new(), String::new());
        if shape.has_finished {
            output.prologue.push_str(&finished(emitter, table_bytes));
            output.shared_bytes += 2 * table_slots;
            (before, behind) = finish_text(&shape, slots, table_slots);
        }
        let step = if shape.front.is_keyed() {
            "block_step_keyed(cache, is_end)"
        } else {
            restart = "            block_restart(cache);\n";
            choose = choose_replicas(slots, "is_whole");
            "block_step(cache, WJ_TURN_ITEMS * blockDim.x, is_whole ? cache.slots : cache.slots / 8, is_end)"
        };
        flush = format!(
            "        if ({step}) {{\n{}        }}\n",
            flush_text(&shape, slots, table_slots, (&before, &behind))
        );
    }
    output.head = Some(format!(
        "    u32 first = walk.row;\n    u32 end = walk.end;\n    bool is_whole = false;\n    bool stops = false;\n    \
         // Each turn but the first takes a row at least.\n    \
         for (u32 turn = 0; turn != 0xffffffffu; ++turn) {{\n        \
         stops = is_stopped({control});\n        \
         const bool is_end = stops || first >= end;\n{flush}        \
         if (is_end) {{\n{restart}            \
         if (stops || !next_item(walk, parts)) break;\n            \
         first = walk.row;\n            end = walk.end;\n            is_whole = walk.is_whole != 0;\n        }}\n        \
         u32 next = first + threadIdx.x;\n        \
         const u32 items = items_of_turn(first, end);\n        \
         first += items * {threads};\n\
         #pragma unroll 1\n        \
         for (u32 item = 0; item < items; ++item) {{\n{choose}            \
         const u64 row = next;\n            \
         bool alive = row < end;\n            \
         next += {threads};\n",
    ));
    // The loop over items is closed by the emitter, that over turns here.
    output.epilogue.push_str(&format!(
        "    }}\n    if (threadIdx.x == 0) {{\n        close_walk(parts, walk, first);\n        \
         if (stops) atomicAdd(&{control}[WJ_CONTROL_ROWS], 1ULL);\n    }}\n    (void)is_whole;\n"
    ));
}

/// Where finished groups go, and the list that is made of their slots behind the table.
fn finished(emitter: &mut Emitter, table_bytes: u32) -> String {
    let rows = emitter.params.once("u64*", Binding::Group(GroupPart::Finished));
    let capacity = emitter.params.once("u64", Binding::Group(GroupPart::FinishedRows));
    format!(
        "    const FinishedGroups finished = {{{rows}, {capacity}, parts.places + 1}};\n    \
         u16* const list = reinterpret_cast<u16*>(&shared_as<u64>() + {});\n",
        WALK_WORDS + table_bytes.div_ceil(8)
    )
}

/// Writes out the groups of a whole partition that was never flushed, with one slot a group: what goes before the loop
/// that merges slots, and declares `first_slot`, and what goes behind it.
fn finish_text(shape: &GroupShape, slots: &Slots, table_slots: u32) -> (String, String) {
    let stride = shape.stride_words;
    let mut cases = String::new();
    let (mut at, mut word) = (0, 1);
    for slot in &slots.slots {
        for part in 0..slot.kind.words() {
            let code = slot.read_block_word(|n| array_of(at + n, table_slots), table_slots, part);
            cases.push_str(&format!("word == {word} ? {code} : "));
            word += 1;
        }
        at += slot.block_words();
    }
    let words = words(slots);
    let before = format!(
        "            u32 first_slot = 0;\n            \
         if (is_end && !stops && is_whole && cache.replica_bits == 0) {{\n                \
         if (reserve_finished<{stride}>(cache, walk, list, finished)) first_slot = {table_slots} - 32;\n            \
         }}\n            \
         is_whole = false;"
    );
    let behind = format!(
        "            if (first_slot != 0) {{\n                \
         const auto value_at = [&](u32 slot, u32 word) -> u64 {{ return {cases}(u64)cache.keys[slot]; }};\n                \
         write_finished<{stride}>(cache, {words}, walk, list, finished, value_at);\n            \
         }}"
    );
    (before, behind)
}
