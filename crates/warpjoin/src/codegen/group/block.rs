//! A block's table in shared memory in front of the group table, and the loop over tiles that goes with it.

use super::aggregate::{AggregateOutput, find_row, merge_row};
use super::slot::{Slot, Slots};
use crate::codegen::emit::{Binding, Emitter, GroupPart};
use crate::codegen::shapes::{Front, GroupLimits, GroupMode, GroupShape, Packing};
use crate::options::GroupByForm;

/// Threads of a block with a table: two such blocks fill a multiprocessor at up to 42 registers a thread.
pub(in crate::codegen) const TABLE_BLOCK_THREADS: u32 = 768;
/// Most slots: more groups meet a larger table elsewhere.
const SLOTS_MAX: u32 = 8192;
/// The same where the groups of a partition are to fit: their number is chosen by that.
const PARTITION_SLOTS_MAX: u32 = 1 << 14;
/// Slots of a table that is indexed by the packed key, unless there are more keys.
const KEYED_SLOTS: u32 = 1024;
/// Fewest slots that are worth a table: those of the key word 0 are 32 of them.
const SLOTS_MIN: u32 = 64;
/// Most bits of a row for which memory is asked ahead of time.
const PREFETCH_BITS_MAX: u32 = 128;
/// Most turns of a run, in bits.
const RUN_BITS_MAX: u32 = 2;
/// Words in front of the slots: WJ_BLOCK_HEAD_WORDS.
pub(super) const HEAD_WORDS: u32 = 2;

/// Whether the table in front is worth its shared memory, and which one.
pub(super) fn choose_front(
    mode: GroupMode,
    packing: &Packing,
    slots: &Slots,
    limits: GroupLimits,
    is_partitioned: bool,
) -> Front {
    if limits.form == Some(GroupByForm::Global) || matches!(mode, GroupMode::Global | GroupMode::Wide) {
        return Front::None;
    }
    let slots_max = if is_partitioned {
        partition_slots(limits.shared_bytes_max, limits.table_blocks, key_bytes(packing), words(slots))
    } else {
        (table_bytes_max(limits.shared_bytes_max, 2) / (key_bytes(packing) + 8 * words(slots))).min(SLOTS_MAX) & !1
    };
    let bits = packing.single_word_bits().unwrap_or(64);
    let keyed = 1u32.checked_shl(bits).filter(|_| bits < 31).unwrap_or(u32::MAX);
    if mode == GroupMode::Dense && keyed <= slots_max && limits.form != Some(GroupByForm::BlockTable) {
        let mut replica_bits = 0;
        while replica_bits < 5 && keyed << (replica_bits + 1) <= KEYED_SLOTS.min(slots_max) {
            replica_bits += 1;
        }
        return Front::Keyed { slots: keyed << replica_bits, replica_bits };
    }
    let slots = limits.block_slots.map_or(slots_max, |slots| slots.clamp(SLOTS_MIN, slots_max.max(SLOTS_MIN)) & !1);
    if slots < SLOTS_MIN { Front::None } else { Front::Hashed { slots } }
}

/// Slots of a block's table for a partition, where so many blocks share a multiprocessor: key, accumulators, and a place
/// in the list of groups.
pub(crate) fn partition_slots(shared_bytes_max: u32, table_blocks: u32, key_bytes: u32, words: u32) -> u32 {
    (table_bytes_max(shared_bytes_max, table_blocks) / (key_bytes + 8 * words + 2)).min(PARTITION_SLOTS_MAX) & !1
}

/// Bytes of a key in a block's table.
pub(crate) fn key_bytes(packing: &Packing) -> u32 {
    if packing.single_word_bits().is_some_and(|bits| bits <= 32) { 4 } else { 8 }
}

/// C type of a key in a block's table.
pub(super) fn key_type(packing: &Packing) -> &'static str {
    if key_bytes(packing) == 4 { "u32" } else { "u64" }
}

/// What a block's table may take: a multiprocessor keeps 1 KiB a block for itself.
fn table_bytes_max(shared_bytes_max: u32, table_blocks: u32) -> u32 {
    (shared_bytes_max / table_blocks).saturating_sub(2048)
}

/// Words of all accumulators in a slot.
pub(super) fn words(slots: &Slots) -> u32 {
    slots.slots.iter().map(Slot::block_words).sum::<usize>() as u32
}

/// Opens the table, and writes the loop over tiles with the flush in it.
pub(super) fn frame(emitter: &mut Emitter, slots: &Slots, output: &mut AggregateOutput) {
    let shape = output.shape.clone();
    let control = emitter.params.once("u64*", Binding::Control);
    let rows = emitter.params.once("u64", Binding::SourceRows);
    let cursors = emitter.params.once("u64*", Binding::Group(GroupPart::Cursors));
    let words = words(slots);
    let (table_slots, step) = match shape.front {
        Front::None => (0, "false"),
        Front::Keyed { slots, .. } => (slots, "block_step_keyed(cache, is_last)"),
        Front::Hashed { slots } => (slots, "block_step(cache, order.items * blockDim.x, cache.slots / 8, is_last)"),
    };
    let threads = if table_slots == 0 { output.block_threads } else { TABLE_BLOCK_THREADS };
    output.block_threads = threads;
    let mut flush = String::new();
    if table_slots > 0 {
        output.shared_bytes = 8 * HEAD_WORDS + table_slots * (key_bytes(&shape.packing) + 8 * words);
        output.prologue.push_str(&format!(
            "    BlockTable<{key}> cache = open_block_table<{key}>(&shared_as<u64>(), {table_slots}, {words});\n",
            key = key_type(&shape.packing)
        ));
        flush = format!("        if ({step}) {{\n{}        }}\n", flush_text(&shape, slots, table_slots, ("", "")));
    }
    let choose =
        if matches!(shape.front, Front::Hashed { .. }) { choose_replicas(slots, "false") } else { String::new() };
    output.head = Some(format!(
        "    const TileOrder order = tile_order({rows}, {RUN_BITS_MAX});\n    \
         u64 turn = {cursors}[blockIdx.x];\n    \
         for (; turn <= order.turns; ++turn) {{\n        \
         const bool is_last = turn >= order.turns || is_stopped({control});\n\
         {flush}        \
         if (is_last) break;\n        \
         u64 next = order.row(turn);\n\
         #pragma unroll 1\n        \
         for (u32 item = 0; item < order.items; ++item) {{\n{choose}        \
         const u64 row = next;\n        \
         bool alive = row < {rows};\n{ahead}        \
         next += {threads};\n",
        ahead = prefetch(emitter, &rows),
    ));
    // The loop over items is closed by the emitter, that over turns here.
    output.epilogue.push_str("    }\n");
    output.epilogue.push_str(&format!(
        "    __syncthreads();\n    if (threadIdx.x == 0) {{\n        {cursors}[blockIdx.x] = turn;\n        \
         if (turn < order.turns) atomicAdd(&{control}[WJ_CONTROL_ROWS], 1ULL);\n    }}\n"
    ));
}

/// The line that chooses the number of replicas. What the hardware adds at once needs none: rows of one address wait for
/// each other no longer than replicas take to look up.
pub(super) fn choose_replicas(slots: &Slots, is_whole: &str) -> String {
    if slots.slots.iter().all(Slot::is_halved) {
        return String::new();
    }
    format!("            if (item == 1) block_choose_replicas(cache, {is_whole});\n")
}

/// Lines that ask for rows of the loop over items ahead of time: with thin rows, loads in flight are too few.
fn prefetch(emitter: &mut Emitter, end: &str) -> String {
    let columns = emitter.params.source_values();
    if !emitter.reads_all || columns.iter().map(|(_, bits)| bits).sum::<u32>() > PREFETCH_BITS_MAX {
        return String::new();
    }
    let steps = emitter.params.once("u64", Binding::Group(GroupPart::PrefetchSteps));
    let line = |(column, _): &(String, u32)| format!(" prefetch_rows({column}, next, (u32){steps}, {end});");
    let lines: String = columns.iter().map(line).collect();
    format!("            if ({steps} != 0 && threadIdx.x == 0) {{{lines} }}\n")
}

/// The array of a word of the accumulators in a block's table.
pub(super) fn array_of(word: usize, table_slots: u32) -> String {
    format!("(cache.words + {})", word as u32 * table_slots)
}

/// Merges the slots into the group table, and clears them; what goes before may declare the first slot to look at.
pub(super) fn flush_text(
    shape: &GroupShape,
    slots: &Slots,
    table_slots: u32,
    (before, behind): (&str, &str),
) -> String {
    let mut values = vec![];
    let mut clears = vec![];
    let mut word = 0;
    for slot in &slots.slots {
        values.push((slot, slot.read_block(|n| array_of(word + n, table_slots), table_slots)));
        clears.extend((0..slot.block_words()).map(|n| slot.clear_block(&array_of(word + n, table_slots), table_slots)));
        word += slot.block_words();
    }
    let key = key_type(&shape.packing);
    let packed = match shape.front {
        Front::Keyed { replica_bits, .. } => format!("(u64)(slot >> {replica_bits})"),
        _ => format!("(u64)({key})(word - 1)"),
    };
    let mut lines = vec![
        "            __syncthreads();".to_string(),
        if before.is_empty() { "            const u32 first_slot = 0;".into() } else { before.to_string() },
        "#pragma unroll 1".into(),
        format!("            for (u32 slot = first_slot + threadIdx.x; slot < {table_slots}; slot += blockDim.x) {{"),
        format!("                {key} word = 0;"),
        "                if (!block_group(cache, slot, word)) continue;".into(),
        format!("                const u64 group_id = {};", find_row(shape, &packed, "")),
    ];
    let unconditional: Vec<(Slot, String)> = values.into_iter().map(|(slot, code)| (slot.unguarded(), code)).collect();
    let merge = merge_row(shape, unconditional.iter().map(|(slot, code)| (slot, code.clone())));
    lines.extend(merge.iter().map(|line| format!("                {line}")));
    lines.push("                cache.keys[slot] = 0;".into());
    lines.extend(clears.iter().map(|clear| format!("                {clear}")));
    lines.push("            }".into());
    lines.extend((!behind.is_empty()).then(|| behind.to_string()));
    lines.push("            __syncthreads();".into());
    lines.join("\n") + "\n"
}

/// Merges a row into the block's table, or, where it has no slot there, into the group table.
pub(super) fn accumulate(emitter: &mut Emitter, shape: &GroupShape, slots: &Slots, packed: &str, is_skewed: bool) {
    let otherwise = |slots: &[Slot]| {
        let mut lines = vec![format!("const u64 group_id = {};", find_row(shape, packed, "key_words"))];
        lines.extend(merge_row(shape, slots.iter().map(|slot| (slot, slot.code.clone()))));
        lines
    };
    let table_slots = match shape.front {
        Front::None => {
            otherwise(&slots.slots).iter().for_each(|line| emitter.statement(line));
            return;
        }
        Front::Keyed { slots, replica_bits } => {
            emitter.statement(&format!("const u32 slot = block_slot_keyed(cache, (u32){packed}, {replica_bits});"));
            slots
        }
        Front::Hashed { slots } => {
            emitter.statement(&format!(
                "const u32 slot = cache.is_on ? block_slot(cache, ({})({packed} + 1)) : WJ_NO_SLOT;",
                key_type(&shape.packing)
            ));
            slots
        }
    };
    let is_hashed = matches!(shape.front, Front::Hashed { .. });
    let shares = is_hashed && is_skewed;
    let slots = if shares { share(emitter, slots) } else { slots.slots.clone() };
    if is_hashed {
        emitter.statement(if shares { "if (adds) {" } else { "if (slot != WJ_NO_SLOT) {" });
    }
    let mut word = 0;
    for slot in &slots {
        let array = |n: usize| array_of(word + n, table_slots);
        emitter.statement(&format!("    {}", slot.guarded(&slot.merge_block(array, table_slots))));
        word += slot.block_words();
    }
    if is_hashed {
        emitter.statement(if shares { "} else if (slot == WJ_NO_SLOT) {" } else { "} else {" });
        otherwise(&slots).iter().for_each(|line| emitter.statement(&format!("    {line}")));
        emitter.statement("}");
    }
}

/// Adds up the rows of a warp that have one slot, where they are several: a frequent key has most rows of its partition.
/// Emits `adds`: whether the lane adds to its slot; returns what it adds.
fn share(emitter: &mut Emitter, slots: &Slots) -> Vec<Slot> {
    emitter.statement("bool adds = slot != WJ_NO_SLOT;");
    let mut shared = vec![];
    for (number, slot) in slots.slots.iter().enumerate() {
        let (c_type, code) = (slot.few_type(), &slot.code);
        let value = match &slot.condition {
            Some(condition) => format!("{condition} ? ({c_type}){code} : ({c_type})0"),
            None => format!("({c_type}){code}"),
        };
        emitter.statement(&format!("{c_type} few{number} = {value};"));
        shared.push(Slot { code: format!("few{number}"), condition: None, ..slot.clone() });
    }
    emitter.statement("if (lanes == 0xffffffffu && cache.is_on) {");
    emitter.statement("    const u32 equal = __ballot_sync(0xffffffffu, adds && slot == frequent);");
    emitter.statement("    if (__popc(equal) >= WJ_SHARED_LANES) {");
    emitter.statement("        const bool shares = (equal >> (threadIdx.x & 31) & 1) != 0;");
    for (number, slot) in slots.slots.iter().enumerate() {
        let (c_type, reduce) = (slot.few_type(), slot.warp_merge());
        emitter
            .statement(&format!("        const {c_type} all{number} = {reduce}(shares ? few{number} : ({c_type})0);"));
        emitter.statement(&format!("        if (shares) few{number} = all{number};"));
    }
    emitter.statement("        if (shares) adds = (threadIdx.x & 31) == __ffs(equal) - 1;");
    emitter.statement("    } else {");
    emitter.statement("        frequent = __shfl_sync(0xffffffffu, slot, (int)(item & 31));");
    emitter.statement("    }");
    emitter.statement("}");
    shared
}
