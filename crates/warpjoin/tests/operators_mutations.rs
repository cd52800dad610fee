//! A table whose claim is a plain load and store must lose keys within 100 schedules; as it is,
//! it must not. The same for a sort, and a scan, whose blocks forget the tiles before theirs. So the schedules that the other tests explore can show such mistakes.

mod common;

use arrow::datatypes::DataType;
use common::edges::{ints, join_of, keyed, sort_of, window_of};
use common::sessions::{Opener, simulated};
use common::settings::Settings;
use warpjoin_device::{Arg, Buffer, Kernel, Launch, ModuleSource, Ptr, SimOptions, Stream, open_simulated};
use warpjoin_kernels::partition::RowWords;
use warpjoin_kernels::window::window_kind;
use warpjoin_kernels::{KernelParams, join, padded, sort, table, window};

const SEEDS: u64 = 100;
/// Takes the place of atomicCAS: right for one lane alone.
const PLAIN_CAS: &str = "template <class T, class Value>
WJ_DEVICE T plain_cas(T* word, Value expected, Value value) {
    const T seen = load_relaxed(word);
    if (seen == (T)expected) *word = (T)value;
    return seen;
}\n";

/// The text of a header, to be put where it is included.
fn text_of(name: &str) -> String {
    let file = warpjoin_kernels::HEADERS.iter().find(|file| file.name == name).expect("a header");
    file.text.replace("#pragma once", "")
}

/// The text with the header's text in the place of its `#include`.
fn including(text: &str, name: &str, header: &str) -> String {
    let include = format!("#include \"{name}\"\n");
    assert!(text.contains(&include), "{include}");
    text.replace(&include, &format!("{header}\n"))
}

/// The text of a header, its claims plain if `mutated`.
fn header(name: &str, mutated: bool) -> String {
    let text = text_of(name);
    if !mutated {
        return text;
    }
    assert!(text.contains("atomicCAS("), "{name} claims with atomicCAS");
    let last = text.rfind("#include").expect("other headers");
    let at = last + text[last..].find('\n').expect("a line");
    format!("{}\n{PLAIN_CAS}{}", &text[..at], text[at..].replace("atomicCAS(", "plain_cas("))
}

/// The definitions that modules are compiled with, tables with two lanes a probe group.
fn defines() -> Vec<String> {
    let session = simulated().open(1).expect("devices");
    let table = keyed(&[ints([Some(1), Some(2)])], &DataType::Int64);
    let join = join_of("any", table.clone(), table, 1);
    join.case.run(&session, &Settings { lanes: Some(2), load_factor: Some(0.5), ..Settings::default() }).expect("rows");
    let sources = session.devices()[0].compiled_sources();
    let of_two_lanes = |source: &ModuleSource| {
        source.text == warpjoin_kernels::JOIN_BUILD.text && source.defines.iter().any(|define| define == "WJ_LANES=2")
    };
    sources.into_iter().find(of_two_lanes).expect("join_build.cu").defines
}

fn module(text: String, entry: &str) -> ModuleSource {
    ModuleSource { name: "mutation".into(), text, entries: vec![entry.into()], defines: defines() }
}

/// A kernel that is about to be launched.
struct Run {
    stream: Stream,
    kernel: Kernel,
}

impl Run {
    fn launch(&self, params: &(impl KernelParams<Buffer> + ?Sized)) {
        let launch = Launch { blocks: 1, block_threads: 64, shared_bytes: 32 << 10 };
        self.stream.launch(&self.kernel, launch, params).expect("launches");
    }
}

/// Runs the entry with this seed on buffers of these words, as `launch` says; the words afterwards.
fn run(module: &ModuleSource, seed: u64, words: &[Vec<u64>], launch: impl Fn(&Run, &[Buffer])) -> Vec<Vec<u64>> {
    let device = open_simulated(&SimOptions { seed: Some(seed), ..SimOptions::default() }).expect("devices").remove(0);
    let kernel = device.compile(module).expect("compiles").kernel(&module.entries[0]).expect("an entry");
    let stream = device.create_stream().expect("a stream");
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let buffers: Vec<_> = words.iter().map(|words| stream.upload(&bytes(words)).expect("room")).collect();
    let run = Run { stream, kernel };
    launch(&run, &buffers);
    let read = |(buffer, words): (&Buffer, &Vec<u64>)| {
        let mut bytes = vec![0; words.len() * 8];
        run.stream.read(buffer, 0, &mut bytes).expect("bytes");
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
    };
    buffers.iter().zip(words).map(read).collect()
}

/// Whether each of 48 keys has exactly one slot of 64 after build_unique.
fn builds(module: &ModuleSource, seed: u64) -> bool {
    let keys: Vec<u64> = (1..=48).collect();
    let buffers = [keys.clone(), vec![0; 128], vec![0; 4]];
    let after = run(module, seed, &buffers, |run, buffers| {
        run.launch(&join::BuildParams {
            rows: 48,
            keys: Ptr::of(&buffers[0]),
            values: None,
            slots: Ptr::of(&buffers[1]),
            windows: 32,
            steps_max: 32,
            control: Ptr::of(&buffers[2]),
            cancel: 0,
        });
    });
    let mut found: Vec<u64> = after[1].iter().step_by(2).copied().filter(|&key| key != 0).collect();
    found.sort_unstable();
    found == keys
}

/// An entry that counts rows by key with `group_row_narrow` or, for two words, `group_row_wide`.
const COUNT_GROUPS: &str = "
struct CountParams { const u64* keys; u64* rows; u64* index; u64* counters; u64* control; };
WJ_ENTRY(count_groups, CountParams, 64) {
    const GroupTable table = {p.rows, 95, p.index, 64, 64, 64, 0, p.counters, p.control};
    SpareRow spare = {0, false};
    const u64 key = p.keys[threadIdx.x];
    const u64 words[2] = {key, ~key};
    const u64 row = WIDE ? group_row_wide(table, 4, words, spare) : group_row_narrow(table, 4, key);
    if (row != WJ_NO_ROW) atomicAdd(&p.rows[row * 4 + 3], 1ULL);
}\n";

/// Whether 64 rows of 16 keys are counted as 16 groups of 4.
fn counts(module: &ModuleSource, seed: u64) -> bool {
    let keys: Vec<u64> = (0..64).map(|row| row / 4).collect();
    let buffers = [keys, vec![0; 96 * 4], vec![0; 64], vec![0; 2], vec![0; 4]];
    let after = run(module, seed, &buffers, |run, buffers| {
        run.launch(&buffers.iter().map(Arg::Buffer).collect::<Vec<_>>()[..]);
    });
    let groups: Vec<u64> = after[1].chunks(4).filter(|row| row[0] != 0).map(|row| row[3]).collect();
    groups == [4; 16]
}

/// The module is right in all schedules; mutated, it is wrong in one at least.
fn shows(make: impl Fn(bool) -> ModuleSource, is_right: impl Fn(&ModuleSource, u64) -> bool) {
    let (kept, mutated) = (make(false), make(true));
    let wrong = (0..SEEDS).filter(|&seed| !is_right(&kept, seed)).count();
    assert_eq!(wrong, 0, "wrong as it is");
    assert!((0..SEEDS).any(|seed| !is_right(&mutated, seed)), "{SEEDS} schedules don't show the mutation");
}

#[test]
fn a_plain_claim_in_the_key_table_shows() {
    let make = |mutated| {
        let table = header("join/key_table.cuh", mutated);
        module(including(warpjoin_kernels::JOIN_BUILD.text, "join/key_table.cuh", &table), "build_unique")
    };
    shows(make, builds);
}

/// Whether each of 40 keys, three times, has exactly one slot in 8 buckets of 8.
fn inserts(module: &ModuleSource, seed: u64) -> bool {
    let keys: Vec<u64> = (0..120).map(|row| row % 40 + 1).collect();
    let buffers = [keys, vec![0; 64], vec![0; 1], vec![0; 2], vec![0; 4]];
    let none = RowWords {
        columns: [None; 8],
        is_wide: [false; 8],
        biases: [0; 8],
        key_masks: [0; 8],
        key_words: 0,
        words: 0,
        seed: 0,
        validity: None,
    };
    let after = run(module, seed, &buffers, |run, buffers| {
        run.launch(&table::InsertParams {
            table: table::Buckets {
                slots: Ptr::of(&buffers[1]),
                passed: Ptr::of(&buffers[2]),
                segment_bits: 0,
                segment_buckets: 8,
                seed: 0,
                has_gaps: false,
                side: Ptr::of(&buffers[3]),
                rows: none,
            },
            rows: RowWords {
                columns: padded([Some(Ptr::of(&buffers[0]))], None),
                is_wide: padded([true], false),
                key_masks: padded([u64::MAX], 0),
                key_words: 1,
                words: 1,
                ..none
            },
            first_row: 0,
            count: 120,
            assigns: false,
            control: Ptr::of(&buffers[4]),
            places: None,
        });
    });
    let mut found: Vec<u64> = after[1].iter().copied().filter(|&key| key != 0).collect();
    found.sort_unstable();
    found == (1..=40).collect::<Vec<u64>>()
}

#[test]
fn a_plain_claim_in_the_buckets_shows() {
    let make = |mutated| {
        let buckets = header("table/buckets.cuh", mutated);
        let build = including(&header("table/segment_build.cuh", false), "table/buckets.cuh", &buckets);
        let text = including(warpjoin_kernels::HASH_TABLE.text, "table/segment_build.cuh", &build);
        let mut module = module(text, "insert_rows");
        let of_slots = ["KEY_BYTES=8", "VALUE_BYTES=0", "BUCKET_BYTES=64", "TABLE_STREAMS=0"];
        module.defines.extend(of_slots.map(|define| format!("WJ_{define}")));
        module
    };
    shows(make, inserts);
}

/// Whether each of 48 keys has exactly one slot of one word of 64 after build_words_8, the value above it.
fn builds_words(module: &ModuleSource, seed: u64) -> bool {
    let keys: Vec<u64> = (1..=48).collect();
    let values: Vec<u64> = keys.iter().map(|key| key * 3).collect();
    let buffers = [keys.clone(), values, vec![0; 65], vec![0; 4]];
    let after = run(module, seed, &buffers, |run, buffers| {
        run.launch(&join::WordsParams {
            rows: 48,
            keys: Ptr::of(&buffers[0]),
            values: Some(Ptr::of(&buffers[1])),
            has_row_numbers: false,
            is_set: false,
            key_bits: 16,
            slots: Ptr::of(&buffers[2]),
            count: 64,
            steps_max: 64,
            control: Ptr::of(&buffers[3]),
            cancel: 0,
        });
    });
    let mut found: Vec<u64> = after[2].iter().copied().filter(|&slot| slot != 0).collect();
    found.sort_unstable();
    found == keys.iter().map(|key| key | (key * 3) << 16).collect::<Vec<_>>()
}

#[test]
fn a_plain_claim_of_a_slot_of_one_word_shows() {
    let make = |mutated| {
        let table = header("join/key_table.cuh", mutated);
        module(including(warpjoin_kernels::JOIN_BUILD.text, "join/key_table.cuh", &table), "build_words_8")
    };
    shows(make, builds_words);
}

fn groups(wide: bool, mutated: bool) -> ModuleSource {
    let text = format!("#define WIDE {}\n{}{COUNT_GROUPS}", u8::from(wide), header("group/group_table.cuh", mutated));
    module(text, "count_groups")
}

#[test]
fn a_plain_claim_in_the_group_table_shows() {
    shows(|mutated| groups(false, mutated), counts);
}

#[test]
fn a_plain_claim_in_the_index_of_long_groups_shows() {
    shows(|mutated| groups(true, mutated), counts);
}

/// Rows of a tile of 64 threads.
const TILE_ROWS: u64 = 64 * sort::SORT_ITEMS as u64;

/// The sort's kernels, where a block forgets what it saw before; or as they are.
fn sort_pass(mutated: bool) -> ModuleSource {
    let session = simulated().open(1).expect("devices");
    let sort = sort_of("any", ints((0..100).map(Some)), 0, None);
    sort.case.run(&session, &Settings { sort_few_rows: Some(0), ..Settings::default() }).expect("rows");
    let sources = session.devices()[0].compiled_sources();
    let mut module = sources.into_iter().find(|source| source.text == warpjoin_kernels::SORT.text).expect("sort.cu");
    module.entries = vec!["sort_pass_8".into()];
    if mutated {
        let adds = "before += seen & WJ_SORT_ROWS;";
        assert!(module.text.contains(adds), "it adds up what tiles have published");
        module.text = module.text.replace(adds, "before = seen & WJ_SORT_ROWS;");
    }
    module
}

/// Whether the third tile's rows go behind those of the first, which has published all rows up to its end, and of the
/// second, which has published its own only: simulated blocks never meet the like.
fn looks_back(module: &ModuleSource, seed: u64) -> bool {
    let keys: Vec<u64> = (0..3 * TILE_ROWS).map(|row| row % 4).collect();
    let mut sums = vec![3 * TILE_ROWS; 256];
    sums[..4].copy_from_slice(&[0, 700, 1400, 2100]);
    let (of_tile, up_to_tile) = (1 << 62, 2 << 62);
    let mut published = vec![up_to_tile; 256];
    published.resize(3 * 256, of_tile);
    published[512..].fill(0);
    for digit in 0..4 {
        published[digit] += 10 * (digit as u64 + 1);
        published[256 + digit] += digit as u64 + 1;
    }
    let buffers = [keys, sums, published, vec![2], vec![0; 3 * TILE_ROWS as usize / 2], vec![0; 4]];
    let after = run(module, seed, &buffers, |run, buffers| {
        run.launch(&sort::SortPassParams {
            keys: Ptr::of(&buffers[0]),
            numbers: None,
            rows: 3 * TILE_ROWS,
            shift: 0,
            bits: 8,
            dropped_bits: 0,
            sums: Ptr::of(&buffers[1]),
            published: Ptr::of(&buffers[2]),
            next_tile: Ptr::of(&buffers[3]),
            keys_out: None,
            numbers_out: Some(Ptr::of(&buffers[4])),
            control: Ptr::of(&buffers[5]),
        });
    });
    let number = |place: u64| after[4][place as usize / 2] >> (place % 2 * 32) & 0xffff_ffff;
    let is_placed = |row: u64| number(700 * (row % 4) + 11 * (row % 4 + 1) + row / 4) == 2 * TILE_ROWS + row;
    (0..TILE_ROWS).all(is_placed)
        && after[2][512..516] == [0, 1, 2, 3].map(|d| up_to_tile + 11 * (d + 1) + TILE_ROWS / 4)
}

#[test]
fn a_block_that_forgets_a_tile_shows() {
    shows(sort_pass, looks_back);
}

/// Rows of a tile of a scan by 64 threads, and tiles: more than a warp looks at together.
const SCAN_ROWS: u64 = 64 * 8;
const SCAN_TILES: u64 = 36;

/// The window's sum, where a block forgets what it saw before; or as it is.
fn scan_sums(mutated: bool) -> ModuleSource {
    let session = simulated().open(1).expect("devices");
    window_of("any", 40, 10).case.run(&session, &Settings::default()).expect("rows");
    let sources = session.devices()[0].compiled_sources();
    let mut module =
        sources.into_iter().find(|source| source.text == warpjoin_kernels::WINDOW.text).expect("window.cu");
    let mut scan = text_of("common/scan.cuh");
    if mutated {
        let adds = "carry = Op::of(lane_of(value, 0), carry);";
        assert!(scan.contains(adds), "it adds up what tiles have published");
        scan = scan.replace(adds, "carry = lane_of(value, 0);");
    }
    let folds = including(&text_of("window/folds.cuh"), "common/scan.cuh", &scan);
    module.text = including(&module.text, "window/folds.cuh", &folds);
    module.entries = vec!["window_add_64".into()];
    module
}

/// Whether the last tile's sums come behind those of the first, which has published all up to its end, and of all others,
/// which have published their own only: simulated blocks never meet the like.
fn scan_looks_back(module: &ModuleSource, seed: u64) -> bool {
    let rows = SCAN_TILES * SCAN_ROWS;
    let values: Vec<u64> = (0..rows).map(|row| row % 7).collect();
    let last = SCAN_TILES as usize - 1;
    // Two states a word: the first tile has published all up to its end, the last one nothing.
    let mut states = vec![1 << 32 | 1; SCAN_TILES as usize / 2];
    (states[0], states[last / 2]) = (1 << 32 | 2, 1);
    let of_tile: Vec<u64> = (0..SCAN_TILES).map(|tile| tile + 1).collect();
    let mut up_to_tile = vec![0; SCAN_TILES as usize];
    up_to_tile[0] = 1000;
    let before = 1000 + of_tile[1..last].iter().sum::<u64>();
    let buffers = [
        values.clone(),
        vec![0; rows as usize / 2],
        vec![0; rows as usize],
        vec![SCAN_TILES - 1],
        states,
        of_tile,
        up_to_tile,
        vec![0; 4],
    ];
    let after = run(module, seed, &buffers, |run, buffers| {
        let values = Some(Ptr::of(&buffers[0]));
        run.launch(&window::WindowScanParams {
            v: window::WindowValues { values, validity: None, kind: window_kind::INT, width: 8, base: 0, flip: 0 },
            segments: Ptr::of(&buffers[1]),
            period: 0,
            is_backward: false,
            rows,
            out: Ptr::of(&buffers[2]),
            tiles: window::WindowTiles {
                next_tile: Ptr::of(&buffers[3]),
                states: Ptr::of(&buffers[4]),
                of_tile: Ptr::of(&buffers[5]),
                up_to_tile: Ptr::of(&buffers[6]),
            },
            control: Ptr::of(&buffers[7]),
        });
    });
    let mut sum = before;
    let is_right = (last * SCAN_ROWS as usize..rows as usize).all(|row| {
        sum += values[row];
        after[2][row] == sum
    });
    is_right && after[6][last] == sum && after[4][last / 2] == 2 << 32 | 1
}

#[test]
fn a_scan_that_forgets_tiles_shows() {
    shows(scan_sums, scan_looks_back);
}

/// An entry that fills a runtime filter, its bits set by a plain load and store if `mutated`.
fn filling(entry: &str, mutated: bool) -> ModuleSource {
    let or = "template <class T>
WJ_DEVICE T plain_or(T* word, T bits) {
    const T seen = load_relaxed(word);
    *word = seen | bits;
    return seen;
}\n";
    let headers = ["group/accumulate.cuh", "join/runtime_filter.cuh"];
    let text = headers
        .iter()
        .fold(warpjoin_kernels::RUNTIME_FILTER.text.to_string(), |text, name| including(&text, name, &text_of(name)));
    assert!(text.matches("atomicOr(").count() >= 2, "bits are set by atomicOr");
    if !mutated {
        return module(text, entry);
    }
    let at = text.find("// Raises a word").expect("behind the includes");
    module(format!("{}{or}{}", &text[..at], text[at..].replace("atomicOr(", "plain_or(")), entry)
}

/// The filter of 64 keys in two words of 64 bits, and its bounds.
fn fill(module: &ModuleSource, seed: u64) -> [Vec<u64>; 2] {
    let buffers = [(1..=64).rev().collect(), vec![0; 2], vec![0; 2]];
    let mut after = run(module, seed, &buffers, |run, buffers| {
        run.launch(&join::FilterParams {
            rows: 64,
            keys: Ptr::of(&buffers[0]),
            words: Some(Ptr::of(&buffers[1])),
            count: 2,
            bounds: Some(Ptr::of(&buffers[2])),
        });
    });
    let bounds = after.pop().expect("bounds");
    [after.pop().expect("words"), bounds]
}

#[test]
fn bits_that_are_lost_show() {
    let bounds = vec![!1, 64];
    let is_full = |module: &ModuleSource, seed| fill(module, seed) == [vec![u64::MAX, 0], bounds.clone()];
    shows(|mutated| filling("fill_bitmap", mutated), is_full);
    let wanted = fill(&filling("fill_bloom", false), 0);
    assert!(wanted[0].iter().all(|word| word.count_ones() > 32) && wanted[1] == bounds, "{wanted:?}");
    shows(|mutated| filling("fill_bloom", mutated), |module, seed| fill(module, seed) == wanted);
}
