//! A block's table in shared memory in front of the group table, and the loop over tiles that goes with it.

use super::aggregate::{AggregateOutput, Limits, find_row, merge_row};
use super::aggregate_slot::{Slot, Slots};
use super::emitter::Emitter;
use super::packing::Packing;
use super::params::{Binding, GroupPart};
use super::shapes::{Front, GroupByForm, GroupMode, GroupShape};

/// Threads of a block with a table: two such blocks fill a multiprocessor at up to 42 registers a thread.
pub(super) const BLOCK_THREADS: u32 = 768;
/// Most slots: more groups meet a larger table elsewhere.
const SLOTS_MAX: u32 = 4096;
/// Slots of a table that is indexed by the packed key, unless there are more keys.
const KEYED_SLOTS: u32 = 1024;
/// Fewest slots that are worth a table: those of the key word 0 are 32 of them.
const SLOTS_MIN: u32 = 64;
/// Most turns of a run, in bits.
const RUN_BITS_MAX: u32 = 4;
/// Words in front of the slots: WJ_BLOCK_HEAD_WORDS.
pub(super) const HEAD_WORDS: u32 = 2;
/// How many steps ahead of the rows at hand a block asks for rows.
const PREFETCH_STEPS: u32 = 2;

/// Whether the table in front is worth its shared memory, and which one.
pub(super) fn choose_front(mode: GroupMode, packing: &Packing, slots: &Slots, limits: Limits) -> Front {
    if limits.form == Some(GroupByForm::Global) || matches!(mode, GroupMode::Global | GroupMode::Wide) {
        return Front::None;
    }
    let slot_bytes = 8 * (1 + words(slots));
    // Two blocks share a multiprocessor, which keeps 1 KiB a block for itself.
    let bytes_max = (limits.shared_bytes_max / 2).saturating_sub(2048);
    let slots_max = (bytes_max / slot_bytes).min(SLOTS_MAX);
    let bits = packing.single_word_bits().unwrap_or(64);
    let keyed = 1u32.checked_shl(bits).filter(|_| bits < 31).unwrap_or(u32::MAX);
    if mode == GroupMode::Dense && keyed <= slots_max && limits.form != Some(GroupByForm::BlockTable) {
        let mut replica_bits = 0;
        while replica_bits < 5 && keyed << (replica_bits + 1) <= KEYED_SLOTS.min(slots_max) {
            replica_bits += 1;
        }
        return Front::Keyed { slots: keyed << replica_bits, replica_bits };
    }
    let slots = limits.block_slots.map_or(slots_max, |slots| slots.clamp(SLOTS_MIN, slots_max.max(SLOTS_MIN)));
    if slots < SLOTS_MIN { Front::None } else { Front::Hashed { slots } }
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
        Front::Hashed { slots } => {
            (slots, "block_step(cache, order.items * blockDim.x, order.is_new_run(turn), is_last)")
        }
    };
    let threads = if table_slots == 0 { output.block_threads } else { BLOCK_THREADS };
    output.block_threads = threads;
    let mut flush = String::new();
    if table_slots > 0 {
        output.shared_bytes = 8 * (HEAD_WORDS + table_slots * (1 + words));
        output.prologue.push_str(&format!(
            "    BlockTable cache = open_block_table(&shared_as<u64>(), {table_slots}, {words});\n"
        ));
        flush = format!("        if ({step}) {{\n{}        }}\n", flush_text(&shape, slots, table_slots, ""));
    }
    let choose = if matches!(shape.front, Front::Hashed { .. }) {
        "            if (item == 1) block_choose_replicas(cache, false);\n"
    } else {
        ""
    };
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

/// Lines that ask for rows of the loop over items ahead of time: the hardware's loads in flight are too few for thin rows.
pub(super) fn prefetch(emitter: &Emitter, end: &str) -> String {
    if !emitter.reads_all {
        return String::new();
    }
    let columns = emitter.params.source_values();
    let line = |(number, column): (usize, &String)| {
        format!("            prefetch_rows({column}, {number}, next, {PREFETCH_STEPS}, {end});\n")
    };
    columns.iter().enumerate().map(line).collect()
}

/// Merges the slots into the group table, and clears them; `first` goes before, and may declare the first slot to look at.
pub(super) fn flush_text(shape: &GroupShape, slots: &Slots, table_slots: u32, first: &str) -> String {
    let place = |word: usize| format!("cache.words + {} + slot", word as u32 * table_slots);
    let mut values = vec![];
    let mut word = 0;
    for slot in &slots.slots {
        values.push((slot, slot.read_block(|n| place(word + n))));
        word += slot.block_words();
    }
    let packed = match shape.front {
        Front::Keyed { replica_bits, .. } => format!("(u64)(slot >> {replica_bits})"),
        _ => "(word - 1)".into(),
    };
    let mut lines = vec![
        "            __syncthreads();".to_string(),
        if first.is_empty() { "            const u32 first_slot = 0;".into() } else { first.to_string() },
        "#pragma unroll 1".into(),
        format!("            for (u32 slot = first_slot + threadIdx.x; slot < {table_slots}; slot += blockDim.x) {{"),
        "                u64 word = 0;".into(),
        "                if (!block_group(cache, slot, word)) continue;".into(),
        format!("                const u64 group_id = {};", find_row(shape, &packed, "")),
    ];
    let unconditional: Vec<(Slot, String)> = values.into_iter().map(|(slot, code)| (slot.unguarded(), code)).collect();
    let merge = merge_row(shape, unconditional.iter().map(|(slot, code)| (slot, code.clone())));
    lines.extend(merge.iter().map(|line| format!("                {line}")));
    lines.push("                cache.keys[slot] = 0;".into());
    lines.extend((0..word).map(|word| format!("                *({}) = 0;", place(word))));
    lines.push("            }".into());
    lines.push("            __syncthreads();".into());
    lines.join("\n") + "\n"
}

/// Merges a row into the block's table, or, where it has no slot there, into the group table by `otherwise`.
pub(super) fn accumulate(emitter: &mut Emitter, shape: &GroupShape, slots: &Slots, packed: &str, otherwise: &[String]) {
    let table_slots = match shape.front {
        Front::None => {
            otherwise.iter().for_each(|line| emitter.statement(line));
            return;
        }
        Front::Keyed { slots, replica_bits } => {
            emitter.statement(&format!("const u32 slot = block_slot_keyed(cache, (u32){packed}, {replica_bits});"));
            slots
        }
        Front::Hashed { slots } => {
            emitter.statement(&format!("const u32 slot = cache.is_on ? block_slot(cache, {packed} + 1) : WJ_NO_SLOT;"));
            emitter.statement("if (slot != WJ_NO_SLOT) {");
            slots
        }
    };
    let mut word = 0;
    for slot in &slots.slots {
        let place = |n: usize| format!("cache.words + {} + slot", (word + n) as u32 * table_slots);
        emitter.statement(&format!("    {}", slot.guarded(&slot.merge_block(place))));
        word += slot.block_words();
    }
    if matches!(shape.front, Front::Hashed { .. }) {
        emitter.statement("} else {");
        otherwise.iter().for_each(|line| emitter.statement(&format!("    {line}")));
        emitter.statement("}");
    }
}
