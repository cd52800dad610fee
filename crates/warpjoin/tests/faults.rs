//! Every call to a device fails once, in every operator: the answer is right or the error has the right cause, all memory
//! comes back, no buffer goes while another device uses it, and the next query is right.
//!
//! A run looks at some of each operator's calls, at other ones each hour; `WARPJOIN_FAULTS=all` looks at all. A failure names
//! its point, which `WARPJOIN_FAULT='...'` looks at again.

// Helpers outside tests may fail one too.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

mod common;
mod faults_common;
mod strings_common;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use common::case::Case;
use common::edges::{self, Edge, group_of, ints, join_of, join_of_kind, keyed, sort_of, window_of};
use common::settings::Settings;
use common::value::{Row, V, rows_of};
use faults_common::{Ran, Scenario, check, check_compilation, check_opening, check_waits, words};
use strings_common::ArrowTest;
use warpjoin::column::StringEncoding;
use warpjoin::exec::{self, Distribution, GroupByForm, Materialization, RuntimeFilters};
use warpjoin::expr::{CompareOp, Expr, ExprKind, HostFunction, StringTest};
use warpjoin::hash_table::{HashTable, HashTableOptions, TableKind};
use warpjoin::plan::{FilterForm, JoinKind, Plan, PlanKind};
use warpjoin::{Cancellation, Cause, DeviceThreads, ExecOptions, JoinForm, Session, Table, TableBuilder};

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

/// Tables and rows in the host's memory, brought to the device chunk by chunk.
fn on_host() -> Settings {
    Settings { tables_on_host: true, writes_to_host: true, chunk_rows: Some(128), ..Settings::default() }
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
    check(&joined("on the host", 2, on_host()));
    check(&joined("partitioned on the host", 2, Settings { join_form: Some(JoinForm::Partitioned), ..on_host() }));
    check(&joined("in passes", 2, Settings { pass_rows: Some(40), ..on_host() }));
    check(&joined("late columns on the host", 1, Settings { materialization: Materialization::Late, ..on_host() }));
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
    check(&joined("in passes", 2, Settings { pass_rows: Some(40), devices: 2, ..on_host() }));
    check(&joined("in passes, a thread a device", 2, Settings { pass_rows: Some(40), ..threaded() }));
}

#[test]
fn group_bys_survive_faults() {
    let groups = |name: &str, settings: Settings| {
        let mut case =
            group_of(name, table(900, |row| (row % 7 != 2).then_some(row * 7919 % 350 * 1_000_003)), 1, 1).case;
        case.settings = settings;
        check(&Scenario::of(&format!("groups, {name}"), case));
    };
    let usual = Settings::default();
    groups("one device", Settings { first_capacity: Some(1), ..usual.clone() });
    groups("partitioned", Settings { group_by_form: Some(GroupByForm::Partitioned), ..usual.clone() });
    groups("global", Settings { group_by_form: Some(GroupByForm::Global), first_capacity: Some(0), ..usual });
    groups("exchanged", exchanging());
    groups("on the host", Settings { first_capacity: Some(1), ..on_host() });
    groups("in passes", Settings { pass_rows: Some(100), ..on_host() });
    groups("on the host, exchanged", Settings { tables_on_host: true, writes_to_host: true, ..exchanging() });
    groups("kept", Settings { keeps: true, ..exchanging() });
    groups("a thread a device", threaded());
    groups("in passes on two devices", Settings { pass_rows: Some(100), devices: 2, ..on_host() });
}

/// Keys that two devices share go to one of them, which reads the other's table.
#[test]
fn groups_in_the_order_of_the_key_survive_faults() {
    let ordered = |name: &str, shows: &'static str, key: fn(i128) -> i128| {
        let mut case = group_of(name, table(900, |row| Some(key(row))), 1, 1).case;
        let usual = Settings::default();
        case.settings = Settings { devices: 2, few_rows: Some(0), ordered_span_min: Some(1), ..usual };
        check(&Scenario { shows, ..Scenario::of(&format!("groups, {name}"), case) });
    };
    ordered("by piece", "GroupBy[shared, by piece]", |row| row / 7 * 1_000_000_007);
    ordered("a row for each value", "GroupBy[shared, by key]", |row| row / 7 * 100);
}

#[test]
fn sorts_survive_faults() {
    let sorted = |name: &str, fetch: Option<u64>, settings: Settings| {
        let mut case = sort_of(name, ints((0..3000).map(|row| Some(row * 7919 % 3001))), 0, fetch).case;
        case.settings = settings;
        check(&Scenario::of(&format!("sort, {name}"), case));
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
        check(&Scenario::of(&format!("windows, {name}"), case));
    };
    windowed("one device", Settings::default());
    windowed("two devices", Settings { devices: 2, sort_few_rows: Some(0), ..Settings::default() });
}

#[test]
fn perfect_hash_tables_survive_faults() {
    let shown = |shows: &'static str, name: &str, edge: Edge, settings: Settings| {
        let case = Case { settings: Settings { join_form: Some(JoinForm::Direct), ..settings }, ..edge.case };
        check(&Scenario { shows, ..Scenario::of(name, case) });
    };
    let of = |name: &str, edge: Edge, settings: Settings| shown("DirectTable", name, edge, settings);
    let dense = |rows: i128, times: i128| table(rows, |row| Some(row / times * 7 % 907));
    let probe = || table(700, |row| (row % 11 != 3).then_some(row));
    let usual = Settings::default();
    of("perfect hash", join_of("", dense(300, 1), probe(), 1), usual.clone());
    // Keys that come twice end in another table.
    shown("lists", "perfect hash, lists", join_of("", dense(300, 3), probe(), 1), usual.clone());
    of("perfect hash, a set", join_of_kind("", JoinKind::ProbeSemi, dense(900, 3), probe()), usual.clone());
    // Two columns that are thought to be a key together.
    let pairs = |rows: i128| {
        let column = |values: i128| ints((0..rows).map(|row| Some(row % values)));
        keyed(&[column(30), column(29)], &DataType::Int64)
    };
    shown("lists", "perfect hash, repeated pairs", join_of("", pairs(900), pairs(400), 2), usual.clone());
    of("perfect hash, exchanged", join_of("", dense(300, 1), probe(), 1), exchanging());
    shown("lists", "perfect hash, lists, exchanged", join_of("", dense(300, 3), probe(), 1), exchanging());
    let broadcast = Settings { devices: 2, distribution: Distribution::Broadcast, ..usual };
    of("perfect hash, broadcast", join_of("", dense(300, 1), probe(), 1), broadcast);
}

#[test]
fn joins_of_other_kinds_survive_faults() {
    let of = |name: &str, kind: JoinKind, settings: Settings| {
        let edge = join_of_kind(name, kind, table(200, |row| Some(row / 2)), table(300, |row| Some(row * 2)));
        check(&Scenario::of(name, Case { settings, ..edge.case }));
    };
    let partitioned = Settings { join_form: Some(JoinForm::Partitioned), ..Settings::default() };
    of("full join", JoinKind::Full, Settings::default());
    of("full join, exchanged", JoinKind::Full, Settings { keeps: true, ..exchanging() });
    of("not in", JoinKind::NotIn, exchanging());
    of("mark join, partitioned", JoinKind::ProbeMark, partitioned.clone());
    of("outer join, partitioned", JoinKind::ProbeOuter, partitioned);
}

/// Checks the case of that name of `common/edges`.
fn check_edge(all: &[Edge], name: &str, settings: Settings) {
    let edge = all.iter().find(|edge| edge.name == name).unwrap_or_else(|| panic!("no case {name}"));
    let name = format!("{name}, {} devices", settings.devices);
    check(&Scenario::of(&name, Case { settings, ..edge.case.clone() }));
}

fn on(devices: usize, settings: &Settings) -> Settings {
    Settings { devices, ..settings.clone() }
}

#[test]
fn aggregates_of_several_passes_survive_faults() {
    let (all, usual) = (edges::all(false), Settings::default());
    let of = |name: &str, settings: Settings| check_edge(&all, name, settings);
    of("quantiles, medians, 300 rows, 1 keys", usual.clone());
    of("quantiles, shares, 300 rows, 0 keys", on(2, &usual));
    of("quantiles, a median beside others, 300 rows, 1 keys", exchanging());
    of("first and last, several words up, 300 rows, 1 keys", on(2, &usual));
    of("moments of doubles, beside others, 33 rows, 1 keys", usual.clone());
    of("rollup of 600 rows, aggregates", usual.clone());
    of("rollup of 33 rows, distinct", on(2, &usual));
    of("sets over a join", exchanging());
}

#[test]
fn unions_limits_and_orders_survive_faults() {
    let all: Vec<Edge> = [edges::all(false), edges::of_sorts(), edges::of_windows()].into_iter().flatten().collect();
    let usual = Settings::default();
    let sorts = Settings { sort_few_rows: Some(20), ..Settings::default() };
    let of = |name: &str, settings: Settings| check_edge(&all, name, settings);
    of("union of 31 and 32 rows, and the first again", usual.clone());
    of("union of 31 and 32 rows, grouped", exchanging());
    of("union of 31 and 32 rows, as a build side", Settings { keeps: true, ..on(3, &usual) });
    of("a limit of an order", sorts.clone());
    of("how many rows a limit leaves", usual.clone());
    of("how many rows a limit leaves", on(3, &usual));
    of("columns of columns of an order", on(2, &sorts));
    of("first groups", on(2, &sorts));
    of("an order of many columns", sorts);
    of("rows 3 Some(750) of 6000", on(3, &usual));
    of("uneven partitions and tiles", Settings { keeps: true, ..usual });
}

/// The rows whose string passes a test. Of 900 rows, some of which are null, 700 strings differ: a tile for each of three
/// devices, which keep the strings of a table. `is_fresh`: each run loads its own table.
fn strings(name: &str, devices: usize, is_fresh: bool, options: &ExecOptions) -> Scenario {
    let like = |pattern: &str| StringTest::Like { pattern: pattern.into(), ignores_case: false };
    let compare = StringTest::Compare(CompareOp::GreaterOrEqual, "abc3".as_bytes().into());
    let test = StringTest::Or(vec![StringTest::And(vec![like("a%1%"), like("%_2")]), compare]);
    let text = |row: usize| (row % 9 != 4).then(|| format!("{}{}", ["ab", "abc", "b", ""][row % 4], row % 800));
    let texts: StringArray = (0..900).map(text).collect();
    let fields = vec![Field::new("row", DataType::Int64, false), Field::new("text", DataType::Utf8, true)];
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..900)), Arc::new(texts)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch");
    let operands = vec![Expr::column(1, DataType::Utf8, true)];
    let function: Arc<dyn HostFunction> = Arc::new(ArrowTest(test));
    let kind = ExprKind::Tabulated { operands, function };
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: true };
    let input = Box::new(Plan { kind: PlanKind::Input { index: 0 }, schema: batch.schema() });
    let plan = Plan { kind: PlanKind::Filter { input, predicate }, schema: batch.schema() };
    let (options, loaded) = (options.clone(), batch.clone());
    let work = move |session: &Arc<Session>, tables: &[Arc<Table>], cancel: &Arc<Cancellation>| {
        let options = ExecOptions { cancel: Arc::clone(cancel), ..options.clone() };
        let output = if is_fresh {
            let mut builder = TableBuilder::new(session.device_set(), loaded.schema());
            builder.push(&loaded)?;
            exec::run(session, &plan, &[Arc::new(builder.finish()?)], &options)?
        } else {
            exec::run(session, &plan, tables, &options)?
        };
        Ok(Ran { rows: rows_of(&output.batches), shown: words(&output.metrics) })
    };
    let inputs = if is_fresh { vec![] } else { vec![batch] };
    Scenario { devices, ..Scenario::of_work(name, inputs, Box::new(work)) }
}

#[test]
fn tests_of_strings_survive_faults() {
    let tested = ExecOptions { tested_strings_min: Some(1), ..ExecOptions::default() };
    let on_devices = |devices: usize, is_fresh: bool| {
        let name = format!("strings tested on {devices} devices, fresh {is_fresh}");
        check(&Scenario { shows: "Test", ..strings(&name, devices, is_fresh, &tested) });
    };
    on_devices(1, true);
    on_devices(3, false);
    on_devices(3, true);
    check(&strings("strings tested on the host", 2, false, &ExecOptions::default()));
}

/// Elsewhere the host waits.
#[test]
fn each_wait_of_streams_for_another_is_needed() {
    let tested = ExecOptions { tested_strings_min: Some(1), ..ExecOptions::default() };
    check_waits(&strings("waits for tests of strings", 3, false, &tested));
}

#[test]
fn hash_tables_survive_faults() {
    let of = |name: &str, kind: TableKind, key: fn(i128) -> i128, options: HashTableOptions| {
        let times = if kind == TableKind::Multimap { 3 } else { 1 };
        let rows = table(300, |row| Some(key(row / times)));
        let more = table(450, |row| Some(key(row / times + 200 / times)));
        let (rows, more) = match kind {
            TableKind::Set => (rows.project(&[0]).expect("a column"), more.project(&[0]).expect("a column")),
            _ => (rows, more),
        };
        let keys = table(200, |row| Some(key(row * 2))).project(&[0]).expect("a column");
        let name = format!("table, {name}");
        let work = move |session: &Arc<Session>, tables: &[Arc<Table>], _: &Arc<Cancellation>| {
            operate(session, kind, tables, &options).map(Ran::of)
        };
        let scenario = Scenario::of_work(&name, vec![rows, more, keys], Box::new(work));
        check(&Scenario { can_be_cancelled: false, ..scenario });
    };
    let usual = HashTableOptions { capacity: 10, ..HashTableOptions::default() };
    let segments = HashTableOptions { segment_bytes_max: Some(512), load_factor: 0.9, ..usual.clone() };
    of("map", TableKind::Map, |key| key * 1_000_003, usual.clone());
    of("map of few hashes", TableKind::Map, |key| key, HashTableOptions { hash_bits: 5, ..segments.clone() });
    of("multimap", TableKind::Multimap, |key| key * 1_000_003, usual.clone());
    of("multimap of few hashes", TableKind::Multimap, |key| key, HashTableOptions { hash_bits: 5, ..usual.clone() });
    of("set", TableKind::Set, |key| key * 1_000_003, segments);
}

/// Every operation of a table; rows that its queries give, behind the number of the query, so that only rows of as many
/// columns are compared.
fn operate(
    session: &Arc<Session>,
    kind: TableKind,
    tables: &[Arc<Table>],
    options: &HashTableOptions,
) -> warpjoin::Result<Vec<Row>> {
    let [rows, more, keys] = tables else { panic!("three tables") };
    let fetch = |query: i128, found: Table| {
        let all: Vec<usize> = (0..found.schema().fields().len()).collect();
        let rows = rows_of(&found.download(&all, 64)?).into_iter();
        Ok(rows.map(|row| [vec![V::Int(query)], row].concat()).collect::<Vec<Row>>())
    };
    let mut table = HashTable::build(session, kind, rows, 1, options.clone())?;
    let mut given = fetch(0, table.entries()?)?;
    // What fails here leaves the table as it was.
    let grown = table.reserve(3000).and_then(|()| table.rehash(77));
    match (grown, table.contains(keys).and_then(|found| fetch(1, found))) {
        (Ok(()), found) => given.extend(found?),
        (Err(error), Ok(found)) => {
            let is_there = |row: &&Row| row[1] == V::Bool(true);
            assert_eq!(found.iter().filter(is_there).count(), found_before(kind), "{error}");
            return Err(error);
        }
        // Nothing can be asked of a lost device.
        (Err(error), Err(again)) if error.cause() == Cause::DeviceLost => {
            assert_eq!(again.cause(), Cause::DeviceLost);
            return Err(error);
        }
        (Err(error), Err(again)) => panic!("{again} after {error}"),
    }
    match kind {
        TableKind::Multimap => {
            table.insert(more)?;
            given.extend(fetch(2, table.count(keys)?)?);
            given.extend(fetch(3, table.retrieve(keys)?)?);
        }
        TableKind::Map => {
            table.insert_or_assign(more)?;
            given.extend(fetch(4, table.find(keys)?)?);
            given.extend(fetch(5, table.probe(keys)?)?);
        }
        TableKind::Set => drop(table.insert(more)?),
    }
    table.erase(keys)?;
    given.extend(fetch(6, table.entries()?)?);
    table.clear()?;
    table.insert(rows)?;
    given.extend(fetch(7, table.contains(keys)?)?);
    Ok(given)
}

/// Of 200 keys that are asked for, those that the first rows have: every second one of 300 or, three times each, of 100.
fn found_before(kind: TableKind) -> usize {
    if kind == TableKind::Multimap { 50 } else { 150 }
}

#[test]
fn loading_tables_survives_faults() {
    let of = |name: &str, devices: usize, strings: StringEncoding| {
        let texts: StringArray = (0..900).map(|row| (row % 5 != 1).then(|| format!("text {}", row % 300))).collect();
        let numbers = table(900, |row| (row % 3 != 0).then_some(row * 99));
        let fields = vec![Field::new("k", DataType::Int64, true), Field::new("t", DataType::Utf8, true)];
        let columns: Vec<ArrayRef> = vec![Arc::clone(numbers.column(0)), Arc::new(texts)];
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch");
        let work = move |session: &Arc<Session>, _: &[Arc<Table>], cancel: &Arc<Cancellation>| {
            let builder = TableBuilder::new(session.device_set(), rows.schema()).with_strings(strings);
            let mut builder = builder.with_cancel(Arc::clone(cancel));
            for part in [1, 0, 1] {
                builder.push_to(part, &rows)?;
            }
            let table = builder.finish()?;
            Ok(Ran::of(rows_of(&table.download(&[0, 1], 500)?)))
        };
        check(&Scenario { devices, ..Scenario::of_work(name, vec![], Box::new(work)) });
    };
    of("load", 3, StringEncoding::Dictionary);
    of("load raw strings", 2, StringEncoding::Raw);
    of("load to one device", 1, StringEncoding::Dictionary);
}

#[test]
fn sessions_open_or_say_why_not() {
    check_opening(&joined("opened", 2, exchanging()));
}

#[test]
fn compilations_that_fail_leave_no_trace() {
    check_compilation(&joined("compiled", 1, exchanging()));
}
