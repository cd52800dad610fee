//! Soak tests: many tasks on one set of devices run and drop queries, load tables and inject faults at random.
//!
//! `WARPJOIN_SOAK_SECONDS` (default 60) is the duration, `WARPJOIN_SOAK_SEED` the seed. `WARPJOIN_TEST_DEVICE=cuda` uses
//! `WARPJOIN_TEST_DEVICES` GPUs (default 1). The last line of output has the counts.
//!
//! Another test runs `WARPJOIN_SMALL_QUERIES` (default 400) small queries with different texts.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::queries::QUERIES;
use common::{load_tpch, register_tpch, rows, stock, warp_on};
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpjoin::Session;
use warpjoin_datafusion::{Cause, OnFault, Placement, WarpjoinRuntime, load_table};
use warpjoin_device::{CudaOptions, Fault, FaultPlan, SimOptions, open_cuda, open_simulated, with_faults};

const SCALE: f64 = 0.01;
/// Four times the limit of concurrent queries.
const TASKS: usize = 64;
/// Literals of small queries.
const LITERALS: u64 = 50;
/// Largest growth of the process after the first tenth of the run. More is a leak.
const GROWTH_MAX: f64 = 1.25;

/// Each test holds this lock, because it measures the memory of the process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Counts of what happened.
#[derive(Default)]
struct Tally {
    answers: AtomicU64,
    fallbacks: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
    loads: AtomicU64,
    failed_loads: AtomicU64,
    faults: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

struct Soak {
    context: SessionContext,
    plan: FaultPlan,
    /// Queries with their answers.
    queries: Vec<(String, Vec<String>)>,
    tally: Tally,
    is_over: AtomicBool,
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
}

fn session(plan: &FaultPlan) -> Arc<Session> {
    let devices = match std::env::var("WARPJOIN_TEST_DEVICE").as_deref() {
        Ok("cuda") => {
            let devices = variable("WARPJOIN_TEST_DEVICES", 1) as usize;
            open_cuda(&CudaOptions { devices: Some(devices), ..CudaOptions::default() }).unwrap()
        }
        _ => open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap(),
    };
    Session::new(with_faults(&devices, plan)).unwrap()
}

/// TPC-H queries, and small queries that differ only in a literal.
fn statements() -> Vec<String> {
    let mut all: Vec<String> = QUERIES.iter().map(|(_, sql, ..)| (*sql).to_string()).collect();
    for literal in 0..LITERALS {
        all.push(format!("select count(*), sum(o_totalprice) from orders where o_custkey % 50 = {literal}"));
        all.push(format!(
            "select o_orderkey, rank() over (partition by o_custkey order by o_totalprice) r from orders \
             where o_orderkey % 50 = {literal} order by o_orderkey limit 20"
        ));
    }
    all
}

async fn answer(
    context: &SessionContext,
    sql: &str,
) -> Result<(Vec<String>, Placement), datafusion::error::DataFusionError> {
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await?;
    Ok((rows(&batches, sql.contains("order by")), Placement::of(&plan)))
}

impl Soak {
    async fn step(&self, random: &mut StdRng, number: u64) {
        match random.random_range(0..100) {
            0..70 => self.ask(random).await,
            70..80 => self.give_up(random).await,
            80..84 => self.load(random, number).await,
            _ => self.fail(random),
        }
    }

    async fn ask(&self, random: &mut StdRng) {
        let (sql, wanted) = self.queries.choose(random).unwrap();
        let (answer, placement) = match answer(&self.context, sql).await {
            Ok(answered) => answered,
            // The fallback reads resident tables, where the next fault may hit it.
            Err(error) if error.to_string().contains("injected") => return add(&self.tally.errors),
            Err(error) => panic!("{sql}: {error}"),
        };
        assert_eq!(&answer, wanted, "{sql}");
        add(&self.tally.answers);
        for fallback in placement.device.iter().filter_map(|part| part.fallback.as_ref()) {
            assert!(
                matches!(fallback.cause, Cause::Driver | Cause::OutOfMemory | Cause::Internal),
                "{sql}: {fallback}"
            );
            add(&self.tally.fallbacks);
        }
    }

    /// Starts a query, and drops it at a random time.
    async fn give_up(&self, random: &mut StdRng) {
        let (sql, _) = self.queries.choose(random).unwrap();
        let plan = self.context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let mut batches = execute_stream(plan, self.context.task_ctx()).unwrap();
        let patience = Duration::from_micros(random.random_range(0..30_000));
        let _ = tokio::time::timeout(patience, batches.next()).await;
        add(&self.tally.dropped);
    }

    /// Loads a new table, reads it, and drops it.
    async fn load(&self, random: &mut StdRng, number: u64) {
        let (name, values) = (format!("loaded_{number}"), random.random_range(0..2000));
        let sql = format!(
            "create table {name} as select value, value % 9 as g from generate_series(1, {values}) as n(value)"
        );
        self.context.sql(&sql).await.unwrap().collect().await.unwrap();
        match load_table(&self.context, name.as_str()).await {
            Ok(_) => add(&self.tally.loads),
            // The table stays in host memory.
            Err(_) => add(&self.tally.failed_loads),
        }
        let sql = format!("select count(*), sum(g) from {name}");
        // A fault may also hit a download of the resident table.
        if let Ok((answer, _)) = answer(&self.context, &sql).await {
            let sum: u64 = (1..=values).map(|value: u64| value % 9).sum();
            let sum = if values == 0 { "NULL".to_string() } else { sum.to_string() };
            assert_eq!(answer, [format!("{values}|{sum}")], "{sql}");
        }
        self.context.deregister_table(name.as_str()).unwrap();
    }

    fn fail(&self, random: &mut StdRng) {
        let fault = match random.random_range(0..3) {
            0 => Fault::Driver,
            1 => Fault::OutOfMemory,
            _ => Fault::Panic,
        };
        self.plan.arm(None, random.random_range(0..2000), fault);
        add(&self.tally.faults);
    }
}

/// Resident memory of the process, in MiB.
fn resident_mib() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / f64::from(1 << 20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_work_with_faults_is_right_and_leaks_nothing() {
    let _alone = ALONE.lock().await;
    let time = Duration::from_secs(variable("WARPJOIN_SOAK_SECONDS", 60));
    let seed = variable("WARPJOIN_SOAK_SEED", 1);
    let expected = stock();
    register_tpch(&expected, SCALE);
    let mut queries = vec![];
    for sql in statements() {
        let (wanted, _) = answer(&expected, &sql).await.unwrap();
        queries.push((sql, wanted));
    }
    let plan = FaultPlan::default();
    let context = warp_on(WarpjoinRuntime::new(session(&plan)), |options| options.on_fault = OnFault::Fallback);
    register_tpch(&context, SCALE);
    load_tpch(&context).await;
    let loaded_bytes = plan.live_bytes();
    // Compile all kernels before the clock starts.
    for (sql, wanted) in &queries {
        assert_eq!(&answer(&context, sql).await.unwrap().0, wanted, "{sql}");
    }
    // Hide the messages of injected panics.
    std::panic::set_hook(Box::new(|info| {
        let is_injected = info.payload().downcast_ref::<String>().is_some_and(|text| text.starts_with("injected"));
        if !is_injected {
            eprintln!("{info}");
        }
    }));
    let soak = Arc::new(Soak { context, plan, queries, tally: Tally::default(), is_over: AtomicBool::new(false) });
    let tasks: Vec<_> = (0..TASKS as u64)
        .map(|task| {
            let soak = Arc::clone(&soak);
            tokio::spawn(async move {
                let mut random = StdRng::seed_from_u64(seed << 32 | task);
                let mut steps = 0;
                while !soak.is_over.load(Ordering::Relaxed) {
                    soak.step(&mut random, task << 40 | steps).await;
                    steps += 1;
                }
            })
        })
        .collect();
    let start = Instant::now();
    let mut mib = vec![];
    for tenth in 1..=10 {
        tokio::time::sleep((time * tenth / 10).saturating_sub(start.elapsed())).await;
        mib.push(resident_mib());
    }
    let (early_mib, late_mib) = (mib[0], mib[9]);
    soak.is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        let task = tokio::time::timeout(Duration::from_secs(120), task).await;
        task.expect("a task hangs").expect("a task failed");
    }
    soak.plan.disarm();
    // Dropped queries end soon.
    for _ in 0..1000 {
        if soak.plan.live_bytes() == loaded_bytes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let Tally { answers, fallbacks, errors, dropped, loads, failed_loads, faults } = &soak.tally;
    let counts = [answers, fallbacks, errors, dropped, loads, failed_loads, faults];
    let [answers, fallbacks, errors, dropped, loads, failed_loads, faults] =
        counts.map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "soak: {answers} answers, {fallbacks} fallbacks of parts, {errors} errors by faults, {dropped} dropped, {loads} loads, \
         {failed_loads} failed loads, {faults} faults armed, MiB after each tenth {mib:.0?}, seed {seed}"
    );
    assert_eq!(soak.plan.live_bytes(), loaded_bytes, "leaked device memory");
    assert!(soak.plan.take_disorder().is_empty());
    assert!(errors * 20 < answers, "{errors} queries failed, {answers} did not");
    assert!(answers > 0 && dropped > 0 && faults > 0, "no queries ran");
    assert!(late_mib < early_mib * GROWTH_MAX + 64.0, "the process grew from {early_mib:.0} to {late_mib:.0} MiB");
    for (sql, wanted) in &soak.queries {
        assert_eq!(&answer(&soak.context, sql).await.unwrap().0, wanted, "{sql} at the end");
    }
}

/// Rows of the table of small queries. Keys count from 0; values are a permutation of the keys.
const SMALL_ROWS: u64 = 10_000;
const SMALL_GROUPS: u64 = 7;
const SMALL_CLIENTS: u64 = 32;

fn value_of(key: u64) -> u64 {
    key * 7919 % SMALL_ROWS
}

/// A query with random literals, and its answer.
fn small_query(random: &mut StdRng) -> (String, Vec<String>) {
    let keys = || 0..SMALL_ROWS;
    let (low, high) = (random.random_range(keys()), random.random_range(keys()));
    let group = random.random_range(0..SMALL_GROUPS);
    let null_or = |sum: Option<u64>| sum.map_or_else(|| "NULL".to_string(), |sum| sum.to_string());
    match random.random_range(0..6) {
        0 => {
            let values: Vec<u64> = (low..high).map(value_of).collect();
            let sum = (!values.is_empty()).then(|| values.iter().sum());
            let sql = format!("select count(*), sum(v) from small where k >= {low} and k < {high}");
            (sql, vec![format!("{}|{}", values.len(), null_or(sum))])
        }
        1 => {
            let mut counts = BTreeMap::<u64, u64>::new();
            (0..low)
                .filter(|key| value_of(*key) >= high)
                .for_each(|key| *counts.entry(key % SMALL_GROUPS).or_default() += 1);
            let sql = format!("select g, count(*) from small where k < {low} and v >= {high} group by g order by g");
            (sql, counts.iter().map(|(group, count)| format!("{group}|{count}")).collect())
        }
        2 => {
            let wanted = (0..SMALL_ROWS).rev().filter(|key| value_of(*key) < low).take(10);
            let sql = format!("select k, v from small where v < {low} order by k desc limit 10");
            (sql, wanted.map(|key| format!("{key}|{}", value_of(key))).collect())
        }
        3 => {
            // Each key occurs once among the values.
            let matches = (low..SMALL_ROWS).filter(|key| key % SMALL_GROUPS == group).count();
            let sql =
                format!("select count(*) from small a join small b on a.k = b.v where a.g = {group} and a.k >= {low}");
            (sql, vec![matches.to_string()])
        }
        4 => {
            let most = (0..=low).filter(|key| key % SMALL_GROUPS == group).map(value_of).max();
            let sql = format!("select max(v) from small where s = 'group {group}' and k <= {low}");
            (sql, vec![null_or(most)])
        }
        _ => {
            // The names are random, too.
            let name = format!("n_{low}_{high}");
            let sql =
                format!("select sum({name}) from (select v + {high} as {name} from small where k = {low}) as t_{high}");
            (sql, vec![(value_of(low) + high).to_string()])
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn small_queries_leak_nothing() {
    let _alone = ALONE.lock().await;
    let count = variable("WARPJOIN_SMALL_QUERIES", 400);
    let seed = variable("WARPJOIN_SOAK_SEED", 1);
    let plan = FaultPlan::default();
    let context = warp_on(WarpjoinRuntime::new(session(&plan)), |_| {});
    let sql = format!(
        "create table small as select cast(k as bigint) as k, cast(k * 7919 % {SMALL_ROWS} as bigint) as v, \
         cast(k % {SMALL_GROUPS} as int) as g, concat('group ', k % {SMALL_GROUPS}) as s \
         from generate_series(0, {}) as n(k)",
        SMALL_ROWS - 1
    );
    context.sql(&sql).await.unwrap().collect().await.unwrap();
    load_table(&context, "small").await.unwrap();
    let (loaded_bytes, started, compiled) = (plan.live_bytes(), AtomicU64::new(0), AtomicU64::new(0));
    let shared = Arc::new((context, started, Mutex::new(None), compiled));
    let start = Instant::now();
    let clients: Vec<_> = (0..SMALL_CLIENTS)
        .map(|client| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let (context, started, early_mib, compiled) = &*shared;
                let mut random = StdRng::seed_from_u64(seed << 32 | client);
                loop {
                    let number = started.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    if number == count / 10 {
                        *early_mib.lock().unwrap() = Some(resident_mib());
                    }
                    let (sql, wanted) = small_query(&mut random);
                    let (answer, placement) =
                        answer(context, &sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                    assert_eq!(answer, wanted, "{sql}");
                    assert!(!placement.device.is_empty(), "{sql}");
                    let modules = placement.device.iter().filter_map(|part| part.metrics.as_ref());
                    let modules: u64 = modules.map(|metrics| metrics.compiled_modules).sum();
                    compiled.fetch_add(modules, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("a client failed");
    }
    let (early_mib, late_mib) = (shared.2.lock().unwrap().unwrap(), resident_mib());
    let seconds = start.elapsed().as_secs_f64();
    let compiled = shared.3.load(Ordering::Relaxed);
    eprintln!(
        "soak: {count} small queries in {seconds:.1} s, {compiled} modules compiled, {early_mib:.0} MiB after a tenth, {late_mib:.0} at the end, seed {seed}"
    );
    assert_eq!(plan.live_bytes(), loaded_bytes, "leaked device memory");
    assert!(late_mib < early_mib * GROWTH_MAX + 64.0, "the process grew from {early_mib:.0} to {late_mib:.0} MiB");
}
