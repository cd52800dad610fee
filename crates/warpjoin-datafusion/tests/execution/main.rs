//! Queries on simulated devices, compared with stock DataFusion.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod distribute;
mod pieces;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::queries::{Q1, Q3, Q5, Q12, Q17, QUERIES};
use common::{assert_same, physical, register_tpch, rows, run, shown, stock, warp, warp_on};
use datafusion::arrow::array::{ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use warpjoin::Session;
use warpjoin_datafusion::{Placement, WarpjoinRule, WarpjoinRuntime, load_table, session_of};
use warpjoin_device::{SimOptions, open_simulated};

const SCALE: f64 = 0.01;

fn expected() -> SessionContext {
    let context = stock();
    register_tpch(&context, SCALE);
    context
}

async fn resident(devices: usize) -> SessionContext {
    let context = warp(devices, |_| {});
    register_tpch(&context, SCALE);
    common::load_tpch(&context).await;
    context
}

fn assert_on_devices(placement: &Placement, sql: &str) {
    assert!(placement.is_on_devices(), "{sql}: {placement:?}");
    assert!(!placement.device.is_empty(), "{sql}: nothing on the devices");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_over_resident_tables_match_datafusion() {
    let expected = expected();
    for devices in [1, 2, 3] {
        let context = resident(devices).await;
        for (_, sql, ..) in QUERIES {
            let placement = assert_same(&expected, &context, sql).await;
            assert_on_devices(&placement, sql);
        }
    }
}

/// A plan made without devices has row limits in its joins. Device plan and CPU template keep them.
#[tokio::test(flavor = "multi_thread")]
async fn joins_with_row_limits_run_on_devices() {
    let expected = expected();
    let context = warp(2, |_| {});
    let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap();
    let rule = WarpjoinRule::new(WarpjoinRuntime::new(Session::new(devices).unwrap()));
    for (sql, limited) in [
        ("select o_orderkey, l_partkey from orders join lineitem on o_orderkey = l_orderkey limit 7", 7),
        ("select o_orderkey from orders left join lineitem on o_orderkey = l_orderkey limit 100", 100),
        ("select n_name from nation join region on n_regionkey = r_regionkey limit 1000", 25),
    ] {
        let plan = physical(&expected, sql).await;
        assert!(shown(&plan).contains("fetch="), "{}", shown(&plan));
        let plan = rule.optimize(plan, context.copied_config().options()).unwrap();
        let placement = Placement::of(&plan);
        assert_eq!(placement.joins(), 1, "{}", shown(&plan));
        let batches = collect(plan, context.task_ctx()).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), limited, "{sql}");
    }
}

/// Names, the order in FROM and literals do not affect the parts, and other literals compile no kernel.
#[tokio::test(flavor = "multi_thread")]
async fn names_order_and_literals_do_not_matter() {
    let expected = expected();
    let context = resident(2).await;
    let query = |segment: &str, date: &str| {
        format!(
            "with sold(ok, price, off, sent) as (select l_orderkey, l_extendedprice, l_discount, l_shipdate from lineitem),
                 placed(k, who, day, urgency) as (select o_orderkey, o_custkey, o_orderdate, o_shippriority from orders)
             select placed.day as d, sum(sold.price * (1 - sold.off)) as earned, placed.k as number, urgency
             from sold, customer as buyer, placed
             where sold.sent > date '{date}' and placed.day < date '{date}' and buyer.c_custkey = placed.who
                 and buyer.c_mktsegment = '{segment}' and placed.k = sold.ok
             group by placed.day, placed.k, urgency
             order by earned desc, d limit 10"
        )
    };
    let mut compiled = None;
    for (segment, date) in [("BUILDING", "1995-03-15"), ("MACHINERY", "1995-03-01"), ("FURNITURE", "1995-03-29")] {
        let sql = query(segment, date);
        assert_on_devices(&assert_same(&expected, &context, &sql).await, &sql);
        let modules = session_of(&context).unwrap().devices()[0].compiled_modules();
        assert_eq!(*compiled.get_or_insert(modules), modules, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_over_uploaded_tables_match_datafusion() {
    let expected = expected();
    let context = warp(2, |_| {});
    register_tpch(&context, SCALE);
    for (_, sql, ..) in QUERIES {
        let placement = assert_same(&expected, &context, sql).await;
        assert_on_devices(&placement, sql);
        assert!(placement.device[0].metrics.as_ref().unwrap().uploaded_bytes > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_match_datafusion() {
    let (expected, context) = (expected(), resident(2).await);
    for sql in [
        "select count(*), count(o_comment), min(o_orderdate), max(o_totalprice), avg(o_custkey) from orders",
        "select count(*) from lineitem where l_shipmode in ('AIR', 'RAIL') and not l_linestatus = 'F'",
        "select l_linenumber % 3, sum(-l_suppkey), sum(l_orderkey + l_partkey) from lineitem group by l_linenumber % 3",
        "select l_returnflag, count(*) filter (where l_tax > 0.04), sum(l_tax) filter (where l_shipmode = 'AIR')
            from lineitem group by l_returnflag",
        "select case l_shipmode when 'AIR' then 1 when 'RAIL' then 2 else 3 end as m, count(*) from lineitem group by m",
        "select count(*) from lineitem where l_linenumber in (1, 3, 5)",
        "select count(*) from lineitem where l_linenumber not in (1, 3, null)",
        "select sum(cast(l_linenumber as double) * 0.5), sum(l_quantity / 7) from lineitem",
        "select count(*) from orders where o_comment like '%special%requests%'",
        "select substr(c_phone, 1, 2) as code, count(*), sum(c_acctbal) from customer group by code",
        "select s, count(*) from (select substr(c_phone, 1, 2) as s from customer) where s like '1%' group by s",
        "select distinct l_returnflag, l_linestatus from lineitem",
        "select n_name, count(*) from nation join customer on n_nationkey = c_nationkey group by n_name",
        "select count(*) from orders join customer on o_custkey = c_custkey and o_totalprice > c_acctbal * 20",
        "select a.n_name from nation a join nation b on a.n_name = b.n_name and a.n_nationkey = b.n_nationkey",
        "select c_nationkey, s_nationkey, count(*) from customer join supplier on c_nationkey = s_nationkey
            group by c_nationkey, s_nationkey",
        "select max(n) from (select o_custkey, count(*) as n from orders group by o_custkey)",
        "select sum(l_tax) from lineitem where l_shipmode = 'NONE OF THEM'",
        "select count(*) from lineitem join orders on l_orderkey = o_orderkey",
        "select o_orderstatus, min(o_orderpriority), max(o_clerk) from orders group by o_orderstatus",
        "select min(upper(n_name)) from nation",
        "select arrow_cast(l_shipmode, 'Dictionary(Int32, Utf8)') as m, count(*) from lineitem group by m",
        "select count(*) from (select o_orderdate::timestamp as t from orders) where t > timestamp '1995-01-01'",
        "select l_quantity * 1.5, l_tax * 2e0, count(*) from lineitem group by 1, 2",
        "select n_name || '-' || n_name as x, count(*) from nation group by x",
        "select upper(c_mktsegment) as m, sum(o_totalprice) from customer join orders on c_custkey = o_custkey group by m",
        "select count(*) from customer join (select upper(n_name) as u, n_nationkey from nation) on c_nationkey = n_nationkey
            join supplier on upper(s_name) = u",
        "select l_shipmode, count(distinct l_suppkey) from lineitem group by l_shipmode",
        "select o_orderdate > date '1995-01-01' as late, count(*) from orders group by late",
    ] {
        let placement = assert_same(&expected, &context, sql).await;
        assert_on_devices(&placement, sql);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_and_empty_inputs_match_datafusion() {
    let schema =
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]));
    let keys = Int64Array::from(vec![Some(1), None, Some(2), Some(2), None]);
    let strings = StringArray::from(vec![Some("a"), Some("b"), None, Some("a"), None]);
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys), Arc::new(strings)]).unwrap();
    let (expected, context) = (stock(), warp(2, |_| {}));
    for context in [&expected, &context] {
        let some = MemTable::try_new(Arc::clone(&schema), vec![vec![batch.clone()]]).unwrap();
        let none = MemTable::try_new(Arc::clone(&schema), vec![vec![]]).unwrap();
        context.register_table("some", Arc::new(some)).unwrap();
        context.register_table("none", Arc::new(none)).unwrap();
    }
    for sql in [
        "select k, count(*), count(s), count(k) from some group by k",
        "select s, sum(k), min(k), max(k), avg(k) from some group by s",
        "select k is null, s is not null, count(*) from some group by k is null, s is not null",
        "select a.s, b.s from some a join some b on a.k = b.k",
        "select a.k, b.k from some a join some b on a.s = b.s",
        "select a.s, b.s from some a join some b on a.k is not distinct from b.k",
        "select coalesce(s, 'none') as t, count(*) from some group by t",
        "select count(*), sum(k) from none",
        "select k, count(*) from none group by k",
        "select a.k from some a join none b on a.k = b.k",
        "select count(*) from none a join some b on a.k = b.k",
    ] {
        let placement = assert_same(&expected, &context, sql).await;
        assert!(placement.device.iter().all(|part| part.fallback.is_none()), "{sql}: {placement:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resident_tables_can_be_downloaded() {
    let (expected, context) = (expected(), resident(2).await);
    for sql in [
        "select * from nation",
        "select l_comment, l_tax from lineitem where l_orderkey < 100",
        "select n_name, n_name as again from nation",
    ] {
        assert_same(&expected, &context, sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_and_device_nodes_mix() {
    let (expected, context) = (expected(), resident(2).await);
    for sql in [
        "select c_custkey, n from customer left join
            (select o_custkey, count(*) as n from orders join lineitem on o_orderkey = l_orderkey group by o_custkey)
            on c_custkey = o_custkey order by c_custkey",
        "select c_mktsegment, count(*), count(o_orderkey) from customer left join orders on c_custkey = o_custkey
            group by c_mktsegment",
        "select o_orderpriority, count(*) from orders
            where exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
            group by o_orderpriority",
        "select count(*) from lineitem where l_extendedprice > (select avg(l_extendedprice) * 1.5 from lineitem)",
    ] {
        assert_same(&expected, &context, sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_session_are_uploaded() {
    let (expected, owner, context) = (expected(), resident(2).await, warp(3, |_| {}));
    for name in common::TABLES {
        context.register_table(name, owner.table_provider(name).await.unwrap()).unwrap();
    }
    for sql in [Q1, Q5] {
        assert_on_devices(&assert_same(&expected, &context, sql).await, sql);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_memory_falls_back_to_the_cpu() {
    let (expected, context) = (expected(), warp(2, |_| {}));
    register_tpch(&context, SCALE);
    context.sql("set warpjoin.memory_budget = 1000").await.unwrap();
    for sql in [Q1, Q3, Q5] {
        let placement = assert_same(&expected, &context, sql).await;
        let why = placement.device[0].fallback.as_ref().unwrap();
        assert_eq!(why.cause, warpjoin_datafusion::Cause::OutOfMemory);
        assert!(why.message.contains("warpjoin.memory_budget"), "{why}");
        assert!(placement.device[0].metrics.is_none());
    }
    context.sql("set warpjoin.strict = true").await.unwrap();
    let error = context.sql(Q3).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("warpjoin.memory_budget") && error.contains("warpjoin.strict"), "{error}");
    context.sql("set warpjoin.memory_budget = 0").await.unwrap();
    assert_on_devices(&assert_same(&expected, &context, Q3).await, Q3);
}

/// A budget applies only to its own session, also for queries that are planned before another session's.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_applies_only_to_its_session() {
    let expected = expected();
    let session = Session::new(open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap()).unwrap();
    let runtime = WarpjoinRuntime::new(Arc::clone(&session));
    let [tight, free] = [1000, 0].map(|bytes| {
        let context = warp_on(Arc::clone(&runtime), |options| options.memory_budget_bytes = bytes);
        register_tpch(&context, SCALE);
        context
    });
    let limits: Vec<u64> = session.devices().iter().map(|device| device.memory().limit_bytes()).collect();
    let plan_of = async |context: &SessionContext| physical(context, Q3).await;
    let (first, second) = (plan_of(&free).await, plan_of(&tight).await);
    let fallback = async |plan: Arc<dyn ExecutionPlan>, context: &SessionContext| {
        collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        Placement::of(&plan).device[0].fallback.as_ref().map(|fallback| fallback.cause)
    };
    assert_eq!(fallback(second, &tight).await, Some(warpjoin_datafusion::Cause::OutOfMemory));
    assert_eq!(fallback(first, &free).await, None);
    assert_on_devices(&assert_same(&expected, &free, Q3).await, Q3);
    tight.sql("set warpjoin.host_memory = 'off'").await.unwrap();
    let error = load_table(&tight, "orders").await.unwrap_err().to_string();
    assert!(error.contains("warpjoin.memory_budget"), "{error}");
    load_table(&free, "orders").await.unwrap();
    assert_eq!(limits, session.devices().iter().map(|device| device.memory().limit_bytes()).collect::<Vec<_>>());
}

/// Queries with total orders, on the devices and after a fallback.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_in_order() {
    let expected = expected();
    for sql in [
        "select l_orderkey, l_linenumber, l_comment from lineitem order by l_orderkey desc, l_linenumber",
        "select l_orderkey, l_linenumber from lineitem order by l_shipmode, l_orderkey, l_linenumber limit 40 offset 7",
        "select o_orderkey, c_name from orders join customer on o_custkey = c_custkey order by c_name, o_orderkey",
        "select 2 * k, n from (select l_suppkey % 7 as k, count(*) as n from lineitem group by 1) order by n desc, k",
    ] {
        let wanted = rows(&expected.sql(sql).await.unwrap().collect().await.unwrap(), true);
        for devices in [1, 3] {
            let context = resident(devices).await;
            let plan = physical(&context, sql).await;
            assert!(!shown(&plan).contains("SortExec"), "{}", shown(&plan));
            let batches = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
            assert_eq!(rows(&batches, true), wanted, "{sql}");
            assert!(Placement::of(&plan).device[0].fallback.is_none(), "{sql}");
        }
        // The uploads run out of memory. The template must keep the order although it has several partitions.
        let context = warp(1, |_| {});
        register_tpch(&context, SCALE);
        context.sql("set warpjoin.memory_budget = 1000").await.unwrap();
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        assert_eq!(rows(&batches, true), wanted, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_errors_match_datafusion() {
    let (expected, context) = (expected(), resident(2).await);
    for sql in [
        "select sum(l_orderkey / (l_linenumber - l_linenumber)) from lineitem",
        "select sum(cast(l_orderkey as tinyint)) from lineitem",
    ] {
        let [expected, actual] = [&expected, &context].map(|context| async {
            let error = context.sql(sql).await.unwrap().collect().await.unwrap_err().to_string();
            // Which value fails first depends on scheduling.
            error.split(" value ").next().unwrap().to_string()
        });
        assert_eq!(actual.await, expected.await, "{sql}");
    }
}

/// DataFusion's join does not read one side if the other is empty, so failing rows on that side are no error.
#[tokio::test(flavor = "multi_thread")]
async fn failing_inputs_are_errors_only_if_datafusion_reads_them() {
    let contexts = [stock(), warp(2, |_| {})];
    for context in &contexts {
        let (keys, days) = (Arc::new(Int64Array::from(vec![1, 2])), Arc::new(Date32Array::from(vec![-719_162, 0])));
        let days = RecordBatch::try_from_iter([("k", keys as ArrayRef), ("d", days as ArrayRef)]).unwrap();
        context.register_batch("days", days).unwrap();
        context.sql("set datafusion.optimizer.join_reordering = false").await.unwrap();
        for (name, times) in [("none", vec![]), ("times", vec![0; 3])] {
            let times = TimestampNanosecondArray::from(times);
            let times = RecordBatch::try_from_iter([("t", Arc::new(times) as ArrayRef)]).unwrap();
            context.register_batch(name, times).unwrap();
        }
    }
    let [expected, actual] = &contexts;
    let join = |times: &str| format!("select count(*), sum(k) from {times} join days on t = d");
    assert!(
        actual
            .sql(&join("times"))
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .is_ok_and(|plan| shown(&plan).contains("HashJoin"))
    );
    assert_same(expected, actual, &join("none")).await;
    let [expected, actual] = [expected, actual].map(|context| async {
        context.sql(&join("times")).await.unwrap().collect().await.unwrap_err().strip_backtrace()
    });
    assert_eq!(actual.await, expected.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_queries_are_right() {
    let (expected, context) = (expected(), resident(2).await);
    let all = QUERIES.iter().chain(&QUERIES).map(|(_, sql, ..)| async {
        let (batches, placement) = run(&context, sql).await;
        assert_on_devices(&placement, sql);
        (*sql, rows(&batches, true))
    });
    for (sql, actual) in futures::future::join_all(all).await {
        assert_eq!(actual, rows(&run(&expected, sql).await.0, true), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_can_be_executed_twice() {
    let (expected, context) = (expected(), resident(2).await);
    let plan = physical(&context, Q5).await;
    let expected = rows(&run(&expected, Q5).await.0, true);
    for _ in 0..2 {
        let batches = datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        assert_eq!(rows(&batches, true), expected);
    }
}

/// As TPC-H Q15: groups whose total is the maximum, which a scalar subquery computes over the same groups.
const BEST_SUPPLIER: &str = "with revenue as (select l_suppkey, sum(l_extendedprice) as total from lineitem \
     where l_shipdate >= date '1996-01-01' group by l_suppkey) \
     select s_suppkey, total from supplier join revenue on s_suppkey = l_suppkey \
     where total = (select max(total) from revenue) order by s_suppkey";

#[tokio::test(flavor = "multi_thread")]
async fn a_subquery_and_its_query_share_groups() {
    let expected = expected();
    let answer = rows(&run(&expected, BEST_SUPPLIER).await.0, true);
    for devices in [1, 2, 3] {
        let context = resident(devices).await;
        let session = session_of(&context).unwrap();
        let used = || session.devices().iter().map(|device| device.memory().used_bytes()).sum::<u64>();
        let before = used();
        let plan = physical(&context, BEST_SUPPLIER).await;
        let text = shown(&plan);
        assert!(
            text.contains("Shared: kept by a subquery") && text.contains("Shared: kept for the plan above"),
            "{text}"
        );
        let lineitem_reads = |plan: &Arc<dyn ExecutionPlan>| {
            let parts = Placement::of(plan).device;
            let pipelines = parts.iter().flat_map(|part| &part.metrics.as_ref().unwrap().pipelines);
            pipelines.filter(|pipeline| pipeline.rows_in > 50_000).count()
        };
        let collected = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        assert_eq!(rows(&collected, true), answer);
        assert_eq!(lineitem_reads(&plan), 1, "{}", shown(&plan));
        wait_until("the shared groups are released", || used() == before).await;
        // DataFusion runs the subquery of a plan once. In a second run the query groups the rows itself.
        let collected = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        assert_eq!(rows(&collected, true), answer);
        // Fresh nodes with the same device plans.
        let again = reset_plan_states(plan).unwrap();
        let collected = collect(Arc::clone(&again), context.task_ctx()).await.unwrap();
        assert_eq!(rows(&collected, true), answer);
        assert_eq!(lineitem_reads(&again), 1, "{}", shown(&again));
        drop(again);
        wait_until("all memory is released", || used() == before).await;
    }
}

/// Only equal group-bys are shared, also by several subqueries, and by a query that reads its groups twice.
#[tokio::test(flavor = "multi_thread")]
async fn subqueries_share_only_equal_groups() {
    let (expected, context) = (expected(), resident(2).await);
    let revenue = |condition: &str| {
        format!("(select l_suppkey, sum(l_extendedprice) as total from lineitem where {condition} group by l_suppkey)")
    };
    let (one, other) = (revenue("l_quantity < 25"), revenue("l_quantity < 26"));
    let queries = [
        (format!("select count(*) from {one} a where total > (select avg(total) from {one} b)"), true),
        (format!("select count(*) from {one} a where total > (select avg(total) from {other} b)"), false),
        (
            format!(
                "select count(*) from {one} a where total > (select avg(total) from {one} b) \
                 and total < (select max(total) from {one} c)"
            ),
            true,
        ),
        (
            format!(
                "select a.l_suppkey, a.total + b.total from {one} a join {one} b on a.l_suppkey = b.l_suppkey \
                 where a.total > (select 0.9 * max(total) from {one} c) order by 1"
            ),
            true,
        ),
        // Strings, and a subquery of a subquery.
        (
            "with modes as (select l_shipmode as mode, count(*) as lines from lineitem group by l_shipmode) \
             select mode, lines from modes where lines > (select avg(lines) from modes \
             where lines < (select max(lines) from modes)) order by mode"
                .to_string(),
            true,
        ),
    ];
    for (sql, shares) in queries {
        let text = shown(&physical(&context, &sql).await);
        assert_eq!(text.contains("Shared: kept by a subquery"), shares, "{text}");
        assert_on_devices(&assert_same(&expected, &context, &sql).await, &sql);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_stream_releases_all_memory() {
    let context = warp(2, |_| {});
    register_tpch(&context, SCALE);
    let session = session_of(&context).unwrap();
    let used = || session.devices().iter().map(|device| device.memory().used_bytes()).sum::<u64>();
    run(&context, Q5).await;
    wait_until("the query's memory is released", || used() == 0).await;
    for wait_ms in [0, 1, 5, 20, 60, 150] {
        let plan = physical(&context, Q5).await;
        let mut stream = datafusion::physical_plan::execute_stream(plan, context.task_ctx()).unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), stream.next()).await;
        drop(stream);
        wait_until("a dropped query's memory is released", || used() == 0).await;
    }
}

async fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_metrics() {
    let context = resident(2).await;
    let batches = context.sql(&format!("explain analyze {Q3}")).await.unwrap().collect().await.unwrap();
    let text = rows(&batches, true).join("\n");
    for expected in [
        "WarpjoinExec: devices=[sim:0, sim:1], joins=2, aggregates=1",
        "pipeline 1: ",
        "rows_in=",
        "decided by the host: build side: ",
        "decided by the host: join table: of unique keys",
        "decided by the host: group-by: in one table",
        "ran on the devices, metrics=[output_rows=",
        "planning_time=",
        "compile_time=",
        "permit_wait_time=",
        "transfer_time=",
        "kernel_time=",
        "read_bytes=",
        "uploaded_bytes=",
        "exchanged_bytes=",
        "peak_device_bytes=",
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
}

/// Q5 joins customers of one region first, then orders, then lineitems. Q12 builds from few lineitems, not from all orders.
/// Q17 averages only the parts of the query.
#[tokio::test(flavor = "multi_thread")]
async fn joins_are_reordered_for_devices() {
    let expected = expected();
    let context = resident(1).await;
    let decided = |sql: &'static str| {
        let context = &context;
        async move {
            let plan = physical(context, sql).await;
            let text = common::shown(&plan);
            (
                text.lines()
                    .filter(|line| line.contains(" order: ") || line.contains(" filter: "))
                    .collect::<Vec<_>>()
                    .join("\n"),
                text,
            )
        }
    };
    let (q5, text) = decided(Q5).await;
    assert!(q5.contains("x [o_orderkey:2") && q5.contains(" x [c_custkey:1500 x ["), "{text}");
    assert!(q5.contains("[n_nationkey:25 x [r_regionkey:1]"), "{text}");
    let (q12, text) = decided(Q12).await;
    assert!(q12.contains("join order: o_orderkey:15000 x [l_orderkey:"), "{text}");
    let (q17, text) = decided(Q17).await;
    assert!(q17.contains("runtime filter: table ") && q17.contains("drops rows of l_partkey:60175"), "{text}");
    assert!(text.contains("RuntimeFilter[pipeline "), "{text}");
    for class in [
        "planned: runtime filter: ",
        "host decides: join table: of unique keys, or lists",
        "host decides: runtime filter",
    ] {
        assert!(text.contains(class), "{text}");
    }
    for sql in [Q5, Q12, Q17] {
        assert_same(&expected, &context, sql).await;
    }
    // Build rows with DataFusion's join order and with the devices' own.
    let mut built = vec![];
    for setting in ["as_given", "auto"] {
        context.sql(&format!("set warpjoin.join_order = {setting}")).await.unwrap();
        let plan = physical(&context, Q12).await;
        datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        let metrics = Placement::of(&plan).device[0].metrics.clone().unwrap();
        let tables = metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains("Table["));
        built.push(tables.map(|table| table.rows_out).sum::<u64>());
    }
    assert!(built[0] == 15_000 && built[1] < 1_000, "{built:?}");
}

/// Partitions are loaded one after the other, so sorted tables stay sorted.
#[tokio::test(flavor = "multi_thread")]
async fn tables_are_loaded_in_order() {
    for partitions in [1, 7] {
        let context = warp(1, |_| {});
        let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false)]));
        let batch = |first: i64| {
            let keys = Int64Array::from_iter_values(first * 100..(first + 1) * 100);
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys)]).unwrap()
        };
        let rows = (0..partitions).map(|partition| (0..40).map(|at| batch(partition * 40 + at)).collect()).collect();
        context.register_table("ordered", Arc::new(MemTable::try_new(Arc::clone(&schema), rows).unwrap())).unwrap();
        let loaded = load_table(&context, "ordered").await.unwrap();
        assert_eq!(loaded.table().rows(), partitions as u64 * 4000);
        assert!(loaded.table().statistics()[0].sorted, "{partitions} partitions");
    }
    // Partitions of a repartitioning are read concurrently.
    let context = warp(1, |_| {});
    let sql = "create view groups as select value % 1000 as k, count(*) as n from generate_series(1, 50000) group by 1";
    context.sql(sql).await.unwrap().collect().await.unwrap();
    assert_eq!(load_table(&context, "groups").await.unwrap().table().rows(), 1000);
}
