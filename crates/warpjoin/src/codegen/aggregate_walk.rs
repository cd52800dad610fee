//! The loop of an aggregation over rows that lie by partition (see `wj/group_walk.cuh`).

use super::aggregate::AggregateOutput;
use super::aggregate_block::{BLOCK_THREADS, HEAD_WORDS, flush_text, prefetch, words};
use super::aggregate_slot::Slots;
use super::emitter::Emitter;
use super::params::{Binding, GroupPart};
use super::shapes::GroupShape;

/// Words of a `GroupWalk`: WJ_WALK_WORDS.
const WALK_WORDS: u32 = 6;
/// Words of the places of all blocks, and of each: WJ_PLACES_HEAD, WJ_PLACES_EACH.
pub(crate) const PLACES_HEAD: u64 = 2;
pub(crate) const PLACES_EACH: u64 = 4;

/// Opens the table, and writes the loop over items and their turns with the flush in it.
pub(super) fn frame(emitter: &mut Emitter, slots: &Slots, output: &mut AggregateOutput) {
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
        output.block_threads = BLOCK_THREADS;
    }
    let threads = output.block_threads;
    output.prologue.push_str(&format!(
        "    const GroupParts parts = {{{}}};\n    GroupWalk& walk = open_walk(parts);\n",
        parts.join(", ")
    ));
    output.shared_bytes = 8 * WALK_WORDS;
    let (mut flush, mut restart, mut choose) = (String::new(), "", "");
    if table_slots > 0 {
        let words = words(slots);
        let table_words = HEAD_WORDS + table_slots * (1 + words);
        output.shared_bytes += 8 * table_words;
        output.prologue.push_str(&format!(
            "    BlockTable cache = open_block_table(&shared_as<u64>() + {WALK_WORDS}, {table_slots}, {words});\n"
        ));
        let mut first = String::new();
        if shape.has_finished {
            output.prologue.push_str(&finished(emitter, table_words));
            output.shared_bytes += 2 * table_slots;
            first = finish_text(&shape, slots, table_slots);
        }
        let step = if shape.front.is_keyed() {
            "block_step_keyed(cache, is_end)"
        } else {
            restart = "            block_restart(cache);\n";
            choose = "            if (item == 1) block_choose_replicas(cache, is_whole);\n";
            "block_step(cache, WJ_TURN_ITEMS * blockDim.x, false, is_end)"
        };
        flush = format!("        if ({step}) {{\n{}        }}\n", flush_text(&shape, slots, table_slots, &first));
    }
    output.head = Some(format!(
        "    u64 first = walk.row;\n    u64 end = walk.end;\n    bool is_whole = false;\n    bool stops = false;\n    \
         const u64 turns_max = parts.offsets[parts.count] + parts.count;\n    \
         for (u64 turn = 0; turn <= turns_max; ++turn) {{\n        \
         stops = is_stopped({control});\n        \
         const bool is_end = stops || first >= end;\n{flush}        \
         if (is_end) {{\n{restart}            \
         if (stops || !next_item(walk, parts)) break;\n            \
         first = walk.row;\n            end = walk.end;\n            is_whole = walk.is_whole != 0;\n        }}\n        \
         u64 next = first + threadIdx.x;\n        \
         const u32 items = items_of_turn(first, end);\n        \
         first += items * {threads};\n\
         #pragma unroll 1\n        \
         for (u32 item = 0; item < items; ++item) {{\n{choose}            \
         const u64 row = next;\n            \
         bool alive = row < end;\n{ahead}            \
         next += {threads};\n",
        ahead = prefetch(emitter, "end"),
    ));
    // The loop over items is closed by the emitter, that over turns here.
    output.epilogue.push_str(&format!(
        "    }}\n    if (threadIdx.x == 0) {{\n        close_walk(parts, walk, first);\n        \
         if (stops) atomicAdd(&{control}[WJ_CONTROL_ROWS], 1ULL);\n    }}\n    (void)is_whole;\n"
    ));
}

/// Where finished groups go, and the list that is made of their slots behind the table.
fn finished(emitter: &mut Emitter, table_words: u32) -> String {
    let rows = emitter.params.once("u64*", Binding::Group(GroupPart::Finished));
    let capacity = emitter.params.once("u64", Binding::Group(GroupPart::FinishedRows));
    format!(
        "    const FinishedGroups finished = {{{rows}, {capacity}, parts.places + 1}};\n    \
         u16* const list = reinterpret_cast<u16*>(&shared_as<u64>() + {});\n",
        WALK_WORDS + table_words
    )
}

/// Writes out the groups of a whole partition that was never flushed, with one slot a group; leaves `first_slot`, from
/// which on slots are merged.
fn finish_text(shape: &GroupShape, slots: &Slots, table_slots: u32) -> String {
    let stride = shape.stride_words;
    // Words of a slot are those of a row, but for sums that are narrow in the slot.
    let mut value = format!("cache.keys[{table_slots} * word + slot]");
    if slots.slots.iter().any(|slot| slot.narrow_partial) {
        let mut cases = String::new();
        let (mut at, mut word) = (1, 1);
        for slot in &slots.slots {
            for part in 0..slot.kind.words() {
                let place =
                    format!("cache.keys[{} + slot]", table_slots * (at + part.min(slot.block_words() - 1)) as u32);
                let is_sign = part == slot.block_words();
                let code = if is_sign { format!("(u64)((i64){place} >> 63)") } else { place };
                cases.push_str(&format!("word == {word} ? {code} : "));
                word += 1;
            }
            at += slot.block_words();
        }
        value = format!("{cases}cache.keys[slot]");
    }
    let words = words(slots);
    format!(
        "            u32 first_slot = 0;\n            \
         if (is_end && !stops && is_whole && cache.replica_bits == 0) {{\n                \
         const auto value_at = [&](u32 slot, u32 word) -> u64 {{ return {value}; }};\n                \
         if (finish_groups<{stride}>(cache, {words}, walk, list, finished, value_at)) first_slot = {table_slots} - 32;\n            \
         }}\n            \
         is_whole = false;"
    )
}
