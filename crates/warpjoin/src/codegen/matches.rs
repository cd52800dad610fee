//! A source whose rows are the matches of two partitioned relations (see `wj/matches.cuh`).
//!
//! Filters right behind it are part of the match, so that a place in the output is reserved for
//! several matches at once and only where a row comes out.

use super::emitter::{Cell, Emitter, Environment};
use super::params::{Binding, MatchPart};
use super::pipeline::emit_step;
use super::shapes::{RowShape, Step};
use crate::Result;

/// Most threads of a block that joins. With three blocks a multiprocessor and six probe rows a thread a join
/// of 2^27 with 2^27 rows took 1.77 ms on an H100; with 2 x 512 and eight 1.95, with 4 x 256 and eight 2.30.
pub(crate) const MATCH_THREADS: u32 = 384;
/// Blocks that a multiprocessor should hold.
pub(crate) const MATCH_BLOCKS: u32 = 3;
/// Probe rows that a thread looks up together where matches are only written.
const ITEMS: u32 = 6;
/// Bytes of a build row up to which all of it goes to shared memory; of longer rows only the key.
const SHARED_ROW_BYTES_MAX: u32 = 16;

/// What a kernel over matches needs of shared memory, by build row of an item.
pub(crate) fn shared_row_bytes(build: &RowShape) -> u32 {
    let bytes = build.word_bytes();
    // And the link of a chain.
    (0..bytes.len()).filter(|&word| is_shared(build, word)).map(|word| bytes[word]).sum::<u32>() + 2
}

fn is_shared(build: &RowShape, word: usize) -> bool {
    build.word_bytes().iter().sum::<u32>() <= SHARED_ROW_BYTES_MAX || word < build.key_masks().len()
}

/// The two sides of the source.
pub(super) struct Matches<'a> {
    pub build: &'a RowShape,
    pub probe: &'a RowShape,
    /// A probe row comes out once.
    pub is_semi: bool,
}

impl Matches<'_> {
    /// Opens the loops over items, probe rows and matches; returns the columns of both sides, and the
    /// steps that are left. With `writes_rows`, a place in the output is reserved too.
    pub(super) fn open<'s>(
        &self,
        emitter: &mut Emitter,
        steps: &'s [Step],
        writes_rows: bool,
    ) -> Result<(Environment, &'s [Step])> {
        let probes = steps.iter().position(|step| matches!(step, Step::Probe(_)));
        let (filters, rest) = steps.split_at(probes.unwrap_or(steps.len()));
        let is_direct = writes_rows && rest.is_empty();
        self.table(emitter);
        self.link(emitter);
        self.accepts(emitter, filters)?;
        self.look_up(emitter, if is_direct { ITEMS } else { 1 });
        emitter.line("u32 later_matches = 0;");
        if is_direct {
            let control = emitter.params.once("u64*", Binding::Control);
            let capacity = emitter.params.once("u64", Binding::OutputCapacity);
            emitter.line("u32 ranks[items];");
            emitter.line("bool fits = true;");
            emitter.line(&format!(
                "const u64 places = reserve_matches(&{control}[WJ_CONTROL_ROWS], {capacity}, matches, ranks, fits);"
            ));
        }
        emitter.line("#pragma unroll");
        emitter.open("for (u32 item = 0; item < items; ++item)");
        emitter.line("const u32 row = row_first + item * 32;");
        emitter.line("const u32 match = matches[item] - 1;");
        self.probe_keys(emitter, |name| format!("const u64 {name} = {name}s[item];"));
        // Advances before the row is used up: nothing below needs the entry.
        emitter.line("bool matched = matches[item] != 0;");
        let next = if self.is_semi { "0".into() } else { self.next_match("chains.next[match]") };
        emitter.line(&format!("if (matched) matches[item] = {next};"));
        emitter.line("later_matches |= matches[item];");
        emitter.alive = "matched".into();
        if is_direct {
            emitter.line("const u64 place = places + ranks[item];");
            emitter.line("matched = matched && fits;");
            emitter.is_reserved = true;
        }
        let mut environment = self.columns(emitter);
        for step in filters.iter().filter(|step| matches!(step, Step::Project(_))) {
            environment = emit_step(emitter, &environment, step, &mut 0)?;
        }
        emitter.close_later("if (!__any_sync(0xffffffffu, later_matches != 0)) break;");
        Ok((environment, rest))
    }

    /// The shared memory, and the loop over work items.
    fn table(&self, emitter: &mut Emitter) {
        let mut part = |c_type: &str, part| emitter.params.once(c_type, Binding::Match(part));
        let bits = part("u64", MatchPart::Bits);
        let capacity = part("u64", MatchPart::Capacity);
        let heads_bits = part("u64", MatchPart::HeadsBits);
        let sides = [
            part("const u32*", MatchPart::BuildOffsets),
            part("const u32*", MatchPart::ProbeOffsets),
            part("const u64*", MatchPart::Items),
            format!("1u << {bits}"),
            format!("(u32){capacity}"),
            format!("(u32){}", part("u64", MatchPart::ChunkRows)),
        ];
        emitter.line(&format!("const MatchSides sides = {{{}}};", sides.join(", ")));
        emitter.line("u32* const heads = &shared_as<u32>();");
        let mut end = format!("(heads + (1u << {heads_bits}))");
        let bytes = self.build.word_bytes();
        // Wide words first, so that all are aligned.
        for width in [8, 4] {
            for word in (0..bytes.len()).filter(|&word| bytes[word] == width && is_shared(self.build, word)) {
                emitter.line(&format!(
                    "u{bits}* const build{word} = reinterpret_cast<u{bits}*>({end});",
                    bits = width * 8
                ));
                end = format!("(build{word} + {capacity})");
            }
        }
        emitter.line(&format!("u16* const next = reinterpret_cast<u16*>({end});"));
        emitter.line(&format!("const MatchTable chains = {{heads, next, (u32){heads_bits}, (u32){capacity}}};"));
        emitter.open("for (u64 number = blockIdx.x;; number += gridDim.x)");
        emitter.line("const MatchItem unit = match_item(sides, number);");
        emitter.line("if (unit.build_rows == 0) break;");
    }

    /// Links the build rows of the item.
    fn link(&self, emitter: &mut Emitter) {
        emitter.line("clear_chains(chains);");
        emitter.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
        let mut keys = vec![];
        let masks = self.build.key_masks();
        for word in 0..self.build.words() {
            if !is_shared(self.build, word) {
                continue;
            }
            let load = load_word(emitter, self.build, word, "unit.build_first + place", MatchPart::BuildWord(word));
            emitter.line(&format!("const auto word{word} = {load};"));
            emitter.line(&format!("build{word}[place] = word{word};"));
            if let Some(mask) = masks.get(word) {
                keys.push(format!("((u64)word{word} & {mask:#x}ULL)"));
            }
        }
        emitter.line(&format!("link_row(chains, place, {});", folded(&keys)));
        emitter.close();
        emitter.line("__syncthreads();");
    }

    /// A function that tells whether a build row and a probe row are a match.
    fn accepts(&self, emitter: &mut Emitter, filters: &[Step]) -> Result<()> {
        let masks = self.build.key_masks();
        let words: String = (0..masks.len()).map(|word| format!(", u64 probe{word}")).collect();
        emitter.open(&format!("auto accepts = [&](u32 match, u32 row{words}) -> bool"));
        let tests: Vec<String> = masks
            .iter()
            .enumerate()
            .map(|(word, mask)| format!("(((u64)build{word}[match] ^ probe{word}) & {mask:#x}ULL) == 0"))
            .collect();
        emitter.line(&format!("bool alive = {};", tests.join(" && ")));
        let last = filters.iter().rposition(|step| matches!(step, Step::Filter(_))).map_or(0, |last| last + 1);
        if last > 0 {
            let mut environment = self.columns(emitter);
            for step in &filters[..last] {
                environment = emit_step(emitter, &environment, step, &mut 0)?;
            }
        }
        emitter.line("return alive;");
        emitter.close_with("};");
        Ok(())
    }

    /// Loads the keys of some probe rows a thread, finds their first matches, and opens the loop
    /// over all matches.
    fn look_up(&self, emitter: &mut Emitter, items: u32) {
        emitter.line(&format!("constexpr u32 items = {items};"));
        emitter.line("const u32 warp_first = (threadIdx.x & ~31u) * items;");
        emitter.open("for (u32 first = warp_first; first < unit.probe_rows; first += blockDim.x * items)");
        emitter.line("const u32 row_first = unit.probe_first + first + (threadIdx.x & 31);");
        emitter.line("u32 matches[items];");
        self.probe_keys(emitter, |name| format!("u64 {name}s[items];"));
        emitter.line("#pragma unroll");
        emitter.open("for (u32 item = 0; item < items; ++item)");
        emitter.line("const bool inside = first + item * 32 + (threadIdx.x & 31) < unit.probe_rows;");
        let masks = self.build.key_masks();
        let mut keys = vec![];
        for (word, mask) in masks.iter().enumerate() {
            let load = load_word(emitter, self.probe, word, "row_first + item * 32", MatchPart::ProbeWord(word));
            emitter.line(&format!("probe{word}s[item] = inside ? (u64){load} : 0;"));
            keys.push(format!("(probe{word}s[item] & {mask:#x}ULL)"));
        }
        emitter.line("matches[item] = inside;");
        emitter.close();
        for statement in [
            format!("if (matches[item] != 0) matches[item] = heads[chain_of(chains, {})];", folded(&keys)),
            {
                let arguments: String = (0..masks.len()).map(|word| format!(", probe{word}s[item]")).collect();
                format!(
                    "matches[item] = first_match(chains, matches[item], [&](u32 match) {{ return accepts(match, row_first + item * 32{arguments}); }});"
                )
            },
        ] {
            emitter.line("#pragma unroll");
            emitter.open("for (u32 item = 0; item < items; ++item)");
            emitter.line(&statement);
            emitter.close();
        }
        // A row matches at most `capacity` times.
        emitter.open("for (u32 round = 0; round <= chains.capacity; ++round)");
    }

    fn next_match(&self, entry: &str) -> String {
        let arguments: String = (0..self.build.key_masks().len()).map(|word| format!(", probe{word}")).collect();
        format!("first_match(chains, {entry}, [&](u32 later) {{ return accepts(later, row{arguments}); }})")
    }

    fn probe_keys(&self, emitter: &mut Emitter, line: impl Fn(&str) -> String) {
        for word in 0..self.build.key_masks().len() {
            emitter.line(&line(&format!("probe{word}")));
        }
    }

    /// The columns of the build side at `match`, then of the probe side at `row`.
    fn columns(&self, emitter: &mut Emitter) -> Environment {
        let masks = self.build.key_masks();
        let mut build_words = vec![];
        for word in 0..self.build.words() {
            build_words.push(if is_shared(self.build, word) {
                format!("(u64)build{word}[match]")
            } else {
                load_word(emitter, self.build, word, "unit.build_first + match", MatchPart::BuildWord(word))
            });
        }
        let mut probe_words = vec![];
        for word in 0..self.probe.words() {
            probe_words.push(if word < masks.len() {
                format!("probe{word}")
            } else {
                load_word(emitter, self.probe, word, "row", MatchPart::ProbeWord(word))
            });
        }
        let mut cells = vec![];
        for (shape, words) in [(self.build, build_words), (self.probe, probe_words)] {
            let words: Vec<String> = words.iter().map(|word| format!("((u64){word})")).collect();
            let values = shape.packing.unpack(emitter, &words);
            cells.extend(shape.field_of.iter().map(|field| match field {
                Some(field) => Cell::Load(values[*field].clone()),
                None => Cell::Absent,
            }));
        }
        Environment::new(cells)
    }
}

/// One word of the key words, for choosing a chain.
fn folded(words: &[String]) -> String {
    let (first, rest) = words.split_first().expect("a key has a word");
    rest.iter().fold(first.clone(), |folded, word| format!("fold_words({folded}, {word})"))
}

/// Code that loads a word of a row in device memory.
fn load_word(emitter: &mut Emitter, shape: &RowShape, word: usize, row: &str, part: MatchPart) -> String {
    let bits = shape.word_bytes()[word] * 8;
    format!("{}[{row}]", emitter.params.once(&format!("const u{bits}*"), Binding::Match(part)))
}
