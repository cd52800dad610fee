//! Equal parts of a query run once; parts with any difference are not shared.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{physical, rows, run, shown, stock, warp};
use datafusion::prelude::SessionContext;
use warpjoin_datafusion::load_table;

async fn tables(context: &SessionContext, is_resident: bool) {
    for sql in [
        "create table t as select value as id, value % 5 as p, value * 37 % 100 as a, \
         case when value % 6 = 1 then null else value * 31 % 40 end as x, \
         arrow_cast(value * 997, 'Timestamp(Second, None)') as at, \
         case when value % 9 = 0 then -0.0 when value % 9 = 1 then 0.0 else value % 9 end as f, \
         'name ' || (value * 7 % 13) as s, \
         cast(value || '00000000000000000000' as decimal(38, 0)) as big from generate_series(1, 600) as g(value)",
        "create table u as select value as k, value * 3 as y from generate_series(1, 20) as g(value) \
         union all select null, 7",
    ] {
        context.sql(sql).await.unwrap().collect().await.unwrap();
    }
    if is_resident {
        for table in ["t", "u"] {
            load_table(context, table).await.unwrap();
        }
    }
}

/// Pairs of values whose parts differ in one field of a device plan's node.
const PAIRS: [(&str, &str); 27] = [
    // Window calls.
    ("sum(lag(x) over (partition by p order by id))", "sum(lag(x) ignore nulls over (partition by p order by id))"),
    ("sum(lag(x) over (partition by p order by id))", "sum(lag(x, 2) over (partition by p order by id))"),
    ("sum(lag(x) over (partition by p order by id))", "sum(lag(x, 1, -9) over (partition by p order by id))"),
    ("sum(lag(x) over (partition by p order by id))", "sum(lag(a) over (partition by p order by id))"),
    ("sum(lag(x) over (partition by p order by id))", "sum(lag(x) over (partition by p order by id desc))"),
    ("sum(lag(x) over (partition by p order by id))", "sum(lag(x) over (partition by a order by id))"),
    ("sum(lag(x) over (order by x nulls first, id))", "sum(lag(x) over (order by x nulls last, id))"),
    (
        "sum(sum(x) over (order by id rows between 3 preceding and current row))",
        "sum(sum(x) over (order by id rows between 3 preceding and 1 following))",
    ),
    (
        "sum(sum(x) over (order by id rows between 3 preceding and current row))",
        "sum(sum(x) over (order by a range between 3 preceding and current row))",
    ),
    ("sum(first_value(x) over w)", "sum(last_value(x) over w)"),
    ("sum(nth_value(x, 1) over w)", "sum(nth_value(x, 2) over w)"),
    // Aggregate calls.
    ("sum(x)", "sum(distinct x)"),
    ("sum(x)", "sum(x) filter (where a > 50)"),
    ("sum(x) filter (where a > 50)", "sum(x) filter (where a > 51)"),
    ("sum(x)", "min(x)"),
    ("sum(x)", "sum(a)"),
    ("first_value(x order by id)", "first_value(x order by id desc)"),
    ("first_value(x order by id)", "last_value(x order by id)"),
    ("first_value(x order by x nulls first)", "first_value(x order by x nulls last)"),
    ("bit_and(a)", "bit_or(a)"),
    ("count(x)", "count(*)"),
    ("round(var_pop(x), 6)", "round(var_samp(x), 6)"),
    // Expressions.
    ("sum(case when f = 0 then 1 else 0 end)", "sum(case f when 0.0 then 1 else 0 end)"),
    ("sum(case when a in (1, 2) then 1 else 0 end)", "sum(case when a not in (1, 2) then 1 else 0 end)"),
    ("sum(case when a > 7 then x end)", "sum(case when a > 7 then x else 0 end)"),
    ("sum(extract(year from at))", "sum(extract(month from at))"),
    ("sum(extract(hour from at))", "sum(extract(hour from arrow_cast(at, 'Timestamp(Second, Some(\"+05:30\"))')))"),
];

/// A query of one value for each `p`. A sum over a window call becomes a subquery with the window.
fn part(value: &str) -> String {
    let window = if value.contains("over w)") { "window w as (partition by p order by id)" } else { "" };
    match value.strip_prefix("sum(").filter(|_| value.contains("over")) {
        Some(inner) => {
            let inner = inner.strip_suffix(')').unwrap();
            format!("select p, cast(sum(v) as double) as v from (select p, {inner} as v from t {window}) group by p")
        }
        None => format!("select p, cast({value} as double) as v from t group by p"),
    }
}

/// Pairs of parts that differ in one node.
const PARTS: [(&str, &str); 14] = [
    (
        "select p, count(*) v from t join u on p = k group by p",
        "select p, count(*) v from t left join u on p = k group by p",
    ),
    (
        "select p, count(*) v from t join u on x = k group by p",
        "select p, count(*) v from t join u on x is not distinct from k group by p",
    ),
    (
        "select p, count(*) v from t join u on p = k and a < y group by p",
        "select p, count(*) v from t join u on p = k and a <= y group by p",
    ),
    (
        "select p, count(*) v from t join u on p = k group by p",
        "select p, count(*) v from t join u on a = k group by p",
    ),
    (
        "select p, count(*) v from t where x in (select k from u) group by p",
        "select p, count(*) v from t where x not in (select k from u where k is not null) group by p",
    ),
    (
        "select p, count(*) v from t where exists (select 1 from u where k = x) group by p",
        "select p, count(*) v from t where not exists (select 1 from u where k = x) group by p",
    ),
    ("select p, sum(x) v from t where a > 3 group by p", "select p, sum(x) v from t where a > 4 group by p"),
    ("select p, sum(x) v from t group by p", "select a as p, sum(x) v from t group by a"),
    ("select p, sum(x) v from t group by p", "select p, sum(x) v from t group by rollup(p)"),
    (
        "select p, sum(x) v from t group by grouping sets ((p), (p))",
        "select p, sum(x) v from t group by grouping sets ((p), ())",
    ),
    (
        "select p, sum(x) v from (select * from t order by id limit 100) group by p",
        "select p, sum(x) v from (select * from t order by id limit 101) group by p",
    ),
    (
        "select p, sum(x) v from (select * from t order by id limit 100) group by p",
        "select p, sum(x) v from (select * from t order by id limit 100 offset 1) group by p",
    ),
    (
        "select p, sum(x) v from (select * from t order by id limit 100) group by p",
        "select p, sum(x) v from (select * from t order by id desc limit 100) group by p",
    ),
    (
        "select p, sum(x) v from (select * from t union all select * from t) group by p",
        "select p, sum(x) v from (select * from t) group by p",
    ),
];

/// Asserts that both give the same rows, in any order, without a fallback.
async fn assert_same(expected: &SessionContext, actual: &SessionContext, sql: &str) {
    let (expected, _) = run(expected, sql).await;
    let (actual, placement) = run(actual, sql).await;
    assert_eq!(rows(&actual, false), rows(&expected, false), "{sql}");
    assert!(placement.device.iter().all(|part| part.fallback.is_none()), "{sql}: {placement:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn different_parts_are_not_shared() {
    let expected = stock();
    tables(&expected, false).await;
    let pairs = PAIRS.iter().map(|(one, other)| (part(one), part(other)));
    let parts = PARTS.iter().map(|(one, other)| (one.to_string(), other.to_string()));
    let all: Vec<_> = pairs.chain(parts).collect();
    for devices in [1, 2] {
        let context = warp(devices, |_| {});
        tables(&context, true).await;
        let mut shared = 0;
        for (one, other) in &all {
            assert_same(&expected, &context, &format!("{one} union all {other}")).await;
            let twice = format!("{one} union all {one}");
            assert_same(&expected, &context, &twice).await;
            shared += usize::from(shown(&physical(&context, &twice).await).contains("run once"));
        }
        // If equal parts were not shared, the pairs would prove nothing.
        assert!(shared * 4 >= all.len() * 3, "only {shared} of {} repeated parts run once", all.len());
    }
}

/// Queries with several readers of a subplan over the 600 rows of `t`, and how many pipelines scan all rows of `t`.
const READ_ONCE: [(&str, usize); 4] = [
    // Minima of more than 64 bits are first values.
    (
        "select sum(c), count(*), count(e), sum(cast(m as bigint) - cast(m as bigint)) from (select id, median(a) as m, min(d) as e, count(*) as c from \
         (select id, a, big as d from t limit 599) as x group by id) as y",
        1,
    ),
    (
        "select count(*), count(e), sum(a), sum(c) from (select id, count(distinct p) as a, count(distinct x) as c, max(d) as e from \
         (select id, p, a as x, big as d from t limit 599) as x group by id) as y",
        1,
    ),
    // A part that an aggregate made of several reads first.
    (
        "with c as (select p, a, sum(id) as s from t group by p, a) select q.p, f, m from \
         (select p, first_value(s order by a) as f from c group by p) as q join \
         (select p, max(s) as m from c group by p) as r on q.p = r.p",
        1,
    ),
    (
        "with c as (select p, a, sum(id) as s from t group by p, a) select q.p, f, m from \
         (select p, max(s) as m from c group by p) as r join \
         (select p, first_value(s order by a) as f from c group by p) as q on q.p = r.p",
        1,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn shared_subplans_run_once() {
    let expected = stock();
    tables(&expected, false).await;
    for devices in [1, 2] {
        let context = warp(devices, |_| {});
        tables(&context, true).await;
        for (sql, times) in READ_ONCE {
            let (wanted, _) = run(&expected, sql).await;
            let (answer, placement) = run(&context, sql).await;
            assert_eq!(rows(&answer, false), rows(&wanted, false), "{sql}");
            let metrics: Vec<_> = placement.device.iter().filter_map(|part| part.metrics.as_ref()).collect();
            let ran = metrics.iter().flat_map(|metrics| &metrics.pipelines);
            let of_table: Vec<_> = ran.filter(|ran| ran.name.starts_with("Scan") && ran.rows_in == 600).collect();
            assert_eq!(of_table.len(), times, "{sql}: {of_table:#?}");
        }
    }
}
