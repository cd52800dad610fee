//! Plans of earlier queries: they are found, give the right answers, and go when what they depend on changes.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod parameters;

use std::sync::Arc;

use common::{physical, stock, warp, warp_on};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use warpjoin::Session;
use warpjoin_datafusion::{
    DeviceTableProvider, WarpjoinExec, WarpjoinOptions, WarpjoinRuntime, WarpjoinSessionContext, load_table, session_of,
};
use warpjoin_device::{SimOptions, open_simulated};

fn rows(batches: &[RecordBatch]) -> Vec<String> {
    common::rows(batches, false)
}

async fn run(context: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    common::run(context, sql).await.0
}

/// Small tables in both kinds of session; resident in sessions of ours.
async fn tables(context: &SessionContext, is_resident: bool) {
    for sql in [
        "create table t as select value as id, value % 7 as k, value * 37 % 101 as a, 'name ' || (value % 13) as s, \
         cast(value as decimal(15, 2)) as d, cast('1994-01-01' as date) + cast(value % 900 as int) as day \
         from generate_series(1, 3000) as g(value)",
        "create table w as select 'w' || (value * 7919 % 70001) as s from generate_series(1, 70000) as g(value)",
        "create table u as select value as k, value * 3 as y from generate_series(0, 6) as g(value)",
    ] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    if is_resident {
        for table in ["t", "u", "w"] {
            load_table(context, table).await.unwrap();
        }
    }
}

async fn session() -> SessionContext {
    let context = warp(1, |options| options.check_plans = true);
    tables(&context, true).await;
    context
}

/// The address of the first device plan: copies of a kept plan have the same.
fn device_plan(plan: &Arc<dyn ExecutionPlan>) -> usize {
    if let Some(part) = plan.downcast_ref::<WarpjoinExec>() {
        return std::ptr::from_ref(part.plan()).addr();
    }
    plan.children().into_iter().map(device_plan).find(|&address| address > 0).unwrap_or(0)
}

/// Runs a query through DataFusion and through `query`, twice each. Returns the rows of all runs, and whether the second plans
/// were those of the first ones.
async fn twice(context: &SessionContext, sql: &str) -> (Vec<Vec<RecordBatch>>, [bool; 2]) {
    let (mut answers, mut found) = (vec![], [false; 2]);
    let mut plans = vec![];
    for _ in 0..2 {
        let plan = physical(context, sql).await;
        plans.push(device_plan(&plan));
        // A plan that is alive holds its instance.
        answers.push(collect(plan, context.task_ctx()).await.unwrap());
    }
    found[0] = plans[0] == plans[1] && plans[0] > 0;
    for _ in 0..2 {
        let query = context.query(sql).await.unwrap();
        found[1] = query.is_kept();
        answers.push(query.collect().await.unwrap());
    }
    (answers, found)
}

async fn check(context: &SessionContext, stock: &SessionContext, sql: &str, is_kept: [bool; 2]) {
    let expected = rows(&run(stock, sql).await);
    let (answers, found) = twice(context, sql).await;
    for answer in answers {
        assert_eq!(rows(&answer), expected, "{sql}");
    }
    assert_eq!(found, is_kept, "{sql}");
}

const QUERIES: [&str; 12] = [
    "select k, count(*), sum(a), min(d), max(day) from t group by k order by k",
    "select s, sum(y) from t join u using (k) where a between 10 and 60 group by s order by s",
    "select id, a from t where a > (select avg(a) from t) and d < 500 order by id limit 7",
    "select count(*) from t where k in (select k from u where y > 6) and s like 'name 1%'",
    "select t.id from t left join u on t.k = u.k and u.y > 9 where day < date '1994-03-01' order by t.id",
    "select k, sum(a) as total from t group by k having sum(a) > (select sum(a) / 10 from t) order by total desc, k",
    "select id, rank() over (partition by k order by a desc, id) as r from t where id <= 100 order by id",
    "select distinct s from t where exists (select 1 from u where u.k = t.k and u.y = 3) order by 1",
    "select id from t where a = 5 union all select k from u where y = 5 order by 1",
    "with big as (select * from t where a > 50) select b.k, count(*) from big b join big c on b.id = c.id group by 1 order by 1",
    "select sum(case when a > 50 then 1 else 0 end), sum(case when a > 50 then d end) from t",
    "select id + 1, s from t where id in (3, 17, 2999) order by 1 desc",
];

#[tokio::test]
async fn plans_are_found_again() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    for sql in QUERIES {
        check(&context, &stock, sql, [true, true]).await;
    }
    // Once more, with all the others kept.
    for sql in QUERIES {
        check(&context, &stock, sql, [true, true]).await;
    }
}

#[tokio::test]
async fn other_literals_are_other_plans() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    let templates: [(&str, &[&str]); 9] = [
        ("select id, a from t where a > ? order by id limit 5", &["3", "99", "-1", "3.5", "1000000000000", "null"]),
        ("select id from t where s = ? order by id limit 3", &["'name 1'", "'name 12'", "'none'", "''"]),
        ("select s, count(*) from t where s like ? group by s order by s", &["'name 1%'", "'%2'", "'n_me 3'", "'x'"]),
        (
            "select id from t where day between ? and date '1995-01-01' order by id limit 4",
            &["date '1994-06-01'", "date '1994-12-31'"],
        ),
        ("select id, a from t order by ? limit 4", &["1", "2, 1", "2 desc, 1", "1 desc"]),
        ("select id from t order by id limit ?", &["0", "1", "5", "5 offset 2"]),
        ("select count(*) from t where a in (?)", &["1", "1, 2", "2, 1", "1, null", "1, 2, 3, 4, 5, 6, 7"]),
        ("select count(*) from t where d = ?", &["5", "5.0", "5.001", "cast(7 as decimal(38, 10))"]),
        ("select id % 3, count(*), ? from t group by 1 order by 1", &["1", "2", "'x'", "1.5"]),
    ];
    for (template, values) in templates {
        for value in values {
            // DataFusion sees that no row is left, and plans no scan.
            check(&context, &stock, &template.replace('?', value), [!["null", "0"].contains(value), true]).await;
        }
    }
}

#[tokio::test]
async fn what_changes_in_time_is_not_kept() {
    let context = session().await;
    context.register_udf(create_udf("noise", vec![], DataType::Int64, Volatility::Volatile, {
        Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(1)))))
    }));
    for sql in [
        "select count(*) from t where day < now()",
        "select count(*), current_date() from t",
        "select sum(a + noise()) from t",
        "select sum(a + random()) from t",
        "select sum(value) from generate_series(1, 1000000) as g(value)",
        "select count(*) from information_schema.tables",
        "explain select count(*) from t",
    ] {
        for _ in 0..2 {
            let query = context.query(sql).await.unwrap();
            assert!(!query.is_kept(), "{sql}");
            query.collect().await.unwrap();
        }
    }
    // What is not resident can change.
    context.sql("create table memory as values (1), (2)").await.unwrap();
    let sql = "select count(*) from memory join u on column1 = k";
    for expected in [2, 3] {
        let query = context.query(sql).await.unwrap();
        assert!(!query.is_kept());
        assert_eq!(count(&query.collect().await.unwrap()), expected);
        context.query("insert into memory values (3)").await.unwrap().collect().await.unwrap();
    }
}

fn count(batches: &[RecordBatch]) -> i64 {
    rows(batches)[0].trim_matches(|c: char| !c.is_ascii_digit() && c != '-').parse().unwrap()
}

async fn counted(context: &SessionContext, sql: &str) -> (i64, bool) {
    let query = context.query(sql).await.unwrap();
    let is_kept = query.is_kept();
    (count(&query.collect().await.unwrap()), is_kept)
}

/// Loads `name` with the numbers 1 to `rows`.
async fn numbers(context: &SessionContext, name: &str, rows: u32) {
    let sql = format!("create table {name} as select value as v from generate_series(1, {rows}) as g(value)");
    context.sql(&sql).await.unwrap();
    load_table(context, name).await.unwrap();
}

#[tokio::test]
async fn replaced_and_dropped_tables_are_seen() {
    let context = session().await;
    let sql = "select count(*) from n where v > 1";
    numbers(&context, "n", 10).await;
    assert_eq!([counted(&context, sql).await, counted(&context, sql).await], [(9, false), (9, true)]);
    context.sql("create view view_of_n as select * from n").await.unwrap();
    assert_eq!(counted(&context, "select count(*) from view_of_n").await, (10, false));
    assert_eq!(counted(&context, "select count(*) from view_of_n").await, (10, true));
    context.sql("drop table n").await.unwrap();
    assert!(context.query(sql).await.is_err());
    numbers(&context, "n", 20).await;
    assert_eq!([counted(&context, sql).await, counted(&context, sql).await], [(19, false), (19, true)]);
    // A view keeps the table that it was made of.
    assert_eq!(counted(&context, "select count(*) from view_of_n").await.0, 10);
    context.sql("create or replace view view_of_n as select * from n").await.unwrap();
    assert_eq!(counted(&context, "select count(*) from view_of_n").await, (20, false));
    // Another table under the same name, of another session of the runtime.
    let other = warp_on(warpjoin_datafusion::runtime_of(&context).unwrap(), |options| options.check_plans = true);
    numbers(&other, "n", 30).await;
    for _ in 0..2 {
        assert_eq!(counted(&other, sql).await.0, 29);
        assert_eq!(counted(&context, sql).await, (19, true));
    }
    assert!(counted(&other, sql).await.1);
}

#[tokio::test]
async fn dropped_tables_give_their_memory_back() {
    let context = session().await;
    let devices = session_of(&context).unwrap();
    let used = || devices.devices()[0].memory().used_bytes();
    let before = used();
    numbers(&context, "n", 100_000).await;
    assert!(used() > before);
    let scalar = "select count(*) from n where v > (select avg(v) from n)";
    for sql in ["select sum(v) from n", scalar] {
        for _ in 0..2 {
            context.query(sql).await.unwrap().collect().await.unwrap();
            run(&context, sql).await;
        }
    }
    // A provider that somebody else holds keeps its plans, too.
    let provider = context.table_provider("n").await.unwrap();
    context.sql("drop table n").await.unwrap();
    assert!(used() > before);
    drop(provider);
    assert_eq!(used(), before);
}

#[tokio::test]
async fn settings_rules_and_functions_are_seen() {
    let context = session().await;
    let sql = "select k, sum(a) from t group by k order by k";
    let is_kept = async |context: &SessionContext| {
        let query = context.query(sql).await.unwrap();
        let is_kept = query.is_kept();
        query.collect().await.unwrap();
        is_kept
    };
    assert!(!is_kept(&context).await && is_kept(&context).await);
    for setting in ["warpjoin.join_form = 'partitioned'", "datafusion.execution.batch_size = 100"] {
        context.sql(&format!("set {setting}")).await.unwrap().collect().await.unwrap();
        assert!(!is_kept(&context).await && is_kept(&context).await, "{setting}");
    }
    context.sql("set warpjoin.kept_plans = 0").await.unwrap().collect().await.unwrap();
    assert!(!is_kept(&context).await && !is_kept(&context).await);
    // Settings of long ago: the plan is found again.
    for setting in
        ["warpjoin.kept_plans = 256", "warpjoin.join_form = 'auto'", "datafusion.execution.batch_size = 8192"]
    {
        context.sql(&format!("set {setting}")).await.unwrap().collect().await.unwrap();
    }
    assert!(is_kept(&context).await);

    let sql = "select sum(f(a)) from t where k = 1 group by k";
    for value in [1, 2] {
        let function = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(value))));
        let function =
            create_udf("f", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, Arc::new(function));
        context.register_udf(function);
        for is_kept in [false, true] {
            assert_eq!(counted(&context, sql).await, (value * 429, is_kept));
        }
    }
}

#[tokio::test]
async fn the_oldest_plans_go() {
    let context = warp(1, |options| options.kept_plans = 2);
    tables(&context, true).await;
    // Literals of results are no parameters.
    let text = |k: u32| format!("select count(*) + {k} from t where a > 5");
    for k in 0..3 {
        assert!(!counted(&context, &text(k)).await.1);
    }
    assert!(counted(&context, &text(2)).await.1);
    assert!(counted(&context, &text(1)).await.1);
    assert!(!counted(&context, &text(0)).await.1);
    assert!(counted(&context, &text(1)).await.1);
    assert!(!counted(&context, &text(2)).await.1);
}

/// Many queries at once, each with its own instance of the same plans.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn plans_run_at_once() {
    let (context, stock) = (session().await, stock());
    tables(&stock, false).await;
    let mut running = tokio::task::JoinSet::new();
    for client in 0..6 {
        for (at, sql) in QUERIES.into_iter().enumerate() {
            if (at + client) % 3 > 0 {
                continue;
            }
            let context = context.clone();
            let expected = rows(&run(&stock, sql).await);
            running.spawn(async move {
                for _ in 0..3 {
                    let found = context.query(sql).await.unwrap().collect().await.unwrap();
                    assert_eq!(rows(&found), expected, "{sql}");
                }
            });
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// An instance that is dropped in the middle, or never run, comes back.
#[tokio::test]
async fn instances_come_back() {
    let context = session().await;
    let sql = "select id from t where a > (select avg(a) from t) order by id";
    let expected = rows(&context.query(sql).await.unwrap().collect().await.unwrap());
    let address = |plan: &Arc<dyn ExecutionPlan>| device_plan(plan);
    let first = context.query(sql).await.unwrap();
    assert!(first.is_kept());
    // The only instance is in use.
    let second = context.query(sql).await.unwrap();
    assert!(!second.is_kept());
    assert_ne!(address(first.plan()), address(second.plan()));
    drop(first);
    let mut stream = context.query(sql).await.unwrap().stream().unwrap();
    futures::StreamExt::next(&mut stream).await.unwrap().unwrap();
    drop(stream);
    assert_eq!(rows(&second.collect().await.unwrap()), expected);
    for _ in 0..3 {
        let query = context.query(sql).await.unwrap();
        assert!(query.is_kept());
        assert_eq!(rows(&query.collect().await.unwrap()), expected);
    }
}

/// Statements that are not queries run as with `sql`.
#[tokio::test]
async fn other_statements_run() {
    let context = session().await;
    for sql in [
        "set datafusion.execution.batch_size = 4096",
        "create table v as select k, count(*) as c from t group by k",
        "prepare p(bigint) as select count(*) from t where a > $1",
        "explain analyze select count(*) from t",
        "drop table v",
    ] {
        context.query(sql).await.unwrap().collect().await.unwrap();
    }
    let sql = "select count(*) from t where a > ";
    for value in [5, 50, 5] {
        let expected = counted(&context, &format!("{sql}{value}")).await.0;
        assert_eq!(counted(&context, &format!("execute p({value})")).await.0, expected);
    }
    let missing = context.query("select * from missing").await.unwrap_err().to_string();
    assert!(missing.contains("missing"), "{missing}");
    assert!(context.query("select").await.is_err() && context.query("").await.is_err());
}

/// A session with another planner, and one without devices.
#[tokio::test]
async fn sessions_that_keep_nothing() {
    let context = SessionContext::new();
    context.query("create table n as values (1)").await.unwrap();
    for _ in 0..2 {
        assert_eq!(counted(&context, "select count(*) from n").await, (1, false));
    }
    let context = warp_on(WarpjoinRuntime::lazy(), |options: &mut WarpjoinOptions| options.enabled = false);
    context.query("create table n as values (1)").await.unwrap();
    for _ in 0..2 {
        assert_eq!(counted(&context, "select count(*) from n").await, (1, false));
    }
}

/// A provider that is registered twice is one table.
#[tokio::test]
async fn one_table_under_two_names() {
    let context = session().await;
    let provider = context.table_provider("u").await.unwrap();
    let table = Arc::clone(provider.downcast_ref::<DeviceTableProvider>().unwrap().table());
    context.register_table("alias", provider).unwrap();
    context.register_table("copy", Arc::new(DeviceTableProvider::new(table))).unwrap();
    for name in ["u", "alias", "copy"] {
        let sql = format!("select count(*) from {name} where y > 3");
        assert_eq!([counted(&context, &sql).await, counted(&context, &sql).await], [(5, false), (5, true)]);
    }
    context.deregister_table("alias").unwrap();
    assert!(context.query("select count(*) from alias where y > 3").await.is_err());
    assert_eq!(counted(&context, "select count(*) from u where y > 3").await, (5, true));
}

#[tokio::test]
async fn kept_plans_keep_no_devices() {
    let devices = open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }).unwrap();
    let session = Session::new(devices.clone()).unwrap();
    let runtime = WarpjoinRuntime::new(session);
    let context = warp_on(Arc::clone(&runtime), |_| {});
    tables(&context, true).await;
    for sql in QUERIES {
        twice(&context, sql).await;
    }
    let (weak, used_bytes) = (Arc::downgrade(&runtime), || devices[0].memory().used_bytes());
    assert!(used_bytes() > 0);
    drop((context, runtime));
    assert_eq!((weak.strong_count(), used_bytes()), (0, 0));
}
