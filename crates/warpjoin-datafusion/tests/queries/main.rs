//! Queries under way: their list, KILL, and `warpjoin.query_timeout`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod harness;
mod timeout;

use std::sync::Arc;
use std::time::Duration;

use common::{physical, rows};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::physical_plan::{collect, execute_stream};
use futures::StreamExt;
use harness::{
    ENDLESS, Gate, SHORT, end_of, held_by, listed, runtime, session, spawn, used_bytes, wait_for_idle, wait_until,
    why_ended,
};
use warpjoin_datafusion::{
    Placement, QueryEnded, QueryInfo, QueryState, WarpjoinSessionContext, register_queries_table,
};

fn is_running(query: &QueryInfo) -> bool {
    query.state() == QueryState::Running
}

/// Another session lists a query and kills it. It fails, its memory comes back, and the devices run other queries. One that runs
/// meanwhile is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn another_session_kills_a_running_query() {
    let runtime = runtime(16);
    let (victim, other) = (session(&runtime, |_| {}).await, session(&runtime, |_| {}).await);
    let answer = rows(&other.query(SHORT).await.unwrap().collect().await.unwrap(), true);
    let before = used_bytes(&other);
    let task = spawn(&victim, ENDLESS);
    let query = listed(&runtime, is_running).await;
    assert_eq!(query.text(), ENDLESS);
    let gate = Gate::at(&[&other], "gate");
    let held = spawn(&other, &held_by("gate"));
    gate.reached().await;
    register_queries_table(&other).unwrap();
    let sql =
        "select id, state, seconds >= 0 and seconds < 3600, query from warpjoin.queries where query not like '%gate%'";
    let shown = rows(&other.sql(sql).await.unwrap().collect().await.unwrap(), true);
    assert_eq!(shown, [format!("{}|running|true|{ENDLESS}", query.id())]);
    assert!(!task.is_finished());

    runtime.kill(query.id()).unwrap();
    let outcome = end_of(task).await;
    let message = outcome.as_ref().unwrap_err().to_string();
    assert!(message.contains(&format!("cancelled by KILL {}", query.id())), "{message}");
    assert_eq!(why_ended(outcome), QueryEnded::Killed { id: query.id() });
    assert_eq!(listed(&runtime, is_running).await.text(), held_by("gate"));
    gate.open();
    assert_eq!(rows(&end_of(held).await.unwrap(), true).len(), 50);
    wait_for_idle(&runtime, &other, before).await;
    for context in [&victim, &other] {
        assert_eq!(rows(&context.query(SHORT).await.unwrap().collect().await.unwrap(), true), answer);
    }
    for id in [query.id(), 0, u64::MAX] {
        let message = runtime.kill(id).unwrap_err().to_string();
        assert!(message.contains(&format!("no query under way has the id {id}")), "{message}");
    }
}

/// A query that waits for admission is killed; the one that runs is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_query_is_killed() {
    let runtime = runtime(1);
    let (first, second) = (session(&runtime, |_| {}).await, session(&runtime, |_| {}).await);
    let gate = Gate::at(&[&first], "gate");
    let held = spawn(&first, &held_by("gate"));
    gate.reached().await;
    let waits = spawn(&second, SHORT);
    wait_until("the second query waits", || {
        let states: Vec<_> = runtime.queries().iter().map(QueryInfo::state).collect();
        states == [QueryState::Running, QueryState::Waiting]
    })
    .await;
    let ids: Vec<_> = runtime.queries().iter().map(QueryInfo::id).collect();
    assert!(ids[0] < ids[1], "{ids:?}");
    runtime.kill(ids[1]).unwrap();
    assert_eq!(why_ended(end_of(waits).await), QueryEnded::Killed { id: ids[1] });
    assert_eq!(listed(&runtime, is_running).await.id(), ids[0]);
    // It waits again, and gets the permit.
    let waits = spawn(&second, SHORT);
    gate.open();
    assert_eq!(end_of(held).await.unwrap().iter().map(|batch| batch.num_rows()).sum::<usize>(), 50);
    assert_eq!(rows(&end_of(waits).await.unwrap(), true).len(), 5);
    wait_until("the list is empty", || runtime.queries().is_empty()).await;
}

/// Without its text a query is listed by its plan. Queries go from the list when they end, fail, or are dropped; a stream that
/// nobody reads is not in it.
#[tokio::test(flavor = "multi_thread")]
async fn queries_leave_the_list() {
    let runtime = runtime(16);
    let context = session(&runtime, |_| {}).await;
    let before = used_bytes(&context);
    let gate = Gate::at(&[&context], "gate");
    let plan = physical(&context, &held_by("gate")).await;
    let stream = execute_stream(Arc::clone(&plan), context.task_ctx()).unwrap();
    assert!(runtime.queries().is_empty());
    drop(stream);
    let held = tokio::spawn(collect(plan, context.task_ctx()));
    gate.reached().await;
    let query = listed(&runtime, is_running).await;
    assert!(query.text().contains("Exec: "), "{}", query.text());
    gate.open();
    end_of(held).await.unwrap();
    assert_eq!(runtime.queries(), []);

    context.register_udf(panics());
    let panics = context.query("select panics(x) as w, count(*) from texts group by w").await.unwrap();
    let message = panics.collect().await.unwrap_err().to_string();
    assert!(message.contains("on purpose"), "{message}");
    wait_until("a query that panics stays", || runtime.queries().is_empty()).await;

    let fails = context.query("select v, 10 / (v - 5) as q, count(*) from few group by v, q").await.unwrap();
    assert!(fails.collect().await.is_err());
    wait_until("a query that fails stays", || runtime.queries().is_empty()).await;

    let task = spawn(&context, ENDLESS);
    listed(&runtime, is_running).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    wait_for_idle(&runtime, &context, before).await;
}

fn panics() -> ScalarUDF {
    let panics = |_: &[ColumnarValue]| -> Result<ColumnarValue> { panic!("on purpose") };
    create_udf("panics", vec![DataType::Utf8View], DataType::Int64, Volatility::Immutable, Arc::new(panics))
}

/// A query whose subquery runs first is one query all the time.
#[tokio::test(flavor = "multi_thread")]
async fn parts_one_after_the_other_are_one_query() {
    let runtime = runtime(16);
    let context = session(&runtime, |_| {}).await;
    let (first, second) = (Gate::at(&[&context], "gate_1"), Gate::at(&[&context], "gate_2"));
    let sql = "select gate_2(x) as w, count(*) from texts where length(x) < (select max(gate_1(x)) - 10 from texts) group by w";
    let task = spawn(&context, sql);
    first.reached().await;
    let before = listed(&runtime, is_running).await;
    first.open();
    second.reached().await;
    let after = listed(&runtime, is_running).await;
    assert_eq!((after.id(), after.text()), (before.id(), sql));
    assert!(after.elapsed() > before.elapsed());
    runtime.kill(after.id()).unwrap();
    assert_eq!(why_ended(end_of(task).await), QueryEnded::Killed { id: before.id() });
    // Its thread is in the function: it holds its memory, so it is listed.
    let query = listed(&runtime, |_| true).await;
    assert_eq!((query.id(), query.state()), (before.id(), QueryState::Cancelled));
    second.open();
    wait_until("the list is empty", || runtime.queries().is_empty()).await;
}

/// A part below another one is killed: no part starts over on the CPU.
#[tokio::test(flavor = "multi_thread")]
async fn parts_above_do_not_fall_back() {
    let runtime = runtime(16);
    let context = session(&runtime, |_| {}).await;
    let before = used_bytes(&context);
    let sql = format!("select k, count(*) from (select n + random() > 0.5 as k from ({ENDLESS}) as e(n)) group by k");
    let plan = physical(&context, &sql).await;
    assert!(Placement::of(&plan).device.len() == 2, "{}", common::shown(&plan));
    let task = tokio::spawn(collect(Arc::clone(&plan), context.task_ctx()));
    let id = listed(&runtime, is_running).await.id();
    runtime.kill(id).unwrap();
    assert_eq!(why_ended(end_of(task).await), QueryEnded::Killed { id });
    let parts = Placement::of(&plan).device;
    assert!(parts.iter().all(|part| part.fallback.is_none()), "{parts:?}");
    wait_for_idle(&runtime, &context, before).await;
}

/// A query that has fallen back to the CPU is listed and killed there.
#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_is_killed() {
    let runtime = runtime(16);
    let context = session(&runtime, |_| {}).await;
    let before = used_bytes(&context);
    context.sql("set warpjoin.memory_budget = 1000").await.unwrap();
    context.sql("set warpjoin.host_memory = 'off'").await.unwrap();
    let plan = physical(&context, ENDLESS).await;
    let task = tokio::spawn(collect(Arc::clone(&plan), context.task_ctx()));
    wait_until("it does not fall back", || Placement::of(&plan).device[0].fallback.is_some()).await;
    let query = listed(&runtime, |query| query.state() == QueryState::Cpu).await;
    runtime.kill(query.id()).unwrap();
    assert_eq!(why_ended(end_of(task).await), QueryEnded::Killed { id: query.id() });
    // The budget has moved columns of tables to the host.
    wait_until("the query is not gone", || runtime.queries().is_empty() && used_bytes(&context) <= before).await;
}

/// A large result that nobody reads gives its memory back all the same. Who reads on gets the error.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_nobody_reads_is_killed() {
    let runtime = runtime(16);
    let context = session(&runtime, |_| {}).await;
    let large = "create table large as select value as v from generate_series(1, 5000000) as t(value)";
    context.sql(large).await.unwrap().collect().await.unwrap();
    warpjoin_datafusion::load_table(&context, "large").await.unwrap();
    let before = used_bytes(&context);
    let mut stream = context.query("select v * 2 as w from large where v > 3").await.unwrap().stream().unwrap();
    let mut read_rows = stream.next().await.unwrap().unwrap().num_rows();
    let id = listed(&runtime, is_running).await.id();
    assert!(used_bytes(&context) > before, "no rows wait on the devices");
    // By then the query's thread has made all pieces that it may be ahead, and waits. If it does not yet, that is right, too.
    tokio::time::sleep(Duration::from_secs(1)).await;
    runtime.kill(id).unwrap();
    wait_until("memory stays in use", || used_bytes(&context) == before).await;
    let outcome = loop {
        match stream.next().await.expect("an error before the end") {
            Ok(batch) => read_rows += batch.num_rows(),
            Err(error) => break error,
        }
    };
    assert!(read_rows < 4_999_997);
    assert_eq!(why_ended::<()>(Err(outcome)), QueryEnded::Killed { id });
    drop(stream);
    wait_for_idle(&runtime, &context, before).await;
}

/// As above, while kernels run.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_nobody_polls_is_killed() {
    let runtime = runtime(1);
    let context = session(&runtime, |_| {}).await;
    let before = used_bytes(&context);
    let mut stream = context.query(ENDLESS).await.unwrap().stream().unwrap();
    assert!(futures::poll!(stream.next()).is_pending());
    let id = listed(&runtime, is_running).await.id();
    wait_until("the query uses no memory", || used_bytes(&context) > before).await;
    runtime.kill(id).unwrap();
    assert_eq!(listed(&runtime, |_| true).await.state(), QueryState::Cancelled);
    wait_until("memory stays in use", || used_bytes(&context) == before).await;
    // Its permit is free.
    assert_eq!(rows(&end_of(spawn(&context, SHORT)).await.unwrap(), true).len(), 5);
    assert_eq!(why_ended(stream.next().await.expect("an error")), QueryEnded::Killed { id });
    assert!(stream.next().await.is_none());
    drop(stream);
    wait_for_idle(&runtime, &context, before).await;
}
