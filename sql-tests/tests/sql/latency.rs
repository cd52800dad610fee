//! First runs of random queries over resident tables, beside hot runs and stock DataFusion, and what many new queries at once
//! do to hot ones. Prints milliseconds; fails if a query's runs have different numbers of rows.
//!
//! - `WARPJOIN_LATENCY_QUERIES=1000` is the number of queries over one set of tables, `WARPJOIN_LATENCY_SCHEMAS=100` the number
//!   of queries over tables of their own, `WARPJOIN_RANDOM_SEED=123` the first seed.
//! - `WARPJOIN_TEST_DEVICE=cuda` runs them on GPUs. Run `warpjoin warm` before. `WARPJOIN_RANDOM_TIER=interpreted` interprets them,
//!   on simulated devices, too: then `compiled_modules` are kernels that tier 0 lacks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::SessionContext;
use tokio::task::JoinSet;
use warpjoin_datafusion::{WarpjoinSessionContext, session_of};
use warpjoin_sql_tests::random::Case;
use warpjoin_sql_tests::{Engine, EngineKind, Settings, announce};

use super::random::{setting, tier};

const QUERIES_DEFAULT: u64 = 6;
const SCHEMAS_DEFAULT: u64 = 2;
const HOT_RUNS: usize = 5;
/// Rows of the large table of the queries over one set of tables.
const LARGE_ROWS_MIN: usize = 100_000;
/// A first run may take this much longer than stock DataFusion.
const BEHIND_STOCK_MS: f64 = 20.0;
/// Kernel time of a pipeline from which on it is printed.
const LONG_KERNEL_MS: f64 = 1.0;
/// Slowest queries that are printed.
const WORST: usize = 5;
const HOT_CLIENTS: usize = 8;
/// Pause of a client between two hot queries.
const HOT_PAUSE: Duration = Duration::from_millis(20);

/// Whether a line is that of a pipeline whose kernel takes long.
fn is_long(line: &str) -> bool {
    let ms = line.rsplit_once("kernel_time=").and_then(|(_, time)| time.strip_suffix("ms")?.parse().ok());
    line.starts_with("pipeline ") && ms.is_some_and(|ms: f64| ms >= LONG_KERNEL_MS)
}

/// A query with its sessions and times.
struct Timed {
    sql: String,
    context: SessionContext,
    stock: SessionContext,
    rows: usize,
    /// What the first run spent its time on.
    metrics: String,
    first_ms: f64,
    hot_ms: f64,
    stock_ms: f64,
}

impl Timed {
    /// Runs the query for the first time. `None` if it fails, as overflows do.
    async fn first(sql: &str, context: &SessionContext, stock: &SessionContext) -> Option<Self> {
        let start = Instant::now();
        let query = context.query(sql).await.ok()?;
        let planned_ms = start.elapsed().as_secs_f64() * 1e3;
        let plan = Arc::clone(query.plan());
        let batches = query.collect().await.ok()?;
        let first_ms = start.elapsed().as_secs_f64() * 1e3;
        let rows = batches.iter().map(|batch| batch.num_rows()).sum();
        let metrics = DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(false).to_string();
        let metrics =
            metrics.lines().map(str::trim).filter_map(|line| match line.starts_with("waited ") || is_long(line) {
                true => Some(line),
                false => line.split_once("metrics=").map(|(_, metrics)| metrics),
            });
        let metrics = format!("planned in {planned_ms:.1} ms; {}", metrics.collect::<Vec<_>>().join("; "));
        let (context, stock) = (context.clone(), stock.clone());
        Some(Self { sql: sql.into(), context, stock, rows, metrics, first_ms, hot_ms: 0.0, stock_ms: f64::INFINITY })
    }

    /// Measures hot runs, and stock DataFusion.
    async fn compare(&mut self) {
        let mut hot = vec![];
        for _ in 0..HOT_RUNS {
            let (rows, ms) = timed(&self.context, &self.sql).await.unwrap();
            assert_eq!(rows, self.rows, "{}", self.sql);
            hot.push(ms);
        }
        self.hot_ms = quantile(&mut hot, 0.5);
        let mut stock = vec![];
        for _ in 0..2 {
            // Some queries only stock DataFusion rejects.
            stock.extend(timed(&self.stock, &self.sql).await.map(|(_, ms)| ms));
        }
        self.stock_ms = stock.into_iter().fold(f64::INFINITY, f64::min);
    }

    fn over_hot_ms(&self) -> f64 {
        self.first_ms - self.hot_ms
    }

    fn behind_stock_ms(&self) -> f64 {
        self.first_ms - self.stock_ms
    }
}

/// Rows of the answer, and milliseconds from text to answer; `None` for an error.
async fn timed(context: &SessionContext, sql: &str) -> Option<(usize, f64)> {
    let start = Instant::now();
    let batches = context.query(sql).await.ok()?.collect().await.ok()?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    Some((batches.iter().map(|batch| batch.num_rows()).sum(), ms))
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// What a device does with a query is compiled from here on.
fn finish_compiling(context: &SessionContext) {
    session_of(context).unwrap().finish_compiling();
}

async fn report(name: &str, mut queries: Vec<Timed>) {
    let Some(last) = queries.last() else { return announce(&format!("latency, {name}: no query")) };
    let start = Instant::now();
    finish_compiling(&last.context);
    announce(&format!("latency, {name}: kernels compiled {:.1} s longer", start.elapsed().as_secs_f64()));
    for query in &mut queries {
        query.compare().await;
    }
    let of = |time: fn(&Timed) -> f64, share| quantile(&mut queries.iter().map(time).collect::<Vec<_>>(), share);
    let behind = queries.iter().filter(|query| query.behind_stock_ms() > BEHIND_STOCK_MS).count();
    announce(&format!(
        "latency, {name}: {} queries; first run over hot: median {:.1} ms, 99 % {:.1}, most {:.1}; hot: median {:.1}, 99 % {:.1}; \
         stock: median {:.1}, 99 % {:.1}; {behind} first runs more than {BEHIND_STOCK_MS} ms behind stock",
        queries.len(),
        of(Timed::over_hot_ms, 0.5),
        of(Timed::over_hot_ms, 0.99),
        of(Timed::over_hot_ms, 1.0),
        of(|query| query.hot_ms, 0.5),
        of(|query| query.hot_ms, 0.99),
        of(|query| query.stock_ms, 0.5),
        of(|query| query.stock_ms, 0.99),
    ));
    queries.sort_by(|a, b| b.over_hot_ms().total_cmp(&a.over_hot_ms()));
    for Timed { sql, metrics, first_ms, hot_ms, stock_ms, .. } in queries.iter().take(WORST) {
        announce(&format!("  first {first_ms:.1} ms, hot {hot_ms:.1}, stock {stock_ms:.1}: {sql}\n    {metrics}"));
    }
}

/// Sessions over the tables of a case, loaded onto the devices.
async fn sessions(case: &Case, engine: &Engine, stock: &Engine) -> (SessionContext, SessionContext) {
    let context = case.session(engine).unwrap();
    case.load_all_tables(&context).await.unwrap();
    (context, case.session(stock).unwrap())
}

/// Median latency of hot queries while `queries` are started at once; `time` is how long it is measured at least.
async fn hot_beside(hot: &[Timed], queries: &[(SessionContext, String)], time: Duration) -> (f64, Duration) {
    let start = Instant::now();
    let mut others = JoinSet::new();
    for (context, sql) in queries {
        let (context, sql) = (context.clone(), sql.clone());
        others.spawn(async move { timed(&context, &sql).await.is_some() });
    }
    let mut clients = JoinSet::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    for client in 0..HOT_CLIENTS {
        let queries: Vec<_> = hot.iter().map(|query| (query.context.clone(), query.sql.clone())).collect();
        let stopped = stopped.clone();
        clients.spawn(async move {
            let mut all_ms = vec![];
            for at in client.. {
                let (context, sql) = &queries[at % queries.len()];
                all_ms.extend(timed(context, sql).await.map(|(_, ms)| ms));
                if *stopped.borrow() {
                    break;
                }
                tokio::time::sleep(HOT_PAUSE).await;
            }
            all_ms
        });
    }
    while others.join_next().await.is_some() {}
    let context = hot[0].context.clone();
    tokio::task::spawn_blocking(move || finish_compiling(&context)).await.unwrap();
    let took = start.elapsed();
    tokio::time::sleep(time.saturating_sub(took)).await;
    stop.send_replace(true);
    let mut all_ms = vec![];
    while let Some(client) = clients.join_next().await {
        all_ms.extend(client.unwrap());
    }
    assert!(all_ms.len() >= HOT_CLIENTS);
    (quantile(&mut all_ms, 0.5), took)
}

#[test]
fn first_runs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let kind = EngineKind::from_environment(&[1]).unwrap()[0];
    let engine = Engine::new(kind).with_settings(Settings::AsUsed);
    let engine = if tier().as_deref() == Some("interpreted") { engine.interpreting() } else { engine };
    let stock = Engine::new(EngineKind::Stock).with_settings(Settings::AsUsed);
    let seed = setting("WARPJOIN_RANDOM_SEED").unwrap_or(0);
    let queries = setting("WARPJOIN_LATENCY_QUERIES").unwrap_or(QUERIES_DEFAULT);
    let schemas = setting("WARPJOIN_LATENCY_SCHEMAS").unwrap_or(SCHEMAS_DEFAULT);
    runtime.block_on(async {
        let large = (seed..).map(Case::new).find(|case| case.rows_max() >= LARGE_ROWS_MIN).unwrap();
        let (context, on_stock) = sessions(&large, &engine, &stock).await;
        let new_query = |at: u64| large.other_query(seed + at).sql;
        let mut runs = vec![];
        for at in 0..queries {
            runs.extend(Timed::first(&new_query(at), &context, &on_stock).await);
        }
        report("queries over one set of tables", runs).await;

        let mut runs = vec![];
        for at in 0..schemas {
            let case = Case::new(seed + at);
            let (context, on_stock) = sessions(&case, &engine, &stock).await;
            runs.extend(Timed::first(&case.sql, &context, &on_stock).await);
        }
        report("queries over tables of their own", runs).await;

        let count = queries.min(64);
        let mut hot = vec![];
        for at in 0..queries.min(8) {
            hot.extend(Timed::first(&new_query(at), &context, &on_stock).await);
        }
        finish_compiling(&context);
        let new: Vec<_> = (0..count).map(|at| (context.clone(), new_query(queries + at))).collect();
        let hot = Arc::new(hot);
        let (beside_new, time) = hot_beside(&hot, &new, Duration::ZERO).await;
        let (beside_compiled, _) = hot_beside(&hot, &new, time).await;
        announce(&format!(
            "latency, {count} queries at once beside {HOT_CLIENTS} clients: median of hot queries {beside_new:.1} ms beside new ones \
             ({:.1} s until all were compiled), {beside_compiled:.1} beside compiled ones",
            time.as_secs_f64(),
        ));
    });
}
