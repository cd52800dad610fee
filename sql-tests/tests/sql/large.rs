//! Tables with more than 2^31 rows, and with one key in all rows: for GPUs with at least 100 GB of memory.
//!
//! ```text
//! WARPJOIN_TEST_DEVICE=cuda ./sql large:: --ignored --nocapture --test-threads 1
//! ```
//!
//! `WARPJOIN_LARGE_ROWS` and `WARPJOIN_SKEW_ROWS` set smaller sizes, to try the tests elsewhere.

use std::sync::Arc;
use std::time::Instant;

use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use warpjoin_datafusion::{Placement, load_table, session_of};
use warpjoin_sql_tests::{Engine, EngineKind, Settings, announce, lines};

const LARGE_ROWS: u64 = (1 << 31) + 1;
const SKEW_ROWS: u64 = 1 << 27;
/// Largest ratio of the times with one key in all rows and with random keys.
const SKEW_MAX: f64 = 2.0;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
}

/// A session in which any work on the CPU is an error.
async fn strict_session() -> SessionContext {
    let kind = EngineKind::from_environment(&[1]).unwrap()[0];
    let context = Engine::new(kind).with_settings(Settings::Defaults).session();
    run(&context, "SET warpjoin.strict = true").await;
    run(&context, "SET warpjoin.strict_rows = 0").await;
    context
}

async fn run(context: &SessionContext, sql: &str) {
    context.sql(sql).await.unwrap().collect().await.unwrap();
}

/// The answer as lines, and the total kernel time in ms.
async fn ask(context: &SessionContext, sql: &str) -> Result<(Vec<String>, f64), String> {
    let frame = context.sql(sql).await.map_err(|error| error.strip_backtrace())?;
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.map_err(|error| error.strip_backtrace())?;
    let batches = collect(Arc::clone(&plan), task).await.map_err(|error| error.strip_backtrace())?;
    let parts = Placement::of(&plan).device;
    let kernel_ns: u64 = parts.iter().filter_map(|part| part.metrics.as_ref()).map(|metrics| metrics.kernel_ns).sum();
    let rows = lines(&batches).map_err(|error| error.to_string())?;
    Ok((rows, kernel_ns as f64 / 1e6))
}

/// Creates a table from a query's rows, and loads it onto the devices.
async fn load(context: &SessionContext, name: &str, sql: &str) {
    let start = Instant::now();
    {
        let plain = SessionContext::new();
        plain.sql(&format!("create table {name} as {sql}")).await.unwrap().collect().await.unwrap();
        context.register_table(name, plain.table_provider(name).await.unwrap()).unwrap();
    }
    load_table(context, name).await.unwrap();
    announce(&format!("{name}: made and loaded in {:.1} s", start.elapsed().as_secs_f64()));
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
#[ignore = "for GPUs of 100 GB and more"]
fn rows_are_counted_beyond_31_bits() {
    block_on(async {
        let rows = variable("WARPJOIN_LARGE_ROWS", LARGE_ROWS);
        let context = strict_session().await;
        load(&context, "big", &format!("select value as k from generate_series(0, {}) as n(value)", rows - 1)).await;
        load(&context, "small", "select value as id from generate_series(0, 999) as n(value)").await;
        let (n, sum) = (u128::from(rows), u128::from(rows) * u128::from(rows - 1) / 2);
        let with = |rest: u128| (n - 1 - rest) / 1000 + 1;
        let last = |from_end: u64| (rows - 1 - from_end).to_string();
        let offset = rows - 9;
        let joined: u128 = (0..10).map(with).sum();
        let cases: Vec<(String, Vec<String>)> = vec![
            ("select count(*), sum(k), min(k), max(k) from big".into(), vec![format!("{n}|{sum}|0|{}", n - 1)]),
            (
                "select k % 1000 as g, count(*) from big group by k % 1000 order by g limit 3".into(),
                (0..3).map(|rest| format!("{rest}|{}", with(rest))).collect(),
            ),
            (
                "select count(*), max(c) from (select k / 64 as g, count(*) as c from big group by k / 64) t".into(),
                vec![format!("{}|64", rows.div_ceil(64))],
            ),
            (
                "select count(*) from big b join small s on b.k % 1000 = s.id where s.id < 10".into(),
                vec![joined.to_string()],
            ),
            ("select count(*), max(b.k) from big a join big b on a.k = b.k".into(), vec![format!("{n}|{}", n - 1)]),
            (
                format!("select k from big order by k desc limit 5 offset {offset}"),
                (0..5).map(|at| last(offset + at)).collect(),
            ),
            (
                "select count(*), max(r) from (select row_number() over (order by k desc) as r from big) t".into(),
                vec![format!("{n}|{n}")],
            ),
            (
                "select count(d), min(d), max(d) from (select k - lag(k) over (order by k) as d from big) t".into(),
                vec![format!("{}|1|1", n - 1)],
            ),
            (
                // A frame of more than 2^31 rows.
                format!(
                    "select count(*) from (select max(k) over (order by k rows between {} preceding and 1 following) as m from \
                     big) t where m = {}",
                    rows - 2,
                    n - 1
                ),
                vec!["2".into()],
            ),
            (
                "select min(c), max(c) from (select count(*) over (partition by k % 3) as c from big) t".into(),
                vec![format!("{}|{}", rows / 3, rows.div_ceil(3))],
            ),
        ];
        let mut wrong = vec![];
        for (sql, wanted) in cases {
            let start = Instant::now();
            match ask(&context, &sql).await {
                Ok((answer, kernel_ms)) if answer == wanted => {
                    let seconds = start.elapsed().as_secs_f64();
                    announce(&format!("large: right in {seconds:.2} s, kernels {kernel_ms:.1} ms: {sql}"));
                }
                Ok((answer, _)) => wrong.push(format!("{sql}\n{answer:?}, not {wanted:?}")),
                Err(error) => wrong.push(format!("{sql}\n{error}")),
            }
            wrong.iter().for_each(|wrong| announce(&format!("large: {wrong}")));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
#[ignore = "measures times on a GPU"]
fn one_key_in_all_rows_takes_at_most_twice_as_long() {
    block_on(async {
        let rows = variable("WARPJOIN_SKEW_ROWS", SKEW_ROWS);
        let context = strict_session().await;
        let keys = rows / 16;
        // Values are a hash of the row number. Keys are as well, or all keys are equal.
        let table = |key: &str| {
            format!(
                "select {key} as k, (value * 2654435761) % 1000003 as v from generate_series(0, {}) as n(value)",
                rows - 1
            )
        };
        load(&context, "uniform", &table(&format!("(value * 40503) % {keys}"))).await;
        load(&context, "one", &table(&format!("case when value >= 0 then {} else value end", keys / 2))).await;
        load(
            &context,
            "build",
            &format!("select value as id, value % 97 as w from generate_series(0, {}) as n(value)", keys - 1),
        )
        .await;
        let shapes = [
            ("group-by", "select count(*), sum(s) from (select k, sum(v) as s, count(*) as c from TABLE group by k) t"),
            ("distinct", "select count(distinct k) from TABLE"),
            ("join, probe", "select count(*), sum(b.w) from TABLE a join build b on a.k = b.id"),
            ("semi join, build", "select count(*) from build where id in (select k from TABLE where v >= 0)"),
            ("sort", "select k, v from TABLE order by k, v limit 5 offset 1000000"),
            ("window", "select max(r) from (select row_number() over (partition by k order by v) as r from TABLE) t"),
            ("running sum", "select max(s) from (select sum(v) over (partition by k order by v) as s from TABLE) t"),
        ];
        let mut slow = vec![];
        for (name, sql) in shapes {
            let mut times_ms = vec![];
            for table in ["uniform", "one"] {
                let sql = sql.replace("TABLE", table);
                let mut runs_ms = vec![];
                for run in 0..6 {
                    let kernel_ms = ask(&context, &sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).1;
                    match run {
                        0 => session_of(&context).unwrap().finish_compiling(),
                        _ => runs_ms.push(kernel_ms),
                    }
                }
                runs_ms.sort_by(f64::total_cmp);
                times_ms.push(runs_ms[runs_ms.len() / 2]);
            }
            let ratio = times_ms[1] / times_ms[0];
            announce(&format!(
                "skew: {name}, {rows} rows: uniform {:.3} ms, one key {:.3} ms, {ratio:.2} times",
                times_ms[0], times_ms[1]
            ));
            if ratio > SKEW_MAX {
                slow.push(format!("{name}: {ratio:.2} times"));
            }
        }
        assert!(slow.is_empty(), "{}", slow.join("; "));
    });
}
