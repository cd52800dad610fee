//! Limits without an order: exactly so many rows, each one of the input's, and none is looked for that nobody wants.

// Helpers outside #[test] functions may fail a test too.
#![allow(clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::case::{Case, Outcome, upload};
use common::edges::{ints, join_of, keyed};
use common::sessions::{Opener, in_threads, simulated};
use common::settings::Settings;
use warpjoin::exec::{self, Distribution, RuntimeFilters};
use warpjoin::plan::{FilterForm, JoinKind, Plan, PlanKind};
use warpjoin::{ExecOptions, JoinForm, QueryMetrics};

fn limit(input: Plan, skip: u64, fetch: Option<u64>) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Limit { input: Box::new(input), skip, fetch }, schema }
}

/// So many probe rows, of which each key of the build has four, and a key is there `times` times.
fn sides(rows: usize, times: usize) -> [RecordBatch; 2] {
    let probe = (0..rows as i128).map(|row| (row % 31 != 5).then_some(row * 7 % (rows as i128 / 4).max(1)));
    let build = (0..rows as i128 / 8 * times as i128).map(|row| Some(row / times as i128));
    [build.collect::<Vec<_>>(), probe.collect()].map(|keys| keyed(&[ints(keys)], &DataType::Int64))
}

fn joined(rows: usize, times: usize, kind: JoinKind) -> Case {
    let [build, probe] = sides(rows, times);
    let mut case = join_of("any", build, probe, 1).case;
    let PlanKind::Join(join) = &mut case.plan.kind else { panic!("a join") };
    join.kind = kind;
    if kind.is_existence() {
        let build_width = join.build.schema.fields().len();
        join.output = (build_width..build_width + join.probe.schema.fields().len()).collect();
        case.plan.schema = join.probe.schema.clone();
    } else {
        let both = join.build.schema.fields().iter().chain(join.probe.schema.fields());
        let of_both: Vec<Field> = both.map(|field| field.as_ref().clone().with_nullable(true)).collect();
        case.plan.schema = Arc::new(Schema::new(join.output.iter().map(|&c| of_both[c].clone()).collect::<Vec<_>>()));
    }
    case
}

#[test]
fn limits_give_exactly_so_many_rows_of_a_join() {
    use JoinKind::{Inner, ProbeAnti, ProbeOuter, ProbeSemi};
    let usual = Settings::default();
    let settings = [
        usual.clone(),
        Settings { devices: 2, first_capacity: Some(1), ..usual.clone() },
        Settings { devices: 4, distribution: Distribution::Exchange, ..usual.clone() },
        Settings { join_form: Some(JoinForm::Partitioned), ..usual.clone() },
        Settings { runtime_filters: RuntimeFilters::AlwaysBy(FilterForm::Bloom), devices: 2, ..usual },
    ];
    let mut cases = vec![];
    for (rows, times, kind) in [
        (1, 1, Inner),
        (33, 1, Inner),
        (3000, 1, Inner),
        (3000, 1, ProbeSemi),
        (3000, 1, ProbeAnti),
        (3000, 1, ProbeOuter),
        (600, 30, Inner),
        (600, 30, ProbeOuter),
        (600, 30, ProbeSemi),
    ] {
        cases.extend(settings.iter().map(|settings| (rows, times, kind, settings.clone())));
    }
    let failures = in_threads(&cases, |(rows, times, kind, settings)| {
        let mut failures = vec![];
        for (skip, fetch) in [
            (0, Some(0)),
            (0, Some(1)),
            (0, Some(10)),
            (7, Some(25)),
            (0, Some(400)),
            (100_000, Some(3)),
            (0, Some(100_000)),
            (5, None),
            (3, Some(u64::MAX)),
        ] {
            let case = joined(*rows, *times, *kind);
            let case = Case { plan: limit(case.plan, skip, fetch), settings: settings.clone(), ..case };
            let session = simulated().open(settings.devices).expect("a session");
            match case.check(&session) {
                Ok(Outcome::Equal) => {}
                other => failures.push(format!("{kind:?}, {rows} rows, {skip} {fetch:?}: {other:?}\n{settings:?}")),
            }
        }
        failures
    });
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn run(case: &Case, devices: usize, options: &ExecOptions) -> (usize, QueryMetrics) {
    let session = simulated().open(devices).expect("a session");
    let tables: Vec<_> = case.inputs.iter().map(|batch| upload(&session, batch)).collect();
    let output = exec::run(&session, &case.plan, &tables, options).expect("rows");
    (output.batches.iter().map(RecordBatch::num_rows).sum(), output.metrics)
}

#[test]
fn rows_that_nobody_wants_are_not_looked_at() {
    let options = ExecOptions { counts_rows: true, ..ExecOptions::default() };
    for devices in [1, 2] {
        let case = joined(200_000, 1, JoinKind::Inner);
        let (all, of_all) = run(&case, devices, &options);
        let probes = |metrics: &QueryMetrics| metrics.pipelines.iter().map(|it| it.probes).sum::<u64>();
        assert!(probes(&of_all) > 190_000 && all > 90_000);
        let (rows, metrics) = run(&Case { plan: limit(case.plan, 5, Some(10)), ..case }, devices, &options);
        assert_eq!(rows, 10);
        // A tile a block, or two.
        assert!(probes(&metrics) < 40_000 * devices as u64, "{:?}", metrics.pipelines);
    }
    // 1000 rows of which each matches 1000: a lane stops among its matches.
    let keys = |rows: i64| {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![7; rows as usize]))]).expect("a batch")
    };
    let case = join_of("any", keys(1000), keys(1000), 1).case;
    let case = Case { plan: limit(case.plan, 0, Some(2000)), ..case };
    let form = Some(JoinForm::HashTable);
    let (rows, metrics) = run(&case, 1, &ExecOptions { join_form: form, ..ExecOptions::default() });
    assert_eq!(rows, 2000);
    let last = metrics.pipelines.iter().find(|it| it.name.ends_with("-> Limit")).expect("a limit");
    assert!(last.rows_out < 40_000, "{last:?}");
}

/// A partition goes over all rows before the first match is there.
#[test]
fn a_join_of_few_wanted_rows_is_not_partitioned() {
    let [build, probe] = sides(6 << 20, 1);
    let session = simulated().open(1).expect("a session");
    let case = join_of("any", build, probe, 1).case;
    let tables: Vec<_> = case.inputs.iter().map(|batch| upload(&session, batch)).collect();
    let output = exec::run(&session, &limit(case.plan, 0, Some(5)), &tables, &ExecOptions::default()).expect("rows");
    let names: Vec<&String> = output.metrics.pipelines.iter().map(|it| &it.name).collect();
    assert!(!names.iter().any(|name| name.contains("Partition")), "{names:?}");
}
