//! Text of a whole kernel.

use super::code::{push, push_field, push_number};
use super::statement::{declare, push_statement};
use super::text::Text;
use super::{batch, front, group, matches, partition, probe};
use crate::program::{Around, Body, First, Head, Item, Kernel, Nodes, Reservation, TURN_ITEMS, Type, Variable};

/// The text of a kernel, whose entry is `pipeline`.
pub(crate) fn print(kernel: &Kernel) -> String {
    let Kernel { params, nodes, body, around, block_threads, blocks_min } = kernel;
    let mut head = String::from("#include \"common/pipeline.cuh\"\n");
    declare_params(&mut head, params);
    head.push_str(&match blocks_min {
        Some(blocks) => format!("\nWJ_ENTRY_RESIDENT(pipeline, Params, {block_threads}, {blocks}) {{\n"),
        None => format!("\nWJ_ENTRY(pipeline, Params, {block_threads}) {{\n"),
    });
    let around = match around {
        Around::Nothing => group::Around::default(),
        Around::CountRows { control } => group::Around {
            prologue: "    u32 written = 0;\n".into(),
            epilogue: format!("    add_rows({control}, written);\n"),
            ..group::Around::default()
        },
        Around::Groups { target, frame } => group::around(target, frame, *block_threads),
    };
    head.push_str(&around.prologue);
    let mut text = Text::new(head);
    push_body(&mut text, nodes, body, &around);
    text.text.push_str(&around.epilogue);
    text.text.push_str("}\n");
    text.text
}

/// The parameter struct.
fn declare_params(text: &mut String, params: &[Type]) {
    text.push_str("struct Params {\n");
    for (index, of_type) in params.iter().enumerate() {
        text.push_str("    ");
        text.push_str(&of_type.to_string());
        text.push_str(" a");
        push_number(text, index as u64);
        text.push_str(";\n");
    }
    text.push_str("};\n");
}

fn push_body(text: &mut Text, nodes: &Nodes, body: &Body, around: &group::Around) {
    let Body { first, items } = body;
    for first in first {
        match first {
            First::MatchTurns => {
                text.push("u32 match_turns = 0;");
                text.push("bool is_vain = false;");
            }
            First::Bounds { number, bounds } => {
                text.push(&format!("const u64 lowest{number} = ~{bounds}[0], highest{number} = {bounds}[1];"));
            }
        }
    }
    for item in items {
        push_item(text, nodes, item, around);
    }
}

fn push_item(text: &mut Text, nodes: &Nodes, item: &Item, around: &group::Around) {
    match item {
        Item::Close => text.close("}"),
        Item::Head(head) => text.open_with(&head_text(head, around.head.as_deref().unwrap_or_default())),
        Item::Front(it) => front::push(text, nodes, it),
        Item::OpenQueue { block_threads } => front::open_queue(text, *block_threads, &around.choose),
        Item::Statement(statement) => push_statement(text, nodes, statement),
        Item::Section { alive, declarations, statements } => {
            declarations.iter().for_each(|declaration| declare(text, nodes, declaration));
            if statements.is_empty() {
                return;
            }
            text.open(&format!("if ({alive})"));
            statements.iter().for_each(|statement| push_statement(text, nodes, statement));
            text.close("}");
        }
        Item::Find(find) => probe::find(text, nodes, find),
        Item::OpenMatches(matches) => probe::open_matches(text, matches),
        Item::Reserve(reservation) => reserve(text, reservation),
        Item::OpenGroup { rows, stride_words: stride, finished } => {
            text.push(&match finished {
                Some([finished, count]) => format!(
                    "const u64* const group = row < {count} ? {finished} + row * {stride} : {rows} + (row - {count}) * {stride};"
                ),
                None => format!("const u64* const group = {rows} + row * {stride};"),
            });
            text.push("alive = alive && group[0] != 0;");
        }
        Item::Ballot => text.push("const u32 lanes = __ballot_sync(0xffffffffu, alive);"),
        Item::AddToSketch { set, control, hash, alive } => text.line(|line| {
            line.push_str("sketch_add(");
            push_field(line, *set);
            line.push_str(", ");
            push_field(line, *control);
            line.push_str(", ");
            push(line, nodes, *hash);
            line.push_str(&format!(", {alive});"));
        }),
        Item::Batch(item) => batch::push(text, item),
        Item::Partition(item) => partition::push(text, item),
        Item::MatchUnits(units) => matches::open_units(text, units),
        Item::OpenAccepts { key_masks } => matches::open_accepts(text, key_masks),
        Item::CloseAccepts => matches::close_accepts(text),
        Item::MatchLookUp(look_up) => matches::look_up(text, look_up),
        Item::EndRound => text.push("if (!__any_sync(0xffffffffu, later != 0)) break;"),
    }
}

fn head_text(head: &Head, group_head: &str) -> String {
    match head {
        Head::Open => String::new(),
        Head::Group => group_head.to_string(),
        Head::GridStride { rows, row, block_threads, wanted } => {
            let (before, stop) = match wanted {
                Some([control, wanted]) => (
                    "    bool is_full = false;\n    u64 turn = 0;\n",
                    format!("        if (has_enough(&{control}[WJ_CONTROL_ROWS], {wanted}, turn++)) break;\n"),
                ),
                None => ("", String::new()),
            };
            format!(
                "{before}    const u64 tiles = ({rows} + {last}) / {block_threads};\n    \
                 for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{\n{stop}        \
                 const u64 {row} = tile * {block_threads} + threadIdx.x;\n        \
                 bool alive = {row} < {rows};\n",
                last = block_threads - 1
            )
        }
        Head::Turns { rows, block_threads } => format!(
            "    constexpr u32 turn_items = {TURN_ITEMS};\n    constexpr u32 turn_rows = turn_items * {block_threads};\n    \
             for (u64 turn = blockIdx.x; turn < ({rows} + turn_rows - 1) / turn_rows; turn += gridDim.x) {{\n        \
             const u64 first = turn * turn_rows;\n",
        ),
        Head::Sample { rows, stride, block_threads } => format!(
            "    const u64 tiles = (({rows} + {stride} - 1) / {stride} + {last}) / {block_threads};\n    \
             for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{\n        \
             const u64 sample = tile * {block_threads} + threadIdx.x;\n        \
             const u64 row = sample * {stride} + __umul64hi(hash_word(sample + 1), {stride});\n        \
             bool alive = row < {rows};\n",
            last = block_threads - 1
        ),
    }
}

/// Reserves places in the output.
fn reserve(text: &mut Text, reservation: &Reservation) {
    let Reservation { alive, of_block, control, wanted, capacity, of_matches } = reservation;
    let place = match of_matches {
        Some(number) => format!("place_match({}", Variable::NextPlace(*number)),
        None if *of_block => {
            format!("reserve_rows_of_block(shared_as<BlockReservation>(), &{control}[WJ_CONTROL_ROWS]")
        }
        None => format!("reserve_rows(&{control}[WJ_CONTROL_ROWS]"),
    };
    text.push(&format!("const u64 place = {place}, {alive});"));
    if let Some(wanted) = wanted {
        text.push(&format!("is_full = is_full || ({alive} && place >= {wanted});"));
    }
    text.push(&format!("{alive} = {alive} && place < {capacity};"));
}
