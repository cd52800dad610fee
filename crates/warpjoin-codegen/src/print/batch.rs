//! Text of a probe of several rows a thread.

use super::text::Text;
use crate::program::{BatchItem, Field};
use crate::shapes::Slots;

pub(super) fn push(text: &mut Text, item: &BatchItem) {
    match item {
        BatchItem::Open { rows, items, block_threads } => {
            text.push(&format!("constexpr u32 items = {items};"));
            text.push(&format!("constexpr u32 tile_rows = {block_threads} * items;"));
            text.open(&format!(
                "for (u64 tile = blockIdx.x; tile < ({rows} + tile_rows - 1) / tile_rows; tile += gridDim.x)"
            ));
            text.push("const u64 first = tile * tile_rows + (threadIdx.x & ~31u) * items + (threadIdx.x & 31);");
        }
        BatchItem::OpenKeys { rows } => {
            text.push("u64 keys[items];");
            open_items(text);
            text.push(&format!("bool alive = row < {rows};"));
        }
        BatchItem::LookUp { form, slots, windows } => look_up(text, *form, *slots, *windows),
        BatchItem::OpenFound { control, capacity } => {
            text.push("u32 ranks[items];");
            text.push(&format!(
                "const u64 places = reserve_items_of_block(shared_as<BlockReservation>(), \
                 &{control}[WJ_CONTROL_ROWS], hits, ranks);"
            ));
            open_items(text);
            text.push("const u64 place = places + ranks[item];");
            text.push(&format!("bool alive = (hits >> item & 1) != 0 && place < {capacity};"));
            text.push("const u64 found = values[item];");
        }
    }
}

/// `values`, and the bits `hits` of rows that have one.
fn look_up(text: &mut Text, form: Slots, slots: Field, windows: Option<Field>) {
    let each = |text: &mut Text, statement: &str| {
        open_items(text);
        text.push(statement);
        text.close("}");
    };
    let windows = windows.map(|windows| windows.to_string()).unwrap_or_default();
    text.push("u64 values[items];");
    text.push("u32 hits = 0;");
    let found = match form {
        Slots::Direct(_) => {
            each(text, &format!("values[item] = keys[item] != 0 ? {slots}[keys[item] - 1] : 0;"));
            "values[item]-- != 0".into()
        }
        Slots::Words(words) => {
            let (bits, key_bits) = (words.bytes * 8, words.key_bits);
            text.push("u32 homes[items];");
            text.push(&format!("u{bits} firsts[items];"));
            each(text, &format!("homes[item] = word_home<u{bits}>(keys[item], {windows}, {key_bits});"));
            each(text, &format!("firsts[item] = keys[item] != 0 ? {slots}[homes[item]] : 0;"));
            each(text, "values[item] = 0;");
            format!("find_word({slots}, {windows}, keys[item], {key_bits}, homes[item], firsts[item], values[item])")
        }
        Slots::Bits => {
            each(text, "values[item] = 0;");
            format!("keys[item] != 0 && is_in_bitmap({slots}, keys[item])")
        }
        Slots::Pairs { .. } => {
            text.push("u64 homes[items];");
            text.push("Slot firsts[items];");
            each(text, &format!("homes[item] = hash_place(hash_key(keys[item]), {windows});"));
            each(text, &format!("firsts[item] = load_slot(&{slots}[homes[item]]);"));
            each(text, "values[item] = 0;");
            let call = format!("find_from({slots}, {windows}, keys[item], homes[item], firsts[item], values[item])");
            format!("keys[item] != 0 && {call}")
        }
    };
    each(text, &format!("hits |= (u32)({found}) << item;"));
}

/// Opens the loop over the rows of a thread.
fn open_items(text: &mut Text) {
    text.push("WJ_UNROLL");
    text.open("for (u32 item = 0; item < items; ++item)");
    text.push("const u64 row = first + item * 32;");
}
