//! Random queries, compared with stock DataFusion. By default they run on one to four simulated devices.
//!
//! - `WARPJOIN_RANDOM_QUERIES=5000` is the number of queries, `WARPJOIN_RANDOM_SEED=123` the first seed.
//! - `WARPJOIN_RANDOM_TIER=interpreted` interprets all of them, `auto` none that the default does not; else one in three is.
//! - `WARPJOIN_TEST_DEVICE=cuda WARPJOIN_TEST_DEVICES=1,2` selects the engines. Each seed uses one of them.
//! - `WARPJOIN_RANDOM_STOP=1` stops at the first failure, `WARPJOIN_RANDOM_VERBOSE=1` prints each query with its time, and
//!   `WARPJOIN_RANDOM_EXPLAIN=1` prints the plans of failing queries.
//! - `WARPJOIN_RANDOM_SQL='SELECT ...'` runs another query over the tables of the seed, to reduce a failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use warpjoin_sql_tests::random::{Case, CaseResult, TABLES_VERSION};
use warpjoin_sql_tests::{Engine, EngineKind, announce};

use super::workers;

const QUERIES_DEFAULT: u64 = 200;
const DEVICE_COUNTS: [usize; 4] = [1, 2, 3, 4];
/// Least percentage of the queries with operators that run wholly on devices.
const WHOLE_SHARE_MIN: usize = 85;
/// One of so many queries on an engine is interpreted.
const INTERPRETED_OF: u64 = 3;
/// The share is checked from this number of queries on.
const SHARE_QUERIES_MIN: usize = 100;
/// Most percent of queries, plus two, without an oracle because of bugs of stock DataFusion.
const NO_ORACLE_PERCENT_MAX: usize = 1;

pub(super) fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// The code tier that a run asks for.
pub(super) fn tier() -> Option<String> {
    std::env::var("WARPJOIN_RANDOM_TIER").ok()
}

/// Whether the case of `seed` is interpreted, on one of `engines` engines.
fn interprets(seed: u64, engines: usize) -> bool {
    match tier().as_deref() {
        None => (seed / engines as u64).is_multiple_of(INTERPRETED_OF),
        Some("interpreted") => true,
        Some("auto") => false,
        Some(other) => panic!("WARPJOIN_RANDOM_TIER={other} is neither interpreted nor auto"),
    }
}

/// Counts over all cases.
#[derive(Default)]
struct Totals {
    cases: usize,
    with_rows: usize,
    errors: usize,
    no_oracle: usize,
    with_operators: usize,
    whole: usize,
    some: usize,
    reasons: BTreeMap<String, usize>,
    operators: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Totals {
    fn add(&mut self, case: &Case, kind: EngineKind, result: CaseResult) {
        let CaseResult { difference, rows, error, no_oracle, coverage } = result;
        self.cases += 1;
        self.with_rows += usize::from(rows.is_some_and(|rows| rows > 0));
        self.errors += usize::from(error.is_some());
        self.no_oracle += usize::from(no_oracle.is_some());
        self.with_operators += usize::from(coverage.has_operators());
        self.whole += usize::from(coverage.is_whole());
        self.some += usize::from(!coverage.on_devices.is_empty());
        coverage.on_cpu.into_iter().for_each(|reason| *self.reasons.entry(reason).or_default() += 1);
        coverage.on_devices.into_iter().for_each(|operator| *self.operators.entry(operator).or_default() += 1);
        self.failures.extend(difference.map(|difference| failure(case, kind, &difference)));
    }

    fn whole_share(&self) -> usize {
        self.whole * 100 / self.with_operators.max(1)
    }

    fn announce(&self, name: &str) {
        let Self { cases, with_rows, errors, no_oracle, with_operators, whole, some, reasons, operators, failures } =
            self;
        announce(&format!(
            "{name}: {cases} queries, {with_rows} with rows, {errors} errors, {no_oracle} without an oracle; {with_operators} with \
             operators, {whole} ({}%) wholly on devices, {some} partly; {} wrong",
            self.whole_share(),
            failures.len()
        ));
        let hits: Vec<String> = operators.iter().map(|(operator, count)| format!("{operator} {count}")).collect();
        announce(&format!("{name}, on devices: {}", hits.join("; ")));
        let mut reasons: Vec<_> = reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons.into_iter().take(25) {
            announce(&format!("  {count} x {reason}"));
        }
    }
}

fn failure(case: &Case, kind: EngineKind, difference: &str) -> String {
    format!("seed {} [{kind}]: {difference}\n{}\n{}", case.seed, case.sql, case.describe_tables())
}

/// Runs `cases` cases on a few workers: `case` makes one of them.
fn run_cases(name: &str, cases: usize, case: impl Fn(usize) -> Case + Send + Sync + 'static) -> Totals {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build().unwrap();
    let kinds = EngineKind::from_environment(&DEVICE_COUNTS).unwrap();
    let engines: Arc<Vec<Engine>> = Arc::new(kinds.into_iter().map(Engine::new).collect());
    let stock = Engine::new(EngineKind::Stock);
    let (case, next) = (Arc::new(case), Arc::new(AtomicUsize::new(0)));
    let stops = Arc::new(AtomicBool::new(false));
    let worker = || {
        let (case, next, engines, stock) = (Arc::clone(&case), Arc::clone(&next), Arc::clone(&engines), stock.clone());
        let stops = Arc::clone(&stops);
        async move {
            let mut totals = vec![];
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= cases || stops.load(Ordering::Relaxed) {
                    break;
                }
                let case = case(at);
                let (seed, start) = (case.seed, Instant::now());
                let engine = &engines[(seed % engines.len() as u64) as usize];
                let interpreting = interprets(seed, engines.len()).then(|| engine.interpreting());
                let result = case.run(interpreting.as_ref().unwrap_or(engine), &stock).await.unwrap();
                if setting("WARPJOIN_RANDOM_VERBOSE") == Some(1) {
                    announce(&format!("{seed}: {:.1} s: {}", start.elapsed().as_secs_f64(), case.sql));
                }
                if let Some(difference) = &result.difference {
                    // Printed immediately, because a long run may be interrupted.
                    announce(&failure(&case, engine.kind(), difference));
                    if setting("WARPJOIN_RANDOM_EXPLAIN") == Some(1) {
                        announce(&case.explain(engine).await);
                    }
                    stops.fetch_or(setting("WARPJOIN_RANDOM_STOP") == Some(1), Ordering::Relaxed);
                }
                totals.push((case, engine.kind(), result));
            }
            totals
        }
    };
    let handles: Vec<_> = (0..workers()).map(|_| runtime.spawn(worker())).collect();
    let mut totals = Totals::default();
    for (case, kind, result) in handles.into_iter().flat_map(|handle| runtime.block_on(handle).unwrap()) {
        totals.add(&case, kind, result);
    }
    totals.announce(name);
    totals
}

fn check(totals: &Totals) {
    let (wrong, Totals { cases, no_oracle, .. }) = (totals.failures.len(), totals);
    assert!(*no_oracle <= 2 + cases * NO_ORACLE_PERCENT_MAX / 100, "{no_oracle} of {cases} queries without an oracle");
    let replay = "replay one with WARPJOIN_RANDOM_SEED=... WARPJOIN_RANDOM_QUERIES=1";
    assert!(
        totals.failures.is_empty(),
        "{wrong} wrong; {replay}; add it to regressions.txt as `{TABLES_VERSION} SEED QUERY`\n\n{}",
        totals.failures.join("\n")
    );
}

#[test]
fn random_queries() {
    let (first, count) =
        (setting("WARPJOIN_RANDOM_SEED").unwrap_or(0), setting("WARPJOIN_RANDOM_QUERIES").unwrap_or(QUERIES_DEFAULT));
    let sql = std::env::var("WARPJOIN_RANDOM_SQL").ok();
    let case = move |at: usize| {
        let seed = first + at as u64;
        sql.as_ref().map_or_else(|| Case::new(seed), |sql| Case::with_sql(seed, sql))
    };
    let totals = run_cases(&format!("random queries from seed {first}"), usize::try_from(count).unwrap(), case);
    check(&totals);
    let share = totals.whole_share();
    assert!(
        totals.with_operators < SHARE_QUERIES_MIN || share >= WHOLE_SHARE_MIN,
        "{share}% of the queries run wholly on devices, expected at least {WHOLE_SHARE_MIN}%"
    );
}

#[test]
fn regressions() {
    let lines = include_str!("../../regressions.txt").lines();
    let entries: Vec<(u64, &str)> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|entry| {
            let mut words = entry.splitn(3, ' ');
            let (version, seed, sql) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            // With another version the seed means other tables.
            assert_eq!(version.parse(), Ok(TABLES_VERSION), "{entry}: move the query to slt/");
            (seed.parse().unwrap(), sql)
        })
        .collect();
    let totals = run_cases("regressions", entries.len(), move |at| Case::with_sql(entries[at].0, entries[at].1));
    check(&totals);
    assert_eq!(totals.whole, totals.cases, "wholly on devices");
}
