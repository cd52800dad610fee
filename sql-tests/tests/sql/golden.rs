//! The golden record of TPC-H, our .slt files and random queries, on one and two simulated devices.
//!
//! A change without an intended effect on the record must not change it. `WARPJOIN_GOLDEN=write` writes it again; the commit
//! must say why. Then run a few times with `WARPJOIN_GOLDEN=vary`, which marks figures that differ from run to run.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use tokio::runtime::{Builder, Runtime};
use warpjoin_cli::tpch::{Generation, Parameters, QUERY_COUNT, TpchTable, query_text};
use warpjoin_datafusion::load_table;
use warpjoin_sql_tests::random::Case;
use warpjoin_sql_tests::{Engine, Golden, GoldenLine, announce, run_recorded};

use super::slt;

const DEVICES: [usize; 2] = [1, 2];
const TPCH_SCALE: f64 = 0.01;
const RANDOM_SEEDS: u64 = 300;

/// DataFusion orders the columns of some plans by a hash set, differently each time. So a random query that differs from the
/// record, but for its answer, runs again, up to this many times. If more queries than [`AGAIN_MAX`] differ, none runs again.
const TRIES: usize = 20;
const AGAIN_MAX: usize = 20;

/// A runtime with one thread, so that recordings are reproducible.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn open(name: &str) -> Golden {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    Golden::open(&path).unwrap()
}

/// Compares `lines` with the file `name`, or writes the file.
fn check(name: &str, lines: &[GoldenLine]) {
    let golden = open(name);
    match std::env::var("WARPJOIN_GOLDEN").as_deref() {
        Ok("write") => return golden.write(lines).unwrap(),
        Ok("vary") => return golden.mark_varying(lines).unwrap(),
        Ok(other) => panic!("WARPJOIN_GOLDEN must be write or vary, not {other}"),
        Err(_) => {}
    }
    let launches: u64 = lines.iter().map(|line| line.recording.launches).sum();
    let waits: u64 = lines.iter().map(|line| line.recording.host_waits).sum();
    announce(&format!("golden {name}: {} queries, {launches} launches, {waits} host waits", lines.len()));
    if let Some(difference) = golden.difference(lines) {
        panic!(
            "{difference}\nif the change is intended, run again with WARPJOIN_GOLDEN=write and say why in the commit"
        );
    }
}

#[test]
fn tpch() {
    let mut lines = vec![];
    for devices in DEVICES {
        let engine = Engine::recorded(devices).unwrap();
        runtime().block_on(async {
            let context = engine.session();
            for table in TpchTable::ALL {
                let projection = (0..table.schema().fields().len()).collect();
                let mut all: Vec<RecordBatch> = vec![];
                let generation = Generation { table, scale: TPCH_SCALE, projection, threads: 1 };
                let add = |_, batches: Vec<RecordBatch>| {
                    all.extend(batches);
                    Ok(())
                };
                generation.run(add).unwrap();
                let provider = MemTable::try_new(table.schema(), vec![all]).unwrap();
                context.register_table(table.name(), std::sync::Arc::new(provider)).unwrap();
                load_table(&context, table.name()).await.unwrap();
            }
            for number in 1..=QUERY_COUNT {
                let sql = query_text(number, &Parameters::validation(TPCH_SCALE)).unwrap();
                lines.extend(GoldenLine::of(&engine, &context, format!("Q{number}"), &sql).await);
            }
        });
    }
    assert_eq!(lines.len(), DEVICES.len() * QUERY_COUNT as usize);
    check("tpch.txt", &lines);
}

/// The record has no answers, because the files have them.
#[test]
fn slt_files() {
    let mut lines = vec![];
    for devices in DEVICES {
        for file in slt::files() {
            let engine = Engine::recorded(devices).unwrap();
            let query = |sql: &str| GoldenLine::name_of(Path::new(&file), sql);
            let failures = runtime().block_on(run_recorded(&engine, &file, |sql, recording| {
                lines.push(GoldenLine { query: query(sql), devices, recording, answer: "-".into() });
            }));
            assert_eq!(failures.unwrap(), Vec::<String>::new());
        }
    }
    check("slt.txt", &lines);
}

#[test]
fn random() {
    let engines = DEVICES.map(|devices| Engine::recorded(devices).unwrap());
    let record = |engine: usize, seed| runtime().block_on(Case::new(seed).record(&engines[engine])).unwrap().unwrap();
    let mut cases = vec![];
    for (engine, devices) in DEVICES.into_iter().enumerate() {
        cases.extend((0..RANDOM_SEEDS).filter(|seed| seed % 2 == devices as u64 % 2).map(|seed| (engine, seed)));
    }
    let mut lines: Vec<_> = cases.iter().map(|&(engine, seed)| record(engine, seed)).collect();
    if std::env::var_os("WARPJOIN_GOLDEN").is_none() {
        let golden = open("random.txt");
        for _ in 0..TRIES {
            let differing = golden.planned_differently(&lines);
            if differing.is_empty() || differing.len() > AGAIN_MAX {
                break;
            }
            announce(&format!("golden random.txt: {} queries run again", differing.len()));
            for at in differing {
                let (engine, seed) = cases[at];
                lines[at] = record(engine, seed);
            }
        }
    }
    assert_eq!(lines.len() as u64, RANDOM_SEEDS);
    check("random.txt", &lines);
}
