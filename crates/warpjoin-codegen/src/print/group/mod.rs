//! Text of what kernels with group tables do.

mod block;
mod slot;
mod walk;

use self::slot::{SlotText, merge_global};
use super::code::text_of;
use crate::program::{Accumulate, GroupFrame, GroupLoop, GroupTarget, Nodes, TableFields};
use crate::shapes::{GroupMode, PreAggregation};

/// Text in front of the loop over rows, its head, and text behind it.
#[derive(Default)]
pub(crate) struct Around {
    pub prologue: String,
    pub head: Option<String>,
    /// What stands at the begin of the loop over rows that are listed.
    pub choose: String,
    pub epilogue: String,
}

pub(super) fn around(target: &GroupTarget, frame: &GroupFrame, block_threads: u32) -> Around {
    let (fields, rows) = match frame {
        GroupFrame::Global { rows } => return global(target, &rows.to_string()),
        GroupFrame::Table { fields, rows } => (fields, rows),
    };
    let mut around = Around { prologue: table(target, fields), ..Around::default() };
    match rows {
        GroupLoop::Other => {}
        GroupLoop::Tiles(tiles) => block::frame(target, tiles, block_threads, &mut around),
        GroupLoop::Walk(parts) => walk::frame(target, parts, block_threads, &mut around),
    }
    around
}

/// The lines that merge a row.
pub(super) fn accumulate(nodes: &Nodes, accumulate: &Accumulate) -> Vec<String> {
    let Accumulate { target, packed, key_words } = accumulate;
    let slots: Vec<SlotText<'_>> = target.slots.iter().map(|slot| SlotText::of(nodes, slot)).collect();
    if target.mode == GroupMode::Global {
        let part = |(index, slot): (usize, &SlotText<'_>)| {
            slot.guarded(&slot.merge_local(&format!("part{index}"), &slot.code))
        };
        return slots.iter().enumerate().map(part).collect();
    }
    let mut lines = vec![];
    if target.mode == GroupMode::Wide {
        let words: Vec<String> = key_words.iter().map(|&word| text_of(nodes, word)).collect();
        lines.push(format!("const u64 key_words[{}] = {{{}}};", words.len(), words.join(", ")));
    }
    block::accumulate(target, &slots, &text_of(nodes, *packed), &mut lines);
    lines
}

/// One row: registers, then one merge a warp.
fn global(target: &GroupTarget, rows: &str) -> Around {
    let mut prologue = String::new();
    let mut epilogue = format!("    if (blockIdx.x == 0 && threadIdx.x == 0) {rows}[0] = 1;\n");
    for (index, slot) in target.slots.iter().enumerate() {
        let (partial, total, reduce) = (slot::partial_type(slot), slot::total_type(slot), slot::warp_merge(slot));
        prologue.push_str(&format!("    {partial} part{index} = 0;\n"));
        let address = format!("&{rows}[{}]", 1 + slot.word);
        epilogue.push_str(&format!(
            "    const {total} total{index} = {reduce}(({total})part{index});\n    if ((threadIdx.x & 31) == 0) {{ {} }}\n",
            merge_global(slot.kind, &address, &format!("total{index}")),
        ));
    }
    Around { prologue, epilogue, ..Around::default() }
}

/// The table in global memory.
fn table(target: &GroupTarget, fields: &TableFields) -> String {
    let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let mut prologue = format!("    const GroupTable table = {{{}}};\n", fields.join(", "));
    if target.mode == GroupMode::Wide {
        prologue.push_str("    SpareRow spare = {0, false};\n");
    }
    if target.shares && matches!(target.front, PreAggregation::Hashed { .. }) {
        prologue.push_str("    u32 frequent = WJ_NO_SLOT;\n");
    }
    prologue
}

/// Code that finds the row of a group: by its packed key, or by the array of its words.
fn find_row(mode: GroupMode, stride: usize, packed: &str, words: &str) -> String {
    match mode {
        GroupMode::Wide => format!("group_row_wide(table, {stride}, {words}, spare)"),
        GroupMode::Narrow => format!("group_row_narrow(table, {stride}, {packed})"),
        _ => format!("group_row_dense(table, {stride}, {packed})"),
    }
}

/// Statements that merge a row's values, each with its slot's word, into the row `group_id`.
fn merge_row(target: &GroupTarget, merges: impl Iterator<Item = String>) -> Vec<String> {
    let GroupTarget { stride_words, header_words, .. } = target;
    let mut lines = vec![
        "if (group_id != WJ_NO_ROW) {".to_string(),
        format!("    u64* const part = table.rows + group_id * {stride_words} + {header_words};"),
    ];
    lines.extend(merges.map(|merge| format!("    {merge}")));
    lines.push("}".into());
    lines
}

/// Where a slot's words are in the row of a group.
fn part_of(word: usize) -> String {
    format!("part + {word}")
}
