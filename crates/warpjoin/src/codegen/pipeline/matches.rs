//! A source whose rows are the matches of two partitioned relations (see `join/matches.cuh`).
//!
//! Filters right behind it are part of the match, so that a place in the output is reserved for
//! several matches at once and only where a row comes out.

use super::steps::bind_step;
use crate::Result;
use crate::codegen::bind::{Binder, Cell, Environment};
use crate::codegen::program::{Binding, Code, Field, MatchPart, Op, Type, Variable};
use crate::codegen::shapes::{MatchForm, RowShape, Step};
use crate::codegen::value::CType;

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
        b: &mut Binder,
        steps: &'s [Step],
        writes_rows: bool,
    ) -> Result<(Environment, &'s [Step])> {
        let probes = steps.iter().position(|step| matches!(step, Step::Probe(_)));
        let (filters, rest) = steps.split_at(probes.unwrap_or(steps.len()));
        let is_direct = writes_rows && rest.is_empty();
        self.table(b);
        self.link(b);
        self.accepts(b, filters)?;
        self.look_up(b, is_direct);
        b.line("u32 later = 0;");
        if is_direct {
            b.line("u32 ranks[items];");
            b.line("const u64 round_places = places;");
            b.line("places += rank_matches(matches, ranks);");
        }
        b.line("WJ_UNROLL");
        b.open("for (u32 item = 0; item < items; ++item)");
        b.line("const u32 row = row_first + item * 32;");
        b.line("const u32 match = (matches[item] & 0xffff) - 1;");
        self.probe_keys(b, |name| format!("const u64 {name} = {name}s[item];"));
        // Advances before the row is used up: nothing below needs the entry.
        b.line("const bool has_match = matches[item] != 0;");
        let next = match (self.form, is_direct) {
            (MatchForm::Semi, _) => "0".into(),
            (_, true) => self.found("later_matches", "matches[item]", "row", |word| word.into()),
            (_, false) => self.found("first_match", "chains.next[match]", "row", |word| word.into()),
        };
        b.line(format!("if (has_match) matches[item] = {next};"));
        b.line("later |= matches[item];");
        b.line("bool matched = has_match;");
        b.alive = Variable::Matched;
        if is_direct {
            b.line("const u64 place = round_places + ranks[item];");
            b.is_reserved = true;
        }
        let mut environment = self.columns(b);
        for step in filters.iter().filter(|step| !step.drops_rows()) {
            environment = bind_step(b, &environment, step, &mut 0)?;
        }
        b.close_later("if (!__any_sync(0xffffffffu, later != 0)) break;");
        Ok((environment, rest))
    }

    /// Opens the loops over items, probe rows and matches with the build rows in lists; returns the
    /// columns of both sides. With `is_direct`, a place in the output is reserved too.
    pub(super) fn open_lists(&self, b: &mut Binder, is_direct: bool) -> Environment {
        self.lists(b);
        let masks = self.build.key_masks();
        let tests = |other: &dyn Fn(usize) -> String| {
            let test = |(word, mask): (usize, &u64)| {
                format!("(((u64)build{word}[other] ^ {}) & {mask:#x}ULL) == 0", other(word))
            };
            masks.iter().enumerate().map(test).collect::<Vec<_>>().join(" && ")
        };
        // Build rows: all words first, then each row finds the first of its key.
        b.line("clear_lists(lists);");
        b.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
        for word in (0..self.build.words()).filter(|&word| is_shared(self.build, word)) {
            let load = load_word(b, self.build, word, "unit.build_first + place", MatchPart::BuildWord(word));
            b.line(format!("build{word}[place] = {load};"));
        }
        b.close();
        b.line("__syncthreads();");
        b.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
        let keys: Vec<String> =
            masks.iter().enumerate().map(|(word, mask)| format!("((u64)build{word}[place] & {mask:#x}ULL)")).collect();
        let same = tests(&|word| format!("(u64)build{word}[place]"));
        b.line(format!("count_row(lists, place, {}, [&](u32 other) {{ return {same}; }});", folded(&keys)));
        b.close();
        b.line("order_rows(lists, unit.build_rows);");
        self.emit_groups(b, is_direct, &tests);
        self.columns(b)
    }

    /// Opens the loops over groups of probe rows and their matches: a warp shares those of 32 rows, a block
    /// those of groups that have very many.
    fn emit_groups(&self, b: &mut Binder, is_direct: bool, tests: &KeyTests<'_>) {
        let masks = self.build.key_masks();
        b.line(format!("constexpr u32 items = {};", if is_direct { LIST_ITEMS } else { 1 }));
        b.line("const u32 lane = threadIdx.x & 31;");
        b.line("const u32 groups = (unit.probe_rows + 32 * items - 1) / (32 * items);");
        b.line("ListTurns turns = {threadIdx.x / 32, false};");
        b.open("for (u32 step = 0, group = 0; step <= groups + LIST_HEAVY_MAX; ++step)");
        b.line("if (!next_group(lists, turns, groups, group)) break;");
        b.line("const u32 first = group * 32 * items + lane;");
        b.line("u32 leaders[items];");
        let open_items = |b: &mut Binder| {
            b.line("WJ_UNROLL");
            b.open("for (u32 item = 0; item < items; ++item)");
        };
        let mut keys = vec![];
        for (word, mask) in masks.iter().enumerate() {
            b.line(format!("u64 lane_probe{word}[items];"));
            keys.push(format!("(lane_probe{word}[item] & {mask:#x}ULL)"));
        }
        open_items(b);
        b.line("leaders[item] = first + item * 32 < unit.probe_rows;");
        for word in 0..masks.len() {
            let row = "unit.probe_first + first + item * 32";
            let load = load_word(b, self.probe, word, row, MatchPart::ProbeWord(word));
            b.line(format!("lane_probe{word}[item] = leaders[item] != 0 ? (u64){load} : 0;"));
        }
        b.close();
        b.line("u32 lane_matches = 0;");
        open_items(b);
        let same = tests(&|word| format!("lane_probe{word}[item]"));
        let found = format!("find_list(lists, {}, [&](u32 other) {{ return {same}; }})", folded(&keys));
        b.line(format!("if (leaders[item] != 0) leaders[item] = {found};"));
        b.line("lane_matches += count_of(lists, leaders[item]);");
        b.close();
        b.line("const u32 group_matches = warp_matches(lane_matches).total;");
        b.line("if (group_matches == 0 || leave_group(lists, turns, group, group_matches)) continue;");
        if is_direct {
            let control = b.params.control();
            let capacity = b.params.once(Type::Value(CType::U64), Binding::OutputCapacity);
            b.line("u32 mine = group_matches;");
            b.open("if (turns.is_shared)");
            b.line("mine = 0;");
            open_items(b);
            b.line("const u32 count = count_of(lists, leaders[item]);");
            b.line("const MatchRange range = range_of_warp(turns, warp_matches(count).total);");
            b.line("mine += range.end - range.begin;");
            b.close();
            b.close();
            b.line("u64 places = 0;");
            b.line(format!("if (lane == 0) places = atomicAdd(&{control}[WJ_CONTROL_ROWS], (u64)mine);"));
            b.line("places = __shfl_sync(0xffffffffu, places, 0);");
            b.line(format!("if (places + mine > {capacity}) continue;"));
            b.is_reserved = true;
        }
        open_items(b);
        b.line("const WarpMatches pairs = warp_matches(count_of(lists, leaders[item]));");
        b.line("const u32 lane_begin = begin_of(lists, leaders[item]);");
        b.line("const MatchRange range = range_of_warp(turns, pairs.total);");
        b.line("MatchSource source = {0, 0};");
        // Where the matches of the lane's row are in `order`, less their number among those of the warp.
        b.line("u32 begin = 0;");
        for word in 0..masks.len() {
            b.line(format!("u64 probe{word} = 0;"));
        }
        if is_direct {
            b.line("const u64 item_places = places - range.begin;");
            b.line("const u32 shift = shift_to_sectors(range, places);");
            b.line("places += range.end - range.begin;");
        } else {
            b.line("const u32 shift = 0;");
        }
        b.open("for (u32 turn = 0; turn < range.end - range.begin + shift; turn += 32)");
        b.line("bool matched = turn + lane >= shift && turn + lane - shift < range.end - range.begin;");
        b.line("const u32 number = matched ? range.begin + turn + lane - shift : range.begin;");
        b.open("if (move_source(source, pairs, range.begin + turn - shift, number))");
        b.line("begin = __shfl_sync(0xffffffffu, lane_begin - (pairs.inclusive - pairs.count), source.lane);");
        for word in 0..masks.len() {
            b.line(format!("probe{word} = __shfl_sync(0xffffffffu, lane_probe{word}[item], source.lane);"));
        }
        b.close();
        b.line("const u32 row = unit.probe_first + group * 32 * items + item * 32 + source.lane;");
        b.line("const u32 match = matched ? lists.order[begin + number] : 0;");
        if is_direct {
            b.line("const u64 place = item_places + number;");
        }
        b.alive = Variable::Matched;
    }

    /// The shared memory of lists, and the loop over work items.
    fn lists(&self, b: &mut Binder) {
        let capacity = b.params.once(Type::Value(CType::U64), Binding::Match(MatchPart::Capacity));
        let slots_bits = b.params.once(Type::Value(CType::U64), Binding::Match(MatchPart::HeadsBits));
        let end = self.shared_words(b, capacity, slots_bits);
        b.line(format!("u32* const counts = reinterpret_cast<u32*>({end});"));
        b.line(format!("u32* const shared = counts + {capacity};"));
        b.line("u16* const places = reinterpret_cast<u16*>(shared + LIST_WORDS);");
        let halves = (0..2).map(|index| format!("places + {index} * {capacity}")).collect::<Vec<_>>().join(", ");
        b.line(format!(
            "const MatchLists lists = {{heads, counts, shared, {halves}, (u32){slots_bits}, (u32){capacity}}};"
        ));
        self.items(b);
    }

    /// The shared memory of chains, and the loop over work items.
    fn table(&self, b: &mut Binder) {
        let capacity = b.params.once(Type::Value(CType::U64), Binding::Match(MatchPart::Capacity));
        let heads_bits = b.params.once(Type::Value(CType::U64), Binding::Match(MatchPart::HeadsBits));
        let end = self.shared_words(b, capacity, heads_bits);
        b.line(format!("u16* const next = reinterpret_cast<u16*>({end});"));
        b.line(format!("const MatchTable chains = {{heads, next, (u32){heads_bits}, (u32){capacity}}};"));
        self.items(b);
    }

    /// `heads` and the words of build rows in shared memory; returns where they end.
    fn shared_words(&self, b: &mut Binder, capacity: Field, heads_bits: Field) -> String {
        b.line("u32* const heads = &shared_as<u32>();");
        let mut end = format!("(heads + (1u << {heads_bits}))");
        let bytes = self.build.word_bytes();
        // Wide words first, so that all are aligned.
        for width in [8, 4] {
            for word in (0..bytes.len()).filter(|&word| bytes[word] == width && is_shared(self.build, word)) {
                b.line(format!("u{bits}* const build{word} = reinterpret_cast<u{bits}*>({end});", bits = width * 8));
                end = format!("(build{word} + {capacity})");
            }
        }
        end
    }

    /// The loop over work items.
    fn items(&self, b: &mut Binder) {
        let mut part = |of_type, part| b.params.once(of_type, Binding::Match(part));
        let number = Type::Value(CType::U64);
        let bits = part(number, MatchPart::Bits);
        let capacity = part(number, MatchPart::Capacity);
        let sides = [
            part(Type::Input(CType::U32), MatchPart::BuildOffsets).to_string(),
            part(Type::Input(CType::U32), MatchPart::ProbeOffsets).to_string(),
            part(Type::Input(CType::U64), MatchPart::Items).to_string(),
            format!("1u << {bits}"),
            format!("(u32){capacity}"),
            format!("(u32){}", part(number, MatchPart::ChunkRows)),
        ];
        b.line(format!("const MatchSides sides = {{{}}};", sides.join(", ")));
        b.open("for (u64 number = blockIdx.x;; number += gridDim.x)");
        b.line("const MatchItem unit = match_item(sides, number);");
        let control = b.params.control();
        b.line(format!("if (unit.build_rows == 0 || is_block_aborted({control})) break;"));
    }

    /// Links the build rows of the item.
    fn link(&self, b: &mut Binder) {
        b.line("clear_chains(chains);");
        b.open("for (u32 place = threadIdx.x; place < unit.build_rows; place += blockDim.x)");
        let mut keys = vec![];
        let masks = self.build.key_masks();
        for word in 0..self.build.words() {
            if !is_shared(self.build, word) {
                continue;
            }
            let load = load_word(b, self.build, word, "unit.build_first + place", MatchPart::BuildWord(word));
            b.line(format!("const auto word{word} = {load};"));
            b.line(format!("build{word}[place] = word{word};"));
            if let Some(mask) = masks.get(word) {
                keys.push(format!("((u64)word{word} & {mask:#x}ULL)"));
            }
        }
        b.line(format!("link_row(chains, place, {});", folded(&keys)));
        b.close();
        b.line("__syncthreads();");
    }

    /// A function that tells whether a build row and a probe row are a match.
    fn accepts(&self, b: &mut Binder, filters: &[Step]) -> Result<()> {
        let masks = self.build.key_masks();
        let words: String = (0..masks.len()).map(|word| format!(", u64 probe{word}")).collect();
        b.open(format!("auto accepts = [&](u32 match, u32 row{words}) -> bool"));
        let tests: Vec<String> = masks
            .iter()
            .enumerate()
            .map(|(word, mask)| format!("(((u64)build{word}[match] ^ probe{word}) & {mask:#x}ULL) == 0"))
            .collect();
        b.line(format!("bool alive = {};", tests.join(" && ")));
        let last = filters.iter().rposition(|step| matches!(step, Step::Filter(_))).map_or(0, |last| last + 1);
        if last > 0 {
            let mut environment = self.columns(b);
            for step in &filters[..last] {
                environment = bind_step(b, &environment, step, &mut 0)?;
            }
        }
        b.line("return alive;");
        b.close_with("};");
        Ok(())
    }

    /// Loads the keys of some probe rows a thread, finds their first matches, and opens the loop
    /// over all matches. Where matches are only written, all of them get their places here.
    fn look_up(&self, b: &mut Binder, is_direct: bool) {
        b.line(format!("constexpr u32 items = {};", if is_direct { ITEMS } else { 1 }));
        b.line("const u32 warp_first = (threadIdx.x & ~31u) * items;");
        b.open("for (u32 first = warp_first; first < unit.probe_rows; first += blockDim.x * items)");
        b.line("const u32 row_first = unit.probe_first + first + (threadIdx.x & 31);");
        b.line("u32 matches[items];");
        self.probe_keys(b, |name| format!("u64 {name}s[items];"));
        b.line("WJ_UNROLL");
        b.open("for (u32 item = 0; item < items; ++item)");
        b.line("const bool inside = first + item * 32 + (threadIdx.x & 31) < unit.probe_rows;");
        let masks = self.build.key_masks();
        let mut keys = vec![];
        for (word, mask) in masks.iter().enumerate() {
            let load = load_word(b, self.probe, word, "row_first + item * 32", MatchPart::ProbeWord(word));
            b.line(format!("probe{word}s[item] = inside ? (u64){load} : 0;"));
            keys.push(format!("(probe{word}s[item] & {mask:#x}ULL)"));
        }
        b.line("matches[item] = inside;");
        b.close();
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
            b.line("WJ_UNROLL");
            b.open("for (u32 item = 0; item < items; ++item)");
            b.line(&statement);
            b.close();
        }
        if is_direct {
            let control = b.params.control();
            let capacity = b.params.once(Type::Value(CType::U64), Binding::OutputCapacity);
            b.line("bool fits = true;");
            b.line(format!("u64 places = reserve_matches(&{control}[WJ_CONTROL_ROWS], {capacity}, matches, fits);"));
            b.line("if (!fits) continue;");
        }
        // A row matches at most `capacity` times.
        b.open("for (u32 round = 0; round <= chains.capacity; ++round)");
    }

    /// A call of `function` with what accepts matches of the probe row `row`, whose keys `probe` names.
    fn found(&self, function: &str, entry: &str, row: &str, probe: impl Fn(&str) -> String) -> String {
        let keys: String =
            (0..self.build.key_masks().len()).map(|word| format!(", {}", probe(&format!("probe{word}")))).collect();
        format!("{function}(chains, {entry}, [&](u32 other) {{ return accepts(other, {row}{keys}); }})")
    }

    fn probe_keys(&self, b: &mut Binder, line: impl Fn(&str) -> String) {
        for word in 0..self.build.key_masks().len() {
            b.line(line(&format!("probe{word}")));
        }
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

/// One word of the key words, for choosing a chain.
fn folded(words: &[String]) -> String {
    let (first, rest) = words.split_first().expect("a key has a word");
    rest.iter().fold(first.clone(), |folded, word| format!("fold_words({folded}, {word})"))
}

/// The words of rows in device memory, as a parameter.
fn word_field(b: &mut Binder, shape: &RowShape, word: usize, part: MatchPart) -> Field {
    b.params.once(Type::Input(CType::unsigned(shape.word_bytes()[word])), Binding::Match(part))
}

/// Text that loads a word of a row in device memory.
fn load_word(b: &mut Binder, shape: &RowShape, word: usize, row: &str, part: MatchPart) -> String {
    format!("{}[{row}]", word_field(b, shape, word, part))
}
