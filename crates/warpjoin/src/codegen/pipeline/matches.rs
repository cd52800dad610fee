//! A source whose rows are the matches of two partitioned relations (see `join/matches.cuh`).
//!
//! Filters right behind it are part of the match, so that a place in the output is reserved for
//! several matches at once and only where a row comes out.

use super::steps::emit_step;
use crate::Result;
use crate::codegen::emit::{Binding, Cell, Emitter, Environment, MatchPart};
use crate::codegen::shapes::{MatchForm, RowShape, Step};

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
/// Bytes of a build row up to which all of it goes to shared memory; of longer rows only the key.
const SHARED_ROW_BYTES_MAX: u32 = 16;

/// Shared bytes of a kernel over matches: by build row of an item, and besides.
pub(crate) fn shared_row_bytes(build: &RowShape, form: MatchForm) -> (u32, u32) {
    let bytes = build.word_bytes();
    let words: u32 = (0..bytes.len()).filter(|&word| is_shared(build, word)).map(|word| bytes[word]).sum();
    match form {
        // The link of a chain.
        MatchForm::Chains | MatchForm::Semi => (words + 2, 0),
        // A count, and two places; what warps share.
        MatchForm::Lists => (words + 8, 32 * 4),
    }
}

/// Most threads of a block.
pub(crate) fn match_threads(form: MatchForm) -> u32 {
    if form == MatchForm::Lists { LISTS_THREADS } else { MATCH_THREADS }
}

fn is_shared(build: &RowShape, word: usize) -> bool {
    build.word_bytes().iter().sum::<u32>() <= SHARED_ROW_BYTES_MAX || word < build.key_masks().len()
}

/// Code that tells whether a build row has the key whose words a function names.
type KeyTests<'a> = dyn Fn(&dyn Fn(usize) -> String) -> String + 'a;

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
        self.look_up(emitter, is_direct);
        emitter.line("u32 later = 0;");
        if is_direct {
            emitter.line("u32 ranks[items];");
            emitter.line("const u64 round_places = places;");
            emitter.line("places += rank_matches(matches, ranks);");
        }
        emitter.line("WJ_UNROLL");
        emitter.open("for (u32 item = 0; item < items; ++item)");
        emitter.line("const u32 row = row_first + item * 32;");
        emitter.line("const u32 match = (matches[item] & 0xffff) - 1;");
        self.probe_keys(emitter, |name| format!("const u64 {name} = {name}s[item];"));
        // Advances before the row is used up: nothing below needs the entry.
        emitter.line("const bool has_match = matches[item] != 0;");
        let next = match (self.form, is_direct) {
            (MatchForm::Semi, _) => "0".into(),
            (_, true) => self.found("later_matches", "matches[item]", "row", |word| word.into()),
            (_, false) => self.found("first_match", "chains.next[match]", "row", |word| word.into()),
        };
        emitter.line(&format!("if (has_match) matches[item] = {next};"));
        emitter.line("later |= matches[item];");
        emitter.line("bool matched = has_match;");
        emitter.alive = "matched".into();
        if is_direct {
            emitter.line("const u64 place = round_places + ranks[item];");
            emitter.is_reserved = true;
        }
        let mut environment = self.columns(emitter);
        for step in filters.iter().filter(|step| !step.drops_rows()) {
            environment = emit_step(emitter, &environment, step, &mut 0)?;
        }
        emitter.close_later("if (!__any_sync(0xffffffffu, later != 0)) break;");
        Ok((environment, rest))
    }

    /// Opens the loops over items, probe rows and matches with the build rows in lists; returns the
    /// columns of both sides. With `is_direct`, a place in the output is reserved too.
    pub(super) fn open_lists(&self, emitter: &mut Emitter, is_direct: bool) -> Environment {
        self.lists(emitter);
        let masks = self.build.key_masks();
        let tests = |other: &dyn Fn(usize) -> String| {
            let test = |(word, mask): (usize, &u64)| {
                format!("(((u64)build{word}[other] ^ {}) & {mask:#x}ULL) == 0", other(word))
            };
            masks.iter().enumerate().map(test).collect::<Vec<_>>().join(" && ")
        };
        // Build rows: all words first, then each row finds the first of its key.
        emitter.line("clear_lists(lists);");
        emitter.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
        for word in (0..self.build.words()).filter(|&word| is_shared(self.build, word)) {
            let load = load_word(emitter, self.build, word, "unit.build_first + place", MatchPart::BuildWord(word));
            emitter.line(&format!("build{word}[place] = {load};"));
        }
        emitter.close();
        emitter.line("__syncthreads();");
        emitter.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
        let keys: Vec<String> =
            masks.iter().enumerate().map(|(word, mask)| format!("((u64)build{word}[place] & {mask:#x}ULL)")).collect();
        let same = tests(&|word| format!("(u64)build{word}[place]"));
        emitter.line(&format!("count_row(lists, place, {}, [&](u32 other) {{ return {same}; }});", folded(&keys)));
        emitter.close();
        emitter.line("order_rows(lists, unit.build_rows);");
        self.emit_groups(emitter, is_direct, &tests);
        self.columns(emitter)
    }

    /// Opens the loops over groups of probe rows and their matches: a warp shares those of 32 rows, a block
    /// those of groups that have very many.
    fn emit_groups(&self, emitter: &mut Emitter, is_direct: bool, tests: &KeyTests<'_>) {
        let masks = self.build.key_masks();
        emitter.line(&format!("constexpr u32 items = {};", if is_direct { LIST_ITEMS } else { 1 }));
        emitter.line("const u32 lane = threadIdx.x & 31;");
        emitter.line("const u32 groups = (unit.probe_rows + 32 * items - 1) / (32 * items);");
        emitter.line("ListTurns turns = {threadIdx.x / 32, false};");
        emitter.open("for (u32 step = 0, group = 0; step <= groups + LIST_HEAVY_MAX; ++step)");
        emitter.line("if (!next_group(lists, turns, groups, group)) break;");
        emitter.line("const u32 first = group * 32 * items + lane;");
        emitter.line("u32 leaders[items];");
        let open_items = |emitter: &mut Emitter| {
            emitter.line("WJ_UNROLL");
            emitter.open("for (u32 item = 0; item < items; ++item)");
        };
        let mut keys = vec![];
        for (word, mask) in masks.iter().enumerate() {
            emitter.line(&format!("u64 lane_probe{word}[items];"));
            keys.push(format!("(lane_probe{word}[item] & {mask:#x}ULL)"));
        }
        open_items(emitter);
        emitter.line("leaders[item] = first + item * 32 < unit.probe_rows;");
        for word in 0..masks.len() {
            let row = "unit.probe_first + first + item * 32";
            let load = load_word(emitter, self.probe, word, row, MatchPart::ProbeWord(word));
            emitter.line(&format!("lane_probe{word}[item] = leaders[item] != 0 ? (u64){load} : 0;"));
        }
        emitter.close();
        emitter.line("u32 lane_matches = 0;");
        open_items(emitter);
        let same = tests(&|word| format!("lane_probe{word}[item]"));
        let found = format!("find_list(lists, {}, [&](u32 other) {{ return {same}; }})", folded(&keys));
        emitter.line(&format!("if (leaders[item] != 0) leaders[item] = {found};"));
        emitter.line("lane_matches += count_of(lists, leaders[item]);");
        emitter.close();
        emitter.line("const u32 group_matches = warp_matches(lane_matches).total;");
        emitter.line("if (group_matches == 0 || leave_group(lists, turns, group, group_matches)) continue;");
        if is_direct {
            let control = emitter.params.once("u64*", Binding::Control);
            let capacity = emitter.params.once("u64", Binding::OutputCapacity);
            emitter.line("u32 mine = group_matches;");
            emitter.open("if (turns.is_shared)");
            emitter.line("mine = 0;");
            open_items(emitter);
            emitter.line("const u32 count = count_of(lists, leaders[item]);");
            emitter.line("const MatchRange range = range_of_warp(turns, warp_matches(count).total);");
            emitter.line("mine += range.end - range.begin;");
            emitter.close();
            emitter.close();
            emitter.line("u64 places = 0;");
            emitter.line(&format!("if (lane == 0) places = atomicAdd(&{control}[WJ_CONTROL_ROWS], (u64)mine);"));
            emitter.line("places = __shfl_sync(0xffffffffu, places, 0);");
            emitter.line(&format!("if (places + mine > {capacity}) continue;"));
            emitter.is_reserved = true;
        }
        open_items(emitter);
        emitter.line("const WarpMatches pairs = warp_matches(count_of(lists, leaders[item]));");
        emitter.line("const u32 lane_begin = begin_of(lists, leaders[item]);");
        emitter.line("const MatchRange range = range_of_warp(turns, pairs.total);");
        emitter.line("MatchSource source = {0, 0};");
        // Where the matches of the lane's row are in `order`, less their number among those of the warp.
        emitter.line("u32 begin = 0;");
        for word in 0..masks.len() {
            emitter.line(&format!("u64 probe{word} = 0;"));
        }
        if is_direct {
            emitter.line("const u64 item_places = places - range.begin;");
            emitter.line("const u32 shift = shift_to_sectors(range, places);");
            emitter.line("places += range.end - range.begin;");
        } else {
            emitter.line("const u32 shift = 0;");
        }
        emitter.open("for (u32 turn = 0; turn < range.end - range.begin + shift; turn += 32)");
        emitter.line("bool matched = turn + lane >= shift && turn + lane - shift < range.end - range.begin;");
        emitter.line("const u32 number = matched ? range.begin + turn + lane - shift : range.begin;");
        emitter.open("if (move_source(source, pairs, range.begin + turn - shift, number))");
        emitter.line("begin = __shfl_sync(0xffffffffu, lane_begin - (pairs.inclusive - pairs.count), source.lane);");
        for word in 0..masks.len() {
            emitter.line(&format!("probe{word} = __shfl_sync(0xffffffffu, lane_probe{word}[item], source.lane);"));
        }
        emitter.close();
        emitter.line("const u32 row = unit.probe_first + group * 32 * items + item * 32 + source.lane;");
        emitter.line("const u32 match = matched ? lists.order[begin + number] : 0;");
        if is_direct {
            emitter.line("const u64 place = item_places + number;");
        }
        emitter.alive = "matched".into();
    }

    /// The shared memory of lists, and the loop over work items.
    fn lists(&self, emitter: &mut Emitter) {
        let capacity = emitter.params.once("u64", Binding::Match(MatchPart::Capacity));
        let slots_bits = emitter.params.once("u64", Binding::Match(MatchPart::HeadsBits));
        let end = self.shared_words(emitter, &capacity, &slots_bits);
        emitter.line(&format!("u32* const counts = reinterpret_cast<u32*>({end});"));
        emitter.line(&format!("u32* const shared = counts + {capacity};"));
        emitter.line("u16* const places = reinterpret_cast<u16*>(shared + LIST_WORDS);");
        let halves = (0..2).map(|index| format!("places + {index} * {capacity}")).collect::<Vec<_>>().join(", ");
        emitter.line(&format!(
            "const MatchLists lists = {{heads, counts, shared, {halves}, (u32){slots_bits}, (u32){capacity}}};"
        ));
        self.items(emitter);
    }

    /// The shared memory of chains, and the loop over work items.
    fn table(&self, emitter: &mut Emitter) {
        let capacity = emitter.params.once("u64", Binding::Match(MatchPart::Capacity));
        let heads_bits = emitter.params.once("u64", Binding::Match(MatchPart::HeadsBits));
        let end = self.shared_words(emitter, &capacity, &heads_bits);
        emitter.line(&format!("u16* const next = reinterpret_cast<u16*>({end});"));
        emitter.line(&format!("const MatchTable chains = {{heads, next, (u32){heads_bits}, (u32){capacity}}};"));
        self.items(emitter);
    }

    /// `heads` and the words of build rows in shared memory; returns where they end.
    fn shared_words(&self, emitter: &mut Emitter, capacity: &str, heads_bits: &str) -> String {
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
        end
    }

    /// The loop over work items.
    fn items(&self, emitter: &mut Emitter) {
        let mut part = |c_type: &str, part| emitter.params.once(c_type, Binding::Match(part));
        let bits = part("u64", MatchPart::Bits);
        let capacity = part("u64", MatchPart::Capacity);
        let sides = [
            part("const u32*", MatchPart::BuildOffsets),
            part("const u32*", MatchPart::ProbeOffsets),
            part("const u64*", MatchPart::Items),
            format!("1u << {bits}"),
            format!("(u32){capacity}"),
            format!("(u32){}", part("u64", MatchPart::ChunkRows)),
        ];
        emitter.line(&format!("const MatchSides sides = {{{}}};", sides.join(", ")));
        emitter.open("for (u64 number = blockIdx.x;; number += gridDim.x)");
        emitter.line("const MatchItem unit = match_item(sides, number);");
        let control = emitter.params.once("u64*", Binding::Control);
        emitter.line(&format!("if (unit.build_rows == 0 || is_block_aborted({control})) break;"));
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
    /// over all matches. Where matches are only written, all of them get their places here.
    fn look_up(&self, emitter: &mut Emitter, is_direct: bool) {
        emitter.line(&format!("constexpr u32 items = {};", if is_direct { ITEMS } else { 1 }));
        emitter.line("const u32 warp_first = (threadIdx.x & ~31u) * items;");
        emitter.open("for (u32 first = warp_first; first < unit.probe_rows; first += blockDim.x * items)");
        emitter.line("const u32 row_first = unit.probe_first + first + (threadIdx.x & 31);");
        emitter.line("u32 matches[items];");
        self.probe_keys(emitter, |name| format!("u64 {name}s[items];"));
        emitter.line("WJ_UNROLL");
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
        let (row, probe) = ("row_first + item * 32", |word: &str| format!("{word}s[item]"));
        let find = match (self.form, is_direct) {
            (MatchForm::Semi, true) => {
                let first = self.found("first_match", "matches[item]", row, probe);
                format!("matches[item] = {first}; if (matches[item] != 0) matches[item] |= 1u << 16;")
            }
            (_, true) => format!("matches[item] = {};", self.found("count_matches", "matches[item]", row, probe)),
            (_, false) => format!("matches[item] = {};", self.found("first_match", "matches[item]", row, probe)),
        };
        let head = format!("if (matches[item] != 0) matches[item] = heads[chain_of(chains, {})];", folded(&keys));
        for statement in [head, find] {
            emitter.line("WJ_UNROLL");
            emitter.open("for (u32 item = 0; item < items; ++item)");
            emitter.line(&statement);
            emitter.close();
        }
        if is_direct {
            let control = emitter.params.once("u64*", Binding::Control);
            let capacity = emitter.params.once("u64", Binding::OutputCapacity);
            emitter.line("bool fits = true;");
            emitter.line(&format!(
                "u64 places = reserve_matches(&{control}[WJ_CONTROL_ROWS], {capacity}, matches, fits);"
            ));
            emitter.line("if (!fits) continue;");
        }
        // A row matches at most `capacity` times.
        emitter.open("for (u32 round = 0; round <= chains.capacity; ++round)");
    }

    /// A call of `function` with what accepts matches of the probe row `row`, whose keys `probe` names.
    fn found(&self, function: &str, entry: &str, row: &str, probe: impl Fn(&str) -> String) -> String {
        let keys: String =
            (0..self.build.key_masks().len()).map(|word| format!(", {}", probe(&format!("probe{word}")))).collect();
        format!("{function}(chains, {entry}, [&](u32 other) {{ return accepts(other, {row}{keys}); }})")
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
