//! 100 schedules of build, probe, aggregate and exchange: the simulated devices switch lanes at
//! every atomic and run blocks and streams in an order drawn from a seed.

mod common;

use arrow::datatypes::DataType;
use common::case::{Case, Outcome};
use common::edges::{group_of, ints, join_of, keyed, sort_of, window_of};
use common::sanitized::{is_child, run_again};
use common::sessions::{Opener, Simulated, in_threads};
use common::settings::Settings;
use warpjoin::exec::{Distribution, GroupByForm};
use warpjoin_device::SimOptions;

const SEEDS: u64 = 100;

/// Runs a case with every seed, on one to three devices, with keys that collide.
fn explore(case: &Case) {
    explore_with(case, |_| {});
}

/// The same with other settings.
fn explore_with(case: &Case, change: impl Fn(&mut Settings) + Sync) {
    let verdict = case.verdict();
    let seeds: Vec<u64> = (0..SEEDS).collect();
    let failures = in_threads(&seeds, |&seed| {
        let options = SimOptions { seed: Some(seed), sanitize: is_child(), ..SimOptions::default() };
        let mut settings = Settings {
            devices: 1 + (seed % 3) as usize,
            lanes: Some(1 << (seed % 4)),
            distribution: if seed % 2 == 0 { Distribution::Exchange } else { Distribution::Broadcast },
            hash_bits: 4,
            load_factor: Some(0.9),
            ..Settings::default()
        };
        change(&mut settings);
        let session = Simulated(options).open(settings.devices).expect("devices");
        match case.check_against(&verdict, &session, &settings) {
            Ok(Outcome::Equal) => None,
            other => Some(format!("seed {seed}: {other:?}")),
        }
    });
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} of {SEEDS} schedules fail\n{}", failures.len(), failures[0]);
}

/// An Int64 key column and the row number, `rows` times.
fn table(rows: i128, key: impl Fn(i128) -> i128) -> arrow::array::RecordBatch {
    keyed(&[ints((0..rows).map(|row| Some(key(row))))], &DataType::Int64)
}

/// The same schedules once more, sanitized.
#[test]
fn schedules_are_clean_under_sanitizers() {
    if !is_child() {
        run_again("schedules_are_clean_under_sanitizers", &[]);
    }
}

#[test]
fn unique_keys_are_built_and_probed() {
    explore(&join_of("unique", table(50, |r| r * 3), table(70, |r| r * 2), 1).case);
}

#[test]
fn duplicate_keys_are_built_and_probed() {
    explore(&join_of("duplicate", table(60, |r| r % 9), table(40, |r| r % 12), 1).case);
}

#[test]
fn long_keys_are_built_and_probed() {
    let long = |r: i128| (r % 11 - 5) * (i128::from(i64::MAX) / 5);
    explore(&join_of("long", table(40, long), table(40, long), 1).case);
}

#[test]
fn groups_in_shared_memory() {
    explore(&group_of("private", table(300, |r| r % 3), 1, 1).case);
}

#[test]
fn groups_by_row_number() {
    explore(&group_of("dense", table(100, |r| r * 7 % 300), 1, 1).case);
}

#[test]
fn groups_by_short_key() {
    explore(&group_of("narrow", table(100, |r| r % 13 * 1_000_000_007), 1, 1).case);
}

#[test]
fn groups_by_long_key() {
    explore(&group_of("wide", table(100, |r| (r % 13 - 6) * (i128::from(i64::MAX) / 6)), 1, 1).case);
}

#[test]
fn groups_by_two_words() {
    let keys = |row: i128| (row % 13 - 6) * (i128::from(i64::MAX) / 6);
    let columns = [ints((0..100).map(|row| Some(keys(row)))), ints((0..100).map(|row| Some(keys(row / 2))))];
    explore(&group_of("wide", keyed(&columns, &DataType::Int64), 2, 2).case);
}

#[test]
fn groups_in_tables_that_fill_up_and_grow() {
    let table = table(2000, |row| row * row % 700 * 1_000_000_007);
    explore_with(&group_of("growing", table, 1, 1).case, |settings| {
        settings.first_capacity = Some(0);
        settings.block_table_slots = Some(0);
    });
}

#[test]
fn groups_by_partition() {
    let table = table(500, |row| row * row % 90 * 1_000_000_007);
    explore_with(&group_of("partitioned", table, 1, 1).case, |settings| {
        settings.group_by_form = Some(GroupByForm::Partitioned);
    });
}

#[test]
fn rows_are_sorted_digit_by_digit() {
    let keys = ints((0..2500).map(|row| Some(row * 7919 % 2503 * 1_000_003)));
    explore_with(&sort_of("radix", keys, 0, None).case, |settings| settings.sort_few_rows = Some(0));
}

#[test]
fn first_rows_are_collected() {
    let keys = ints((0..2500).map(|row| Some(row * row % 40 * 1_000_000_007)));
    explore_with(&sort_of("top k", keys, 3, Some(300)).case, |settings| settings.sort_few_rows = Some(0));
}

#[test]
fn few_rows_are_sorted_by_a_block() {
    explore(&sort_of("few", ints((0..300).map(|row| Some(row * 7 % 100))), 2, Some(200)).case);
}

#[test]
fn scans_of_windows_look_back() {
    explore(&window_of("windows", 1300, 400).case);
}

#[test]
fn one_group_of_all_rows() {
    explore(&group_of("global", table(300, |r| r), 0, 1).case);
}
