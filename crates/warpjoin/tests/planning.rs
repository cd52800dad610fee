//! What the optimizer does to plans of a known shape, and which kernels runs compile.

mod common;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::exec::{self, CodeTier, JoinOrder, RuntimeFilters};
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind};
use warpjoin::{ExecOptions, QueryMetrics, Session, Table};

use common::case::upload;
use common::decisions::assert_announced;
use common::int_plans::{batch, below, int, join, of_ints, scan, sums};
use common::sessions::{Opener, simulated};
use common::value::{Row, rows_of};

/// Rows in order, and what they cost.
fn run(session: &Arc<Session>, plan: &Plan, options: &ExecOptions) -> (Vec<Row>, QueryMetrics) {
    let output = exec::run(session, plan, &[], options).expect("rows");
    assert_announced(session, plan, &[], options, &output.metrics);
    let mut rows = rows_of(&output.batches);
    rows.sort_by_key(|row| format!("{row:?}"));
    (rows, output.metrics)
}

fn given() -> ExecOptions {
    ExecOptions {
        join_order: JoinOrder::AsGiven,
        runtime_filters: RuntimeFilters::Off,
        share_subplans: false,
        ..ExecOptions::default()
    }
}

/// Facts with two keys, a large dimension and a small one.
fn tables(session: &Arc<Session>) -> [Arc<Table>; 3] {
    let facts: Vec<i64> = (0..60_000).collect();
    let large: Vec<i64> = (0..20_000).collect();
    [
        batch(vec![
            ("f_large", facts.iter().map(|row| row * 7919 % 20_000).collect()),
            ("f_small", facts.iter().map(|row| row * 31 % 50).collect()),
            ("f_value", facts.clone()),
        ]),
        batch(vec![("l_key", large.clone()), ("l_small", large.iter().map(|row| row * 17 % 50).collect())]),
        batch(vec![("s_key", (0..50).collect()), ("s_value", (0..50).map(|row| row * 10).collect())]),
    ]
    .map(|batch| upload(session, &batch))
}

#[test]
fn few_facts_become_the_table() {
    for devices in [1, 2, 4] {
        let session = simulated().open(devices).expect("a session");
        let [facts, large, _] = tables(&session);
        // 60 of the facts; a table of 20,000 rows was asked for.
        let plan = join(scan(&large), below(scan(&facts), 2, 60), (0, 0), JoinKind::Inner, vec![1, 4]);
        let (rows, metrics) = run(&session, &plan, &ExecOptions::default());
        let (wanted, before) = run(&session, &plan, &given());
        assert_eq!(rows, wanted);
        assert_eq!(rows.len(), 60);
        let built = |metrics: &QueryMetrics| {
            let tables = metrics.pipelines.iter().filter(|it| it.name.contains("Table["));
            tables.map(|table| table.rows_out).sum::<u64>()
        };
        assert!(metrics.decisions[0].starts_with("join order: l_key"), "{:?}", metrics.decisions);
        assert!(before.decisions.is_empty());
        assert!(built(&before) >= 20_000 && built(&metrics) <= 60 * devices as u64, "{:?}", metrics.pipelines);
        assert!(metrics.optimizer_ns > 0);
    }
}

#[test]
fn what_a_caller_chose_stays_where_little_is_gained() {
    let session = simulated().open(1).expect("a session");
    let [facts, _, small] = tables(&session);
    let plan = join(scan(&small), scan(&facts), (0, 1), JoinKind::Inner, vec![1, 4]);
    let (rows, metrics) = run(&session, &plan, &ExecOptions::default());
    assert_eq!((rows.len(), metrics.decisions.len()), (60_000, 0), "{:?}", metrics.decisions);
}

/// Sums of facts for every large row, of which a filtered dimension needs few: the shape of TPC-H Q17.
fn sums_of_few(tables: &[Arc<Table>; 3], kind: JoinKind) -> Plan {
    let [facts, large, _] = tables;
    let few = join(below(scan(large), 0, 20), scan(facts), (0, 0), JoinKind::Inner, vec![0, 1, 4]);
    let output = if kind.is_existence() { vec![3, 4] } else { vec![1, 3, 4] };
    join(sums(scan(facts), 0, 2), few, (0, 0), kind, output)
}

#[test]
fn groups_that_nobody_asks_for_are_not_made() {
    use JoinKind::{Inner, ProbeAnti, ProbeOuter, ProbeSemi};
    for (devices, kind) in [(1, Inner), (2, Inner), (4, ProbeOuter), (1, ProbeSemi), (2, ProbeAnti)] {
        let session = simulated().open(devices).expect("a session");
        let plan = sums_of_few(&tables(&session), kind);
        let options = ExecOptions { join_order: JoinOrder::AsGiven, counts_rows: true, ..ExecOptions::default() };
        let (rows, metrics) = run(&session, &plan, &options);
        let (wanted, _) = run(&session, &plan, &given());
        assert_eq!(rows, wanted, "{kind:?}");
        assert!(metrics.decisions.iter().any(|it| it.starts_with("runtime filter: table")), "{:?}", metrics.decisions);
        // Three facts of each of 20 large rows are left.
        let pruned: u64 = metrics.pipelines.iter().map(|pipeline| pipeline.pruned).sum();
        assert_eq!(pruned, 60_000 - 60, "{kind:?}");
        // Each fact is looked up by the filter and by the join with the few, and what that leaves by the last join.
        let probes: u64 = metrics.pipelines.iter().map(|pipeline| pipeline.probes).sum();
        assert_eq!(probes, 2 * 60_000 + 60, "{kind:?}");
        let groups = metrics.pipelines.iter().find(|it| it.name.starts_with("Groups")).expect("groups are read");
        assert!(groups.rows_out <= 20 * devices as u64, "{kind:?}: {:?}", metrics.pipelines);
    }
}

#[test]
fn equal_parts_are_run_once() {
    for devices in [1, 2, 4] {
        let session = simulated().open(devices).expect("a session");
        let [facts, large, small] = tables(&session);
        let part = || {
            let joined = join(below(scan(&large), 0, 500), scan(&facts), (0, 0), JoinKind::Inner, vec![1, 3, 4]);
            sums(joined, 0, 2)
        };
        let plan = join(
            part(),
            join(scan(&small), part(), (0, 0), JoinKind::Inner, vec![1, 2, 3]),
            (0, 1),
            JoinKind::Inner,
            vec![0, 1, 2, 4],
        );
        let (rows, metrics) = run(&session, &plan, &ExecOptions::default());
        let (wanted, before) = run(&session, &plan, &given());
        assert_eq!(rows, wanted);
        assert_eq!(rows.len(), 50);
        assert!(metrics.decisions.iter().any(|it| it.starts_with("run once")), "{:?}", metrics.decisions);
        let groupings = |metrics: &QueryMetrics| {
            metrics.pipelines.iter().filter(|it| it.name.contains("Scan") && it.name.contains("GroupBy")).count()
        };
        assert_eq!((groupings(&metrics), groupings(&before)), (1, 2));
        assert!(metrics.launches < before.launches);
    }
}

#[test]
fn equal_tables_are_made_once() {
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let [facts, large, small] = tables(&session);
        let few = || below(scan(&small), 0, 10);
        let left = join(few(), scan(&large), (0, 1), JoinKind::Inner, vec![1, 2]);
        let right = join(few(), scan(&facts), (0, 1), JoinKind::Inner, vec![1, 2, 4]);
        let plan = join(left, right, (1, 1), JoinKind::Inner, vec![0, 1, 2, 4]);
        let options = ExecOptions { share_subplans: true, ..given() };
        let (rows, metrics) = run(&session, &plan, &options);
        let (wanted, before) = run(&session, &plan, &given());
        assert_eq!(rows, wanted);
        assert!(!rows.is_empty());
        let tables = |metrics: &QueryMetrics| metrics.pipelines.iter().filter(|it| it.name.contains("Table[")).count();
        assert_eq!((tables(&metrics), tables(&before)), (2, 3), "{:?}", metrics.decisions);
    }
}

/// The order of before stays while it is not much worse: its kernels are there.
#[test]
fn another_literal_keeps_the_order() {
    let session = simulated().open(1).expect("a session");
    let [facts, large, _] = tables(&session);
    let plan = |bound| join(scan(&large), below(scan(&facts), 2, bound), (0, 0), JoinKind::Inner, vec![1, 4]);
    let few = run(&session, &plan(60), &ExecOptions::default()).1;
    let ordered = |metrics: &QueryMetrics| metrics.decisions.iter().any(|it| it.starts_with("join order"));
    assert!(few.compiled_modules > 0 && ordered(&few));
    for bound in [70, 500, 2000] {
        let (rows, metrics) = run(&session, &plan(bound), &ExecOptions::default());
        assert_eq!((rows.len(), metrics.compiled_modules), (bound as usize, 0), "{:?}", metrics.decisions);
    }
    // All facts are too many for a table.
    let (rows, metrics) = run(&session, &plan(1 << 40), &ExecOptions::default());
    assert!(rows.len() == 60_000 && !ordered(&metrics), "{:?}", metrics.decisions);
}

/// Counts, sums and extremes of facts by a column of what they are joined to, of which each key has several rows.
#[test]
fn facts_are_aggregated_before_they_are_joined() {
    use AggregateFunction::{Count, Max, Min, Sum};
    let nullable = |data: Vec<Option<i64>>| Arc::new(Int64Array::from(data)) as _;
    let facts = 120_000;
    // The sides of an inner join are drawn, too.
    let outer = [(1, None), (2, Some(7))].map(|(devices, seed)| (devices, JoinKind::ProbeOuter, seed));
    let inner = [(1, Some(3)), (2, Some(4)), (4, Some(8))].map(|(devices, seed)| (devices, JoinKind::Inner, seed));
    for (devices, kind, seed) in outer.into_iter().chain(inner) {
        let session = simulated().open(devices).expect("a session");
        let fields = ["f_key", "f_value"].map(|name| Field::new(name, DataType::Int64, true));
        let columns = vec![
            nullable((0..facts).map(|row| (row % 11 != 0).then_some(row * 7919 % 9_000)).collect()),
            nullable((0..facts).map(|row| (row % 5 != 0).then_some(row)).collect()),
        ];
        let facts = RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).expect("a batch");
        // Each key is there twice, and a third of them match nothing.
        let keys = batch(vec![
            ("d_key", (0..27_000).map(|row| row / 2).collect()),
            ("d_group", (0..27_000).map(|row| row * 31 % 400).collect()),
        ]);
        let tables = [facts, keys].map(|batch| upload(&session, &batch));
        let joined = join(scan(&tables[0]), scan(&tables[1]), (0, 0), kind, vec![3, 0, 1]);
        let of = |function, column: Option<usize>| {
            let argument = column.map(|column| Expr::column(column, DataType::Int64, true));
            AggregateCall::new(function, argument, DataType::Int64)
        };
        let aggregates =
            vec![of(Count, None), of(Count, Some(2)), of(Sum, Some(2)), of(Min, Some(2)), of(Max, Some(1))];
        for group_by in [vec![int(0)], vec![]] {
            let columns = group_by.len() + aggregates.len();
            let input = Box::new(joined.clone());
            let plan = of_ints(PlanKind::Aggregate { input, group_by, aggregates: aggregates.clone() }, columns);
            let order = seed.map_or(JoinOrder::Auto, JoinOrder::Seeded);
            let (rows, metrics) = run(&session, &plan, &ExecOptions { join_order: order, ..ExecOptions::default() });
            let (wanted, _) = run(&session, &plan, &given());
            assert_eq!(rows, wanted, "{kind:?}");
            assert!(rows.len() == 400 || columns == aggregates.len(), "{} rows", rows.len());
            let is_said = metrics.decisions.iter().any(|it| it.starts_with("group-by below the join"));
            assert!(is_said || kind == JoinKind::Inner, "{:?}", metrics.decisions);
            let has_lists = metrics.pipelines.iter().any(|it| it.name.contains("lists"));
            assert!(!is_said || !has_lists, "{:?}", metrics.pipelines);
        }
    }
}

/// What is interpreted needs the same kernels whatever the query, and gives the same rows.
#[test]
fn interpreted_pipelines_compile_nothing_of_their_own() {
    let session = simulated().open(2).expect("a session");
    let [facts, small, ..] = tables(&session);
    let interpreted = ExecOptions { code_tier: CodeTier::Interpreted, ..given() };
    let plan = |most: i128, words: usize| {
        let joined = join(below(scan(&small), 0, most), scan(&facts), (0, 1), JoinKind::Inner, vec![1, 2, 3]);
        sums(joined, 0, 1 + words)
    };
    let (expected, compiled) = run(&session, &plan(10, 1), &given());
    let (rows, first) = run(&session, &plan(10, 1), &interpreted);
    assert_eq!(rows, expected);
    assert!(first.interpreted_kernels > 0 && compiled.interpreted_kernels == 0, "{first:?}");
    // Another shape of query.
    let (rows, other) = run(&session, &plan(7, 0), &interpreted);
    assert_eq!(other.compiled_modules, 0, "{other:?}");
    assert_eq!(rows, run(&session, &plan(7, 0), &given()).0);
}

/// So are group-bys with any number of keys and sums: a block's table has a slot for each of a few keys, or takes what fits.
#[test]
fn group_bys_of_any_size_are_interpreted() {
    let session = simulated().open(1).expect("a session");
    let values: Vec<i64> = (0..3_000).collect();
    let interpreted = ExecOptions { code_tier: CodeTier::Interpreted, ..given() };
    let keyed = |keys: i64| {
        let key = ("key", values.iter().map(|row| row % keys).collect());
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let columns = names.into_iter().map(|name| (name, values.clone()));
        upload(&session, &batch(std::iter::once(key).chain(columns).collect()))
    };
    for keys in [1, 2, 3, 5, 31, 33, 64, 65, 500, 2_999] {
        let table = keyed(keys);
        for words in [1, 2, 5, 12] {
            let sum = |column| AggregateCall::new(AggregateFunction::Sum, Some(int(column)), DataType::Int64);
            let (input, group_by) = (Box::new(scan(&table)), vec![int(0)]);
            let kind = PlanKind::Aggregate { input, group_by, aggregates: (1..=words).map(sum).collect() };
            let plan = of_ints(kind, 1 + words);
            let (rows, metrics) = run(&session, &plan, &interpreted);
            assert!(metrics.interpreted_kernels > 0 && rows.len() == keys as usize, "{metrics:?}");
            assert_eq!(metrics.generated_kernels, 0, "{keys} keys, {words} sums: {metrics:?}");
            assert_eq!(rows, run(&session, &plan, &given()).0, "{keys} keys, {words} sums");
        }
    }
}

/// Two columns are taken for a key, but are none. What was compiled the first time is all that another run needs.
#[test]
fn a_query_compiles_its_kernels_once() {
    let session = simulated().open(1).expect("a session");
    let twice = |values: i64| (0..2 * values).map(|value| value / 2).collect::<Vec<_>>();
    let pairs = upload(&session, &batch(vec![("a", twice(500)), ("b", twice(500)), ("c", (0..1000).collect())]));
    let ones = upload(&session, &batch(vec![("a", (0..500).collect()), ("b", (0..500).collect())]));
    let on = vec![(int(0), int(0)), (int(1), int(1))];
    let summed = |probe: Plan| {
        let (build, on, output) = (below(scan(&pairs), 0, 400), on.clone(), vec![0, 2]);
        let kind = JoinKind::Inner;
        let both = JoinPlan { build, probe, on, kind, null_equals_null: false, residual: None, output };
        sums(of_ints(PlanKind::Join(Box::new(both)), 2), 0, 1)
    };
    let plan = join(summed(scan(&ones)), summed(below(scan(&ones), 1, 300)), (0, 0), JoinKind::Inner, vec![0, 1, 3]);
    let (rows, first) = run(&session, &plan, &given());
    let (again, hot) = run(&session, &plan, &given());
    assert_eq!((rows.len(), &rows), (300, &again));
    assert!(first.compiled_modules > 0 && hot.compiled_modules == 0, "{first:?}, {hot:?}");
}
