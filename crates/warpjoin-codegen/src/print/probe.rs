//! Text of probes.

use super::code::text_of;
use super::text::Text;
use crate::program::{Find, MatchLoop, Nodes, Variable};
use crate::shapes::{ProbeKind, Slots, WordSlots};

/// Looks a key up.
pub(super) fn find(text: &mut Text, nodes: &Nodes, find: &Find) {
    text.push(&format!("u64 {} = 0;", Variable::Match(find.number)));
    look_up(text, nodes, find);
}

/// The same with a variable that is declared.
pub(super) fn find_declared(text: &mut Text, nodes: &Nodes, find: &Find) {
    text.push(&format!("{} = 0;", Variable::Match(find.number)));
    look_up(text, nodes, find);
}

fn look_up(text: &mut Text, nodes: &Nodes, find: &Find) {
    let Find { number, alive, key, form, slots, windows } = find;
    let (found, key) = (Variable::Match(*number), text_of(nodes, *key));
    let windows = windows.map(|windows| windows.to_string()).unwrap_or_default();
    match *form {
        Slots::Direct(_) => {
            text.push(&format!("if ({alive}) {found} = {slots}[{key} - 1];"));
            text.push(&format!("{alive} = {found} != 0;"));
            text.push(&format!("{found} -= 1;"));
        }
        Slots::Bits => text.push(&format!("{alive} = {alive} && is_in_bitmap({slots}, {key});")),
        Slots::Words(WordSlots { bytes, key_bits }) => {
            let home = format!("home{number}");
            text.push(&format!("const u32 {home} = word_home<u{}>({key}, {windows}, {key_bits});", bytes * 8));
            text.push(&format!(
                "{alive} = {alive} && find_word({slots}, {windows}, {key}, {key_bits}, {home}, {slots}[{home}], {found});"
            ));
        }
        Slots::Pairs { lanes } => text
            .push(&format!("{alive} = find<{lanes}>({slots}, {windows}, {key}, hash_key({key}), {alive}, {found});")),
    }
}

/// Opens the loop over the matches of a row.
pub(super) fn open_matches(text: &mut Text, matches: &MatchLoop) {
    let MatchLoop { number, kind, alive, sought, stops_when_full, row_list, control, cancel, reserves, slice_bits } =
        matches;
    let [index, count, done, found, in_turn, match_in_turn, row] = [
        Variable::MatchIndex(*number),
        Variable::MatchCount(*number),
        Variable::Done(*number),
        Variable::Match(*number),
        Variable::AliveInTurn(*number),
        Variable::MatchInTurn(*number),
        Variable::BuildRow(*number),
    ];
    text.push(&format!("const u64 {count} = {sought} ? (u32){found} : 0;"));
    if *kind != ProbeKind::Matches {
        text.push(&format!("bool {done} = false;"));
    }
    if *reserves {
        let next = Variable::NextPlace(*number);
        let own = match slice_bits {
            Some(bits) => format!("({count} + {} - 1 - {}) >> {bits}", Variable::Slices, Variable::Slice),
            None => count.to_string(),
        };
        text.push(&format!("u64 {next} = reserve_matches(&{control}[WJ_CONTROL_ROWS], {own});"));
    }
    let more = match kind {
        ProbeKind::Matches => format!("{index} < {count}"),
        ProbeKind::Semi | ProbeKind::Anti | ProbeKind::Mark => format!("{index} < {count} && !{done}"),
        ProbeKind::Outer => format!("{alive} && ({index} < {count} || ({index} == {count} && !{done}))"),
    };
    let more = if *stops_when_full { format!("!is_full && ({more})") } else { more };
    let (begin, next) = match slice_bits {
        Some(_) => (Variable::Slice.to_string(), format!("{index} += {}", Variable::Slices)),
        None => ("0".to_string(), format!("++{index}")),
    };
    text.open(&format!("for (u64 {index} = {begin}; !is_vain && __any_sync(0xffffffffu, {more}); {next})"));
    text.open("if (++match_turns % WJ_MATCH_TURNS == 0)");
    text.push(&format!(
        "is_vain = is_aborted({control}, {cancel}, match_turns / WJ_MATCH_TURNS, WJ_MATCH_CANCEL_TURNS);"
    ));
    text.close("}");
    text.push(&format!("bool {in_turn} = {more};"));
    let matched = if *kind == ProbeKind::Outer { match_in_turn } else { in_turn };
    if *kind == ProbeKind::Outer {
        text.push(&format!("bool {matched} = {in_turn} && {index} < {count};"));
    }
    text.push(&format!("const u64 {row} = {matched} ? {row_list}[({found} >> 32) + {index}] : 0;"));
}
