//! Cases of every operator, run in schedules drawn from seeds: small tables, keys that collide, and settings that force
//! each form of a join, a group-by, a sort and a filter.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use warpjoin::exec::{Distribution, GroupByForm, Materialization, RuntimeFilters};
use warpjoin::plan::{FilterForm, JoinKind};
use warpjoin::{DeviceThreads, JoinForm};
use warpjoin_device::{ModuleSource, SimOptions};

use super::case::{Case, Outcome};
use super::data::batch;
use super::edges::{Edge, group_of, group_of_others, ints, join_of, join_of_kind, keyed, sort_of, window_of};
use super::sessions::{Opener, Simulated, in_threads};
use super::settings::Settings;
use super::value::V;

/// A case, and what it changes of the settings that a seed gives.
pub(crate) struct Scheduled {
    pub(crate) name: String,
    case: Case,
    change: Box<dyn Fn(&mut Settings) + Sync>,
}

/// How many seeds a test explores: `WARPJOIN_SEEDS`, or so many.
pub(crate) fn seeds(usual: u64) -> Vec<u64> {
    let number = std::env::var("WARPJOIN_SEEDS").ok().and_then(|text| text.parse().ok());
    (0..number.unwrap_or(usual)).collect()
}

/// One to three devices, and what else a seed decides.
fn settings(seed: u64) -> Settings {
    Settings {
        devices: 1 + (seed % 3) as usize,
        lanes: Some(1 << (seed % 4)),
        distribution: if seed.is_multiple_of(2) { Distribution::Exchange } else { Distribution::Broadcast },
        hash_bits: 4,
        load_factor: Some(0.9),
        device_threads: if seed % 4 == 3 { DeviceThreads::Each } else { DeviceThreads::One(seed) },
        ..Settings::default()
    }
}

impl Scheduled {
    /// Runs the case with a seed; what is wrong, in words.
    pub(crate) fn run(&self, seed: u64, options: &SimOptions) -> Option<String> {
        self.run_and_list(seed, options).0
    }

    /// The same, with the modules that were compiled.
    pub(crate) fn run_and_list(&self, seed: u64, options: &SimOptions) -> (Option<String>, Vec<ModuleSource>) {
        let mut settings = settings(seed);
        (self.change)(&mut settings);
        let session =
            Simulated(SimOptions { seed: Some(seed), ..options.clone() }).open(settings.devices).expect("devices");
        let wrong = match self.case.check_against(&self.case.verdict(), &session, &settings) {
            Ok(Outcome::Equal) => None,
            other => Some(format!("{}, seed {seed}: {other:?}", self.name)),
        };
        (wrong, session.devices()[0].compiled_sources())
    }

    /// Runs the case with every seed.
    pub(crate) fn explore(&self, seeds: &[u64], options: &SimOptions) {
        explore(std::slice::from_ref(self), seeds, options);
    }
}

/// Runs all cases with every seed; fails with the first failure and how many there are.
pub(crate) fn explore(cases: &[Scheduled], seeds: &[u64], options: &SimOptions) {
    let runs: Vec<(&Scheduled, u64)> =
        seeds.iter().flat_map(|&seed| cases.iter().map(move |case| (case, seed))).collect();
    let failures = in_threads(&runs, |&(case, seed)| case.run(seed, options));
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} of {} schedules fail\n{}", failures.len(), runs.len(), failures[0]);
}

/// An Int64 key column and the row number, `rows` times.
fn table(rows: i128, key: impl Fn(i128) -> i128) -> RecordBatch {
    keyed(&[ints((0..rows).map(|row| Some(key(row))))], &DataType::Int64)
}

/// An Int64 key column, and values of a type.
fn valued(rows: i128, key: impl Fn(i128) -> i128, value: impl Fn(i128) -> V, data_type: &DataType) -> RecordBatch {
    let columns = [ints((0..rows).map(|row| Some(key(row)))), (0..rows).map(value).collect()];
    batch(&columns, &[DataType::Int64, data_type.clone()], true)
}

fn with(edge: Edge, change: impl Fn(&mut Settings) + Sync + 'static) -> Scheduled {
    Scheduled { name: edge.name, case: edge.case, change: Box::new(change) }
}

fn plain(edge: Edge) -> Scheduled {
    with(edge, |_| {})
}

/// The case of that name.
pub(crate) fn named(name: &str) -> Scheduled {
    all().into_iter().find(|case| case.name == name).expect("a case of that name")
}

/// All cases.
pub(crate) fn all() -> Vec<Scheduled> {
    let mut cases = compiled();
    cases.extend(interpreted());
    cases
}

/// Cases of generated kernels.
fn compiled() -> Vec<Scheduled> {
    [tables(), joins(), filters(), groups(), orders()].into_iter().flatten().collect()
}

/// Cases that are interpreted, too: every way in which the lanes of an interpreted kernel meet.
const INTERPRETED: [&str; 16] = [
    "duplicate keys",
    "partitioned, duplicate keys",
    "full join",
    "list of rows behind a bitmap",
    "bitmap of several blocks",
    "groups of listed rows in many turns",
    "groups by row number in all blocks",
    "groups by two words in all blocks",
    "groups that grow",
    "groups by partition in all blocks",
    "groups that partitions have to themselves",
    "groups by partition in many turns",
    "groups by block table in many turns",
    "sums of decimals by block table",
    "sums of floats by block table",
    "first rows",
];

fn interpreted() -> Vec<Scheduled> {
    let cases = compiled().into_iter().filter(|case| INTERPRETED.contains(&case.name.as_str()));
    let interpreted = cases.map(|Scheduled { name, case, change }| {
        let change = move |settings: &mut Settings| {
            settings.interprets = true;
            // Other tests interpret with as many: these kernels take long to compile.
            settings.hash_bits = 3;
            change(settings);
        };
        Scheduled { name: format!("{name}, interpreted"), case, change: Box::new(change) }
    });
    interpreted.collect()
}

/// Joins by one table.
fn tables() -> Vec<Scheduled> {
    let long = |r: i128| (r % 11 - 5) * (i128::from(i64::MAX) / 5);
    let some_null = keyed(&[ints((0..300).map(|row| (row % 3 > 0).then_some(row * 3)))], &DataType::Int64);
    let direct = |settings: &mut Settings| settings.join_form = Some(JoinForm::Direct);
    // Of two columns that are thought to be a key together; the last 30 of 900 are not.
    let pairs = |rows: i128| {
        let column = |values: i128| ints((0..rows).map(|row| Some(row % values)));
        keyed(&[column(30), column(29)], &DataType::Int64)
    };
    vec![
        plain(join_of("unique keys", table(50, |r| r * 3), table(70, |r| r * 2), 1)),
        plain(join_of("duplicate keys", table(60, |r| r % 9), table(40, |r| r % 12), 1)),
        plain(join_of("long keys", table(40, long), table(40, long), 1)),
        with(join_of("direct table", table(60, |r| r * 5 % 61), table(70, |r| r), 1), direct),
        with(join_of("direct table of lists", table(900, |r| r % 300), table(400, |r| r), 1), direct),
        with(join_of("direct table with keys that come twice", pairs(900), pairs(400), 2), move |settings| {
            direct(settings);
            settings.devices = 1;
        }),
        with(join_of_kind("direct set", JoinKind::ProbeSemi, table(900, |r| r % 300), table(400, |r| r)), direct),
        with(join_of("hash table", table(60, |r| r * 1_000_003), table(70, |r| r * 1_000_003), 1), |settings| {
            settings.join_form = Some(JoinForm::HashTable);
            settings.first_capacity = Some(1);
        }),
        with(join_of("rows in smaller buffers", some_null, table(400, |r| r * 2), 1), |settings| {
            settings.join_form = Some(JoinForm::HashTable);
            settings.distribution = Distribution::Broadcast;
            settings.waste_bytes_max = Some(0);
            settings.devices = 3;
        }),
        with(join_of("late columns", table(60, |r| r % 30), table(40, |r| r), 1), |settings| {
            settings.materialization = Materialization::Late;
        }),
    ]
}

/// Partitioned joins, and joins of other kinds.
fn joins() -> Vec<Scheduled> {
    let partitioned = |settings: &mut Settings| {
        settings.join_form = Some(JoinForm::Partitioned);
        settings.devices = 1;
    };
    let small = move |settings: &mut Settings| {
        partitioned(settings);
        settings.partition_rows = Some(20);
    };
    let kind = |name: &str, kind| join_of_kind(name, kind, table(90, |r| r % 45), table(70, |r| r * 2));
    let kept = join_of_kind("full join that is kept", JoinKind::Full, table(600, |r| r), table(600, |r| r * 2));
    vec![
        with(join_of("partitioned", table(300, |r| r * 7), table(400, |r| r * 3), 1), partitioned),
        with(join_of("partitioned, duplicate keys", table(300, |r| r % 60), table(100, |r| r), 1), small),
        with(join_of("partitioned, one key", table(150, |_| 7), table(60, |r| r % 9), 1), small),
        with(
            join_of("partitioned, counted in two passes", table(150, |r| r % 120), table(2600, |r| r % 5), 1),
            move |settings| {
                small(settings);
                settings.counted_bits = Some(1);
            },
        ),
        with(join_of("partitioned on several devices", table(90, |r| r * 7), table(120, |r| r * 3), 1), |settings| {
            settings.join_form = Some(JoinForm::Partitioned);
            settings.distribution = Distribution::Exchange;
            settings.devices = 3;
        }),
        with(kind("partitioned semi join", JoinKind::ProbeSemi), small),
        with(kind("partitioned outer join", JoinKind::ProbeOuter), small),
        plain(kind("semi join", JoinKind::ProbeSemi)),
        plain(kind("anti join", JoinKind::ProbeAnti)),
        plain(kind("not in", JoinKind::NotIn)),
        plain(kind("mark join", JoinKind::ProbeMark)),
        plain(kind("outer join", JoinKind::ProbeOuter)),
        plain(kind("full join", JoinKind::Full)),
        with(kept, |settings| settings.keeps = true),
        with(kind("reduced outer join", JoinKind::ProbeOuter), |settings| settings.reduced_rows_min = Some(0)),
    ]
}

/// Joins behind runtime filters.
fn filters() -> Vec<Scheduled> {
    let by = |name: &str, form| {
        let edge = join_of(name, table(40, |r| r * 5), table(200, |r| r), 1);
        with(edge, move |settings| settings.runtime_filters = RuntimeFilters::AlwaysBy(form))
    };
    vec![
        by("filter by table", FilterForm::Table),
        by("bitmap", FilterForm::Bitmap),
        by("bloom filter", FilterForm::Bloom),
        with(join_of("list of rows behind a bitmap", table(40, |r| r * 5), table(300, |r| r), 1), |settings| {
            settings.runtime_filters = RuntimeFilters::AlwaysBy(FilterForm::Bitmap);
            settings.compact_rows_min = Some(0);
        }),
        // Turns without such a row among them, on devices with few blocks.
        with(
            join_of("list of rows behind a bitmap in many turns", table(40, |r| r * 5), table(9000, |r| r), 1),
            |settings| {
                settings.runtime_filters = RuntimeFilters::AlwaysBy(FilterForm::Bitmap);
                settings.compact_rows_min = Some(0);
                settings.devices = 1;
            },
        ),
        // More build rows than a block has threads, so that several blocks set bits of one word.
        with(join_of("bitmap of several blocks", table(600, |r| r * 7 % 611), table(700, |r| r), 1), |settings| {
            settings.runtime_filters = RuntimeFilters::AlwaysBy(FilterForm::Bitmap);
        }),
    ]
}

/// Group-bys: by one block each, by several blocks that meet in groups, and over many turns of a block.
fn groups() -> Vec<Scheduled> {
    let words = |row: i128| (row % 13 - 6) * (i128::from(i64::MAX) / 6);
    let two = |rows: i128| {
        let columns = [ints((0..rows).map(|row| Some(words(row)))), ints((0..rows).map(|row| Some(words(row / 2))))];
        keyed(&columns, &DataType::Int64)
    };
    let spread = |row: i128| row * row % 90 * 1_000_000_007;
    let block_table = |settings: &mut Settings| {
        settings.group_by_form = Some(GroupByForm::BlockTable);
        settings.devices = 1;
    };
    let global = |settings: &mut Settings| {
        settings.group_by_form = Some(GroupByForm::Global);
        settings.devices = 1;
    };
    let by_partition = |settings: &mut Settings| settings.group_by_form = Some(GroupByForm::Partitioned);
    // The least and the largest key: the word of one of them is 0.
    let extremes = |row: i128| [i64::MIN, 0, i64::MAX][row as usize % 3].into();
    let decimals = || valued(700, spread, |row| V::Int(row << 70), &DataType::Decimal128(38, 0));
    let floats = || valued(700, spread, |row| V::Float(row as f64), &DataType::Float64);
    let all_blocks = table(6000, |r| r * 7919 % 1500 * 1_000_000_007);
    let few_each = table(6000, |r| r * 7919 % 3000 * 1_000_000_007);
    // More groups at a time than there are slots, and others later.
    let passing = table(40_000, |r| (r / 5000 * 150 + r % 170) * 1_000_000_007);
    let many_turns = group_of("groups by block table in many turns", passing.clone(), 1, 1);
    let long = || valued(700, spread, |row| V::Int(row << 34), &DataType::Int64);
    vec![
        plain(group_of("groups in shared memory", table(300, |r| r % 3), 1, 1)),
        with(group_of_others("groups of listed rows in shared memory", table(700, |r| r % 5), 3), |settings| {
            settings.compact_rows_min = Some(0);
        }),
        with(group_of_others("groups of listed rows in many turns", passing.clone(), 1_000_000_007), move |settings| {
            block_table(settings);
            settings.compact_rows_min = Some(0);
            settings.block_table_slots = Some(100);
        }),
        plain(group_of("groups by row number", table(100, |r| r * 7 % 300), 1, 1)),
        with(group_of("groups by row number in all blocks", table(1500, |r| r * 7919 % 40), 1, 1), global),
        plain(group_of("groups by short key", table(100, |r| r % 13 * 1_000_000_007), 1, 1)),
        plain(group_of("groups by long key", table(100, words), 1, 1)),
        plain(group_of("groups by two words", two(100), 2, 2)),
        with(group_of("groups by two words in all blocks", two(1500), 2, 2), global),
        plain(group_of("one group of all rows", table(300, |r| r), 0, 1)),
        with(group_of("groups that grow", table(2000, |r| r * r % 700 * 1_000_000_007), 1, 1), |settings| {
            settings.first_capacity = Some(0);
            settings.block_table_slots = Some(0);
        }),
        with(group_of("groups by partition", table(500, spread), 1, 1), by_partition),
        with(group_of("groups by partition in all blocks", all_blocks, 1, 1), move |settings| {
            by_partition(settings);
            settings.block_table_slots = Some(100);
        }),
        with(group_of("groups that partitions have to themselves", few_each, 1, 1), move |settings| {
            by_partition(settings);
            settings.hash_bits = 64;
            settings.block_table_slots = Some(300);
        }),
        with(group_of("groups by partition in many turns", passing, 1, 1), move |settings| {
            by_partition(settings);
            settings.devices = 1;
            settings.block_table_slots = Some(100);
        }),
        with(group_of("groups by piece", table(3000, |r| r / 7 * 1_000_000_007), 1, 1), |settings| {
            settings.ordered_span_min = Some(1);
            settings.block_table_slots = Some(300);
        }),
        with(group_of("groups by block table", table(500, spread), 1, 1), block_table),
        with(many_turns, move |settings| {
            block_table(settings);
            settings.block_table_slots = Some(100);
        }),
        with(group_of("extreme keys by block table", table(500, extremes), 1, 1), block_table),
        with(group_of("extreme keys", table(500, extremes), 1, 1), global),
        with(group_of("sums of decimals by block table", decimals(), 1, 1), block_table),
        with(group_of("sums of decimals", decimals(), 1, 1), global),
        with(group_of("sums of floats by block table", floats(), 1, 1), block_table),
        with(group_of("sums of floats", floats(), 1, 1), global),
        with(group_of("sums of long values by block table", long(), 1, 1), block_table),
    ]
}

/// Sorts, first rows and windows.
fn orders() -> Vec<Scheduled> {
    let all_rows = |settings: &mut Settings| settings.sort_few_rows = Some(0);
    // Four tiles: one looks back at others that have looked back.
    let sorted = ints((0..4300).map(|row| Some(row * 7919 % 4327 * 1_000_003)));
    let tied = ints((0..2500).map(|row| Some(row * row % 40 * 1_000_000_007)));
    vec![
        with(sort_of("sort by digits", sorted, 0, None), all_rows),
        with(sort_of("first rows", tied, 3, Some(300)), all_rows),
        with(
            sort_of("first rows of many equal ones", ints((0..2500).map(|row| Some(row % 3))), 3, Some(300)),
            all_rows,
        ),
        plain(sort_of("sort of few rows", ints((0..300).map(|row| Some(row * 7 % 100))), 2, Some(200))),
        plain(window_of("windows", 1300, 400)),
    ]
}
