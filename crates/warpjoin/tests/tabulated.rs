//! Functions of several operands, evaluated by the host for each combination of their values.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
// Helpers of strings that other tests use.
#![allow(dead_code)]

mod common;
mod strings_common;

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Int64Type};
use arrow::error::ArrowError;
use common::sessions::{Opener, gpus, simulated};
use rand::SeedableRng;
use rand::rngs::StdRng;
use strings_common::{filtered, random_strings, table};
use warpjoin::exec::run;
use warpjoin::expr::{COMBINATIONS_MAX, Expr, ExprKind, HostFunction};
use warpjoin::plan::{Plan, PlanKind};
use warpjoin::{Error, ExecOptions, Reason, Table};

/// Whether a number and the length of a string add up to a multiple of three; null strings count as empty ones.
#[derive(Debug)]
struct AddsUp;

fn adds_up(number: i64, text: Option<&str>) -> bool {
    (number + text.map_or(0, str::len) as i64) % 3 == 0
}

impl fmt::Display for AddsUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("adds_up")
    }
}

impl HostFunction for AddsUp {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        let (numbers, texts) = (operands[0].as_primitive::<Int64Type>(), operands[1].as_string::<i32>());
        assert_eq!(numbers.null_count(), 0, "this column has none");
        let rows = numbers.values().iter().zip(texts);
        Ok(Arc::new(rows.map(|(&number, text)| Some(adds_up(number, text))).collect::<BooleanArray>()))
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

fn kind() -> ExprKind {
    let operands = vec![Expr::column(0, DataType::Int64, false), Expr::column(1, DataType::Utf8, true)];
    ExprKind::Tabulated { operands, function: Arc::new(AddsUp) }
}

fn scan(table: &Arc<Table>) -> Plan {
    Plan { kind: PlanKind::Scan { table: Arc::clone(table), projection: vec![0, 1] }, schema: table.schema() }
}

fn check(opener: &dyn Opener) {
    for (seed, size, devices) in [(1, 0, 1), (2, 1, 2), (3, 60, 2), (4, 400, 4)] {
        let Some(session) = opener.open(devices) else { continue };
        let rows = random_strings(&mut StdRng::seed_from_u64(seed), size);
        let table = table(&session, &rows, &DataType::Utf8);
        let expected: Vec<i64> =
            (0i64..).zip(&rows).filter(|(row, text)| adds_up(*row, text.as_deref())).map(|(row, _)| row).collect();
        assert_eq!(filtered(&session, &table, kind(), &ExecOptions::default()).0, expected, "seed {seed}");
        let ExprKind::Tabulated { operands, .. } = kind() else { unreachable!() };
        assert!(scan(&table).combinations_max(&operands).unwrap() <= COMBINATIONS_MAX);
    }
}

#[test]
fn combinations_on_simulated_devices() {
    check(&simulated());
}

#[test]
fn combinations_on_gpus() {
    let Some(opener) = gpus("combinations_on_gpus") else { return };
    check(&opener);
}

#[test]
fn too_many_combinations_are_declined() {
    let session = simulated().open(1).unwrap();
    let rows: Vec<Option<String>> = (0..600).map(|row| Some(row.to_string())).collect();
    let table = table(&session, &rows, &DataType::Utf8);
    let ExprKind::Tabulated { operands, .. } = kind() else { unreachable!() };
    // The second one may be null.
    assert_eq!(scan(&table).combinations_max(&operands), Some(600 * 601));
    let predicate = Expr { kind: kind(), data_type: DataType::Boolean, nullable: true };
    let plan = Plan { kind: PlanKind::Filter { input: Box::new(scan(&table)), predicate }, schema: table.schema() };
    let error = run(&session, &plan, &[], &ExecOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported(Reason::Expression(_))), "{error}");
}

/// Whether the length of a string in bytes is a multiple of three.
#[derive(Debug)]
struct Thirds;

impl fmt::Display for Thirds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("thirds")
    }
}

impl HostFunction for Thirds {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        let texts = operands[0].as_string::<i32>().iter();
        Ok(Arc::new(texts.map(|text| text.map(|text| text.len() % 3 == 0)).collect::<BooleanArray>()))
    }

    fn is_same(&self, other: &dyn HostFunction) -> bool {
        (other as &dyn std::any::Any).is::<Self>()
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

/// A byte for each of many strings is brought to the devices once, and gives way to what needs the memory.
#[test]
fn results_of_many_strings_stay_on_the_devices() {
    const STRINGS: usize = 70_000;
    const MEMORY_BYTES: u64 = 64 << 20;
    let rows: Vec<Option<String>> = (0..STRINGS).map(|row| Some((row * 7).to_string())).collect();
    let expected = rows.iter().flatten().filter(|text| text.len() % 3 == 0).count();
    for devices in [1, 3] {
        let options = warpjoin_device::SimOptions { devices, memory_bytes: MEMORY_BYTES, ..Default::default() };
        let session = warpjoin::Session::new(warpjoin_device::open_simulated(&options).unwrap()).unwrap();
        let table = table(&session, &rows, &DataType::Utf8);
        let used = || session.devices().iter().map(|device| device.memory().used_bytes()).collect::<Vec<_>>();
        let uploaded = |remembers_results: bool| {
            let operands = vec![Expr::column(1, DataType::Utf8, true)];
            let kind = ExprKind::Tabulated { operands, function: Arc::new(Thirds) };
            let predicate = Expr { kind, data_type: DataType::Boolean, nullable: true };
            let plan =
                Plan { kind: PlanKind::Filter { input: Box::new(scan(&table)), predicate }, schema: table.schema() };
            let options = ExecOptions { remembers_results, ..ExecOptions::default() };
            let output = run(&session, &plan, &[], &options).unwrap();
            assert_eq!(output.batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), expected);
            output.metrics.uploaded_bytes
        };
        let before = used();
        // Once for each device.
        let once = uploaded(false);
        assert!(once >= (STRINGS * devices) as u64, "{once}");
        assert_eq!(used(), before, "what is not remembered goes with the query");
        assert_eq!(uploaded(false), once);
        assert_eq!((uploaded(true), uploaded(true)), (once, 0));
        let kept = used();
        assert!(kept.iter().zip(&before).all(|(kept, before)| kept - before >= STRINGS as u64), "{before:?} {kept:?}");
        // An allocation that needs the memory has it, and a later query brings the bytes again.
        let stream = session.devices()[0].create_stream().unwrap();
        drop(stream.alloc(MEMORY_BYTES - before[0]).unwrap());
        assert_eq!(used()[0], before[0]);
        assert_eq!((uploaded(true), uploaded(true)), (once, 0));
    }
}
