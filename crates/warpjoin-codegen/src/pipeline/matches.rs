//! A source whose rows are the matches of two partitioned relations (see `join/matches.cuh`).
//!
//! Filters right behind it are part of the match, so that a place in the output is reserved for
//! several matches at once and only where a row comes out.

use warpjoin_columns::Result;

use super::steps::bind_step;
use crate::bind::{Binder, Cell, Environment};
use crate::program::{Binding, Code, Field, Item, MatchLookUp, MatchPart, MatchUnits, Op, SharedWord, Type, Variable};
use crate::shapes::{MatchForm, RowShape, Step};
use crate::value::CType;

/// Most threads of a block that joins. With three blocks a multiprocessor and six probe rows a thread a join
/// of 2^27 with 2^27 rows took 1.77 ms on an H100; with 2 x 512 and eight 1.95, with 4 x 256 and eight 2.30.
pub(crate) const MATCH_THREADS: u32 = 384;
/// The same with lists, which leave room for one block.
const LISTS_THREADS: u32 = 1024;
/// Blocks that a multiprocessor should hold.
pub(crate) const MATCH_BLOCKS: u32 = 3;
/// Probe rows that a thread looks up together where matches are only written.
const ITEMS: u32 = 6;
/// The same with lists.
const LIST_ITEMS: u32 = 4;
/// Words of 32 bits that the warps of a block share with lists (`ListWords` of `join/matches.cuh`).
const LIST_WORDS: u32 = 32;
/// Bytes of a build row up to which all of it goes to shared memory; of longer rows only the key.
const SHARED_ROW_BYTES_MAX: u32 = 16;

/// Shared bytes of a kernel over matches: by build row of an item, and besides.
pub fn shared_row_bytes(build: &RowShape, form: MatchForm) -> (u32, u32) {
    let bytes = build.word_bytes();
    let words: u32 = (0..bytes.len()).filter(|&word| is_shared(build, word)).map(|word| bytes[word]).sum();
    match form {
        // The link of a chain.
        MatchForm::Chains | MatchForm::Semi => (words + 2, 0),
        // A count, and two places; what warps share.
        MatchForm::Lists => (words + 8, LIST_WORDS * 4),
    }
}

/// Most threads of a block.
pub fn match_threads(form: MatchForm) -> u32 {
    if form == MatchForm::Lists { LISTS_THREADS } else { MATCH_THREADS }
}

fn is_shared(build: &RowShape, word: usize) -> bool {
    build.word_bytes().iter().sum::<u32>() <= SHARED_ROW_BYTES_MAX || word < build.key_masks().len()
}

/// The two sides of the source.
pub(super) struct Matches<'a> {
    pub build: &'a RowShape,
    pub probe: &'a RowShape,
    pub form: MatchForm,
}

impl Matches<'_> {
    /// Opens the loops over items, probe rows and matches; returns the columns of both sides, and the
    /// steps that are left. With `writes_rows`, a place in the output is reserved too.
    pub(super) fn open<'s>(
        &self,
        b: &mut Binder,
        steps: &'s [Step],
        writes_rows: bool,
    ) -> Result<(Environment, &'s [Step])> {
        let probes = steps.iter().position(|step| matches!(step, Step::Probe(_)));
        let (filters, rest) = steps.split_at(probes.unwrap_or(steps.len()));
        let is_direct = writes_rows && rest.is_empty();
        self.units(b);
        self.accepts(b, filters)?;
        self.look_up(b, is_direct);
        let mut environment = self.columns(b);
        for step in filters.iter().filter(|step| !step.drops_rows()) {
            environment = bind_step(b, &environment, step, &mut 0)?;
        }
        b.close_later(Item::EndRound);
        Ok((environment, rest))
    }

    /// Opens the loops over items, probe rows and matches with the build rows in lists; returns the
    /// columns of both sides. With `is_direct`, a place in the output is reserved too.
    pub(super) fn open_lists(&self, b: &mut Binder, is_direct: bool) -> Environment {
        self.units(b);
        self.look_up(b, is_direct);
        self.columns(b)
    }

    /// Opens the loop over work items, and brings their build rows to shared memory.
    fn units(&self, b: &mut Binder) {
        let number = Type::Value(CType::U64);
        let mut part = |of_type, part| b.params.once(of_type, Binding::Match(part));
        let capacity = part(number, MatchPart::Capacity);
        let heads_bits = part(number, MatchPart::HeadsBits);
        let bits = part(number, MatchPart::Bits);
        let build_offsets = part(Type::Input(CType::U32), MatchPart::BuildOffsets);
        let probe_offsets = part(Type::Input(CType::U32), MatchPart::ProbeOffsets);
        let items = part(Type::Input(CType::U64), MatchPart::Items);
        let chunk_rows = part(number, MatchPart::ChunkRows);
        let (control, cancel) = (b.params.control(), b.params.cancel());
        let words = self.build.word_bytes().into_iter().enumerate();
        let shared = words.filter(|&(word, _)| is_shared(self.build, word)).map(|(word, bytes)| SharedWord {
            word: word as u32,
            bytes,
            field: word_field(b, self.build, word, MatchPart::BuildWord(word)),
        });
        let shared = shared.collect();
        b.item(Item::MatchUnits(MatchUnits {
            form: self.form,
            shared,
            key_masks: self.build.key_masks(),
            capacity,
            heads_bits,
            bits,
            build_offsets,
            probe_offsets,
            items,
            chunk_rows,
            control,
            cancel,
        }));
    }

    /// A function that tells whether a build row and a probe row are a match.
    fn accepts(&self, b: &mut Binder, filters: &[Step]) -> Result<()> {
        b.item(Item::OpenAccepts { key_masks: self.build.key_masks() });
        let last = filters.iter().rposition(|step| matches!(step, Step::Filter(_))).map_or(0, |last| last + 1);
        if last > 0 {
            let mut environment = self.columns(b);
            for step in &filters[..last] {
                environment = bind_step(b, &environment, step, &mut 0)?;
            }
        }
        b.item(Item::CloseAccepts);
        Ok(())
    }

    /// Looks the probe rows up, and opens the loops over them and their matches. With `is_direct`, matches are only
    /// written, and have their places.
    fn look_up(&self, b: &mut Binder, is_direct: bool) {
        let key_masks = self.build.key_masks();
        let probe_keys =
            (0..key_masks.len()).map(|word| word_field(b, self.probe, word, MatchPart::ProbeWord(word))).collect();
        let output =
            is_direct.then(|| [b.params.control(), b.params.once(Type::Value(CType::U64), Binding::OutputCapacity)]);
        let items = match (is_direct, self.form) {
            (false, _) => 1,
            (true, MatchForm::Lists) => LIST_ITEMS,
            (true, MatchForm::Chains | MatchForm::Semi) => ITEMS,
        };
        b.item(Item::MatchLookUp(MatchLookUp { form: self.form, key_masks, items, probe_keys, output }));
        b.alive = Variable::Matched;
        b.is_reserved |= is_direct;
    }

    /// The columns of the build side at `match`, then of the probe side at `row`.
    fn columns(&self, b: &mut Binder) -> Environment {
        let masks = self.build.key_masks();
        let place = b.variable(Variable::MatchPlace, CType::U32);
        let mut build_words = vec![];
        for (word, bytes) in self.build.word_bytes().into_iter().enumerate() {
            build_words.push(if is_shared(self.build, word) {
                let words = b.pointer(Variable::BuildWord(word as u32), CType::unsigned(bytes));
                b.cast(CType::U64, b.load(words, place))
            } else {
                let row = b.binary(b.variable(Variable::BuildFirst, CType::U64), Op::Add, place);
                let field = word_field(b, self.build, word, MatchPart::BuildWord(word));
                b.load(b.field(field), row)
            });
        }
        let mut probe_words = vec![];
        for word in 0..self.probe.words() {
            probe_words.push(if word < masks.len() {
                b.variable(Variable::ProbeWord(word as u32), CType::U64)
            } else {
                let field = word_field(b, self.probe, word, MatchPart::ProbeWord(word));
                b.load(b.field(field), b.variable(Variable::Row, CType::U32))
            });
        }
        let mut cells = vec![];
        for (shape, words) in [(self.build, build_words), (self.probe, probe_words)] {
            let words: Vec<Code> = words.into_iter().map(|word| b.cast_in_parens(CType::U64, word)).collect();
            let values = shape.packing.unpack(b, &words);
            cells.extend(shape.field_of.iter().map(|field| match field {
                Some(field) => Cell::Load(values[*field].clone()),
                None => Cell::Absent,
            }));
        }
        Environment::new(cells)
    }
}

/// The words of rows in device memory, as a parameter.
fn word_field(b: &mut Binder, shape: &RowShape, word: usize, part: MatchPart) -> Field {
    b.params.once(Type::Input(CType::unsigned(shape.word_bytes()[word])), Binding::Match(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_room_for_the_words_of_their_kernel() {
        let header = warpjoin_kernels::HEADERS.iter().find(|header| header.name == "join/matches.cuh");
        // Two words stand in front of those of frequent keys.
        let heavy = LIST_WORDS - 2;
        let declared = format!(
            "enum ListWords {{ LIST_ROWS, LIST_HEAVY_COUNT, LIST_HEAVY, LIST_HEAVY_MAX = {heavy}, \
             LIST_WORDS = LIST_HEAVY + LIST_HEAVY_MAX }};"
        );
        assert!(header.is_some_and(|header| header.text.contains(&declared)), "{declared}");
    }
}
