//! Joins of few rows that have many matches, which several lanes of a device share.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use common::case::upload;
use common::int_plans::{batch, below, join, join_if_less, scan, sums};
use warpjoin::exec;
use warpjoin::plan::{JoinKind, Plan};
use warpjoin::{CodeTier, ExecOptions, JoinForm, Session, Table};
use warpjoin_device::{SimOptions, open_simulated};

/// Rows of each build side.
const BUILD_ROWS: i64 = 700;
/// Keys of each build side; a probe row may have a key that is none of them.
const KEYS: i64 = 3;

type Row = Vec<i64>;

fn table(session: &Arc<Session>, rows: &[(i64, i64)]) -> Arc<Table> {
    let (keys, values) = rows.iter().copied().unzip();
    upload(session, &batch(vec![("key", keys), ("value", values)]))
}

/// Rows in order; columns of one type.
fn rows(batches: &[RecordBatch]) -> Vec<Row> {
    let of_batch = |batch: &RecordBatch| {
        let row = |row| batch.columns().iter().map(|column| column.as_primitive::<Int64Type>().value(row)).collect();
        (0..batch.num_rows()).map(row).collect::<Vec<Row>>()
    };
    let mut rows: Vec<Row> = batches.iter().flat_map(of_batch).collect();
    rows.sort_unstable();
    rows
}

/// Sums of column `value` by column `key`.
fn summed(rows: &[Row], key: usize, value: usize) -> Vec<Row> {
    let mut sums = BTreeMap::<i64, i64>::new();
    rows.iter().for_each(|row| *sums.entry(row[key]).or_default() += row[value]);
    sums.into_iter().map(|(key, sum)| vec![key, sum]).collect()
}

#[test]
fn each_match_is_one_row_however_many_lanes_share_them() {
    let build: Vec<(i64, i64)> = (0..BUILD_ROWS).map(|i| (i % KEYS, i)).collect();
    for devices in [1, 2] {
        let devices = open_simulated(&SimOptions { devices, ..SimOptions::default() }).unwrap();
        let session = Session::new(devices).unwrap();
        let build_table = table(&session, &build);
        for probe_rows in [0, 1, 2, 31, 32, 33, 129, 1000] {
            let probe: Vec<(i64, i64)> = (0..probe_rows).map(|i| (i % (KEYS + 1), i)).collect();
            let probe_table = table(&session, &probe);
            // Key, value of the build row, value of the probe row.
            let mut joined: Vec<Row> = vec![];
            for &(key, value) in &probe {
                let matches = build.iter().filter(|(of_build, _)| *of_build == key);
                joined.extend(matches.map(|&(_, of_build)| vec![key, of_build, value]));
            }
            joined.sort_unstable();
            let kept: Vec<Row> = joined.iter().filter(|row| row[1] < 20).cloned().collect();
            let once = |build: Plan| join(build, scan(&probe_table), (0, 0), JoinKind::Inner, vec![0, 1, 3]);
            // Each row of the first join has many matches in the second.
            let twice = join(
                scan(&build_table),
                once(below(scan(&build_table), 1, 20)),
                (0, 0),
                JoinKind::Inner,
                vec![2, 3, 1],
            );
            let mut pairs: Vec<Row> = vec![];
            for row in &kept {
                let matches = build.iter().filter(|(key, _)| *key == row[0]);
                pairs.extend(matches.map(|&(_, value)| vec![row[0], row[1], value]));
            }
            pairs.sort_unstable();
            // Whether a row has a match of a lower value; few rows have one, or many.
            let has_lower = |row: &(i64, i64), bound: i64| {
                build.iter().any(|&(key, value)| key == row.0 && value < bound && value < row.1)
            };
            let existence = |bound: i64, kind: JoinKind| {
                let build = below(scan(&build_table), 1, bound.into());
                join_if_less(join(build, scan(&probe_table), (0, 0), kind, vec![2, 3]), 1, 3)
            };
            let existing = |bound: i64, expected: bool| {
                let kept = probe.iter().filter(|row| has_lower(row, bound) == expected);
                let mut kept: Vec<Row> = kept.map(|&(key, value)| vec![key, value]).collect();
                kept.sort_unstable();
                kept
            };
            let cases = [
                ("semi join", existence(BUILD_ROWS, JoinKind::ProbeSemi), existing(BUILD_ROWS, true)),
                ("semi join of few", existence(9, JoinKind::ProbeSemi), existing(9, true)),
                ("anti join", existence(BUILD_ROWS, JoinKind::ProbeAnti), existing(BUILD_ROWS, false)),
                (
                    "sums of a semi join",
                    sums(existence(9, JoinKind::ProbeSemi), 0, 1),
                    summed(&existing(9, true), 0, 1),
                ),
                ("rows", once(scan(&build_table)), joined.clone()),
                ("some rows", below(once(scan(&build_table)), 1, 20), kept),
                ("sums", sums(once(scan(&build_table)), 0, 1), summed(&joined, 0, 1)),
                ("sums by row", sums(once(scan(&build_table)), 2, 1), summed(&joined, 2, 1)),
                ("two joins", twice.clone(), pairs.clone()),
                ("sums of two joins", sums(twice, 1, 2), summed(&pairs, 1, 2)),
            ];
            for (name, plan, expected) in &cases {
                // In chunks, and with tables that grow, too.
                for (code_tier, chunk_rows) in [
                    (CodeTier::Compiled, None),
                    (CodeTier::Compiled, Some(128)),
                    (CodeTier::Interpreted, None),
                    (CodeTier::Interpreted, Some(128)),
                ] {
                    let options = ExecOptions {
                        code_tier,
                        chunk_rows,
                        first_capacity: chunk_rows.map(|_| 1),
                        join_form: Some(JoinForm::HashTable),
                        join_order: exec::JoinOrder::AsGiven,
                        ..ExecOptions::default()
                    };
                    let output = exec::run(&session, plan, &[], &options).unwrap();
                    assert!(
                        rows(&output.batches) == *expected,
                        "{name} of {probe_rows} rows, {code_tier:?}, chunks {chunk_rows:?}: {} rows, not {}",
                        rows(&output.batches).len(),
                        expected.len()
                    );
                }
            }
        }
    }
}
