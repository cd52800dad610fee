//! Cases at the edges: STYLE rule 22's list, and what each code path was made for.

mod functions;
mod groups;
mod join_kinds;
mod joins;
mod keys;
mod numbers;
mod ordered;
mod ranked;
mod sets;
mod sorts;
mod specs;
mod windows;

pub(crate) use groups::sum_behind_duplicates;
pub(crate) use join_kinds::join_of_kind;
pub(crate) use sorts::{settings as sort_settings, sort_of};
pub(crate) use windows::{aggregates as window_aggregates, frames_of, window, window_of};

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use warpjoin::column::StringEncoding;
use warpjoin::exec::{Distribution, GroupByForm, JoinOrder, Materialization, RuntimeFilters};
use warpjoin::expr::{CompareOp, Expr, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, FilterForm, JoinKind, JoinPlan, Plan, PlanKind};
use warpjoin::{DeviceThreads, JoinForm};

use super::case::{Case, Outcome};
use super::data::batch;
use super::int_plans::compare;
use super::random::{aggregate_call, input, node, put_out};
use super::sessions::{Opener, in_threads, is_set, turn};
use super::settings::Settings;
use super::value::V;

/// A case with what should come of it.
pub(crate) struct Edge {
    pub(crate) name: String,
    pub(crate) case: Case,
    pub(crate) outcome: Outcome,
}

/// All of them, or those whose name contains `WARPJOIN_EDGES`. `small` leaves out those of many rows.
pub(crate) fn all(small: bool) -> Vec<Edge> {
    let mut edges = joins::edges();
    edges.extend(join_kinds::edges());
    edges.extend(keys::edges());
    edges.extend(groups::edges());
    edges.extend(numbers::edges());
    edges.extend(sets::edges());
    edges.extend(ordered::edges());
    edges.retain(|edge| !small || edge.case.inputs.iter().all(|batch| batch.num_rows() <= 300));
    named(edges)
}

/// Those whose name contains `WARPJOIN_EDGES`.
fn named(mut edges: Vec<Edge>) -> Vec<Edge> {
    let name = std::env::var("WARPJOIN_EDGES").unwrap_or_default();
    edges.retain(|edge| edge.name.contains(&name));
    edges
}

/// Those of scalar functions and casts, or those whose name contains `WARPJOIN_EDGES`.
pub(crate) fn of_functions() -> Vec<Edge> {
    let mut edges = functions::edges();
    edges.extend(specs::edges());
    named(edges)
}

/// Those of orders and limits, or those whose name contains `WARPJOIN_EDGES`.
pub(crate) fn of_sorts() -> Vec<Edge> {
    named(sorts::edges())
}

/// Those of windows, or those whose name contains `WARPJOIN_EDGES`.
pub(crate) fn of_windows() -> Vec<Edge> {
    let mut edges = windows::edges();
    edges.extend(ranked::edges());
    named(edges)
}

/// Settings that each case runs with.
pub(crate) fn settings() -> Vec<Settings> {
    use Distribution::{Broadcast, Exchange};
    let usual = Settings::default();
    vec![
        Settings {
            keeps: true,
            strings: StringEncoding::UnorderedDictionary,
            compact_rows_min: Some(0),
            ..usual.clone()
        },
        Settings { lanes: Some(32), load_factor: Some(0.99), batch_rows: 100, ..usual.clone() },
        Settings {
            lanes: Some(2),
            hash_bits: 2,
            first_capacity: Some(1),
            chunk_rows: Some(1),
            load_factor: Some(0.95),
            ..usual.clone()
        },
        Settings { join_form: Some(JoinForm::Partitioned), ..usual.clone() },
        Settings {
            join_form: Some(JoinForm::Partitioned),
            partition_rows: Some(3),
            hash_bits: 4,
            first_capacity: Some(1),
            chunk_rows: Some(128),
            ..usual.clone()
        },
        Settings { join_form: Some(JoinForm::Direct), ..usual.clone() },
        Settings { join_form: Some(JoinForm::HashTable), hash_bits: 3, first_capacity: Some(1), ..usual.clone() },
        Settings { join_form: Some(JoinForm::HashTable), devices: 2, distribution: Exchange, ..usual.clone() },
        Settings {
            devices: 2,
            lanes: Some(8),
            distribution: Exchange,
            chunk_rows: Some(128),
            device_threads: DeviceThreads::Each,
            ..usual.clone()
        },
        Settings {
            reduced_rows_min: Some(0),
            extremes_rows_min: Some(0),
            compact_rows_min: Some(0),
            first_capacity: Some(1),
            ..usual.clone()
        },
        Settings {
            devices: 2,
            reduced_rows_min: Some(0),
            extremes_rows_min: Some(0),
            compact_rows_min: Some(0),
            distribution: Exchange,
            ..usual.clone()
        },
        Settings {
            group_by_form: Some(GroupByForm::Global),
            first_capacity: Some(0),
            chunk_rows: Some(256),
            ..usual.clone()
        },
        Settings { group_by_form: Some(GroupByForm::Partitioned), ..usual.clone() },
        Settings {
            devices: 2,
            group_by_form: Some(GroupByForm::Partitioned),
            first_capacity: Some(1),
            hash_bits: 3,
            device_threads: DeviceThreads::Each,
            ..usual.clone()
        },
        Settings {
            group_by_form: Some(GroupByForm::BlockTable),
            block_table_slots: Some(0),
            first_capacity: Some(0),
            chunk_rows: Some(128),
            ..usual.clone()
        },
        Settings {
            devices: 3,
            lanes: Some(4),
            distribution: Broadcast,
            first_capacity: Some(0),
            device_threads: DeviceThreads::One(7),
            ..usual.clone()
        },
        Settings { join_order: JoinOrder::Seeded(5), runtime_filters: RuntimeFilters::Always, ..usual.clone() },
        Settings {
            devices: 2,
            join_order: JoinOrder::Seeded(9),
            runtime_filters: RuntimeFilters::Always,
            distribution: Exchange,
            ..usual.clone()
        },
        Settings { runtime_filters: RuntimeFilters::AlwaysBy(FilterForm::Bitmap), ..usual.clone() },
        Settings {
            devices: 2,
            join_order: JoinOrder::Seeded(3),
            runtime_filters: RuntimeFilters::AlwaysBy(FilterForm::Bitmap),
            ..usual.clone()
        },
        Settings { runtime_filters: RuntimeFilters::AlwaysBy(FilterForm::Bloom), ..usual.clone() },
        Settings {
            devices: 4,
            join_order: JoinOrder::Seeded(7),
            runtime_filters: RuntimeFilters::AlwaysBy(FilterForm::Bloom),
            filter_bits: Some(1),
            hash_bits: 5,
            ..usual.clone()
        },
        Settings { materialization: Materialization::Late, ..usual.clone() },
        Settings {
            materialization: Materialization::Late,
            join_form: Some(JoinForm::Partitioned),
            first_capacity: Some(1),
            ..usual.clone()
        },
        Settings {
            devices: 4,
            materialization: Materialization::Late,
            distribution: Exchange,
            join_order: JoinOrder::Seeded(3),
            runtime_filters: RuntimeFilters::Always,
            ..usual.clone()
        },
        Settings {
            tables_on_host: true,
            writes_to_host: true,
            pass_rows: Some(40),
            chunk_rows: Some(128),
            ..usual.clone()
        },
        Settings { devices: 8, lanes: Some(1), distribution: Exchange, hash_bits: 5, keeps: true, ..usual },
    ]
}

/// Of so many settings behind the first one, a case meets one in a run; `WARPJOIN_EDGES_ALL=1`: all.
const SETTINGS_SHARE: usize = 24;

/// Runs every case with the first setting and a share of the others, for which there are enough devices: another share for
/// each case, and every hour. Compiling for all of them takes most of an hour.
pub(crate) fn check(opener: &dyn Opener, edges: &[Edge], settings: &[Settings]) {
    let seed = turn(SETTINGS_SHARE);
    let runs_all = is_set("WARPJOIN_EDGES_ALL");
    let numbered: Vec<(usize, &Edge)> = edges.iter().enumerate().collect();
    let failures = in_threads(&numbered, |&(number, edge)| {
        let is_drawn = |at: usize| runs_all || at == 0 || (at + number + seed).is_multiple_of(SETTINGS_SHARE);
        let verdict = edge.case.verdict();
        let mut failures = vec![];
        // A plan without joins and groups is one kernel, whatever the settings.
        let is_map = matches!(edge.case.plan.kind, PlanKind::Project { .. });
        let taken = settings.iter().enumerate().take(if is_map { 1 } else { settings.len() });
        for (_, settings) in taken.filter(|&(at, _)| is_drawn(at)) {
            let Some(session) = opener.open(settings.devices) else { continue };
            match edge.case.check_against(&verdict, &session, settings) {
                Ok(outcome) if outcome == edge.outcome => {}
                Ok(outcome) => failures.push(format!("{}: {outcome:?}\n{}{settings:?}", edge.name, edge.case.plan)),
                Err(difference) => failures.push(format!("{}: {difference}\n{settings:?}", edge.name)),
            }
        }
        failures
    });
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let count = failures.len();
    assert!(failures.is_empty(), "{count} differences, WARPJOIN_RANDOM_SEED={seed}\n{}", failures.join("\n\n"));
}

/// A case that should give the oracle's rows.
fn equal(name: impl Into<String>, inputs: Vec<RecordBatch>, plan: Plan) -> Edge {
    Edge { name: name.into(), case: Case { inputs, plan, settings: Settings::default() }, outcome: Outcome::Equal }
}

/// One column, nulls for `None`.
pub(crate) fn ints(values: impl IntoIterator<Item = Option<i128>>) -> Vec<V> {
    values.into_iter().map(|v| v.map_or(V::Null, V::Int)).collect()
}

/// The numbers of the rows, as a column.
fn numbers(rows: usize) -> Vec<V> {
    ints((0..rows).map(|row| Some(row as i128)))
}

/// A table of key columns of one type and an Int64 column that counts the rows.
pub(crate) fn keyed(keys: &[Vec<V>], data_type: &DataType) -> RecordBatch {
    let mut columns = keys.to_vec();
    columns.push(numbers(keys[0].len()));
    let mut types = vec![data_type.clone(); keys.len()];
    types.push(DataType::Int64);
    batch(&columns, &types, true)
}

fn column(plan: &Plan, index: usize) -> Expr {
    let field = plan.schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

/// An inner join of two inputs on their first `keys` columns, with all columns put out.
fn join(build: &RecordBatch, probe: &RecordBatch, keys: usize) -> JoinPlan {
    let inputs = [build.clone(), probe.clone()];
    let (build, probe) = (input(&inputs, 0), input(&inputs, 1));
    let on = (0..keys).map(|key| (column(&build, key), column(&probe, key))).collect();
    let width = build.schema.fields().len() + probe.schema.fields().len();
    JoinPlan {
        build,
        probe,
        on,
        kind: JoinKind::Inner,
        null_equals_null: false,
        residual: None,
        output: (0..width).collect(),
    }
}

/// The node of a join.
fn join_node(join: JoinPlan) -> Plan {
    let fields = join.build.schema.fields().iter().chain(join.probe.schema.fields());
    let both = fields.enumerate().map(|(i, f)| Expr::column(i, f.data_type().clone(), f.is_nullable())).collect();
    let put_out = put_out(join.kind, both, join.build.schema.fields().len());
    let types: Vec<_> = join.output.iter().map(|&i| put_out[i].clone()).collect();
    node(PlanKind::Join(Box::new(join)), types.iter().map(|(t, n)| (t, *n)))
}

/// The case of a plain join.
pub(crate) fn join_of(name: impl Into<String>, build: RecordBatch, probe: RecordBatch, keys: usize) -> Edge {
    let plan = join_node(join(&build, &probe, keys));
    equal(name, vec![build, probe], plan)
}

/// A group-by over any plan.
fn group(input: Plan, group_by: Vec<Expr>, aggregates: Vec<AggregateCall>) -> Plan {
    let mut types: Vec<_> = group_by.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
    types.extend(aggregates.iter().map(|a| (a.data_type.clone(), a.function != AggregateFunction::Count)));
    node(PlanKind::Aggregate { input: Box::new(input), group_by, aggregates }, types.iter().map(|(t, n)| (t, *n)))
}

/// Every aggregate function that takes column `index`, and count(*).
fn every_aggregate(plan: &Plan, index: usize) -> Vec<AggregateCall> {
    use AggregateFunction::{Avg, BitAnd, BitOr, BitXor, Count, Max, Min, Sum};
    let rows = AggregateCall::new(Count, None, DataType::Int64);
    let calls = [Count, Sum, Min, Max, Avg, BitAnd, BitOr, BitXor]
        .into_iter()
        .filter_map(|f| aggregate_call(f, column(plan, index)));
    std::iter::once(rows).chain(calls).collect()
}

/// The case of a group-by of one input's rows whose first column differs from `value`: by that column, every aggregate of the
/// second one.
pub(crate) fn group_of_others(name: impl Into<String>, batch: RecordBatch, value: i128) -> Edge {
    let inputs = vec![batch];
    let source = input(&inputs, 0);
    let key = column(&source, 0);
    let (group_by, aggregates) = (vec![key.clone()], every_aggregate(&source, 1));
    let value = Expr::literal(Scalar::Int(value), key.data_type.clone());
    let schema = source.schema.clone();
    let predicate = compare(CompareOp::NotEqual, key, value);
    let others = Plan { kind: PlanKind::Filter { input: Box::new(source), predicate }, schema };
    equal(name, inputs, group(others, group_by, aggregates))
}

/// The case of a group-by of one input: its first `keys` columns, every aggregate of its column `argument`.
pub(crate) fn group_of(name: impl Into<String>, batch: RecordBatch, keys: usize, argument: usize) -> Edge {
    let inputs = vec![batch];
    let source = input(&inputs, 0);
    let group_by = (0..keys).map(|key| column(&source, key)).collect();
    let aggregates = every_aggregate(&source, argument);
    equal(name, inputs, group(source, group_by, aggregates))
}
