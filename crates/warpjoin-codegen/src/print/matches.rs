//! Text of loops over the matches of two partitioned relations.

use super::text::Text;
use crate::program::{MatchLookUp, MatchUnits, SharedWord};
use crate::shapes::MatchForm;

/// Opens the loop over work items, and brings build rows to shared memory.
pub(super) fn open_units(text: &mut Text, units: &MatchUnits) {
    if units.form == MatchForm::Lists {
        lists(text, units);
        open_items_of_relation(text, units);
        fill_lists(text, units);
    } else {
        chains(text, units);
        open_items_of_relation(text, units);
        link(text, units);
    }
}

/// Opens the loops over probe rows and matches.
pub(super) fn look_up(text: &mut Text, look_up: &MatchLookUp) {
    if look_up.form == MatchForm::Lists { list_groups(text, look_up) } else { chain_rounds(text, look_up) }
}

/// Opens the function that tells whether a build row and a probe row are a match.
pub(super) fn open_accepts(text: &mut Text, key_masks: &[u64]) {
    let words: String = (0..key_masks.len()).map(|word| format!(", u64 probe{word}")).collect();
    text.open(&format!("auto accepts = [&](u32 match, u32 row{words}) -> bool"));
    let test = |(word, mask): (usize, &u64)| format!("(((u64)build{word}[match] ^ probe{word}) & {mask:#x}ULL) == 0");
    let tests: Vec<String> = key_masks.iter().enumerate().map(test).collect();
    text.push(&format!("bool alive = {};", tests.join(" && ")));
}

/// Closes it.
pub(super) fn close_accepts(text: &mut Text) {
    text.push("return alive;");
    text.close("};");
}

/// The shared memory of lists.
fn lists(text: &mut Text, units: &MatchUnits) {
    let MatchUnits { capacity, heads_bits, .. } = units;
    let end = shared_words(text, units);
    text.push(&format!("u32* const counts = reinterpret_cast<u32*>({end});"));
    text.push(&format!("u32* const shared = counts + {capacity};"));
    text.push("u16* const places = reinterpret_cast<u16*>(shared + LIST_WORDS);");
    // Of the warp, from item to item.
    text.push("u32 seen_matches = 0;");
    text.push("u32 match_looks = 0;");
    let halves = (0..2).map(|index| format!("places + {index} * {capacity}")).collect::<Vec<_>>().join(", ");
    text.push(&format!(
        "const MatchLists lists = {{heads, counts, shared, {halves}, (u32){heads_bits}, (u32){capacity}}};"
    ));
}

/// The shared memory of chains.
fn chains(text: &mut Text, units: &MatchUnits) {
    let MatchUnits { capacity, heads_bits, .. } = units;
    let end = shared_words(text, units);
    text.push(&format!("u16* const next = reinterpret_cast<u16*>({end});"));
    text.push(&format!("const MatchTable chains = {{heads, next, (u32){heads_bits}, (u32){capacity}}};"));
}

/// `heads` and the words of build rows in shared memory; returns where they end.
fn shared_words(text: &mut Text, units: &MatchUnits) -> String {
    let MatchUnits { capacity, heads_bits, .. } = units;
    text.push("u32* const heads = &shared_as<u32>();");
    let mut end = format!("(heads + (1u << {heads_bits}))");
    // Wide words first, so that all are aligned.
    for width in [8, 4] {
        for SharedWord { word, .. } in units.shared.iter().filter(|word| word.bytes == width) {
            let bits = width * 8;
            text.push(&format!("u{bits}* const build{word} = reinterpret_cast<u{bits}*>({end});"));
            end = format!("(build{word} + {capacity})");
        }
    }
    end
}

/// The loop over work items.
fn open_items_of_relation(text: &mut Text, units: &MatchUnits) {
    let MatchUnits { capacity, bits, build_offsets, probe_offsets, items, chunk_rows, control, cancel, .. } = units;
    text.push(&format!(
        "const MatchSides sides = {{{build_offsets}, {probe_offsets}, {items}, 1u << {bits}, (u32){capacity}, (u32){chunk_rows}}};"
    ));
    text.push(&format!("u64* const match_control = {control};"));
    text.push(&format!("const u64 match_cancel = {cancel};"));
    text.open("for (u64 number = blockIdx.x;; number += gridDim.x)");
    text.push("const MatchItem unit = match_item(sides, number);");
    text.push("if (unit.build_rows == 0) break;");
    text.push("const u64 item_turn = number / gridDim.x;");
    text.push(
        "if (is_block_stopped(match_control, WJ_STATUS_ABORT, match_cancel, item_turn, WJ_GRID_CANCEL_TURNS)) break;",
    );
    // A pair of partitions may have very many matches.
    text.push("bool is_over = false;");
}

/// Links the build rows of the item.
fn link(text: &mut Text, units: &MatchUnits) {
    text.push("clear_chains(chains);");
    text.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
    let mut keys = vec![];
    for SharedWord { word, field, .. } in &units.shared {
        text.push(&format!("const auto word{word} = {field}[unit.build_first + place];"));
        text.push(&format!("build{word}[place] = word{word};"));
        if let Some(mask) = units.key_masks.get(*word as usize) {
            keys.push(format!("((u64)word{word} & {mask:#x}ULL)"));
        }
    }
    text.push(&format!("link_row(chains, place, {});", folded(&keys)));
    text.close("}");
    text.push("__syncthreads();");
}

/// Brings the build rows of the item to lists: all words first, then each row finds the first of its key.
fn fill_lists(text: &mut Text, units: &MatchUnits) {
    text.push("clear_lists(lists);");
    text.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
    for SharedWord { word, field, .. } in &units.shared {
        text.push(&format!("build{word}[place] = {field}[unit.build_first + place];"));
    }
    text.close("}");
    text.push("__syncthreads();");
    text.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
    let masks = &units.key_masks;
    let key = |(word, mask): (usize, &u64)| format!("((u64)build{word}[place] & {mask:#x}ULL)");
    let keys: Vec<String> = masks.iter().enumerate().map(key).collect();
    let same = list_tests(masks, |word| format!("(u64)build{word}[place]"));
    text.push(&format!("count_row(lists, place, {}, [&](u32 other) {{ return {same}; }});", folded(&keys)));
    text.close("}");
    text.push("order_rows(lists, unit.build_rows);");
}

/// Whether a build row has the key whose words a function names.
fn list_tests(key_masks: &[u64], other: impl Fn(usize) -> String) -> String {
    let test =
        |(word, mask): (usize, &u64)| format!("(((u64)build{word}[other] ^ {}) & {mask:#x}ULL) == 0", other(word));
    key_masks.iter().enumerate().map(test).collect::<Vec<_>>().join(" && ")
}

/// Opens the loops over groups of probe rows and their matches: a warp shares those of 32 rows, a block
/// those of groups that have very many.
fn list_groups(text: &mut Text, look_up: &MatchLookUp) {
    let MatchLookUp { key_masks, items, output, .. } = look_up;
    text.push(&format!("constexpr u32 items = {items};"));
    text.push("const u32 lane = threadIdx.x & 31;");
    text.push("const u32 groups = (unit.probe_rows + 32 * items - 1) / (32 * items);");
    text.push("ListTurns turns = {threadIdx.x / 32, false};");
    text.open("for (u32 step = 0, group = 0; step <= groups + LIST_HEAVY_MAX; ++step)");
    text.push("if (!next_group(lists, turns, groups, group)) break;");
    text.push("if (is_over) continue;");
    text.push("const u32 first = group * 32 * items + lane;");
    find_lists(text, look_up);
    text.push("const u32 group_matches = warp_matches(lane_matches).total;");
    text.push("if (group_matches == 0 || leave_group(lists, turns, group, group_matches)) continue;");
    text.push("seen_matches += turns.is_shared ? group_matches / (blockDim.x / 32) : group_matches;");
    text.open("if (seen_matches >= WJ_PAIR_MATCHES)");
    text.push("seen_matches = 0;");
    text.push("is_over = is_aborted(match_control, match_cancel, ++match_looks, WJ_MATCH_CANCEL_TURNS);");
    text.push("if (is_over) continue;");
    text.close("}");
    if let Some([control, capacity]) = output {
        reserve_group(text, &control.to_string(), &capacity.to_string());
    }
    open_items(text);
    text.push("const WarpMatches pairs = warp_matches(count_of(lists, leaders[item]));");
    text.push("const u32 lane_begin = begin_of(lists, leaders[item]);");
    text.push("const MatchRange range = range_of_warp(turns, pairs.total);");
    text.push("MatchSource source = {0, 0};");
    // Where the matches of the lane's row are in `order`, less their number among those of the warp.
    text.push("u32 begin = 0;");
    for word in 0..key_masks.len() {
        text.push(&format!("u64 probe{word} = 0;"));
    }
    if output.is_some() {
        text.push("const u64 item_places = places - range.begin;");
        text.push("const u32 shift = shift_to_sectors(range, places);");
        text.push("places += range.end - range.begin;");
    } else {
        text.push("const u32 shift = 0;");
    }
    list_turns(text, key_masks.len());
    if output.is_some() {
        text.push("const u64 place = item_places + number;");
    }
}

/// Finds the list of each probe row of the lane.
fn find_lists(text: &mut Text, look_up: &MatchLookUp) {
    let MatchLookUp { key_masks, probe_keys, .. } = look_up;
    text.push("u32 leaders[items];");
    let mut keys = vec![];
    for (word, mask) in key_masks.iter().enumerate() {
        text.push(&format!("u64 lane_probe{word}[items];"));
        keys.push(format!("(lane_probe{word}[item] & {mask:#x}ULL)"));
    }
    open_items(text);
    text.push("leaders[item] = first + item * 32 < unit.probe_rows;");
    for (word, field) in probe_keys.iter().enumerate() {
        let load = format!("{field}[unit.probe_first + first + item * 32]");
        text.push(&format!("lane_probe{word}[item] = leaders[item] != 0 ? (u64){load} : 0;"));
    }
    text.close("}");
    text.push("u32 lane_matches = 0;");
    open_items(text);
    let same = list_tests(key_masks, |word| format!("lane_probe{word}[item]"));
    let found = format!("find_list(lists, {}, [&](u32 other) {{ return {same}; }})", folded(&keys));
    text.push(&format!("if (leaders[item] != 0) leaders[item] = {found};"));
    text.push("lane_matches += count_of(lists, leaders[item]);");
    text.close("}");
}

/// Reserves places for the matches of a group, or for the warp's part of them.
fn reserve_group(text: &mut Text, control: &str, capacity: &str) {
    text.push("u32 mine = group_matches;");
    text.open("if (turns.is_shared)");
    text.push("mine = 0;");
    open_items(text);
    text.push("const u32 count = count_of(lists, leaders[item]);");
    text.push("const MatchRange range = range_of_warp(turns, warp_matches(count).total);");
    text.push("mine += range.end - range.begin;");
    text.close("}");
    text.close("}");
    text.push("u64 places = 0;");
    text.push(&format!("if (lane == 0) places = atomicAdd(&{control}[WJ_CONTROL_ROWS], (u64)mine);"));
    text.push("places = __shfl_sync(0xffffffffu, places, 0);");
    text.push(&format!("if (places + mine > {capacity}) continue;"));
}

/// Opens the loop over the warp's matches, 32 in a turn.
fn list_turns(text: &mut Text, key_words: usize) {
    text.open("for (u32 turn = 0; turn < range.end - range.begin + shift; turn += 32)");
    text.push("bool matched = turn + lane >= shift && turn + lane - shift < range.end - range.begin;");
    text.push("const u32 number = matched ? range.begin + turn + lane - shift : range.begin;");
    text.open("if (move_source(source, pairs, range.begin + turn - shift, number))");
    text.push("begin = __shfl_sync(0xffffffffu, lane_begin - (pairs.inclusive - pairs.count), source.lane);");
    for word in 0..key_words {
        text.push(&format!("probe{word} = __shfl_sync(0xffffffffu, lane_probe{word}[item], source.lane);"));
    }
    text.close("}");
    text.push("const u32 row = unit.probe_first + group * 32 * items + item * 32 + source.lane;");
    text.push("const u32 match = matched ? lists.order[begin + number] : 0;");
}

/// Finds the first matches of some probe rows a thread, and opens the loops over rounds of matches and over the rows. Where
/// matches are only written, all of them get their places here.
fn chain_rounds(text: &mut Text, look_up: &MatchLookUp) {
    let MatchLookUp { form, key_masks, output, .. } = look_up;
    find_chains(text, look_up);
    if let Some([control, capacity]) = output {
        text.push("bool fits = true;");
        text.push(&format!("u64 places = reserve_matches(&{control}[WJ_CONTROL_ROWS], {capacity}, matches, fits);"));
        text.push("if (!fits) continue;");
    }
    // A row matches at most `capacity` times.
    text.open("for (u32 turn = 0; turn <= chains.capacity; ++turn)");
    text.push(
        "if (turn % 256 == 255) is_over = is_aborted(match_control, match_cancel, turn / 256, WJ_MATCH_CANCEL_TURNS);",
    );
    text.push("if (is_over) break;");
    text.push("u32 later = 0;");
    if output.is_some() {
        text.push("u32 ranks[items];");
        text.push("const u64 round_places = places;");
        text.push("places += rank_matches(matches, ranks);");
    }
    open_items(text);
    text.push("const u32 row = row_first + item * 32;");
    text.push("const u32 match = (matches[item] & 0xffff) - 1;");
    for word in 0..key_masks.len() {
        text.push(&format!("const u64 probe{word} = probe{word}s[item];"));
    }
    // Advances before the row is used up: nothing below needs the entry.
    text.push("const bool has_match = matches[item] != 0;");
    let probe = |word: usize| format!("probe{word}");
    let next = match (form, output) {
        (MatchForm::Semi, _) => "0".into(),
        (_, Some(_)) => found("later_matches", "matches[item]", "row", key_masks, probe),
        (_, None) => found("first_match", "chains.next[match]", "row", key_masks, probe),
    };
    text.push(&format!("if (has_match) matches[item] = {next};"));
    text.push("later |= matches[item];");
    text.push("bool matched = has_match;");
    if output.is_some() {
        text.push("const u64 place = round_places + ranks[item];");
    }
}

/// Opens the loop over probe rows, some a thread, and finds their first matches.
fn find_chains(text: &mut Text, look_up: &MatchLookUp) {
    let MatchLookUp { form, key_masks, items, probe_keys, output } = look_up;
    text.push(&format!("constexpr u32 items = {items};"));
    text.push("const u32 warp_first = (threadIdx.x & ~31u) * items;");
    text.open("for (u32 first = warp_first; first < unit.probe_rows && !is_over; first += blockDim.x * items)");
    text.push("const u32 row_first = unit.probe_first + first + (threadIdx.x & 31);");
    text.push("u32 matches[items];");
    for word in 0..key_masks.len() {
        text.push(&format!("u64 probe{word}s[items];"));
    }
    open_items(text);
    text.push("const bool inside = first + item * 32 + (threadIdx.x & 31) < unit.probe_rows;");
    let mut keys = vec![];
    for (word, (mask, field)) in key_masks.iter().zip(probe_keys).enumerate() {
        text.push(&format!("probe{word}s[item] = inside ? (u64){field}[row_first + item * 32] : 0;"));
        keys.push(format!("(probe{word}s[item] & {mask:#x}ULL)"));
    }
    text.push("matches[item] = inside;");
    text.close("}");
    let (row, probe) = ("row_first + item * 32", |word: usize| format!("probe{word}s[item]"));
    let find = match (form, output) {
        (MatchForm::Semi, Some(_)) => {
            let first = found("first_match", "matches[item]", row, key_masks, probe);
            format!("matches[item] = {first}; if (matches[item] != 0) matches[item] |= 1u << 16;")
        }
        (_, Some(_)) => format!("matches[item] = {};", found("count_matches", "matches[item]", row, key_masks, probe)),
        (_, None) => format!("matches[item] = {};", found("first_match", "matches[item]", row, key_masks, probe)),
    };
    let head = format!("if (matches[item] != 0) matches[item] = heads[chain_of(chains, {})];", folded(&keys));
    for statement in [head, find] {
        open_items(text);
        text.push(&statement);
        text.close("}");
    }
}

/// A call of `function` with what accepts matches of the probe row `row`, whose key words `probe` names.
fn found(function: &str, entry: &str, row: &str, key_masks: &[u64], probe: impl Fn(usize) -> String) -> String {
    let keys: String = (0..key_masks.len()).map(|word| format!(", {}", probe(word))).collect();
    format!("{function}(chains, {entry}, [&](u32 other) {{ return accepts(other, {row}{keys}); }})")
}

/// One word of the key words, for choosing a chain.
fn folded(words: &[String]) -> String {
    let (first, rest) = words.split_first().expect("a key has a word");
    rest.iter().fold(first.clone(), |folded, word| format!("fold_words({folded}, {word})"))
}

/// Opens the loop over rows of a thread.
fn open_items(text: &mut Text) {
    text.push("WJ_UNROLL");
    text.open("for (u32 item = 0; item < items; ++item)");
}
