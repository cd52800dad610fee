//! Probes as instructions: lookups, and the loop over the matches of a row.

use warpjoin_kernels::interpret::Operation as Do;

use super::body::Open;
use super::builder::{Builder, Made, Unknown};
use super::operand::{Next, Operand, Step};
use crate::program::{Find, MatchLoop, Variable};
use crate::shapes::{ProbeKind, Slots, WordSlots};
use crate::value::CType;

impl Builder<'_> {
    pub(super) fn find(&mut self, find: &Find) -> Made<()> {
        let Find { number, alive, key, form, slots, windows } = find;
        let key = self.code_as(*key, CType::U64)?;
        let alive = self.variable(*alive)?.operand;
        let slots = self.field(*slots);
        let windows = match windows {
            Some(windows) => self.field(*windows),
            None => self.constant(0),
        };
        let found = self.declare(Variable::Match(*number), CType::U64);
        if *form == Slots::Bits {
            let zero = self.constant(0);
            self.emit(Do::Move, found, &[zero]);
            let end = self.push_scope(Do::Push, alive)?;
            let is_there = self.word(Do::IsInBitmap, &[slots, key]);
            self.emit(Do::MoveIf, alive, &[is_there]);
            self.pop_scope(end);
            self.forget();
            return Ok(());
        }
        let (operation, form) = lookup(*form)?;
        self.push(Step::new(operation, found, &[alive, key, slots, windows]).with(Next::Number(form)));
        self.forget();
        Ok(())
    }

    /// Opens the loop over the matches of a row.
    pub(super) fn open_matches(&mut self, matches: &MatchLoop) -> Made<Open> {
        let MatchLoop { number, kind, alive, sought, stops_when_full, row_list, control, cancel, reserves, slice_bits } =
            matches;
        let found = self.variable(Variable::Match(*number))?.operand;
        let sought = self.variable(*sought)?.operand;
        let alive = self.variable(*alive)?.operand;
        let zero = self.constant(0);
        let (low, shift) = (self.constant(0xffff_ffff), self.constant(32));
        let count = self.word(Do::And, &[found, low]);
        let chosen = self.word(Do::Select, &[sought, count, zero]);
        let count = self.declare(Variable::MatchCount(*number), CType::U64);
        self.emit(Do::Move, count, &[chosen]);
        let index = self.declare(Variable::MatchIndex(*number), CType::U64);
        let (first, step) = match slice_bits {
            Some(_) => (self.variable(Variable::Slice)?.operand, self.variable(Variable::Slices)?.operand),
            None => (zero, self.constant(1)),
        };
        self.emit(Do::Move, index, &[first]);
        if *reserves {
            let own = match slice_bits {
                Some(bits) => {
                    let (bits, one) = (self.field(*bits), self.constant(1));
                    let sum = self.word(Do::Add, &[count, step]);
                    let sum = self.word(Do::Subtract, &[sum, one]);
                    let sum = self.word(Do::Subtract, &[sum, first]);
                    self.word(Do::ShiftRightUnsigned, &[sum, bits])
                }
                None => count,
            };
            let next = self.declare(Variable::NextPlace(*number), CType::U64);
            let control = self.field(*control);
            self.emit(Do::ReserveMatches, next, &[control, own]);
        }
        let done = (*kind != ProbeKind::Matches).then(|| self.declare(Variable::Done(*number), CType::Bool));
        if let Some(done) = done {
            self.emit(Do::Move, done, &[zero]);
        }
        let begin = self.open_loop();
        let is_inside = self.word(Do::LessUnsigned, &[index, count]);
        let mut more = match (kind, done) {
            (ProbeKind::Outer, Some(done)) => {
                let is_last = self.word(Do::Equal, &[index, count]);
                let is_alone = self.word(Do::Not, &[done]);
                let is_alone = self.word(Do::And, &[is_last, is_alone]);
                let more = self.word(Do::Or, &[is_inside, is_alone]);
                self.word(Do::And, &[alive, more])
            }
            (_, Some(done)) => {
                let is_open = self.word(Do::Not, &[done]);
                self.word(Do::And, &[is_inside, is_open])
            }
            (_, None) => is_inside,
        };
        if *stops_when_full {
            let full = self.lanes(1);
            self.emit(Do::IsFull, full, &[]);
            let goes_on = self.word(Do::Not, &[full]);
            more = self.word(Do::And, &[more, goes_on]);
        }
        let end = self.label();
        self.push(Step::new(Do::WhileAny, Operand::NONE, &[more]).with(Next::Label(end)));
        let (control, cancel) = (self.field(*control), self.field(*cancel));
        self.emit(Do::MatchTurn, Operand::NONE, &[control, cancel]);
        let in_turn = self.declare(Variable::AliveInTurn(*number), CType::Bool);
        self.emit(Do::Move, in_turn, &[more]);
        let matched = if *kind == ProbeKind::Outer {
            let is_match = self.word(Do::And, &[more, is_inside]);
            let matched = self.declare(Variable::MatchInTurn(*number), CType::Bool);
            self.emit(Do::Move, matched, &[is_match]);
            matched
        } else {
            in_turn
        };
        let row_list = self.field(*row_list);
        let scope = self.push_scope(Do::Push, matched)?;
        let first = self.word(Do::ShiftRightUnsigned, &[found, shift]);
        let place = self.word(Do::Add, &[first, index]);
        let row = self.word(Do::Load32, &[row_list, place]);
        self.pop_scope(scope);
        // Rows that no lane has looked up are those of no match.
        let row = self.word(Do::Select, &[matched, row, zero]);
        self.set_variable(Variable::BuildRow(*number), row, CType::U64);
        Ok(Open::Matches { begin, end, index, step })
    }
}

/// How keys are looked up, and the number that goes with it.
pub(super) fn lookup(form: Slots) -> Made<(Do, u32)> {
    Ok(match form {
        Slots::Direct(slots) if slots.bytes == 4 => (Do::Find4, 0),
        Slots::Direct(_) => (Do::Find8, 0),
        Slots::Words(WordSlots { bytes: 4, key_bits }) => (Do::FindWord4, key_bits),
        Slots::Words(WordSlots { key_bits, .. }) => (Do::FindWord8, key_bits),
        Slots::Pairs { lanes } => (Do::FindPair, lanes),
        Slots::Bits => return Err(Unknown("a bitmap that rows are looked up in together")),
    })
}
