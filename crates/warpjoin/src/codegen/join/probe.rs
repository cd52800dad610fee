//! Generated code of a probe: key, lookup, matches, residual filter.

use arrow::datatypes::DataType;

use super::keys::probe_words;
use crate::Result;
use crate::codegen::emit::{
    Binding, Cell, Emitter, Environment, JoinPart, Payload, PayloadAccess, hoist_word, key_word,
};
use crate::codegen::expr::evaluate;
use crate::codegen::shapes::{
    DirectSlots, FilterTest, JoinShape, PayloadForm, ProbeKey, ProbeKind, ProbeStep, Slots, StoredKey, WordSlots,
};
use crate::codegen::value::{Kind, Value};

/// Emits probe step number `join`; returns the columns after it.
pub(in crate::codegen) fn probe(
    emitter: &mut Emitter,
    environment: &Environment,
    step: &ProbeStep,
    join: usize,
) -> Result<Environment> {
    let shape = &step.shape;
    let alive = emitter.alive.clone();
    if step.kind.keeps_unmatched() {
        // Narrows to rows with a match, while `alive` stays.
        emitter.alive = format!("seek{join}");
        emitter.line(&format!("bool seek{join} = {alive};"));
    }
    let (key, packed) = match &step.key {
        ProbeKey::Exprs(keys) => {
            let words = probe_words(emitter, environment, shape, keys, step.null_equals_null)?;
            let word = key_word(emitter, &shape.packing, &words);
            (hoist_word(emitter, &word), words)
        }
        ProbeKey::Stored(stored) => {
            let (key, packed) = load_stored(emitter, stored);
            if step.kind.keeps_unmatched() {
                emitter.narrow(&format!("{key} != 0"));
            }
            (key, packed)
        }
    };
    if let Some(test) = step.filter.filter(|test| *test != FilterTest::Table) {
        may_match(emitter, test, &key, join);
        emitter.payloads.push(Payload { access: PayloadAccess::Unpacked(vec![]), matched: None });
        return output(step, &both_sides(environment, step, join)?);
    }
    let found = find(emitter, shape, &key, join);
    let lists = if shape.unique { None } else { Some(open_matches(emitter, step.kind, &alive, &found, join)) };
    let row = lists.as_ref().map_or(found, |lists| lists.row.clone());
    let matched = (step.kind == ProbeKind::Outer).then(|| emitter.alive.clone());
    access(emitter, shape, row, matched, join);
    if shape.is_hashed() {
        check_key(emitter, shape, &packed, join)?;
    }
    // Rows that go on are those of which the residual saw a match; what it loaded is there for the rest.
    let is_narrowing = step.kind == ProbeKind::Matches || (step.kind == ProbeKind::Semi && lists.is_none());
    if let Some(residual) = &step.residual {
        let seen = if is_narrowing { environment.clone() } else { environment.apart() };
        let both = both_sides(&seen, step, join)?;
        let mut conditions = vec![];
        residual.add_conjuncts(&mut conditions);
        for condition in conditions {
            let value = evaluate(emitter, condition, &both)?;
            emitter.narrow(&value.is_true());
        }
        if is_narrowing {
            return output(step, &both);
        }
    }
    if is_narrowing {
        return output(step, &both_sides(environment, step, join)?);
    }
    let mut matched = emitter.alive.clone();
    if let Some(lists) = lists {
        emitter.statement(&format!("done{join} = true;"));
        if step.kind == ProbeKind::Outer {
            emitter.line(&format!("{0} = {0} && ({matched} || {1} >= count{join});", lists.alive, lists.index));
            emitter.alive = lists.alive;
            return output(step, &both_sides(environment, step, join)?);
        }
        emitter.close();
        matched = format!("done{join}");
    }
    emitter.flush();
    emitter.alive = alive.clone();
    match step.kind {
        ProbeKind::Semi => emitter.line(&format!("{alive} = {alive} && {matched};")),
        ProbeKind::Anti => emitter.line(&format!("{alive} = {alive} && !{matched};")),
        ProbeKind::Matches | ProbeKind::Mark | ProbeKind::Outer => {}
    }
    let mark = (step.kind == ProbeKind::Mark).then(|| Value::new(matched, Kind::Bool, DataType::Boolean));
    output(step, &both_sides(environment, step, join)?.with(mark.map(Cell::Ready)))
}

/// The loop over the matches of a row.
struct Lists {
    /// Says whether the row goes on in this turn.
    alive: String,
    index: String,
    /// The build row.
    row: String,
}

/// Opens the loop over the matches of the row that was found; `emitter.alive` then says whether there is one in this
/// turn. Of an outer join a row without a match has a turn too, the last one.
fn open_matches(emitter: &mut Emitter, kind: ProbeKind, alive: &str, found: &str, join: usize) -> Lists {
    let row_list = emitter.params.once("const u32*", Binding::Join(join, JoinPart::RowList));
    let (index, count, done) = (format!("index{join}"), format!("count{join}"), format!("done{join}"));
    emitter.line(&format!("const u64 {count} = {} ? (u32){found} : 0;", emitter.alive.clone()));
    if kind != ProbeKind::Matches {
        emitter.line(&format!("bool {done} = false;"));
    }
    let more = match kind {
        ProbeKind::Matches => format!("{index} < {count}"),
        ProbeKind::Semi | ProbeKind::Anti | ProbeKind::Mark => format!("{index} < {count} && !{done}"),
        ProbeKind::Outer => format!("{alive} && ({index} < {count} || ({index} == {count} && !{done}))"),
    };
    let more = match kind.is_existence() {
        true => more,
        false => {
            // The rest of the pipeline is within the loop.
            emitter.is_block_uniform = false;
            if emitter.wanted.is_some() { format!("!is_full && ({more})") } else { more }
        }
    };
    // A row may have very many matches: the loop ends where the launch is in vain, that of outer joins among them too.
    let control = emitter.params.once("u64*", Binding::Control);
    if !emitter.has_lists {
        emitter.has_lists = true;
        emitter.first("u32 match_turns = 0;");
        emitter.first("bool is_vain = false;");
    }
    emitter.open(&format!("for (u64 {index} = 0; !is_vain && __any_sync(0xffffffffu, {more}); ++{index})"));
    emitter.line(&format!("if (++match_turns % WJ_MATCH_TURNS == 0) is_vain = is_aborted({control});"));
    let in_turn = format!("alive{join}");
    emitter.line(&format!("bool {in_turn} = {more};"));
    emitter.alive = in_turn.clone();
    if kind == ProbeKind::Outer {
        emitter.alive = format!("match_in_turn{join}");
        emitter.line(&format!("bool match_in_turn{join} = {in_turn} && {index} < {count};"));
    }
    let row = format!("row{join}");
    emitter.line(&format!("const u64 {row} = {} ? {row_list}[({found} >> 32) + {index}] : 0;", emitter.alive.clone()));
    Lists { alive: in_turn, index, row }
}

/// The columns of both sides of a match.
pub(in crate::codegen) fn both_sides(environment: &Environment, step: &ProbeStep, join: usize) -> Result<Environment> {
    let build_columns = step.payload_of.iter().map(|&payload| match payload {
        Some(column) => Ok(Cell::Payload { join, column }),
        None => Ok(Cell::Absent),
    });
    let probe_columns = (0..environment.len()).map(|index| environment.cell(index));
    Ok(Environment::new(build_columns.chain(probe_columns).collect::<Result<_>>()?))
}

/// The columns that go on.
pub(in crate::codegen) fn output(step: &ProbeStep, both: &Environment) -> Result<Environment> {
    let cells = step.output.iter().map(|&index| both.cell(index)).collect::<Result<_>>()?;
    Ok(Environment::new(cells))
}

fn load_stored(emitter: &mut Emitter, stored: &StoredKey) -> (String, Vec<String>) {
    let mut load = |column: usize| {
        let field = emitter.params.once("const u64*", Binding::SourceValues(column));
        hoist_word(emitter, &format!("{field}[row]"))
    };
    let key = load(stored.word);
    let packed = stored.packed.iter().map(|&column| load(column)).collect();
    (key, packed)
}

/// Narrows to rows whose key a runtime filter does not rule out.
fn may_match(emitter: &mut Emitter, test: FilterTest, key: &str, join: usize) {
    if test.has_bounds() {
        let bounds = emitter.params.once("const u64*", Binding::Join(join, JoinPart::Bounds));
        emitter.first(&format!("const u64 lowest{join} = ~{bounds}[0], highest{join} = {bounds}[1];"));
        emitter.narrow(&format!("{key} >= lowest{join} && {key} <= highest{join}"));
    }
    match test {
        FilterTest::Table | FilterTest::Bounds => {}
        FilterTest::Bitmap { .. } => {
            let words = emitter.params.once("const u32*", Binding::Join(join, JoinPart::Slots));
            emitter.narrow(&format!("is_in_bitmap({words}, {key})"));
        }
        FilterTest::Bloom { .. } => {
            let words = emitter.params.once("const u64*", Binding::Join(join, JoinPart::Slots));
            let count = windows_of(emitter, join);
            emitter.narrow(&format!("may_be_in_bloom({words}, {count}, {key})"));
        }
    }
}

/// Looks the key up; returns the variable with what was found.
fn find(emitter: &mut Emitter, shape: &JoinShape, key: &str, join: usize) -> String {
    let found = format!("match{join}");
    let alive = emitter.alive.clone();
    emitter.line(&format!("u64 {found} = 0;"));
    match shape.slots {
        Slots::Direct(_) => {
            let slots = slots_of(emitter, shape, join);
            emitter.line(&format!("if ({alive}) {found} = {slots}[{key} - 1];"));
            emitter.line(&format!("{alive} = {found} != 0;"));
            emitter.line(&format!("{found} -= 1;"));
        }
        Slots::Words(WordSlots { bytes, key_bits }) => {
            let (slots, count) = (slots_of(emitter, shape, join), windows_of(emitter, join));
            let home = format!("home{join}");
            emitter.line(&format!("const u32 {home} = word_home<u{}>({key}, {count}, {key_bits});", bytes * 8));
            emitter.line(&format!(
                "{alive} = {alive} && find_word({slots}, {count}, {key}, {key_bits}, {home}, {slots}[{home}], {found});"
            ));
        }
        Slots::Pairs { lanes } => {
            let (slots, windows) = (slots_of(emitter, shape, join), windows_of(emitter, join));
            emitter.line(&format!(
                "{alive} = find<{lanes}>({slots}, {windows}, {key}, hash_key({key}), {alive}, {found});"
            ));
        }
    }
    found
}

/// The table's slots as a parameter.
pub(in crate::codegen) fn slots_of(emitter: &mut Emitter, shape: &JoinShape, join: usize) -> String {
    let c_type = match shape.slots {
        Slots::Direct(DirectSlots { bytes, .. }) | Slots::Words(WordSlots { bytes, .. }) => {
            format!("const u{}*", bytes * 8)
        }
        Slots::Pairs { .. } => "const Slot*".into(),
    };
    emitter.params.once(&c_type, Binding::Join(join, JoinPart::Slots))
}

/// How many slots, or windows of slots, there are.
pub(in crate::codegen) fn windows_of(emitter: &mut Emitter, join: usize) -> String {
    emitter.params.once("u64", Binding::Join(join, JoinPart::Windows))
}

/// Registers the payload of what was found; null where the variable `matched` is false.
pub(in crate::codegen) fn access(
    emitter: &mut Emitter,
    shape: &JoinShape,
    row: String,
    matched: Option<String>,
    join: usize,
) {
    let access = match &shape.payload {
        PayloadForm::Packed(packing) => {
            let word = if shape.finds_payload() || packing.words() == 0 {
                row
            } else {
                let words = emitter.params.once("const u64*", Binding::Join(join, JoinPart::PayloadWords));
                let name = format!("payload{join}");
                emitter.line(&format!("const u64 {name} = {} ? {words}[{row}] : 0;", emitter.alive.clone()));
                name
            };
            PayloadAccess::Unpacked(packing.unpack(emitter, &[word]))
        }
        PayloadForm::Columns(columns) => PayloadAccess::Columns { row, columns: columns.clone() },
    };
    emitter.payloads.push(Payload { access, matched });
}

/// Keeps matches whose packed key words, not only their hashes, are equal.
fn check_key(emitter: &mut Emitter, shape: &JoinShape, packed: &[String], join: usize) -> Result<()> {
    let PayloadAccess::Columns { row, columns } = emitter.payloads[join].access.clone() else {
        return Err(crate::Error::internal("a hashed table without key words"));
    };
    let first = columns.len() - shape.packing.words();
    let tests: Vec<String> = packed
        .iter()
        .enumerate()
        .map(|(index, word)| {
            let part = Binding::Join(join, JoinPart::PayloadValues(first + index));
            let field = emitter.params.once("const u64*", part);
            format!("{field}[{row}] == {word}")
        })
        .collect();
    emitter.narrow(&tests.join(" && "));
    Ok(())
}
