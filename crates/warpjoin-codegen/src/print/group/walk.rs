//! The loop of an aggregation over rows that lie by partition (see `group/group_walk.cuh`).

use warpjoin_kernels::group::WALK_WORDS;

use super::Around;
use super::block::{Finishing, array_of, choose_replicas, flush_text};
use super::slot::read_block_word;
use crate::program::{GroupTarget, GroupWalk};

/// Opens the table, and writes the loop over items and their turns with the flush in it.
pub(super) fn frame(target: &GroupTarget, walk: &GroupWalk, threads: u32, around: &mut Around) {
    let GroupWalk { control, cancel, parts, finished } = walk;
    let parts = parts.map(|field| field.to_string()).join(", ");
    around
        .prologue
        .push_str(&format!("    const GroupParts parts = {{{parts}}};\n    GroupWalk& walk = open_walk(parts);\n",));
    let table_slots = target.front.slots();
    let (mut flush, mut restart, mut choose) = (String::new(), "", String::new());
    if table_slots > 0 {
        let words = target.block_words();
        around.prologue.push_str(&format!(
            "    BlockTable<{key}> cache = open_block_table<{key}>(&shared_as<u64>() + {WALK_WORDS}, {table_slots}, {words});\n",
            key = target.key
        ));
        let finishing = finished.map(|[rows, capacity]| {
            around.prologue.push_str(&format!(
                "    const FinishedGroups finished = {{{rows}, {capacity}, parts.places + 1}};\n    \
                 u16* const list = reinterpret_cast<u16*>(&shared_as<u64>() + {});\n",
                WALK_WORDS + target.table_bytes().div_ceil(8)
            ));
            finish_text(target, table_slots)
        });
        let step = if target.front.is_keyed() {
            "block_step_keyed(cache, is_end)"
        } else {
            restart = "            block_restart(cache);\n";
            choose = choose_replicas(target, "is_whole");
            "block_step(cache, WJ_TURN_ITEMS * blockDim.x, is_whole ? cache.slots : cache.slots / 8, is_end)"
        };
        flush = format!("        if ({step}) {{\n{}        }}\n", flush_text(target, table_slots, finishing));
    }
    around.head = Some(format!(
        "    u32 first = walk.row;\n    u32 end = walk.end;\n    bool is_whole = false;\n    bool stops = false;\n    \
         // Each turn but the first takes a row at least.\n    \
         for (u32 turn = 0; turn != 0xffffffffu; ++turn) {{\n        \
         stops = is_stopped({control}, {cancel}, turn);\n        \
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
    // The loop over items is closed by the body, that over turns here.
    around.epilogue.push_str(&format!(
        "    }}\n    if (threadIdx.x == 0) {{\n        close_walk(parts, walk, first);\n        \
         if (stops) atomicAdd(&{control}[WJ_CONTROL_ROWS], 1ULL);\n    }}\n    (void)is_whole;\n"
    ));
}

/// Writes out the groups of a whole partition that was never flushed, with one slot a group.
fn finish_text(target: &GroupTarget, table_slots: u32) -> Finishing {
    let stride = target.stride_words;
    let mut cases = String::new();
    let (mut at, mut word) = (0, 1);
    for slot in &target.slots {
        for part in 0..slot.kind.words() {
            let code = read_block_word(slot, |n| array_of(at + n, table_slots), table_slots, part);
            cases.push_str(&format!("word == {word} ? {code} : "));
            word += 1;
        }
        at += slot.block_words();
    }
    let words = target.block_words();
    let before = format!(
        "            u32 first_slot = 0;\n            \
         if (is_end && !stops && is_whole && cache.replica_bits == 0) {{\n                \
         if (reserve_finished(cache, walk, list, finished, {stride})) first_slot = {table_slots} - 32;\n            \
         }}\n            \
         is_whole = false;"
    );
    let behind = format!(
        "            if (first_slot != 0) {{\n                \
         const auto value_at = [&](u32 slot, u32 word) -> u64 {{ return {cases}(u64)cache.keys[slot]; }};\n                \
         write_finished(cache, {words}, walk, list, finished, {stride}, value_at);\n            \
         }}"
    );
    Finishing { before, behind }
}
