//! A block's table in shared memory in front of the group table, and the loop over tiles that goes with it.

use warpjoin_kernels::group::RUN_BITS_MAX;

use super::slot::{SlotText, clear_block, few_type, is_halved, merge_global, read_block, warp_merge};
use super::{Around, find_row, merge_row, part_of};
use crate::program::{GroupTarget, GroupTiles, Prefetch};
use crate::shapes::PreAggregation;

/// Opens the table, and writes the loop over tiles with the flush in it.
pub(super) fn frame(target: &GroupTarget, tiles: &GroupTiles, threads: u32, around: &mut Around) {
    let GroupTiles { control, cancel, rows, row, cursors, prefetch, is_queued } = tiles;
    let words = target.block_words();
    let (table_slots, step) = match target.front {
        PreAggregation::None => (0, "false"),
        PreAggregation::Keyed { slots, .. } => (slots, "block_step_keyed(cache, is_last)"),
        PreAggregation::Hashed { slots } => {
            (slots, "block_step(cache, order.items * blockDim.x, cache.slots / 8, is_last)")
        }
    };
    let mut flush = String::new();
    if table_slots > 0 {
        around.prologue.push_str(&format!(
            "    BlockTable<{key}> cache = open_block_table<{key}>(&shared_as<u64>(), {table_slots}, {words});\n",
            key = target.key
        ));
        flush = format!("        if ({step}) {{\n{}        }}\n", flush_text(target, table_slots, None));
    }
    let choose = if matches!(target.front, PreAggregation::Hashed { .. }) {
        choose_replicas(target, "false")
    } else {
        String::new()
    };
    let ahead = prefetch.as_ref().map(|prefetch| prefetch_text(prefetch, &rows.to_string())).unwrap_or_default();
    let loop_over_rows = if *is_queued {
        around.choose.clone_from(&choose);
        "        {\n        const u64 first = order.row(turn) - threadIdx.x;\n".to_string()
    } else {
        format!(
            "        u64 next = order.row(turn);\n\
             #pragma unroll 1\n        \
             for (u32 item = 0; item < order.items; ++item) {{\n{choose}        \
             const u64 {row} = next;\n        \
             bool alive = {row} < {rows};\n{ahead}        \
             next += {threads};\n"
        )
    };
    around.head = Some(format!(
        "    const TileOrder order = tile_order({rows}, {RUN_BITS_MAX});\n    \
         u64 turn = {cursors}[blockIdx.x];\n    \
         for (; turn <= order.turns; ++turn) {{\n        \
         const bool is_last = turn >= order.turns || is_stopped({control}, {cancel}, turn);\n\
         {flush}        \
         if (is_last) break;\n{loop_over_rows}"
    ));
    // The loop over items is closed by the body, that over turns here.
    around.epilogue.push_str("    }\n");
    around.epilogue.push_str(&format!(
        "    __syncthreads();\n    if (threadIdx.x == 0) {{\n        {cursors}[blockIdx.x] = turn;\n        \
         if (turn < order.turns) atomicAdd(&{control}[WJ_CONTROL_ROWS], 1ULL);\n    }}\n"
    ));
}

/// The line that chooses the number of replicas. What the hardware adds at once needs none: rows of one address wait for
/// each other no longer than replicas take to look up.
pub(super) fn choose_replicas(target: &GroupTarget, is_whole: &str) -> String {
    if target.slots.iter().all(is_halved) {
        return String::new();
    }
    format!("            if (item == 1) block_choose_replicas(cache, {is_whole});\n")
}

/// Lines that ask for rows of the loop over items ahead of time.
fn prefetch_text(prefetch: &Prefetch, end: &str) -> String {
    let Prefetch { steps, columns } = prefetch;
    let lines: String =
        columns.iter().map(|column| format!(" prefetch_rows({column}, next, (u32){steps}, {end});")).collect();
    format!("            if ({steps} != 0 && threadIdx.x == 0) {{{lines} }}\n")
}

/// The array of a word of the accumulators in a block's table.
pub(super) fn array_of(word: usize, table_slots: u32) -> String {
    format!("(cache.words + {})", word as u32 * table_slots)
}

/// What goes before the loop that merges slots, which declares the first slot to look at, and what goes behind it.
pub(super) struct Finishing {
    pub before: String,
    pub behind: String,
}

/// Merges the slots into the group table, and clears them.
pub(super) fn flush_text(target: &GroupTarget, table_slots: u32, finishing: Option<Finishing>) -> String {
    let mut merges = vec![];
    let mut clears = vec![];
    let mut word = 0;
    for slot in &target.slots {
        let gathered = read_block(slot, |n| array_of(word + n, table_slots), table_slots);
        merges.push(merge_global(slot.kind, &part_of(slot.word), &gathered));
        clears
            .extend((0..slot.block_words()).map(|n| clear_block(slot, &array_of(word + n, table_slots), table_slots)));
        word += slot.block_words();
    }
    let key = target.key;
    let packed = match target.front {
        PreAggregation::Keyed { replica_bits, .. } => format!("(u64)(slot >> {replica_bits})"),
        _ => format!("(u64)({key})(word - 1)"),
    };
    let (before, behind) = match finishing {
        Some(Finishing { before, behind }) => (before, Some(behind)),
        None => ("            const u32 first_slot = 0;".into(), None),
    };
    let mut lines = vec![
        "            __syncthreads();".to_string(),
        before,
        "#pragma unroll 1".into(),
        format!("            for (u32 slot = first_slot + threadIdx.x; slot < {table_slots}; slot += blockDim.x) {{"),
        format!("                {key} word = 0;"),
        "                if (!block_group(cache, slot, word)) continue;".into(),
        format!("                const u64 group_id = {};", find_row(target.mode, target.stride_words, &packed, "")),
    ];
    lines.extend(merge_row(target, merges.into_iter()).iter().map(|line| format!("                {line}")));
    lines.push("                cache.keys[slot] = 0;".into());
    lines.extend(clears.iter().map(|clear| format!("                {clear}")));
    lines.push("            }".into());
    lines.extend(behind);
    lines.push("            __syncthreads();".into());
    lines.join("\n") + "\n"
}

/// Merges a row into the block's table, or, where it has no slot there, into the group table.
pub(super) fn accumulate(target: &GroupTarget, slots: &[SlotText<'_>], packed: &str, lines: &mut Vec<String>) {
    let otherwise = |slots: &[SlotText<'_>]| {
        let row = find_row(target.mode, target.stride_words, packed, "key_words");
        let merge =
            |text: &SlotText<'_>| text.guarded(&merge_global(text.slot.kind, &part_of(text.slot.word), &text.code));
        let mut lines = vec![format!("const u64 group_id = {row};")];
        lines.extend(merge_row(target, slots.iter().map(merge)));
        lines
    };
    let table_slots = match target.front {
        PreAggregation::None => {
            lines.extend(otherwise(slots));
            return;
        }
        PreAggregation::Keyed { slots, replica_bits } => {
            lines.push(format!("const u32 slot = block_slot_keyed(cache, (u32){packed}, {replica_bits});"));
            slots
        }
        PreAggregation::Hashed { slots } => {
            lines.push(format!(
                "const u32 slot = cache.is_on ? block_slot(cache, ({})({packed} + 1)) : WJ_NO_SLOT;",
                target.key
            ));
            slots
        }
    };
    let is_hashed = matches!(target.front, PreAggregation::Hashed { .. });
    let shares = is_hashed && target.shares;
    let slots = if shares { share(slots, lines) } else { slots.to_vec() };
    if is_hashed {
        lines.push(if shares { "if (adds) {" } else { "if (slot != WJ_NO_SLOT) {" }.into());
    }
    let mut word = 0;
    for text in &slots {
        let array = |n: usize| array_of(word + n, table_slots);
        lines.push(format!("    {}", text.guarded(&text.merge_block(array, table_slots))));
        word += text.slot.block_words();
    }
    if is_hashed {
        lines.push(if shares { "} else if (slot == WJ_NO_SLOT) {" } else { "} else {" }.into());
        lines.extend(otherwise(&slots).iter().map(|line| format!("    {line}")));
        lines.push("}".into());
    }
}

/// Adds up the rows of a warp that have one slot, where they are several: a frequent key has most rows of its partition.
/// `adds` says whether the lane adds to its slot. Returns what it adds.
fn share<'a>(slots: &[SlotText<'a>], lines: &mut Vec<String>) -> Vec<SlotText<'a>> {
    lines.push("bool adds = slot != WJ_NO_SLOT;".into());
    let mut shared = vec![];
    for (number, text) in slots.iter().enumerate() {
        let (c_type, code) = (few_type(text.slot), &text.code);
        let value = match &text.condition {
            Some(condition) => format!("{condition} ? ({c_type}){code} : ({c_type})0"),
            None => format!("({c_type}){code}"),
        };
        lines.push(format!("{c_type} few{number} = {value};"));
        shared.push(text.with_code(format!("few{number}")));
    }
    lines.extend(
        [
            "if (lanes == 0xffffffffu && cache.is_on) {",
            "    const u32 equal = __ballot_sync(0xffffffffu, adds && slot == frequent);",
            "    if (__popc(equal) >= WJ_SHARED_LANES) {",
            "        const bool shares = (equal >> (threadIdx.x & 31) & 1) != 0;",
        ]
        .map(String::from),
    );
    for (number, text) in slots.iter().enumerate() {
        let (c_type, reduce) = (few_type(text.slot), warp_merge(text.slot));
        lines.push(format!("        const {c_type} all{number} = {reduce}(shares ? few{number} : ({c_type})0);"));
        lines.push(format!("        if (shares) few{number} = all{number};"));
    }
    lines.extend(
        [
            "        if (shares) adds = (threadIdx.x & 31) == __ffs(equal) - 1;",
            "    } else {",
            "        frequent = __shfl_sync(0xffffffffu, slot, (int)(item & 31));",
            "    }",
            "}",
        ]
        .map(String::from),
    );
    shared
}
