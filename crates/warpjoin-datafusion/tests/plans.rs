//! Which parts of plans run on devices, and the reasons for the others.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::queries::QUERIES;
use common::{physical, placement, register_tpch, rows, run, shown, stock, warp, warp_on};
use datafusion::prelude::SessionContext;
use warpjoin::{Reason, Session};
use warpjoin_datafusion::{WarpjoinRuntime, load_table};
use warpjoin_device::{FaultPlan, SimOptions, open_simulated, with_faults};

const SCALE: f64 = 0.001;

async fn resident() -> SessionContext {
    let context = warp(2, |_| {});
    register_tpch(&context, SCALE);
    common::load_tpch(&context).await;
    context
}

fn uploaded() -> SessionContext {
    let context = warp(2, |_| {});
    register_tpch(&context, SCALE);
    context
}

#[tokio::test]
async fn tpch_queries_run_on_devices() {
    for context in [resident().await, uploaded()] {
        for (number, sql, joins, aggregates) in QUERIES {
            let plan = physical(&context, sql).await;
            let placement = warpjoin_datafusion::Placement::of(&plan);
            assert!(placement.is_on_devices(), "Q{number}:\n{}", shown(&plan));
            assert_eq!(placement.device.len(), 1, "Q{number}:\n{}", shown(&plan));
            assert_eq!((placement.joins(), placement.aggregates()), (joins, aggregates), "Q{number}");
        }
    }
}

#[tokio::test]
async fn resident_queries_have_no_cpu_inputs() {
    let context = resident().await;
    for (number, sql, ..) in QUERIES {
        let text = shown(&physical(&context, sql).await);
        assert!(!text.contains("DeviceScanExec"), "Q{number} downloads:\n{text}");
        assert!(!text.contains("Upload"), "Q{number} uploads:\n{text}");
    }
}

#[tokio::test]
async fn explain_indents_the_device_plan_under_its_node() {
    let context = resident().await;
    let text = shown(&physical(&context, common::queries::Q3).await);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.trim_start().starts_with("WarpjoinExec: devices=[sim:0, sim:1], joins=2"))
        .unwrap();
    let indent = |line: &str| line.len() - line.trim_start().len();
    assert_eq!(indent(lines[at + 1]), indent(lines[at]) + 4, "{text}");
    assert!(lines[at + 1..].iter().any(|line| line.contains("HashJoin: Inner")), "{text}");
    assert!(lines[at + 1..].iter().any(|line| line.trim_start().starts_with("pipeline 1: ")), "{text}");
}

/// First values are a group-by of order words, whose rows are found by a join; what both aggregates read is grouped once.
#[tokio::test]
async fn explain_shows_what_first_values_are_made_of() {
    let context = resident().await;
    let sql = "with c as (select o_custkey, o_orderdate, count(*) as n from orders group by o_custkey, o_orderdate) \
               select q.o_custkey, f, m from (select o_custkey, first_value(n order by o_orderdate) as f from c group by o_custkey) as q \
               join (select o_custkey, max(n) as m from c group by o_custkey) as r on q.o_custkey = r.o_custkey";
    let text = shown(&physical(&context, sql).await);
    let pipelines: Vec<&str> = text.lines().map(str::trim_start).filter(|line| line.starts_with("pipeline ")).collect();
    let count = |words: &str| pipelines.iter().filter(|line| line.contains(words)).count();
    assert_eq!((count("-> GroupBy"), count(": Scan["), count("pipeline 0")), (3, 1, 0), "{text}");
    assert_eq!((count("-> BuildHashTable"), count("-> Probe[")), (2, 2), "{text}");
}

/// FULL joins are an outer join and, behind it, the build rows without a match; both read the same rows. NOT IN counts null
/// build keys, and keeps rows without a key where there are no build rows.
#[tokio::test]
async fn explain_shows_what_joins_are_made_of() {
    let context = resident().await;
    let pipelines = async |sql: &str| {
        let text = shown(&physical(&context, sql).await);
        let lines = text.lines().map(str::trim_start).filter(|line| line.starts_with("pipeline "));
        lines.map(String::from).collect::<Vec<_>>()
    };
    let full =
        "select o_orderkey, c_name from orders full join customer on o_custkey = c_custkey and o_totalprice > 100";
    let wanted = [
        "pipeline 1: Scan[2 columns] -> BuildHashTable",
        "pipeline 2: Scan[3 columns] -> Probe[pipeline 1] -> Rows",
        "pipeline 3: Scan[3 columns] -> BuildHashTable",
        "pipeline 4: Scan[2 columns] -> Probe[pipeline 3] -> Project -> Rows",
        "pipeline 5: Union[pipelines 2, 4] -> Project -> Project -> Result",
    ];
    assert_eq!(pipelines(full).await, wanted);
    let not_in =
        "select count(*) from orders where nullif(o_custkey, 7) not in (select nullif(c_custkey, 5) from customer)";
    let wanted = [
        "pipeline 1: Scan[1 columns] -> Project -> BuildHashTable",
        "pipeline 2: Scan[1 columns] -> Project -> Filter -> Count",
        "pipeline 3: Scan[1 columns] -> Project -> HasRows[pipeline 2] -> Filter -> Probe[pipeline 1] -> \
         HasRows[pipeline 1] -> Filter -> Project -> Project -> Aggregate",
        "pipeline 4: Groups[pipeline 3] -> Project -> Result",
    ];
    assert_eq!(pipelines(not_in).await, wanted);
}

/// DataFusion puts an output requirement between a query's sort and its limit.
#[tokio::test]
async fn a_limit_with_an_offset_joins_the_part_of_its_sort() {
    for context in [resident().await, uploaded()] {
        let sql = "select o_custkey, count(*) as n from orders group by o_custkey order by n desc, o_custkey limit 5 offset 3";
        let plan = physical(&context, sql).await;
        let placement = warpjoin_datafusion::Placement::of(&plan);
        let on_cpu = placement.cpu.iter().filter(|node| node.is_operator).count();
        assert_eq!((placement.device.len(), on_cpu), (1, 0), "{}", shown(&plan));
        assert!(shown(&plan).contains("Limit: skip=3, fetch=5"), "{}", shown(&plan));
    }
}

#[tokio::test]
async fn explain_shows_that_rows_go_through_the_host() {
    let devices = open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap();
    for (devices, is_shown) in [(with_faults(&devices, &FaultPlan::without_peers()), true), (devices, false)] {
        let runtime = WarpjoinRuntime::new(Session::new(devices).unwrap());
        let context = warp_on(runtime, |_| {});
        register_tpch(&context, SCALE);
        let text = shown(&physical(&context, common::queries::Q3).await);
        assert_eq!(text.contains("exchange: through the host"), is_shown, "{text}");
    }
}

/// Queries with declined nodes, and parts of the reasons.
#[tokio::test]
async fn declined_nodes_have_reasons() {
    let context = resident().await;
    for (sql, expected) in [
        ("select count(*) from orders, lineitem where o_orderkey < l_orderkey", "Inner without an equality: 6005 rows"),
        ("select count(*) from nation left join orders on n_nationkey < o_custkey", "Left without an equality"),
        (
            "select count(distinct cast(l_tax as double) / 3), count(distinct l_suppkey) from lineitem",
            "count(DISTINCT Float64)",
        ),
        ("select l_shipmode, approx_median(l_linenumber) from lineitem group by l_shipmode", "aggregate approx_median"),
        ("select array_agg(n_name order by n_nationkey) from nation", "aggregate array_agg"),
        ("select sum(power(o_totalprice, 2)) from orders", "function power, whose last bit differs"),
        ("select sum(gcd(cast(o_totalprice as bigint), 2)) from orders", "function gcd"),
        ("select max(o_comment || o_clerk || cast(o_orderkey as varchar)) from orders", "|| o_clerk"),
        ("select max(make_date(cast(o_totalprice as int), 1, 1)) from orders", "function make_date"),
    ] {
        let placement = placement(&context, sql).await;
        let reasons: Vec<String> =
            placement.cpu.iter().filter_map(|node| node.reason.as_ref()).map(ToString::to_string).collect();
        assert!(reasons.iter().any(|reason| reason.contains(expected)), "{sql}: {reasons:?}");
    }
}

#[tokio::test]
async fn supported_aggregates_run_on_devices() {
    let context = resident().await;
    for sql in [
        "select l_shipmode, sum(distinct l_linenumber), count(distinct l_suppkey) from lineitem group by l_shipmode",
        "select count(distinct l_suppkey), avg(distinct l_quantity), sum(l_tax), count(*) from lineitem",
        "select l_shipmode, count(distinct l_suppkey) filter (where l_tax > 0.02) from lineitem group by l_shipmode",
        "select l_shipmode, stddev(l_linenumber), var_pop(l_quantity) from lineitem group by l_shipmode",
        "select covar_samp(l_quantity, l_linenumber), covar_pop(l_tax, l_discount) from lineitem",
        "select l_shipmode, corr(l_quantity, l_tax) from lineitem group by l_shipmode",
        "select bit_and(l_suppkey), bit_or(l_suppkey), bit_xor(l_linenumber), bit_xor(distinct l_suppkey) from lineitem",
        "select l_shipmode, bool_and(l_tax > 0), bool_or(l_tax > 0.05) from lineitem group by l_shipmode",
        "select avg(cast(l_tax as decimal(9, 2))), avg(l_quantity) filter (where l_tax > 0) from lineitem",
        "select l_shipmode, l_linestatus, sum(l_tax), grouping(l_shipmode) from lineitem
            group by rollup(l_shipmode, l_linestatus)",
        "select l_shipmode, count(distinct l_suppkey) from lineitem group by cube(l_shipmode, l_linestatus)",
        "select count(*) from (select o_orderkey from orders union all select l_orderkey from lineitem)",
        "select n_name from nation union select r_name from region",
        "select stddev(cast(l_linenumber as double) / 3), corr(l_tax, cast(l_quantity as double) / 7) from lineitem",
        "select var(l_linenumber), count(distinct l_suppkey) from lineitem",
        "select l_shipmode, first_value(l_suppkey order by l_shipdate desc, l_orderkey) from lineitem group by l_shipmode",
        "select last_value(l_shipmode order by l_tax), any_value(l_suppkey), approx_distinct(l_suppkey) from lineitem",
        "select l_shipmode, median(l_linenumber), percentile_cont(l_tax, 0.3) from lineitem group by l_shipmode",
        "select distinct on (o_custkey) o_custkey, o_orderkey from orders order by o_custkey, o_orderdate desc",
    ] {
        let plan = physical(&context, sql).await;
        assert!(warpjoin_datafusion::Placement::of(&plan).is_on_devices(), "{sql}\n{}", shown(&plan));
    }
}

#[tokio::test]
async fn nodes_below_a_declined_node_run_on_devices() {
    let context = resident().await;
    let placement = placement(
        &context,
        "select c_custkey, n from customer left join
            (select o_orderkey, count(*) as n from orders join lineitem on o_orderkey = l_orderkey group by o_orderkey)
            on c_custkey < o_orderkey",
    )
    .await;
    assert_eq!((placement.joins(), placement.aggregates()), (1, 1));
    assert!(!placement.is_on_devices());
}

#[tokio::test]
async fn nodes_above_a_declined_node_run_on_devices() {
    let context = resident().await;
    let plan = physical(
        &context,
        "select c_mktsegment, count(*) from customer left join orders on c_custkey < o_custkey group by c_mktsegment",
    )
    .await;
    let placement = warpjoin_datafusion::Placement::of(&plan);
    assert_eq!((placement.joins(), placement.aggregates()), (0, 1), "{}", shown(&plan));
    assert!(shown(&plan).contains("WarpjoinCpu: reason=join Left without an equality"), "{}", shown(&plan));
}

#[tokio::test]
async fn a_declined_projection_between_two_parts_has_a_reason() {
    let context = resident().await;
    let sql = "select y, sum(o_custkey) from (select chr(cast(o_totalprice as int) % 26 + 65) as y, o_custkey
        from orders join customer on o_custkey = c_custkey) group by y";
    let plan = physical(&context, sql).await;
    let placement = warpjoin_datafusion::Placement::of(&plan);
    assert_eq!((placement.device.len(), placement.joins(), placement.aggregates()), (2, 1, 1), "{}", shown(&plan));
    assert!(shown(&plan).contains("function chr"), "{}", shown(&plan));
}

/// Functions without device code are precomputed if their operands have few values, and EXPLAIN shows that.
#[tokio::test]
async fn functions_of_few_values_are_precomputed() {
    let context = resident().await;
    for (sql, shown_as) in [
        (
            "select sum(power(l_linenumber, 2)) from lineitem",
            "tabulated[#0](power(CAST(l_linenumber@0 AS Float64), 2))",
        ),
        (
            "select max(l_shipmode || l_shipinstruct) from lineitem",
            "tabulated[#1, #0](l_shipmode@0 || l_shipinstruct@1)",
        ),
        ("select to_char(o_orderdate, '%Y'), sum(o_totalprice) from orders group by 1", "to_char(o_orderdate@0, %Y)"),
    ] {
        let plan = physical(&context, sql).await;
        assert!(warpjoin_datafusion::Placement::of(&plan).is_on_devices(), "{sql}\n{}", shown(&plan));
        assert!(shown(&plan).contains(shown_as), "{sql}\n{}", shown(&plan));
    }
}

#[tokio::test]
async fn functions_of_computed_strings_run_on_devices() {
    let context = resident().await;
    for sql in [
        "select s, count(*) from (select substr(c_phone, 1, 2) as s, c_acctbal from customer) where s like '1%' group by s",
        "select upper(s), count(*) from (select substr(c_phone, 1, 2) as s from customer) group by upper(s)",
        "select count(*) from (select o_orderkey, lower(o_orderpriority) as p from orders) join lineitem
            on o_orderkey = l_orderkey where p like '1%'",
        "select upper(s), count(*) from (select min(c_phone) as s from customer group by c_nationkey) group by upper(s)",
        "select n, count(*) from (select case when o_totalprice > 1000 then o_orderpriority else o_clerk end as n
            from orders) where n like '%1%' group by n",
        "select count(*) from lineitem where l_shipmode < l_shipinstruct",
        "select count(*) from customer where c_acctbal > (select avg(c_acctbal) from customer)",
        "select count(*) from customer where c_name = (select max(c_name) from customer)",
    ] {
        let plan = physical(&context, sql).await;
        assert!(warpjoin_datafusion::Placement::of(&plan).is_on_devices(), "{sql}\n{}", shown(&plan));
    }
}

#[tokio::test]
async fn sorts_and_limits_join_a_part() {
    let context = resident().await;
    for (sql, sorts, node) in [
        (common::queries::Q3, 1, "TopK: "),
        ("select l_shipmode, count(*) from lineitem group by l_shipmode order by 2 desc, 1", 1, "Sort: "),
        (
            "select o_orderkey, l_linenumber from orders join lineitem on o_orderkey = l_orderkey order by 1, 2",
            1,
            "Sort: ",
        ),
        // A sort of a resident table starts a part.
        ("select l_orderkey, l_tax from lineitem order by l_extendedprice desc, l_orderkey limit 5", 1, "TopK: "),
        ("select * from lineitem where l_tax > 0.02 order by l_shipdate, l_orderkey", 1, "Sort: "),
        ("select l_orderkey from lineitem join orders on l_orderkey = o_orderkey limit 5", 0, "Limit: fetch=5"),
        (
            "select count(*) from (select l_orderkey from lineitem join orders on l_orderkey = o_orderkey limit 5 offset 3)",
            0,
            "Limit: skip=3, fetch=5",
        ),
    ] {
        let plan = physical(&context, sql).await;
        let (placement, text) = (warpjoin_datafusion::Placement::of(&plan), shown(&plan));
        assert_eq!((placement.device.len(), placement.sorts()), (1, sorts), "{sql}:\n{text}");
        assert!(text.contains(node), "{sql}:\n{text}");
        assert!(!text.contains("SortExec") && !text.contains("SortPreservingMergeExec"), "{sql}:\n{text}");
    }
}

#[tokio::test]
async fn windows_over_whole_partitions_become_group_bys_and_joins() {
    let context = resident().await;
    for sql in [
        "select l_orderkey, sum(l_quantity) over (partition by l_suppkey), count(*) over (partition by l_suppkey) from lineitem",
        "select n_name, count(*) over (), max(n_name) over () from nation",
        "select sum(n) filter (where n > 3) over () from (select n_nationkey as n from nation)",
        "select o_orderkey, n / sum(n) over (partition by k) from
            (select o_orderkey, o_orderkey % 5 as k, count(*) as n from orders join lineitem on o_orderkey = l_orderkey
            group by o_orderkey) order by 2, 1 limit 9",
        "select n_name, sum(n_nationkey) over (partition by n_regionkey order by n_name
            rows between unbounded preceding and unbounded following) from nation",
    ] {
        let plan = physical(&context, sql).await;
        let text = shown(&plan);
        assert!(text.contains("WarpjoinExec") && !text.contains("WindowAggExec"), "{sql}:\n{text}");
    }
}

#[tokio::test]
async fn windows_are_sorted_on_devices() {
    let context = resident().await;
    for (sql, sorts) in [
        ("select row_number() over (partition by n_regionkey order by n_name) from nation", 1),
        ("select sum(n_nationkey) over (order by n_name) from nation", 1),
        ("select sum(n_nationkey) over (partition by n_nationkey / 2.0e0) from nation", 1),
        // A limit may keep other rows when it runs twice, so this does not become a group-by and a join.
        (
            "select k, count(*) over () from (select l_orderkey as k from lineitem join orders on l_orderkey = o_orderkey limit 5)",
            1,
        ),
        (
            "select n_name, rank() over w, lag(n_name, 2, 'none') over w, first_value(n_name) over w, ntile(3) over w,
                avg(n_nationkey) over (partition by n_regionkey order by n_name rows between 2 preceding and 1 following)
            from nation window w as (partition by n_regionkey order by n_name)",
            1,
        ),
        (
            "select max(n_nationkey) over (order by n_name groups between 1 preceding and unbounded following) from nation",
            1,
        ),
        ("select min(n_name) over (order by n_regionkey groups between 1 preceding and 1 following) from nation", 1),
        ("select sum(n_nationkey) over (order by n_nationkey range between 2 preceding and current row) from nation", 1),
        ("select count(n_name) filter (where n_nationkey > 3) over (order by n_nationkey) from nation", 1),
        ("select lag(n_name) ignore nulls over (order by n_nationkey) from nation", 1),
        ("select lag(n_name, 0) ignore nulls over (order by n_nationkey) from nation", 1),
        ("select var_pop(n_nationkey) over (order by n_nationkey) from nation", 1),
        (
            "select count(*) over (order by o_orderdate desc range between interval '1 month' preceding and current row)
            from orders",
            1,
        ),
    ] {
        let plan = physical(&context, sql).await;
        let (placement, text) = (warpjoin_datafusion::Placement::of(&plan), shown(&plan));
        assert_eq!((placement.device.len(), placement.sorts()), (1, sorts), "{sql}:\n{text}");
        assert!(text.contains("Window: [") && !text.contains("WindowAggExec"), "{sql}:\n{text}");
    }
    for (sql, expected) in [
        (
            "select count(*) over (order by cast(o_orderdate as timestamp) range interval '1 month' preceding) from orders",
            "of a frame with a distance of",
        ),
        (
            "select count(*) over (order by n_name range between 'a' preceding and current row) from nation",
            "of a frame with a distance of",
        ),
        // DataFusion replaces the row's own null with the default.
        ("select lag(n_name, 0, 'none') ignore nulls over (order by n_nationkey) from nation", "lag of a window"),
        ("select bit_and(n_nationkey) over (order by n_nationkey) from nation", "bit_and(Int64) of a window as Int64"),
    ] {
        let text = shown(&physical(&context, sql).await);
        assert!(text.contains(expected) && text.contains("WindowAggExec"), "{sql}:\n{text}");
    }
}

#[tokio::test]
async fn windows_of_the_same_partitions_share_a_sort() {
    let context = resident().await;
    for (sql, windows) in [
        (
            "select rank() over (partition by n_regionkey order by n_name), count(*) over (partition by n_regionkey),
                sum(n_nationkey) over (partition by n_regionkey order by n_name rows 2 preceding) from nation",
            1,
        ),
        (
            "select rank() over (partition by n_regionkey order by n_name, n_nationkey),
                lag(n_name) over (partition by n_regionkey order by n_name) from nation",
            1,
        ),
        // The two orders have different peers.
        (
            "select rank() over (partition by n_regionkey order by n_name, n_nationkey),
                sum(n_nationkey) over (partition by n_regionkey order by n_name) from nation",
            2,
        ),
        (
            "select sum(r) over (partition by k order by n) from (select n_regionkey as k, n_name as n,
                rank() over (partition by n_regionkey order by n_name) as r from nation)",
            2,
        ),
    ] {
        let plan = physical(&context, sql).await;
        let (placement, text) = (warpjoin_datafusion::Placement::of(&plan), shown(&plan));
        assert_eq!((placement.device.len(), placement.sorts()), (1, windows), "{sql}:\n{text}");
        assert_eq!(text.matches("Window: [").count(), windows, "{sql}:\n{text}");
    }
}

#[tokio::test]
async fn windows_of_cpu_rows_start_a_part() {
    let context = uploaded();
    let placement = placement(&context, "select row_number() over (order by l_tax, l_orderkey) from lineitem").await;
    assert_eq!((placement.device.len(), placement.sorts()), (1, 1), "{placement:?}");
}

#[tokio::test]
async fn a_sort_of_cpu_rows_starts_no_part() {
    let context = uploaded();
    let placement = placement(&context, "select l_orderkey from lineitem order by l_tax, l_orderkey limit 5").await;
    assert!(placement.device.is_empty() && placement.cpu.is_empty(), "{placement:?}");
}

#[tokio::test]
async fn a_declined_sort_has_a_reason() {
    let context = resident().await;
    let sql =
        "select o_orderkey, count(*) as n from orders join lineitem on o_orderkey = l_orderkey group by o_orderkey
        order by power(n, 2), o_orderkey";
    let plan = physical(&context, sql).await;
    let text = shown(&plan);
    assert!(text.contains("SortExec") && text.contains("function power, whose last bit differs"), "{text}");
    // `strict` does not make planning fail.
    context.sql("set warpjoin.strict = true").await.unwrap();
    context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
}

#[tokio::test]
async fn small_inputs_stay_on_the_cpu() {
    let context = uploaded();
    context.sql("set warpjoin.minimum_rows = 50000").await.unwrap();
    let placement = placement(&context, common::queries::Q3).await;
    assert!(placement.device.is_empty());
    let Some(Reason::Limit(why)) = &placement.cpu[0].reason else { panic!("{placement:?}") };
    assert!(why.contains("warpjoin.minimum_rows is 50000"), "{why}");
}

#[tokio::test]
async fn strict_names_the_work_on_the_cpu() {
    let context = resident().await;
    context.sql("set warpjoin.strict = true").await.unwrap();
    context.sql("set warpjoin.minimum_rows = 1000000000").await.unwrap();
    for (_, sql, ..) in QUERIES {
        assert!(placement(&context, sql).await.is_on_devices());
    }
    let sql = "select count(*) from orders join lineitem on o_orderkey < l_orderkey";
    let error = context.sql(sql).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("warpjoin.strict") && error.contains("without an equality"), "{error}");
    let explained = explain(&context, sql).await;
    assert!(explained.contains("WarpjoinRefused: error=warpjoin.strict is set"), "{explained}");
    assert!(explained.contains("NestedLoopJoinExec"), "the refused plan is not shown: {explained}");
}

async fn explain(context: &SessionContext, sql: &str) -> String {
    rows(&context.sql(&format!("explain {sql}")).await.unwrap().collect().await.unwrap(), true).join("\n")
}

/// Queries with one node that is work on the CPU. Reading, moving and writing rows is not work.
const ON_THE_CPU: [(&str, &str); 9] = [
    ("select median(f) over (partition by g order by id rows 2 preceding) from t", "WindowAggExec"),
    ("select array_agg(id) from t group by g", "AggregateExec"),
    ("select id from t where make_array(id % 7) = make_array(g)", "FilterExec"),
    ("select make_array(id, g) from t", "ProjectionExec"),
    ("select * from (select id, make_array(g) as a from t) order by id", "SortExec"),
    ("select count(*) from (select id from t union all select unnest(make_array(1, 2)))", "UnionExec"),
    ("select a.id from t a join t b on make_array(a.id) = make_array(b.g)", "HashJoinExec"),
    ("select unnest(make_array(id, g)) from t", "UnnestExec"),
    (
        "select sum(k) from (select g as k, make_array(count(*)) as a from t group by g) where make_array(k) < a",
        "rows fetched to the host between two parts",
    ),
];

#[tokio::test]
async fn strict_sees_all_work_of_the_cpu() {
    let create = "create table t as select value as id, value % 7 as g, value / 3.0 as f, repeat('y', value % 5) as s \
                  from generate_series(1, 1000) as numbers(value)";
    let (expected, context) = (stock(), warp(1, |_| {}));
    for context in [&expected, &context] {
        context.sql(create).await.unwrap().collect().await.unwrap();
        context.sql("create table h as select * from t").await.unwrap().collect().await.unwrap();
    }
    load_table(&context, "t").await.unwrap();
    context.sql("set warpjoin.strict = true").await.unwrap();
    for (sql, what) in ON_THE_CPU {
        context.sql("set warpjoin.strict_rows = 0").await.unwrap();
        let error = context.sql(sql).await.unwrap().collect().await.unwrap_err().to_string();
        assert!(error.contains("warpjoin.strict is set") && error.contains(what), "{sql}: {error}");
        // The node takes more than one row, which may be known only when it runs.
        context.sql("set warpjoin.strict_rows = 1").await.unwrap();
        let error = context.sql(sql).await.unwrap().collect().await.unwrap_err().to_string();
        assert!(error.contains("warpjoin.strict is set") && error.contains(what), "{sql}: {error}");
        context.sql("set warpjoin.strict_rows = 1000000").await.unwrap();
        let answer = rows(&context.sql(sql).await.unwrap().collect().await.unwrap(), false);
        assert_eq!(answer, rows(&expected.sql(sql).await.unwrap().collect().await.unwrap(), false), "{sql}");
    }
    context.sql("set warpjoin.strict_rows = 0").await.unwrap();
    for sql in [
        "select 1 + 1",
        "select * from t",
        "select id from t limit 3",
        "select id + 1 from t where g = 3",
        "select g, sum(f) from t group by g order by g limit 5 offset 1",
        "select id from t union all select g from t",
        "select id, lag(id) over (order by id) from t",
        // Tables in host memory, without a join, group-by or window: only `strict` uploads their rows.
        "select id from h where g = 3",
        "select id + 1, s from h",
        "select id, s from h order by s desc, id limit 7",
        "select id from h union all select g from h where id < 5",
    ] {
        let (plan, placed) = run(&context, sql).await;
        assert!(placed.is_wholly_on_devices(), "{sql}: {placed:?}");
        if sql.contains("from h") {
            let wanted = expected.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(rows(&plan, sql.contains("order by")), rows(&wanted, sql.contains("order by")), "{sql}");
        }
        assert!(plan.iter().map(|batch| batch.num_rows()).sum::<usize>() > 0);
    }
}

#[tokio::test]
async fn options_are_set_and_shown() {
    let context = warp_on(WarpjoinRuntime::lazy(), |_| {});
    context.sql("set warpjoin.memory_budget = '8GB'").await.unwrap();
    context.sql("set warpjoin.group_size = 16").await.unwrap();
    for (key, expected) in [
        ("memory_budget", "8000000000"),
        ("group_size", "16"),
        ("device", "auto"),
        ("strict", "false"),
        ("materialization", "auto"),
        ("remember", "true"),
    ] {
        let batches = context.sql(&format!("show warpjoin.{key}")).await.unwrap().collect().await.unwrap();
        assert_eq!(common::rows(&batches, true), [format!("warpjoin.{key}|{expected}")]);
    }
    let error = context.sql("set warpjoin.group_size = 5").await.unwrap_err().to_string();
    assert!(error.contains("warpjoin.group_size takes 0 (auto), 1, 2, 4, 8, 16 or 32, not '5'"), "{error}");
}

#[tokio::test]
async fn without_a_gpu_plans_stay_on_the_cpu() {
    if warpjoin_device::cuda_problem().is_none() {
        return;
    }
    let context = warp_on(WarpjoinRuntime::lazy(), |_| {});
    register_tpch(&context, SCALE);
    let placement = placement(&context, common::queries::Q3).await;
    assert!(placement.device.is_empty());
    let text = explain(&context, common::queries::Q3).await;
    assert!(text.contains("no device is used: no CUDA driver found"), "{text}");
    // With `strict` or `device = cuda` the query fails. EXPLAIN shows the plan and the reason.
    for setting in ["warpjoin.strict = true", "warpjoin.device = cuda"] {
        let context = warp_on(WarpjoinRuntime::lazy(), |_| {});
        register_tpch(&context, SCALE);
        context.sql(&format!("set {setting}")).await.unwrap();
        let error = context.sql(common::queries::Q3).await.unwrap().collect().await.unwrap_err().to_string();
        assert!(error.contains("no CUDA driver found"), "{error}");
        let text = explain(&context, common::queries::Q3).await;
        assert!(text.contains("WarpjoinRefused: error=") && text.contains("no CUDA driver found"), "{text}");
    }
}

/// TPC-H Q10 groups by row ids of customers, and reads their names and addresses only for output rows.
#[tokio::test]
async fn explain_shows_late_columns() {
    let context = resident().await;
    context.sql("set warpjoin.materialization = late").await.unwrap();
    let text = shown(&physical(&context, common::queries::Q10).await);
    let late = text
        .lines()
        .find(|line| line.trim_start().starts_with("planned: late: ") && line.contains("c_address"))
        .unwrap();
    for part in ["c_name", "c_comment", "of 150 rows", "from the device that has the row", "(as set)"] {
        assert!(late.contains(part), "{late}");
    }
    let behind = text.lines().rfind(|line| line.contains("-> InPlace")).unwrap();
    assert!(behind.contains("TopK") && behind.contains("Fetch[") && behind.contains("c_address"), "{behind}");
    context.sql("set warpjoin.materialization = early").await.unwrap();
    let text = shown(&physical(&context, common::queries::Q10).await);
    assert!(!text.contains("late: ") && !text.contains("Fetch"), "{text}");
}

#[tokio::test]
async fn with_enabled_off_plans_do_not_change() {
    let context = uploaded();
    context.sql("set warpjoin.enabled = false").await.unwrap();
    assert!(placement(&context, common::queries::Q3).await.device.is_empty());
}
