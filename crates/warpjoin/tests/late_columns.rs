//! Late materialization: which columns it takes, what it says of them, and that the rows are the same.
//!
//! `WARPJOIN_RANDOM_SEED=<seed>` begins with that random plan; `WARPJOIN_RANDOM_CASES=<n>` runs so many.

mod common;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::exec::{self, Distribution, JoinOrder, Materialization};
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind, SortKey};
use warpjoin::{ExecOptions, QueryMetrics, Session, Table};
use warpjoin_device::{compile_for_architecture, cuda_status};

use common::case::{Outcome, upload};
use common::decisions::assert_announced;
use common::sessions::{Opener, in_threads, is_set, say, simulated};
use common::settings::Settings;
use common::value::{Row, rows_of};
use common::{join_trees, random};

/// Random plans and trees of a run that asks for no number.
const CASES: u64 = 40;

fn table(session: &Arc<Session>, columns: Vec<(&str, ArrayRef)>) -> Arc<Table> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), array.null_count() > 0);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    upload(session, &RecordBatch::try_new(schema, arrays).expect("a batch"))
}

fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn names(prefix: &str, values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values.into_iter().map(|value| format!("{prefix} {value}"))))
}

fn scan(table: &Arc<Table>) -> Plan {
    let projection = (0..table.column_types().len()).collect();
    Plan { kind: PlanKind::Scan { table: Arc::clone(table), projection }, schema: table.schema() }
}

fn column(plan: &Plan, index: usize) -> Expr {
    let field = plan.schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

fn over(kind: PlanKind, fields: Vec<Field>) -> Plan {
    Plan { kind, schema: Arc::new(Schema::new(fields)) }
}

fn join(build: Plan, probe: Plan, on: (usize, usize), kind: JoinKind, output: Vec<usize>) -> Plan {
    let is_outer = [matches!(kind, JoinKind::ProbeOuter | JoinKind::Full), kind == JoinKind::Full];
    let side = |plan: &Plan, is_outer: bool| -> Vec<Field> {
        let nullable = |field: &Field| is_outer || field.is_nullable();
        plan.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(nullable(field))).collect()
    };
    let mut fields = side(&build, is_outer[0]);
    fields.extend(side(&probe, is_outer[1]));
    let fields = output.iter().map(|&column| fields[column].clone()).collect();
    let on = vec![(column(&build, on.0), column(&probe, on.1))];
    let plan = JoinPlan { build, probe, on, kind, null_equals_null: false, residual: None, output };
    over(PlanKind::Join(Box::new(plan)), fields)
}

/// Sums of column `value` by some columns.
fn sums(input: Plan, keys: &[usize], value: usize) -> Plan {
    let group_by: Vec<Expr> = keys.iter().map(|&key| column(&input, key)).collect();
    let call = AggregateCall::new(AggregateFunction::Sum, Some(column(&input, value)), DataType::Int64);
    let mut fields: Vec<Field> = keys.iter().map(|&key| input.schema.field(key).clone()).collect();
    fields.push(Field::new("sum", DataType::Int64, true));
    over(PlanKind::Aggregate { input: Box::new(input), group_by, aggregates: vec![call] }, fields)
}

/// The first rows by the last column, then by the first one.
fn top(input: Plan, fetch: u64) -> Plan {
    let last = input.schema.fields().len() - 1;
    let key = |index, descending| SortKey { expr: column(&input, index), descending, nulls_first: false };
    let (keys, schema) = (vec![key(last, true), key(0, false)], input.schema.clone());
    Plan { kind: PlanKind::Sort { input: Box::new(input), keys, skip: 0, fetch: Some(fetch) }, schema }
}

fn with(materialization: Materialization) -> ExecOptions {
    ExecOptions { materialization, ..ExecOptions::default() }
}

/// Rows, sorted where the plan has no order, and what they cost.
fn run(session: &Arc<Session>, plan: &Plan, options: &ExecOptions) -> (Vec<Row>, QueryMetrics) {
    let output = exec::run(session, plan, &[], options).expect("rows");
    assert_announced(session, plan, &[], options, &output.metrics);
    let mut rows = rows_of(&output.batches);
    if !plan.is_ordered() {
        rows.sort_by_key(|row| format!("{row:?}"));
    }
    (rows, output.metrics)
}

fn late(metrics: &QueryMetrics) -> Vec<&str> {
    metrics.decisions.iter().filter(|line| line.starts_with("late: ")).map(String::as_str).collect()
}

fn pipelines(metrics: &QueryMetrics) -> Vec<&str> {
    metrics.pipelines.iter().map(|pipeline| pipeline.name.as_str()).collect()
}

/// Customers with much to tell of each, and their orders.
fn shop(session: &Arc<Session>, customers: i64) -> [Arc<Table>; 2] {
    let all = || 0..customers;
    let customer = vec![
        ("c_key", ints(all())),
        ("c_name", names("customer", all())),
        ("c_address", names("street", all().map(|row| row * 7919 % customers.max(1)))),
        ("c_comment", names("says", all().map(|row| row * 31 % customers.max(1)))),
        ("c_balance", ints(all().map(|row| row * 123_456_789 % 1_000_003))),
    ];
    let orders = 0..customers * 4;
    let order = vec![
        ("o_customer", ints(orders.clone().map(|row| row * 271 % customers.max(1)))),
        ("o_value", ints(orders.map(|row| row * 17 % 1000))),
    ];
    [customer, order].map(|columns| table(session, columns))
}

/// What the best customers bought: the shape of TPC-H Q10.
fn best_customers([customer, order]: &[Arc<Table>; 2], kind: JoinKind) -> Plan {
    let bought = join(scan(customer), scan(order), (0, 0), kind, (0..7).collect());
    top(sums(bought, &[0, 1, 2, 3, 4], 6), 20)
}

#[test]
fn columns_of_the_first_rows_are_read_for_them_alone() {
    for devices in [1, 2, 4] {
        let session = simulated().open(devices).expect("a session");
        let plan = best_customers(&shop(&session, 20_000), JoinKind::Inner);
        let (wanted, early) = run(&session, &plan, &with(Materialization::Early));
        assert!(late(&early).is_empty() && !pipelines(&early).join("\n").contains("Fetch"));
        for materialization in [Materialization::Auto, Materialization::Late] {
            let (rows, metrics) = run(&session, &plan, &with(materialization));
            assert_eq!(rows, wanted, "{devices} devices");
            let said = late(&metrics);
            assert_eq!(said.len(), 1, "{:?}", metrics.decisions);
            assert!(said[0].contains("c_name, c_address, c_comment, c_balance of 20000 rows"), "{said:?}");
            assert!(said[0].contains("where about 20 rows are left"), "{said:?}");
            assert_eq!(said[0].contains("(as set)"), materialization == Materialization::Late);
            let ran = pipelines(&metrics);
            assert!(ran.iter().any(|name| name.contains("Fetch -> Project -> InPlace")), "{ran:?}");
            // The row stands for the key, too: one word in place of two.
            let grouped = |ran: &[&str]| ran.iter().find(|name| name.contains("GroupBy[")).map(|name| name.to_string());
            let (before, after) = (grouped(&pipelines(&early)).expect("groups"), grouped(&ran).expect("groups"));
            assert!(before.contains("indexed") && !after.contains("indexed"), "{before} {after}");
        }
    }
}

#[test]
fn explain_says_what_is_read_late() {
    let session = simulated().open(1).expect("a session");
    let plan = best_customers(&shop(&session, 20_000), JoinKind::Inner);
    let told = exec::explain(&plan, &session, &ExecOptions::default());
    assert!(told.decisions.iter().any(|line| line.starts_with("late: ")), "{told:?}");
    let behind = "TopK[pipeline 3] -> Fetch[c_name, c_address, c_comment, c_balance] -> Project -> InPlace";
    assert_eq!(told.pipelines[3..], [behind, "Rows[pipeline 4] -> Result"], "{told:?}");
    let told = exec::explain(&plan, &session, &with(Materialization::Early));
    assert!(told.decisions.is_empty() && !told.pipelines.join("\n").contains("Fetch"), "{told:?}");
}

/// What all rows show is no cheaper to read one by one.
#[test]
fn what_everybody_asks_for_stays_early() {
    let session = simulated().open(1).expect("a session");
    let [customer, order] = shop(&session, 20_000);
    let all = join(scan(&customer), scan(&order), (0, 0), JoinKind::Inner, vec![0, 4, 6]);
    let grouped = sums(scan(&order), &[0], 1);
    for plan in [all, grouped] {
        let (_, metrics) = run(&session, &plan, &ExecOptions::default());
        assert!(late(&metrics).is_empty(), "{:?}", metrics.decisions);
    }
}

/// A row stands for its columns only where no two rows have the same.
#[test]
fn equal_rows_of_a_table_are_one_group() {
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let rows = || 0..4000i64;
        let nullable = Int64Array::from_iter(rows().map(|row| (row > 1).then_some(row)));
        for (case, (key, groups)) in [
            // Each value twice.
            (ints(rows().map(|row| row / 2)), 2000),
            // All different but two nulls, which are one group.
            (Arc::new(nullable) as ArrayRef, 3999),
            // All different, in no order.
            (ints(rows().map(|row| row * 1001 % 4000)), 4000),
            (ints(rows()), 4000),
        ]
        .into_iter()
        .enumerate()
        {
            let same = ints(rows().map(|row| if row > 1 { row / 2 } else { 7 }));
            let facts = table(&session, vec![("key", key), ("same", same), ("name", names("a", rows().map(|_| 1)))]);
            let plan = top(sums(scan(&facts), &[0, 1, 2], 1), 5000);
            let (wanted, _) = run(&session, &plan, &with(Materialization::Early));
            let (rows, metrics) = run(&session, &plan, &with(Materialization::Late));
            assert_eq!(wanted.len(), groups, "case {case}");
            assert_eq!(rows, wanted, "case {case}");
            assert_eq!(late(&metrics).is_empty(), case < 2, "case {case}: {:?}", metrics.decisions);
        }
    }
}

/// Customers without orders, and orders without customers, are groups of nulls.
#[test]
fn rows_without_a_match_have_no_row() {
    for (devices, kind) in
        [(1, JoinKind::ProbeOuter), (2, JoinKind::ProbeOuter), (1, JoinKind::Full), (4, JoinKind::Full)]
    {
        let session = simulated().open(devices).expect("a session");
        let [customer, _] = shop(&session, 900);
        let orders = || 0..3000i64;
        let order = table(
            &session,
            vec![("o_customer", ints(orders().map(|row| row * 7 % 1500 + 100))), ("o_value", ints(orders()))],
        );
        let plan = best_customers(&[customer, order], kind);
        let (wanted, _) = run(&session, &plan, &with(Materialization::Early));
        let (rows, metrics) = run(&session, &plan, &with(Materialization::Late));
        assert_eq!(rows, wanted, "{kind:?} on {devices}");
        assert!(!late(&metrics).is_empty());
    }
}

#[test]
fn tables_of_no_and_few_rows_are_read_late() {
    for devices in [1, 2, 4] {
        let session = simulated().open(devices).expect("a session");
        for customers in [0, 1, 31, 32, 33, 65, 200] {
            for distribution in [Distribution::Broadcast, Distribution::Exchange] {
                let tables = shop(&session, customers);
                for kind in [JoinKind::Inner, JoinKind::ProbeOuter, JoinKind::Full] {
                    let plan = best_customers(&tables, kind);
                    let early = ExecOptions { distribution, ..with(Materialization::Early) };
                    let late = ExecOptions { distribution, ..with(Materialization::Late) };
                    let (wanted, rows) = (run(&session, &plan, &early).0, run(&session, &plan, &late).0);
                    assert_eq!(rows, wanted, "{customers} {kind:?} on {devices}");
                }
            }
        }
    }
}

/// A build key that is read late, here of the build rows of another join.
#[test]
fn late_columns_are_build_keys() {
    let session = simulated().open(1).expect("a session");
    let [customer, _] = shop(&session, 300);
    let keys = || 0..900i64;
    let order =
        vec![("o_customer", ints(keys().map(|row| row * 7 % 300))), ("o_key", ints(keys().map(|row| row * 1000)))];
    let line = vec![("l_order", ints((0..5000).map(|row| row * 17 % 900 * 1000))), ("l_value", ints(0..5000))];
    let [order, line] = [order, line].map(|columns| table(&session, columns));
    let bought = join(scan(&order), scan(&customer), (0, 0), JoinKind::Inner, vec![1, 3]);
    let plan = top(join(bought, scan(&line), (0, 0), JoinKind::Inner, vec![0, 1, 3]), 20);
    let settings = ExecOptions { join_order: JoinOrder::AsGiven, ..with(Materialization::Late) };
    let (rows, first) = run(&session, &plan, &settings);
    let pipelines = pipelines(&first);
    assert!(pipelines.iter().any(|name| name.contains("Fetch -> BuildRows")), "{pipelines:?}");
    assert_eq!(rows, run(&session, &plan, &with(Materialization::Early)).0);
}

/// What the simulated devices ran, GPUs take too.
#[test]
fn kernels_of_late_columns_compile_for_gpus() {
    const NAME: &str = "kernels_of_late_columns_compile_for_gpus";
    if cuda_status().nvrtc.is_none() {
        assert!(!is_set("WARPJOIN_REQUIRE_NVRTC"), "{NAME}: WARPJOIN_REQUIRE_NVRTC=1 and no NVRTC");
        say(&format!("SKIP {NAME}: no libnvrtc (put its folder on LD_LIBRARY_PATH)"));
        return;
    }
    for (devices, kind) in [(1, JoinKind::Inner), (2, JoinKind::Full)] {
        let session = simulated().open(devices).expect("a session");
        let plan = best_customers(&shop(&session, 900), kind);
        run(&session, &plan, &with(Materialization::Late));
        let sources = session.devices()[0].compiled_sources();
        let pipelines: Vec<_> = sources.iter().filter(|source| source.name == "pipeline").collect();
        assert!(pipelines.len() > 3);
        for source in pipelines {
            let compiled = compile_for_architecture(source, "sm_90");
            assert!(compiled.is_ok(), "{compiled:?}\n{}", source.text);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Random plans and trees of joins with everything late that can be.
#[test]
fn late_columns_equal_the_oracle() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let base = number("WARPJOIN_RANDOM_SEED").unwrap_or_else(now);
    let cases =
        number("WARPJOIN_RANDOM_CASES").unwrap_or(if number("WARPJOIN_RANDOM_SEED").is_some() { 1 } else { CASES });
    say(&format!("late columns: {cases} cases from WARPJOIN_RANDOM_SEED={base}"));
    let seeds: Vec<u64> = (0..cases).map(|index| base.wrapping_add(index)).collect();
    let opener = simulated();
    let results = in_threads(&seeds, |&seed| {
        let check = || {
            let case = if seed % 2 == 0 { random::case(seed) } else { join_trees::case(seed) };
            let settings = Settings { materialization: Materialization::Late, ..case.settings.clone() };
            let session = opener.open(settings.devices).expect("devices");
            case.check_against(&case.verdict(), &session, &settings)
        };
        (seed, catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|_| Err("a panic".into())))
    });
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    let mut failures = vec![];
    for (seed, result) in results {
        match result {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(difference) => failures.push(format!("WARPJOIN_RANDOM_SEED={seed}: {difference}")),
        }
    }
    say(&format!("late columns: {outcomes:?}"));
    assert!(failures.is_empty(), "{} differences\n{}", failures.len(), failures.join("\n\n"));
    let equal = outcomes.get(&Outcome::Equal).copied().unwrap_or(0);
    assert!(cases < CASES || equal * 2 > cases as usize, "few cases say something: {outcomes:?}");
}
