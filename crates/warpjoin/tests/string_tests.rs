//! LIKE and comparisons of strings on devices equal Arrow's kernels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod strings_common;

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use common::sanitized::{is_child, run_again};
use common::sessions::{Opener, Simulated, gpus, in_threads, simulated};
use strings_common::{ArrowTest, SIZES, check, filtered, table};
use warpjoin::expr::{Expr, ExprKind, HostFunction, StringTest};
use warpjoin::{ExecOptions, Session};
use warpjoin_device::{Cause, SimOptions, open_simulated};

fn cases() -> Vec<(u64, usize, usize)> {
    let many = std::env::var("WARPJOIN_RANDOM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let devices = [1, 2, 4];
    (0..many)
        .flat_map(|round| (0u64..).zip(SIZES).map(move |(index, size)| (round * 100 + index, size)))
        .flat_map(|(seed, size)| devices.map(|devices| (seed, size, devices)))
        .collect()
}

fn check_all(opener: &dyn Opener) {
    let tested = in_threads(&cases(), |&(seed, size, devices)| {
        opener.open(devices).map_or(0, |session| check(&session, seed, size, 12))
    });
    // The cases of letters that are not ASCII are the host's, and nothing but ANDs and ORs of nothing is tested by nobody.
    let tested: usize = tested.iter().sum();
    assert!(tested > cases().len() * 2, "devices made {tested} tests");
}

#[test]
fn random_tests_equal_arrow() {
    check_all(&simulated());
}

#[test]
fn random_tests_equal_arrow_on_gpus() {
    if let Some(gpus) = gpus("random_tests_equal_arrow_on_gpus") {
        check_all(&gpus);
    }
}

#[test]
fn random_tests_are_clean() {
    const NAME: &str = "random_tests_are_clean";
    if !is_child() {
        return run_again(NAME, &[NAME, "--exact"]);
    }
    let opener = Simulated(SimOptions { sanitize: true, ..SimOptions::default() });
    for (seed, size) in [(1, 31), (2, 257), (3, 700)] {
        check(&opener.open(2).unwrap(), seed, size, 6);
    }
}

/// Strings that have no room beside the table are tested on the host.
#[test]
fn strings_without_room_are_tested_on_the_host() {
    let mut on_devices = vec![];
    for memory_bytes in [96 << 10, 128 << 10, 192 << 10, 1 << 20, 64 << 20] {
        let options = SimOptions { memory_bytes, ..SimOptions::default() };
        let session = Session::new(open_simulated(&options).unwrap()).unwrap();
        on_devices.push(check(&session, 21, 3000, 4));
        assert_eq!(session.devices()[0].memory().used_bytes(), 0, "all memory is given back");
    }
    assert!(on_devices[0] == 0 && on_devices[4] > 0, "{on_devices:?}");
}

/// Strings that were brought to the devices leave when something else needs the memory, and come back.
#[test]
fn strings_make_room_for_allocations() {
    let session = simulated().open(1).unwrap();
    let rows: Vec<Option<String>> = (0..70_000).map(|row| Some(format!("{row} {}", "x".repeat(row % 50)))).collect();
    let table = table(&session, &rows, &DataType::Utf8);
    let memory = session.devices()[0].memory();
    let table_bytes = memory.used_bytes();
    let operands = vec![Expr::column(1, DataType::Utf8, true)];
    let test = StringTest::Like { pattern: "%9%x%".into(), ignores_case: false };
    let expected: Vec<i64> = (0i64..)
        .zip(&rows)
        .filter(|(row, text)| row.to_string().contains('9') && text.as_ref().unwrap().ends_with('x'))
        .map(|(row, _)| row)
        .collect();
    let find = || {
        let function = Arc::new(ArrowTest(test.clone()));
        let kind = ExprKind::Tabulated { operands: operands.clone(), function };
        filtered(&session, &table, kind, &ExecOptions::default())
    };
    for round in 0..3 {
        let (actual, output) = find();
        assert_eq!(actual, expected);
        assert!(output.metrics.pipelines.iter().any(|pipeline| pipeline.name.contains("Test")), "{round}");
        drop(output);
        let strings_bytes = memory.used_bytes() - table_bytes;
        assert!(strings_bytes > 2_000_000, "the strings stay: {strings_bytes} bytes in round {round}");
        // All that the budget leaves, and as much as half of the strings.
        memory.set_limit_bytes(memory.used_bytes() + 1_000_000);
        let stream = session.devices()[0].create_stream().unwrap();
        let buffer = stream.alloc(1_000_000 + strings_bytes / 2).unwrap();
        assert_eq!(memory.used_bytes(), table_bytes + buffer.bytes(), "the strings are gone");
        let too_much = stream.alloc(table_bytes + 2 * strings_bytes).unwrap_err();
        assert_eq!(too_much.cause(), Cause::OutOfMemory);
        drop(buffer);
        memory.set_limit_bytes(session.devices()[0].info().budget_bytes);
    }
}

/// Whether the length in bytes is even; counts how often it was asked.
#[derive(Debug)]
struct IsEven {
    asked: Arc<AtomicUsize>,
    kind: u32,
}

impl fmt::Display for IsEven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is_even")
    }
}

impl HostFunction for IsEven {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        self.asked.fetch_add(operands[0].len(), Ordering::Relaxed);
        let even = operands[0].as_string::<i32>().iter().map(|text| text.map(|text| text.len() % 2 == 0));
        Ok(Arc::new(even.collect::<BooleanArray>()))
    }

    fn is_same(&self, other: &dyn HostFunction) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| other.kind == self.kind)
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

/// A function that is the same evaluates a large dictionary once, and one that is not by itself.
#[test]
fn functions_of_large_dictionaries_are_remembered() {
    let session = simulated().open(2).unwrap();
    let rows: Vec<Option<String>> =
        (0..40_000).map(|row| (row % 7 > 0).then(|| "x".repeat(row % 3) + &row.to_string())).collect();
    let table = table(&session, &rows, &DataType::Utf8);
    let distinct = rows.iter().flatten().collect::<HashSet<_>>().len();
    let expected: Vec<i64> = (0i64..)
        .zip(&rows)
        .filter(|(_, text)| text.as_ref().is_some_and(|text| text.len() % 2 == 0))
        .map(|(row, _)| row)
        .collect();
    let asked = Arc::new(AtomicUsize::new(0));
    for (kind, evaluated) in [(0, 1), (0, 1), (1, 2), (0, 2), (1, 2)] {
        let function = Arc::new(IsEven { asked: Arc::clone(&asked), kind });
        let operands = vec![Expr::column(1, DataType::Utf8, true)];
        let (actual, _) =
            filtered(&session, &table, ExprKind::Tabulated { operands, function }, &ExecOptions::default());
        assert!(actual == expected, "{} rows instead of {}", actual.len(), expected.len());
        // Once with every value, and with null.
        assert_eq!(asked.load(Ordering::Relaxed), evaluated * (distinct + 1));
    }
}
