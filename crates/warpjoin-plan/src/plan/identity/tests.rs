//! Parts of plans that differ in one field only are not the same: for every field of every part.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use warpjoin_columns::expr::{Expr, Scalar};
use warpjoin_columns::identity::{Identify, Identity, with_each_field_changed};
use warpjoin_columns::{DeviceSet, Table, TableBuilder};
use warpjoin_device::{SimOptions, open_simulated};

use super::Node;
use crate::plan::{
    AggregateCall, AggregateFunction, FetchPlan, FilterForm, GroupingSet, JoinKind, JoinPlan, Mark, Plan, PlanKind,
    ReductionTest, RowsOf, Share, SharedRowsId, SortKey,
};
use crate::window::{Distance, Frame, FrameBound, WindowCall, WindowFunction};

/// All differ from each other, and each is the same as its copy.
fn assert_all_differ<T: Identify + Clone>(what: &str, parts: &[T]) {
    for (at, part) in parts.iter().enumerate() {
        assert!(Identity::in_query(part) == Identity::in_query(&part.clone()), "{what} {at} is not its copy");
        for (other_at, other) in parts.iter().enumerate().skip(at + 1) {
            assert!(Identity::in_query(part) != Identity::in_query(other), "{what} {at} is taken for {other_at}");
            if let (Some(part), Some(other)) = (Identity::in_session(part), Identity::in_session(other)) {
                assert!(part != other, "{what} {at} is taken for {other_at} across queries");
            }
        }
    }
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, true)
}

fn int(value: i128) -> Expr {
    Expr::literal(Scalar::Int(value), DataType::Int64)
}

fn key() -> SortKey {
    SortKey { expr: column(0), descending: false, nulls_first: false }
}

#[test]
fn aggregate_calls_differ_by_each_field() {
    let call = AggregateCall::new(AggregateFunction::First, Some(column(0)), DataType::Int64);
    let calls = with_each_field_changed!(
        call,
        AggregateCall {
            function: AggregateFunction::Last,
            argument: Some(column(1)),
            second: Some(column(0)),
            is_distinct: true,
            order_by: vec![key()],
            filter: Some(column(0)),
            data_type: DataType::Int32,
        }
    );
    assert_all_differ("aggregate", &calls);
}

#[test]
fn window_calls_differ_by_each_field() {
    let call = WindowCall {
        function: WindowFunction::Shift(1),
        argument: Some(column(0)),
        default: None,
        ignores_nulls: false,
        frame: Frame::PARTITION,
        data_type: DataType::Int64,
    };
    let calls = with_each_field_changed!(
        call.clone(),
        WindowCall {
            function: WindowFunction::Shift(-1),
            argument: Some(column(1)),
            default: Some(int(0)),
            ignores_nulls: true,
            frame: Frame { end: FrameBound::Rows(0), ..Frame::PARTITION },
            data_type: DataType::Int32,
        }
    );
    assert_all_differ("window call", &calls);
    let distances = [Distance::Units(1), Distance::Units(2), Distance::Months(1, 0), Distance::Double(1)];
    let bounds = [FrameBound::Partition, FrameBound::Rows(0), FrameBound::Rows(1), FrameBound::Groups(0)];
    let ranges = [true, false]
        .into_iter()
        .flat_map(|is_following| distances.map(|distance| FrameBound::Range { is_following, distance }));
    let frames: Vec<WindowCall> = bounds
        .into_iter()
        .chain(ranges)
        .flat_map(|bound| [Frame { start: bound, ..Frame::PARTITION }, Frame { end: bound, ..Frame::PARTITION }])
        // The whole partition from either side.
        .skip(1)
        .map(|frame| WindowCall { frame, ..call.clone() })
        .collect();
    assert_all_differ("frame", &frames);
}

#[test]
fn grouping_sets_differ_by_each_field() {
    let set = GroupingSet { keys: vec![0], id: 1 };
    assert_all_differ("set", &with_each_field_changed!(set, GroupingSet { keys: vec![0, 1], id: 2 }));
}

fn table(set: &Arc<DeviceSet>) -> Arc<Table> {
    let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)];
    Arc::new(TableBuilder::new(set, Arc::new(Schema::new(fields))).finish().expect("a table"))
}

/// Plan nodes, each with one field changed after the other.
fn nodes() -> Vec<Plan> {
    let set = DeviceSet::new(open_simulated(&SimOptions::default()).expect("devices")).expect("a set");
    let (table, other_table) = (table(&set), table(&set));
    let schema = table.schema();
    let with = |kind: PlanKind| Plan { kind, schema: Arc::clone(&schema) };
    let input = || Box::new(with(PlanKind::Input { index: 0 }));
    let of_types = |data_type: DataType, nullable: bool| Plan {
        kind: PlanKind::Input { index: 0 },
        schema: Arc::new(Schema::new(vec![Field::new("a", data_type, nullable)])),
    };
    let join = JoinPlan {
        build: *input(),
        probe: *input(),
        on: vec![(column(0), column(0))],
        kind: JoinKind::Inner,
        null_equals_null: false,
        residual: None,
        output: vec![0, 1],
    };
    // Its inputs are compared apart from it.
    let joins = with_each_field_changed!(
        join,
        JoinPlan {
            build: *input(),
            probe: *input(),
            on: vec![(column(0), column(1))],
            kind: JoinKind::ProbeOuter,
            null_equals_null: true,
            residual: Some(column(0)),
            output: vec![1, 0],
        }
    );
    let joins = [&joins[..1], &joins[3..]].concat();
    let fetch = FetchPlan { input: *input(), table: Arc::clone(&table), row: 0, columns: vec![0] };
    let fetches = with_each_field_changed!(
        fetch,
        FetchPlan { input: *input(), table: Arc::clone(&other_table), row: 1, columns: vec![1] }
    );
    let fetches = [&fetches[..1], &fetches[2..]].concat();
    let test = ReductionTest { form: FilterForm::Table, has_bounds: false, rows: 1, is_ordered: false, left: 1 };
    let tests = with_each_field_changed!(
        test,
        ReductionTest { form: FilterForm::Bloom, has_bounds: true, rows: 2, is_ordered: true, left: 2 }
    );
    let reduced = |table, key, test| Mark::Reduced { table, keys: vec![column(key)], test };
    let marks = [
        Mark::SharedBuild(0),
        Mark::SharedBuild(1),
        reduced(1, 0, tests[0]),
        reduced(0, 1, tests[0]),
        Mark::Shared(Share::Within(0)),
        Mark::Shared(Share::Within(1)),
        Mark::Shared(Share::Left(SharedRowsId::new())),
        Mark::Shared(Share::Left(SharedRowsId::new())),
        Mark::Shared(Share::Found(SharedRowsId::new())),
        Mark::Written,
        Mark::Compact,
    ];
    let marks = marks.into_iter().chain(tests.iter().map(|&test| reduced(0, 0, test)));
    let call = |argument| AggregateCall::new(AggregateFunction::Sum, Some(column(argument)), DataType::Int64);
    let group = |key, argument| PlanKind::Aggregate {
        input: input(),
        group_by: vec![column(key)],
        aggregates: vec![call(argument)],
    };
    let sort = |keys, skip, fetch| PlanKind::Sort { input: input(), keys, skip, fetch };
    let limit = |skip, fetch| PlanKind::Limit { input: input(), skip, fetch };
    let sets = |key, id, argument| PlanKind::GroupingSets {
        input: input(),
        group_by: vec![column(key)],
        sets: vec![GroupingSet { keys: vec![0], id }],
        aggregates: vec![call(argument)],
    };
    let window_call = |ignores_nulls| WindowCall {
        function: WindowFunction::First,
        argument: Some(column(0)),
        default: None,
        ignores_nulls,
        frame: Frame::PARTITION,
        data_type: DataType::Int64,
    };
    let window = |partition, order_by: Vec<SortKey>, ignores_nulls| PlanKind::Window {
        input: input(),
        partition_by: vec![column(partition)],
        order_by,
        calls: vec![window_call(ignores_nulls)],
    };
    let shared = || PlanKind::Shared(Arc::new(*input()));
    let mut kinds = vec![
        PlanKind::Scan { table: Arc::clone(&table), projection: vec![0] },
        PlanKind::Scan { table: Arc::clone(&table), projection: vec![1] },
        PlanKind::Scan { table: other_table, projection: vec![0] },
        PlanKind::Input { index: 0 },
        PlanKind::Input { index: 1 },
        PlanKind::Filter { input: input(), predicate: column(0) },
        PlanKind::Filter { input: input(), predicate: column(1) },
        PlanKind::Project { input: input(), exprs: vec![column(0)] },
        PlanKind::Project { input: input(), exprs: vec![column(1)] },
        group(0, 0),
        group(1, 0),
        group(0, 1),
        sort(vec![key()], 0, None),
        sort(vec![key(), key()], 0, None),
        sort(vec![key()], 1, None),
        sort(vec![key()], 0, Some(0)),
        limit(0, None),
        limit(1, None),
        limit(0, Some(1)),
        sets(0, 0, 0),
        sets(1, 0, 0),
        sets(0, 1, 0),
        sets(0, 0, 1),
        window(0, vec![], false),
        window(1, vec![], false),
        window(0, vec![key()], false),
        window(0, vec![], true),
        PlanKind::Union { inputs: vec![*input()] },
        PlanKind::Union { inputs: vec![*input(), *input()] },
        PlanKind::Numbered { input: input() },
        PlanKind::RowNumbers { input: input() },
        PlanKind::HasRows { input: input(), of: RowsOf::Build },
        PlanKind::HasRows { input: input(), of: RowsOf::Plan(input()) },
        shared(),
        shared(),
    ];
    kinds.extend(joins.into_iter().map(|join| PlanKind::Join(Box::new(join))));
    kinds.extend(fetches.into_iter().map(|fetch| PlanKind::Fetch(Box::new(fetch))));
    kinds.extend(marks.map(|mark| PlanKind::Marked { input: input(), mark }));
    let mut plans: Vec<Plan> = kinds.into_iter().map(with).collect();
    plans.extend([of_types(DataType::Int64, true), of_types(DataType::Int32, true), of_types(DataType::Int64, false)]);
    plans
}

#[test]
fn plan_nodes_differ_by_each_field() {
    let plans = nodes();
    let kinds: std::collections::HashSet<_> = plans.iter().map(|plan| std::mem::discriminant(&plan.kind)).collect();
    assert_eq!(kinds.len(), 17, "every kind of node");
    assert_all_differ("node", &plans.iter().map(ById).collect::<Vec<_>>());
}

/// A node by reference: copies of it are the same object.
#[derive(Clone)]
struct ById<'a>(&'a Plan);

impl Identify for ById<'_> {
    fn identify(&self, identity: &mut Identity) {
        Node(self.0).identify(identity);
    }
}

#[test]
fn names_of_columns_do_not_count() {
    let plan = |name: &str| Plan {
        kind: PlanKind::Input { index: 0 },
        schema: Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)])),
    };
    assert!(Identity::in_query(&Node(&plan("a"))) == Identity::in_query(&Node(&plan("b"))));
}
