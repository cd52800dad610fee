//! Loops over the matches of two partitioned relations as instructions.

use warpjoin_kernels::interpret::{Operation as Do, match_list};

use super::body::Open;
use super::builder::{Builder, Made, Matching, Unknown};
use super::operand::{ListEntry, Next, Operand, ProgramKind, Step};
use crate::program::{Kernel, MatchLookUp, MatchUnits, Variable};
use crate::shapes::MatchForm;
use crate::value::CType;

impl<'k> Builder<'k> {
    /// Opens the loop over work items.
    pub(super) fn match_units(&mut self, units: &'k MatchUnits, open: &mut Vec<Open>) {
        self.kind = ProgramKind::Matches;
        let MatchUnits { key_masks, capacity, heads_bits, bits, build_offsets, probe_offsets, .. } = units;
        let MatchUnits { items, chunk_rows, control, cancel, .. } = units;
        self.match_list = vec![ListEntry::Number(0); match_list::HEAD];
        self.match_list[match_list::KEY_WORDS] = ListEntry::Number(key_masks.len() as u16);
        for (place, field) in [
            (match_list::HEADS_BITS, heads_bits),
            (match_list::CAPACITY, capacity),
            (match_list::BITS, bits),
            (match_list::BUILD_OFFSETS, build_offsets),
            (match_list::PROBE_OFFSETS, probe_offsets),
            (match_list::ITEMS, items),
            (match_list::CHUNK_ROWS, chunk_rows),
            (match_list::CONTROL, control),
            (match_list::CANCEL, cancel),
        ] {
            self.match_list[place] = ListEntry::Operand(self.field(*field));
        }
        self.emit(Do::OpenMatching, Operand::NONE, &[]);
        let begin = self.open_loop();
        let end = self.label();
        let build_first = self.declare(Variable::BuildFirst, CType::U64);
        self.push(Step::new(Do::MatchUnit, build_first, &[]).with(Next::Label(end)));
        for word in &units.shared {
            let field = self.field(word.field);
            let first = Step::new(Do::Address, Operand::NONE, &[field, build_first]).with(Next::Number(word.bytes));
            let first = self.value(first, 1);
            self.set_variable(Variable::BuildWord(word.word), first, CType::U64);
        }
        self.matching = Some(Matching { units, build_first, accepts: vec![], is_collecting: false });
        open.push(Open::Loop { begin, end });
    }

    /// Opens the loops over probe rows and their matches.
    pub(super) fn match_look_up(
        &mut self,
        look_up: &'k MatchLookUp,
        kernel: &'k Kernel,
        open: &mut Vec<Open>,
    ) -> Made<()> {
        let MatchLookUp { form, key_masks, probe_keys, output, items: _ } = look_up;
        let matching = self.matching.take().ok_or(Unknown("matches of nothing"))?;
        let build_first = matching.build_first;
        for (word, (mask, probe)) in key_masks.iter().zip(probe_keys).enumerate() {
            let build = matching.units.shared.iter().find(|shared| shared.word as usize == word);
            let build = build.ok_or(Unknown("a key that is not shared"))?;
            let probe_bits = self.field_type(*probe).element().map_or(0, CType::bits);
            let (build_words, probe_words, mask) = (self.field(build.field), self.field(*probe), self.constant(*mask));
            self.match_list.extend([build.bytes, probe_bits / 8].map(|bytes| ListEntry::Number(bytes as u16)));
            self.match_list.extend([build_words, probe_words, mask].map(ListEntry::Operand));
        }
        // Over probe rows, a row a lane.
        let begin = self.open_loop();
        let end = self.label();
        let words = self.lanes(key_masks.len() as u16);
        let row = self.declare(Variable::Row, CType::U64);
        let step = Step::new(Do::ProbeRow, words, &[build_first, Operand::NONE, Operand::NONE, row]);
        self.push(step.with(Next::Label(end)));
        for word in 0..key_masks.len() as u32 {
            let operand = (0..word).fold(words, |operand, _| operand.high());
            self.set_variable(Variable::ProbeWord(word), operand, CType::U64);
        }
        open.push(Open::Loop { begin, end });
        // Over matches.
        let begin = self.open_loop();
        let end = self.label();
        let place = self.declare(Variable::MatchPlace, CType::U64);
        let alive = self.declare(Variable::Alive, CType::Bool);
        let step = Step::new(Do::NextMatch, place, &[words, Operand::NONE, Operand::NONE, alive]);
        self.push(step.with(Next::Label(end)));
        for item in &matching.accepts {
            self.item(item, kernel, &mut vec![])?;
        }
        let matched = self.declare(Variable::Matched, CType::Bool);
        self.emit(Do::Move, matched, &[alive]);
        if *form == MatchForm::Semi {
            self.emit(Do::EndMatches, Operand::NONE, &[matched]);
        }
        if let Some([control, capacity]) = output {
            let [control, capacity] = [control, capacity].map(|&field| self.field(field));
            let wanted = self.constant(u64::MAX);
            let place = self.declare(Variable::Place, CType::U64);
            self.emit(Do::Reserve, place, &[control, matched, capacity, wanted]);
            self.forget();
        }
        open.push(Open::Loop { begin, end });
        // The rows of a thread: it has one.
        open.push(Open::Nothing);
        Ok(())
    }
}
