//! Every call to a device fails once, in every operator: the answer is right or the error has the right cause, all memory
//! comes back, no buffer goes while another device uses it, and the next query is right.
//!
//! A run looks at some of each operator's calls, at other ones each hour; `WARPJOIN_FAULTS=all` looks at all. A failure names
//! its point, which `WARPJOIN_FAULT='...'` looks at again.

// Helpers outside tests may fail one too.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

mod common;
mod faults_common;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use common::edges::{group_of, ints, join_of, keyed, sort_of, window_of};
use common::settings::Settings;
use common::value::rows_of;
use faults_common::{Scenario, check, check_compilation};
use warpjoin::exec::{Distribution, GroupByForm, Materialization, RuntimeFilters};
use warpjoin::hash_table::{HashTable, HashTableOptions, TableKind};
use warpjoin::plan::FilterForm;
use warpjoin::{DeviceThreads, JoinForm, Session, Table, TableBuilder};

/// An Int64 key column and the row number.
fn table(rows: i128, key: impl Fn(i128) -> Option<i128>) -> RecordBatch {
    keyed(&[ints((0..rows).map(key))], &DataType::Int64)
}

/// A join of 300 and 700 rows, some of which match; `times`: build rows of a key.
fn joined(name: &str, times: i128, settings: Settings) -> Scenario {
    let build = table(300, |row| (row % 13 != 4).then_some(row / times * 1_000_003));
    let probe = table(700, |row| (row % 11 != 3).then_some(row % 400 * 1_000_003));
    let mut case = join_of(name, build, probe, 1).case;
    case.settings = settings;
    Scenario::of(name, case)
}

/// Settings on three devices, whose rows are exchanged.
fn exchanging() -> Settings {
    Settings { devices: 3, distribution: Distribution::Exchange, ..Settings::default() }
}

/// The same, of chunks and little room, driven by a thread each: which call fails differs between runs.
fn threaded() -> Settings {
    let device_threads = DeviceThreads::Each;
    Settings { device_threads, chunk_rows: Some(128), first_capacity: Some(1), ..exchanging() }
}

#[test]
fn joins_survive_faults() {
    let usual = Settings::default();
    check(&joined("unique keys", 1, usual.clone()));
    check(&joined("repeated keys", 3, Settings { first_capacity: Some(1), hash_bits: 4, ..usual.clone() }));
    check(&joined("partitioned", 2, Settings { join_form: Some(JoinForm::Partitioned), ..usual.clone() }));
    check(&joined("kept on the device", 1, Settings { keeps: true, ..usual }));
}

#[test]
fn joins_on_several_devices_survive_faults() {
    check(&joined("exchanged", 2, exchanging()));
    check(&joined(
        "broadcast",
        1,
        Settings { devices: 2, distribution: Distribution::Broadcast, ..Settings::default() },
    ));
    let filters = RuntimeFilters::AlwaysBy(FilterForm::Bloom);
    check(&joined("filtered", 1, Settings { runtime_filters: filters, ..exchanging() }));
    check(&joined("late columns", 1, Settings { materialization: Materialization::Late, ..exchanging() }));
    check(&Scenario { has_peers: false, ..joined("exchanged through the host", 2, exchanging()) });
    check(&joined("reduced", 1, Settings { reduced_rows_min: Some(0), ..exchanging() }));
    check(&joined("a thread a device", 2, threaded()));
}

#[test]
fn group_bys_survive_faults() {
    let groups = |name: &str, settings: Settings| {
        let mut case =
            group_of(name, table(900, |row| (row % 7 != 2).then_some(row * 7919 % 350 * 1_000_003)), 1, 1).case;
        case.settings = settings;
        check(&Scenario::of(name, case));
    };
    let usual = Settings::default();
    groups("one device", Settings { first_capacity: Some(1), ..usual.clone() });
    groups("partitioned", Settings { group_by_form: Some(GroupByForm::Partitioned), ..usual.clone() });
    groups("global", Settings { group_by_form: Some(GroupByForm::Global), first_capacity: Some(0), ..usual });
    groups("exchanged", exchanging());
    groups("kept", Settings { keeps: true, ..exchanging() });
    groups("a thread a device", threaded());
}

#[test]
fn sorts_survive_faults() {
    let sorted = |name: &str, fetch: Option<u64>, settings: Settings| {
        let mut case = sort_of(name, ints((0..3000).map(|row| Some(row * 7919 % 3001))), 0, fetch).case;
        case.settings = settings;
        check(&Scenario::of(name, case));
    };
    let usual = Settings { sort_few_rows: Some(20), ..Settings::default() };
    sorted("all rows", None, usual.clone());
    sorted("first rows", Some(40), usual.clone());
    sorted("on three devices", None, Settings { devices: 3, ..usual.clone() });
    sorted("first rows on two devices", Some(900), Settings { devices: 2, ..usual });
}

#[test]
fn windows_survive_faults() {
    let windowed = |name: &str, settings: Settings| {
        let mut case = window_of(name, 700, 300).case;
        case.settings = settings;
        check(&Scenario::of(name, case));
    };
    windowed("one device", Settings::default());
    windowed("two devices", Settings { devices: 2, sort_few_rows: Some(0), ..Settings::default() });
}

#[test]
fn hash_tables_survive_faults() {
    let of = |name: &str, kind: TableKind| {
        let rows = table(300, |row| Some(row / if kind == TableKind::Multimap { 3 } else { 1 } * 1_000_003));
        let keys = table(200, |row| Some(row * 2_000_006)).project(&[0]).expect("a column");
        let work = move |session: &Arc<Session>, tables: &[Arc<Table>], _: &Arc<AtomicBool>| {
            let options = HashTableOptions { capacity: 10, ..HashTableOptions::default() };
            let mut map = HashTable::build(session, kind, &tables[0], 1, options)?;
            let found = match kind {
                TableKind::Multimap => map.retrieve(&tables[1])?,
                _ => map.find(&tables[1])?,
            };
            assert_eq!(map.erase(&tables[1])?, 150, "every second key");
            let all: Vec<usize> = (0..found.schema().fields().len()).collect();
            Ok(rows_of(&found.download(&all, 64)?))
        };
        check(&Scenario {
            name: name.into(),
            devices: 1,
            has_peers: true,
            is_steady: true,
            inputs: vec![rows, keys],
            work: Box::new(work),
        });
    };
    of("map", TableKind::Map);
    of("multimap", TableKind::Multimap);
}

#[test]
fn loading_tables_survives_faults() {
    let rows = table(3000, |row| (row % 3 != 0).then_some(row * 99));
    let work = move |session: &Arc<Session>, _: &[Arc<Table>], _: &Arc<AtomicBool>| {
        let mut builder = TableBuilder::new(session.device_set(), rows.schema());
        builder.push(&rows)?;
        let table = builder.finish()?;
        Ok(rows_of(&table.download(&[0, 1], 500)?))
    };
    check(&Scenario {
        name: "load".into(),
        devices: 3,
        has_peers: true,
        is_steady: true,
        inputs: vec![],
        work: Box::new(work),
    });
}

#[test]
fn compilations_that_fail_leave_no_trace() {
    check_compilation(&joined("compiled", 1, exchanging()));
}
