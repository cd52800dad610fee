//! The Arrow-native API on small data, on simulated devices.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use warpjoin::plan::{AggregateFunction, Moment};
use warpjoin::{ExecOptions, GroupBy, HashJoin, Session, Table, TableBuilder};
use warpjoin_device::{SimOptions, open_simulated};

fn session(devices: usize) -> Arc<Session> {
    Session::new(open_simulated(&SimOptions { devices, ..SimOptions::default() }).unwrap()).unwrap()
}

fn table(session: &Arc<Session>, name: &str, keys: Vec<Option<i64>>, values: Vec<i64>) -> Arc<Table> {
    let schema = Arc::new(Schema::new(vec![
        Field::new(format!("{name}_key"), DataType::Int64, true),
        Field::new(format!("{name}_value"), DataType::Int64, false),
        Field::new(format!("{name}_text"), DataType::Utf8, false),
    ]));
    let text: Vec<String> = values.iter().map(|v| format!("{name}{}", v % 7)).collect();
    let batch = RecordBatch::try_new(
        schema.clone(),
        vec![Arc::new(Int64Array::from(keys)), Arc::new(Int64Array::from(values)), Arc::new(StringArray::from(text))],
    )
    .unwrap();
    let mut builder = TableBuilder::new(session.device_set(), schema);
    builder.push(&batch).unwrap();
    Arc::new(builder.finish().unwrap())
}

fn pairs(batches: &[RecordBatch]) -> Vec<(i64, i64)> {
    let mut rows = vec![];
    for batch in batches {
        let a = batch.column(1).as_primitive::<Int64Type>();
        let b = batch.column(4).as_primitive::<Int64Type>();
        rows.extend((0..batch.num_rows()).map(|i| (a.value(i), b.value(i))));
    }
    rows.sort_unstable();
    rows
}

#[test]
fn joins_equal_a_nested_loop() {
    for devices in [1, 2, 3, 4, 8] {
        let session = session(devices);
        for (build_rows, probe_rows, modulus) in
            [(0, 5, 10), (5, 0, 10), (100, 1000, 1_000_000), (100, 1000, 10), (33, 32, 1)]
        {
            let key = |i: i64, m: i64| if i % 13 == 0 { None } else { Some((i * 7919) % m - 3) };
            let build: Vec<_> = (0..build_rows).map(|i| key(i, modulus)).collect();
            let probe: Vec<_> = (0..probe_rows).map(|i| key(i % 150, modulus)).collect();
            let mut expected = vec![];
            for (i, b) in build.iter().enumerate() {
                for (j, p) in probe.iter().enumerate() {
                    if b.is_some() && b == p {
                        expected.push((i as i64, j as i64));
                    }
                }
            }
            expected.sort_unstable();
            let b = table(&session, "b", build, (0..build_rows).collect());
            let p = table(&session, "p", probe, (0..probe_rows).collect());
            for lanes in [1, 4, 32] {
                for distribution in [warpjoin::exec::Distribution::Broadcast, warpjoin::exec::Distribution::Exchange] {
                    let options =
                        ExecOptions { probe_group_lanes: Some(lanes), distribution, ..ExecOptions::default() };
                    let join = HashJoin::new(b.clone(), p.clone()).on("b_key", "p_key").unwrap().options(options);
                    let output = join.run(&session).unwrap();
                    assert_eq!(pairs(&output.batches), expected, "{devices} devices, {lanes} lanes, {distribution:?}");
                }
            }
        }
    }
}

/// Under uniform keys no device gets more than 1.5 times its share of an exchange.
#[test]
fn exchanged_rows_are_spread_evenly() {
    for devices in [2, 3, 4, 8] {
        let session = session(devices);
        let rows = 40_000;
        let keys: Vec<_> = (0..rows).map(|i| Some(i * 7919 % 1_000_003)).collect();
        let build = table(&session, "b", keys.clone(), (0..rows).collect());
        let probe = table(&session, "p", keys, (0..rows).collect());
        let distribution = warpjoin::exec::Distribution::Exchange;
        let options = ExecOptions { distribution, few_rows: Some(0), ..ExecOptions::default() };
        let joined = HashJoin::new(build, probe).on("b_key", "p_key").unwrap().options(options.clone());
        let joined = joined.run_to_table(&session).unwrap();
        assert_eq!(joined.rows(), rows as u64);
        let groups = GroupBy::new(Arc::new(joined)).key("b_key").unwrap().options(options);
        let groups = groups.aggregate(AggregateFunction::Count, None).unwrap().run_to_table(&session).unwrap();
        assert_eq!(groups.rows(), rows as u64);
        let most = groups.shards().iter().map(|shard| shard.rows).max().unwrap();
        assert!(most * devices as u64 * 2 <= rows as u64 * 3, "{most} of {rows} rows on one of {devices} devices");
    }
}

#[test]
fn groups_equal_a_map() {
    for devices in [1, 2, 4] {
        let session = session(devices);
        for (rows, modulus) in [(0i64, 3), (1000, 3), (5000, 100_000), (5000, 900)] {
            let keys: Vec<_> = (0..rows).map(|i| if i % 11 == 0 { None } else { Some((i * 7919) % modulus) }).collect();
            let t = table(&session, "t", keys.clone(), (0..rows).collect());
            let mut expected: BTreeMap<Option<i64>, (i64, i64, i64)> = BTreeMap::new();
            for (i, key) in keys.iter().enumerate() {
                let e = expected.entry(*key).or_insert((0, 0, i64::MIN));
                *e = (e.0 + i as i64, e.1 + 1, e.2.max(i as i64));
            }
            let run = GroupBy::new(t.clone())
                .key("t_key")
                .unwrap()
                .aggregate(AggregateFunction::Sum, Some("t_value"))
                .unwrap()
                .aggregate(AggregateFunction::Count, None)
                .unwrap()
                .aggregate(AggregateFunction::Max, Some("t_value"))
                .unwrap();
            let output = run.run(&session).unwrap();
            let mut got = BTreeMap::new();
            for batch in &output.batches {
                let k = batch.column(0).as_primitive::<Int64Type>();
                let c: Vec<_> = (1..4).map(|i| batch.column(i).as_primitive::<Int64Type>()).collect();
                for i in 0..batch.num_rows() {
                    let key = k.is_valid(i).then(|| k.value(i));
                    assert!(got.insert(key, (c[0].value(i), c[1].value(i), c[2].value(i))).is_none());
                }
            }
            assert_eq!(got, expected, "{devices} devices, {rows} rows, {modulus}");
            let kept = run.run_to_table(&session).unwrap();
            assert_eq!(kept.rows() as usize, expected.len());
            let global =
                GroupBy::new(t).aggregate(AggregateFunction::Sum, Some("t_value")).unwrap().run(&session).unwrap();
            assert_eq!(global.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        }
    }
}

#[test]
fn statistics_are_of_one_column() {
    let session = session(1);
    let t = table(&session, "t", vec![Some(1), Some(1), Some(2), None], vec![2, 6, 5, 9]);
    let of = |moment| {
        GroupBy::new(Arc::clone(&t)).key("t_key")?.aggregate(AggregateFunction::Moment(moment), Some("t_value"))
    };
    let output = of(Moment::VarianceSample).unwrap().run(&session).unwrap();
    let mut got = BTreeMap::new();
    for batch in &output.batches {
        let (keys, variances) =
            (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Float64Type>());
        got.extend(keys.iter().zip(variances.iter()));
    }
    assert_eq!(got, BTreeMap::from([(Some(1), Some(8.0)), (Some(2), None), (None, None)]));
    let error = of(Moment::Correlation).unwrap_err();
    assert!(error.to_string().contains("corr needs two columns"), "{error}");
    let of_text =
        GroupBy::new(Arc::clone(&t)).aggregate(AggregateFunction::Moment(Moment::VarianceSample), Some("t_text"));
    let error = of_text.unwrap().run(&session).unwrap_err();
    assert!(error.to_string().contains("var(Utf8)"), "{error}");
}
