//! `warpjoin.query_timeout`.

use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::collect;
use warpjoin_datafusion::{Placement, QueryEnded, WarpjoinSessionContext};

use crate::common::{physical, rows, shown};
use crate::harness::{
    ENDLESS, Gate, SHORT, end_of, held_by, limited, listed, runtime, session, spawn, used_bytes, wait_for_idle,
    wait_until, why_ended,
};

const HOUR: Duration = Duration::from_secs(3600);

/// The query ends with an error that names the setting. Its memory comes back, other queries are not touched, and the devices run
/// the next ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_query_times_out() {
    let (runtime, limit) = (runtime(16), Duration::from_millis(300));
    let (short_of_time, other) = (limited(&runtime, limit).await, session(&runtime, |_| {}).await);
    let gate = Gate::at(&[&other], "gate");
    let held = spawn(&other, &held_by("gate"));
    gate.reached().await;
    let before = used_bytes(&other);
    let plan = physical(&short_of_time, ENDLESS).await;
    assert!(Placement::of(&plan).is_on_devices(), "{}", shown(&plan));
    let outcome = end_of(tokio::spawn(collect(Arc::clone(&plan), short_of_time.task_ctx()))).await;
    let message = outcome.as_ref().unwrap_err().to_string();
    assert!(message.contains("longer than warpjoin.query_timeout, 300ms; SET warpjoin.query_timeout"), "{message}");
    assert_eq!(why_ended(outcome), QueryEnded::TimedOut { limit });
    assert_eq!(Placement::of(&plan).device[0].fallback, None);
    listed(&runtime, |query| query.text() == held_by("gate")).await;
    wait_until("memory stays in use", || used_bytes(&other) == before).await;
    gate.open();
    assert_eq!(rows(&end_of(held).await.unwrap(), true).len(), 50);
    short_of_time.sql("set warpjoin.query_timeout = off").await.unwrap();
    assert_eq!(rows(&end_of(spawn(&short_of_time, SHORT)).await.unwrap(), true).len(), 5);
}

/// The time that a query waits for admission counts. The one that it waits for is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_query_times_out() {
    let (runtime, limit) = (runtime(1), Duration::from_millis(50));
    let (first, second) = (limited(&runtime, HOUR).await, limited(&runtime, limit).await);
    let before = used_bytes(&first);
    let gate = Gate::at(&[&first], "gate");
    let held = spawn(&first, &held_by("gate"));
    gate.reached().await;
    for _ in 0..2 {
        assert_eq!(why_ended(end_of(spawn(&second, SHORT)).await), QueryEnded::TimedOut { limit });
    }
    assert_eq!(listed(&runtime, |_| true).await.text(), held_by("gate"));
    assert!(!held.is_finished());
    gate.open();
    assert_eq!(rows(&end_of(held).await.unwrap(), true).len(), 50);
    wait_for_idle(&runtime, &first, before).await;
}

/// Queries that end in time have their answer. Sessions with other limits share plans, whose runs have the limit of their session.
#[tokio::test(flavor = "multi_thread")]
async fn queries_in_time_are_not_touched() {
    let runtime = runtime(16);
    let context = session(&runtime, |_| {}).await;
    let before = used_bytes(&context);
    let answer = rows(&context.query(SHORT).await.unwrap().collect().await.unwrap(), true);
    for limit in ["1h", "600000", "30m", "off"] {
        context.sql(&format!("set warpjoin.query_timeout = '{limit}'")).await.unwrap();
        let query = context.query(SHORT).await.unwrap();
        assert!(query.is_kept(), "planned anew for the limit {limit}");
        assert_eq!(rows(&query.collect().await.unwrap(), true), answer);
        assert!(runtime.queries().is_empty());
    }
    wait_for_idle(&runtime, &context, before).await;
    // The plan was made without a limit.
    context.query(ENDLESS).await.unwrap();
    context.sql("set warpjoin.query_timeout = 20").await.unwrap();
    let query = context.query(ENDLESS).await.unwrap();
    assert!(query.is_kept());
    let outcome = end_of(tokio::spawn(query.collect())).await;
    assert_eq!(why_ended(outcome), QueryEnded::TimedOut { limit: Duration::from_millis(20) });
    wait_for_idle(&runtime, &context, before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_and_explain_analyze_time_out() {
    let (runtime, limit) = (runtime(16), Duration::from_millis(100));
    let context = limited(&runtime, limit).await;
    let before = used_bytes(&context);
    let prepare = format!("prepare endless as {} where rows.v > $1", ENDLESS);
    context.sql(&prepare).await.unwrap().collect().await.unwrap();
    for sql in
        ["execute endless(3)".to_string(), "execute endless(4)".to_string(), format!("explain analyze {ENDLESS}")]
    {
        assert_eq!(why_ended(end_of(spawn(&context, &sql)).await), QueryEnded::TimedOut { limit }, "{sql}");
        let frame = context.sql(&sql).await.unwrap();
        assert_eq!(why_ended(end_of(tokio::spawn(frame.collect())).await), QueryEnded::TimedOut { limit }, "{sql}");
    }
    wait_for_idle(&runtime, &context, before).await;
}
