//! A probe: key, lookup, matches, residual filter.

use arrow::datatypes::DataType;
use warpjoin_columns::Result;

use super::keys::probe_words;
use crate::bind::{Binder, Cell, Environment, Payload, PayloadAccess, Value, hoist_word, key_word};
use crate::expr::evaluate;
use crate::program::{
    Binding, Code, Declaration, Field, Find, First, Function, Item, JoinPart, MatchLoop, Op, Slices, Statement, Type,
    Variable,
};
use crate::shapes::{
    DirectSlots, FilterTest, JoinShape, PayloadForm, ProbeKey, ProbeKind, ProbeStep, Slots, StoredKey, WordSlots,
};
use crate::value::{CType, Kind};

/// Binds probe step number `join`; returns the columns after it.
pub(crate) fn probe(b: &mut Binder, environment: &Environment, step: &ProbeStep, join: usize) -> Result<Environment> {
    let shape = &step.shape;
    let alive = b.alive;
    let number = join as u32;
    if step.kind.keeps_unmatched() {
        // Narrows to rows with a match, while `alive` stays.
        b.alive = Variable::Seek(number);
        let initial = b.truth_of(alive);
        b.all(Statement::Declare(Declaration { variable: b.alive, c_type: CType::Bool, initial }));
    }
    let (key, packed) = match &step.key {
        ProbeKey::Exprs(keys) => {
            let words = probe_words(b, environment, shape, keys, step.null_equals_null)?;
            let word = key_word(b, &shape.packing, &words);
            (hoist_word(b, word), words)
        }
        ProbeKey::Stored(stored) => {
            let (key, packed) = load_stored(b, stored);
            if step.kind.keeps_unmatched() {
                b.narrow(b.binary(key, Op::NotEqual, b.whole(0)));
            }
            (key, packed)
        }
    };
    if let Some(test) = step.filter.filter(|test| *test != FilterTest::Table) {
        may_match(b, test, key, join);
        return without_payload(b, environment, step, join);
    }
    let found = find(b, shape, key, join);
    let is_unique = shape.unique;
    let slices = if is_unique { None } else { b.slices.take_if(|slices| slices.shares(step.kind)) };
    let is_shared = slices.is_some();
    let row = if is_unique { found } else { open_matches(b, step.kind, alive, join, slices) };
    let matched = (step.kind == ProbeKind::Outer).then(|| b.truth_of(b.alive));
    access(b, shape, row, matched, join);
    if shape.is_hashed() {
        check_key(b, shape, &packed, join)?;
    }
    // Rows that go on are those of which the residual saw a match; what it loaded is there for the rest.
    let is_narrowing = step.kind == ProbeKind::Matches || (step.kind == ProbeKind::Semi && is_unique);
    if let Some(residual) = &step.residual {
        let seen = if is_narrowing { environment.clone() } else { environment.apart() };
        let both = both_sides(&seen, step, join)?;
        let mut conditions = vec![];
        residual.add_conjuncts(&mut conditions);
        for condition in conditions {
            let value = evaluate(b, condition, &both)?;
            b.narrow(b.is_true(&value));
        }
        if is_narrowing {
            return output(step, &both);
        }
    }
    if is_narrowing {
        return output(step, &both_sides(environment, step, join)?);
    }
    let mut matched = b.alive;
    if !is_unique {
        let done = Variable::Done(number);
        b.push(Statement::Assign(done, b.truth(true)));
        if step.kind == ProbeKind::Outer {
            let in_turn = Variable::AliveInTurn(number);
            let [index, count] = [Variable::MatchIndex(number), Variable::MatchCount(number)];
            let is_last = b.binary(b.variable(index, CType::U64), Op::GreaterOrEqual, b.variable(count, CType::U64));
            let goes_on = b.in_parens(b.truth_of(matched), Op::Or, is_last);
            b.all(Statement::Assign(in_turn, b.binary(b.truth_of(in_turn), Op::And, goes_on)));
            b.alive = in_turn;
            return output(step, &both_sides(environment, step, join)?);
        }
        b.close();
        matched = done;
        if is_shared {
            b.flush();
            b.all(Statement::EndSearch { found: done, alive });
        }
    }
    b.flush();
    b.alive = alive;
    let has_match = b.truth_of(matched);
    let goes_on = match step.kind {
        ProbeKind::Semi => Some(has_match),
        ProbeKind::Anti => Some(b.not(has_match)),
        ProbeKind::Matches | ProbeKind::Mark | ProbeKind::Outer => None,
    };
    if let Some(goes_on) = goes_on {
        b.all(Statement::Assign(alive, b.binary(b.truth_of(alive), Op::And, goes_on)));
    }
    let mark = (step.kind == ProbeKind::Mark).then(|| Value::new(has_match, Kind::Bool, DataType::Boolean));
    output(step, &both_sides(environment, step, join)?.with(mark.map(Cell::Ready)))
}

/// Opens the loop over the matches of the row that was found; `b.alive` then says whether there is one in this
/// turn. Of an outer join a row without a match has a turn too, the last one. Returns the build row.
fn open_matches(b: &mut Binder, kind: ProbeKind, alive: Variable, join: usize, slices: Option<Slices>) -> Code {
    let row_list = b.params.once(Type::Input(CType::U32), Binding::Join(join, JoinPart::RowList));
    if !kind.is_existence() {
        // The rest of the pipeline is within the loop.
        b.is_block_uniform = false;
    }
    // A row may have very many matches: the loop ends where the launch is in vain, that of outer joins among them too.
    let (control, cancel) = (b.params.control(), b.params.cancel());
    if !b.has_lists {
        b.has_lists = true;
        b.first(First::MatchTurns);
    }
    let number = join as u32;
    let stops_when_full = !kind.is_existence() && b.wanted.is_some();
    let sought = b.alive;
    let matches = MatchLoop {
        number,
        kind,
        alive,
        sought,
        stops_when_full,
        row_list,
        control,
        cancel,
        reserves: false,
        slice_bits: slices.map(|slices| slices.bits),
    };
    b.item(Item::OpenMatches(matches));
    b.alive = if kind == ProbeKind::Outer { Variable::MatchInTurn(number) } else { Variable::AliveInTurn(number) };
    b.variable(Variable::BuildRow(number), CType::U64)
}

/// The columns of both sides of a match.
pub(crate) fn both_sides(environment: &Environment, step: &ProbeStep, join: usize) -> Result<Environment> {
    let build_columns = step.payload_of.iter().map(|&payload| match payload {
        Some(column) => Ok(Cell::Payload { join, column }),
        None => Ok(Cell::Absent),
    });
    let probe_columns = (0..environment.len()).map(|index| environment.cell(index));
    Ok(Environment::new(build_columns.chain(probe_columns).collect::<Result<_>>()?))
}

/// The columns behind a probe of whose match nothing is read.
pub(crate) fn without_payload(
    b: &mut Binder,
    environment: &Environment,
    step: &ProbeStep,
    join: usize,
) -> Result<Environment> {
    b.payloads.push(Payload { access: PayloadAccess::Unpacked(vec![]), matched: None });
    output(step, &both_sides(environment, step, join)?)
}

/// The columns that go on.
pub(crate) fn output(step: &ProbeStep, both: &Environment) -> Result<Environment> {
    let cells = step.output.iter().map(|&index| both.cell(index)).collect::<Result<_>>()?;
    Ok(Environment::new(cells))
}

fn load_stored(b: &mut Binder, stored: &StoredKey) -> (Code, Vec<Code>) {
    let mut load = |column: usize| {
        let field = b.params.once(Type::Input(CType::U64), Binding::SourceValues(column));
        let word = b.load(b.field(field), b.variable(Variable::Row, CType::U64));
        hoist_word(b, word)
    };
    let key = load(stored.word);
    let packed = stored.packed.iter().map(|&column| load(column)).collect();
    (key, packed)
}

/// Narrows to rows whose key a runtime filter does not rule out.
fn may_match(b: &mut Binder, test: FilterTest, key: Code, join: usize) {
    let number = join as u32;
    if test.has_bounds() {
        let bounds = b.params.once(Type::Input(CType::U64), Binding::Join(join, JoinPart::Bounds));
        b.first(First::Bounds { number, bounds });
        let [lowest, highest] =
            [Variable::Lowest(number), Variable::Highest(number)].map(|bound| b.variable(bound, CType::U64));
        let is_above = b.binary(key, Op::GreaterOrEqual, lowest);
        b.narrow(b.binary(is_above, Op::And, b.binary(key, Op::LessOrEqual, highest)));
    }
    match test {
        FilterTest::Table | FilterTest::Bounds => {}
        FilterTest::Bitmap { .. } => {
            let words = b.params.once(Type::Input(CType::U32), Binding::Join(join, JoinPart::Slots));
            b.narrow(b.call(Function::IsInBitmap, &[b.field(words), key]));
        }
        FilterTest::Bloom { .. } => {
            let words = b.params.once(Type::Input(CType::U64), Binding::Join(join, JoinPart::Slots));
            let count = windows_of(b, join);
            b.narrow(b.call(Function::MayBeInBloom, &[b.field(words), b.field(count), key]));
        }
    }
}

/// Looks the key up; returns the variable with what was found.
fn find(b: &mut Binder, shape: &JoinShape, key: Code, join: usize) -> Code {
    let number = join as u32;
    let slots = slots_of(b, shape, join);
    let windows = hash_windows(b, shape, join);
    b.item(Item::Find(Find { number, alive: b.alive, key, form: shape.slots, slots, windows }));
    b.variable(Variable::Match(number), CType::U64)
}

/// The table's slots as a parameter.
pub(crate) fn slots_of(b: &mut Binder, shape: &JoinShape, join: usize) -> Field {
    let of_type = match shape.slots {
        Slots::Direct(DirectSlots { bytes, .. }) | Slots::Words(WordSlots { bytes, .. }) => {
            Type::Input(CType::unsigned(bytes))
        }
        Slots::Bits => Type::Input(CType::U32),
        Slots::Pairs { .. } => Type::Slots,
    };
    b.params.once(of_type, Binding::Join(join, JoinPart::Slots))
}

/// How many slots, or windows of slots, there are.
fn windows_of(b: &mut Binder, join: usize) -> Field {
    b.params.once(Type::Value(CType::U64), Binding::Join(join, JoinPart::Windows))
}

/// The number of a hash table's windows as a parameter; `None`: the key is the place.
pub(crate) fn hash_windows(b: &mut Binder, shape: &JoinShape, join: usize) -> Option<Field> {
    match shape.slots {
        Slots::Direct(_) | Slots::Bits => None,
        Slots::Words(_) | Slots::Pairs { .. } => Some(windows_of(b, join)),
    }
}

/// Registers the payload of what was found; null where the variable `matched` is false.
pub(crate) fn access(b: &mut Binder, shape: &JoinShape, row: Code, matched: Option<Code>, join: usize) {
    let access = match &shape.payload {
        PayloadForm::Packed(packing) => {
            let word = if shape.finds_payload() || packing.words() == 0 { row } else { payload_word(b, row, join) };
            PayloadAccess::Unpacked(packing.unpack(b, &[word]))
        }
        PayloadForm::Columns(columns) => PayloadAccess::Columns { row, columns: columns.clone() },
    };
    b.payloads.push(Payload { access, matched });
}

/// The payload word of a build row.
fn payload_word(b: &mut Binder, row: Code, join: usize) -> Code {
    let words = b.params.once(Type::Input(CType::U64), Binding::Join(join, JoinPart::PayloadWords));
    let word = b.select(b.truth_of(b.alive), b.load(b.field(words), row), b.whole(0));
    let variable = Variable::Payload(join as u32);
    b.all(Statement::Constant(variable, CType::U64, word));
    b.variable(variable, CType::U64)
}

/// Keeps matches whose packed key words, not only their hashes, are equal.
fn check_key(b: &mut Binder, shape: &JoinShape, packed: &[Code], join: usize) -> Result<()> {
    let PayloadAccess::Columns { row, columns } = b.payloads[join].access.clone() else {
        return Err(warpjoin_columns::Error::internal("a hashed table without key words"));
    };
    let first = columns.len() - shape.packing.words();
    let mut tests = vec![];
    for (index, &word) in packed.iter().enumerate() {
        let part = Binding::Join(join, JoinPart::PayloadValues(first + index));
        let field = b.params.once(Type::Input(CType::U64), part);
        tests.push(b.binary(b.load(b.field(field), row), Op::Equal, word));
    }
    let is_same =
        b.chain(Op::And, tests).ok_or_else(|| warpjoin_columns::Error::internal("a hashed key without words"))?;
    b.narrow(is_same);
    Ok(())
}
