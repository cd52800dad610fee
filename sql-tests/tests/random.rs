//! Random queries on simulated devices, against stock DataFusion.
//!
//! `WARPJOIN_RANDOM_QUERIES=5000 cargo test -p warpjoin-sql-tests --test random` runs more of them;
//! `WARPJOIN_RANDOM_SEED=123 WARPJOIN_RANDOM_QUERIES=1` replays one.

// Helpers outside #[test] functions may fail a test too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use warpjoin_sql_tests::random::Case;
use warpjoin_sql_tests::{Engine, EngineKind, announce};

const QUERIES_DEFAULT: u64 = 40;
const DEVICE_COUNTS: [usize; 4] = [1, 2, 3, 4];
/// Of so many queries on each number of devices, one runs under a schedule drawn from its seed: slow, and true.
const SCHEDULED_EVERY: u64 = 8;

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Other seeds every hour, so that each run of CI tries new ones.
fn first_seed() -> u64 {
    let hours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3600;
    setting("WARPJOIN_RANDOM_SEED").unwrap_or(hours * 100_000)
}

fn run_seeds(name: &str, seeds: impl Iterator<Item = u64>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stock = Engine::new(EngineKind::Stock);
    let engines = DEVICE_COUNTS.map(|devices| Engine::new(EngineKind::Simulated(devices)));
    let (mut cases, mut on_devices, mut with_rows, mut failures) = (0, 0, 0, vec![]);
    let (mut reasons, mut operators) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    for seed in seeds {
        let mut engine = engines[(seed % 4) as usize].clone();
        if seed / 4 % SCHEDULED_EVERY == 0 {
            engine = engine.with_schedule(seed);
        }
        let case = Case::new(seed);
        let result = runtime.block_on(case.run(&engine, &stock)).unwrap();
        for operator in result.operators {
            *operators.entry(operator).or_default() += 1;
        }
        cases += 1;
        on_devices += usize::from(result.on_devices);
        with_rows += usize::from(result.rows.is_some_and(|rows| rows > 0));
        if !result.remaining.is_empty() {
            *reasons.entry(result.remaining).or_default() += 1;
        }
        if let Some(difference) = result.difference {
            let kind = engine.kind();
            let tables = case.describe_tables();
            failures.push(format!("seed {seed} [{kind}]: {difference}\n{}\n{tables}", case.sql));
        }
    }
    let wrong = failures.len();
    announce(&format!("{name}: {cases} queries, {with_rows} with rows, {on_devices} wholly on devices, {wrong} wrong"));
    let hits: Vec<String> = operators.iter().map(|(operator, count)| format!("{operator} {count}")).collect();
    announce(&format!("{name}, on devices: {}", hits.join("; ")));
    for (reason, count) in reasons {
        announce(&format!("  {count} x {reason}"));
    }
    let replay = "replay one with WARPJOIN_RANDOM_SEED=... WARPJOIN_RANDOM_QUERIES=1";
    assert!(failures.is_empty(), "{wrong} wrong; {replay}\n\n{}", failures.join("\n"));
}

#[test]
fn random_queries() {
    let (first, count) = (first_seed(), setting("WARPJOIN_RANDOM_QUERIES").unwrap_or(QUERIES_DEFAULT));
    run_seeds(&format!("random queries from seed {first}"), first..first + count);
}

#[test]
fn regressions() {
    let lines = include_str!("../regressions.txt").lines();
    let seeds = lines.map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty());
    run_seeds("regressions", seeds.map(|seed| seed.parse().unwrap()));
}
