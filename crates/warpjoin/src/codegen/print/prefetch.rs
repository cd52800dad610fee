//! Text that asks for rows ahead of their turn.

use crate::codegen::program::{Prefetch, TURNS_AHEAD, Variable};

/// The variable that has a bit for each of the thread's last eight rows: whether it was alive, a byte for each note.
pub(super) const DECLARED: &str = "    u32 recent = 0;\n";

/// Asks for the rows from `next` on, `stride` rows a turn ahead, in units of a block's threads; `end`: behind the last row.
pub(super) fn ask(prefetch: &Prefetch, next: &str, stride: &str, end: &str) -> String {
    let turns = match prefetch.turns {
        Some(turns) => format!("(u32){turns}{stride}"),
        None => format!("{TURNS_AHEAD}{stride}"),
    };
    let lines: String = prefetch
        .columns
        .iter()
        .map(|asked| {
            let condition =
                asked.note.map(|note| format!("if (__popc(recent >> {} & 0xffu) >= {}) ", note * 8, asked.alive_min()));
            format!(" {}prefetch_rows({}, {next}, {turns}, {end});", condition.unwrap_or_default(), asked.column)
        })
        .collect();
    let wanted = prefetch.turns.map(|turns| format!("{turns} != 0 && ")).unwrap_or_default();
    let mut text = format!("        if ({wanted}threadIdx.x == 0) {{{lines} }}\n");
    if prefetch.has_notes() {
        text.push_str("        recent = recent << 1 & 0xfefefefeu;\n");
    }
    text
}

pub(super) fn note(note: u32, alive: Variable) -> String {
    format!("recent |= (u32){alive} << {};", note * 8)
}
