//! Parts that differ in one field only are not the same: for every field of every part.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use warpjoin_device::{SimOptions, open_simulated};

use super::{Identify, Identity};
use crate::expr::{ArithmeticOp, CompareOp, DeferredScalar, Expr, ExprKind, HostFunction, KeyPiece, OrderPart, Scalar};
use crate::function::{DateFunction, DatePart, Function};
use crate::plan::identity::Node;
use crate::plan::{
    AggregateCall, AggregateFunction, FetchPlan, FilterForm, GroupingSet, JoinKind, JoinPlan, Mark, Moment, Plan,
    PlanKind, ReductionTest, RowsOf, Share, SharedRowsId, SortKey,
};
use crate::window::{Distance, Frame, FrameBound, WindowCall, WindowFunction};
use crate::{Session, Table, TableBuilder};

/// The value, then copies of it with one field changed, for all of its fields: a new field does not compile until it is
/// named here.
macro_rules! with_each_field_changed {
    ($value:expr, $part:ident { $($field:ident: $other:expr),* $(,)? }) => {{
        let value: $part = $value;
        let $part { $($field: _),* } = &value;
        vec![value.clone(), $($part { $field: $other, ..value.clone() }),*]
    }};
}
pub(crate) use with_each_field_changed;

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

fn boxed(index: usize) -> Box<Expr> {
    Box::new(column(index))
}

fn key() -> SortKey {
    SortKey { expr: column(0), descending: false, nulls_first: false }
}

/// A function whose text tells nothing.
#[derive(Debug)]
struct Named {
    #[allow(dead_code, reason = "shown by Debug")]
    name: &'static str,
    is_fixed: bool,
}

impl HostFunction for Named {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::clone(&operands[0]))
    }

    fn is_same(&self, other: &dyn HostFunction) -> bool {
        let other = (other as &dyn std::any::Any).downcast_ref::<Self>();
        other.is_some_and(|other| self.is_fixed && other.is_fixed)
    }

    fn data_type(&self) -> DataType {
        DataType::Int64
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("f")
    }
}

fn function(is_fixed: bool) -> Arc<dyn HostFunction> {
    Arc::new(Named { name: "f", is_fixed })
}

fn tabulated(function: &Arc<dyn HostFunction>, operand: usize) -> Expr {
    let kind = ExprKind::Tabulated { operands: vec![column(operand)], function: Arc::clone(function) };
    Expr { kind, data_type: DataType::Int64, nullable: true }
}

/// A constant whose text tells nothing.
#[derive(Debug)]
struct Subquery;

impl std::fmt::Display for Subquery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("subquery 1")
    }
}

impl DeferredScalar for Subquery {
    fn value(&self) -> Result<Scalar, ArrowError> {
        Err(ArrowError::ComputeError("not known yet".into()))
    }
}

/// A constant that is known.
#[derive(Debug)]
struct Known(i128);

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("subquery 1")
    }
}

impl DeferredScalar for Known {
    fn value(&self) -> Result<Scalar, ArrowError> {
        Ok(Scalar::Int(self.0))
    }
}

fn deferred(value: Arc<dyn DeferredScalar>) -> Expr {
    Expr { kind: ExprKind::Deferred(value), data_type: DataType::Int64, nullable: true }
}

/// Kinds of expression, each with one part changed after the other.
fn kinds() -> Vec<ExprKind> {
    let float = |value: f64| ExprKind::Literal(Scalar::Float(value));
    let bytes = |text: &str| ExprKind::Literal(Scalar::Bytes(text.as_bytes().into()));
    let list = |values: &[i128], negated, operand| ExprKind::InList {
        operand: boxed(operand),
        list: values.iter().map(|&value| Scalar::Int(value)).collect(),
        negated,
    };
    let case = |branches: &[(usize, usize)], otherwise: Option<usize>| ExprKind::Case {
        branches: branches.iter().map(|&(when, then)| (column(when), column(then))).collect(),
        otherwise: otherwise.map(boxed),
    };
    let moment = |moment, scale, sums: &[usize]| ExprKind::Moment {
        moment,
        scale,
        sums: sums.iter().map(|&sum| column(sum)).collect(),
    };
    let part = |key, piece, bits| OrderPart { key, piece, bits, least: 0 };
    let call = |function, operands: &[usize]| {
        ExprKind::Function(function, operands.iter().map(|&operand| column(operand)).collect())
    };
    vec![
        ExprKind::Column(0),
        ExprKind::Column(1),
        ExprKind::Literal(Scalar::Null),
        ExprKind::Literal(Scalar::Boolean(false)),
        ExprKind::Literal(Scalar::Boolean(true)),
        ExprKind::Literal(Scalar::Int(0)),
        ExprKind::Literal(Scalar::Int(1)),
        float(0.0),
        float(-0.0),
        float(f64::NAN),
        bytes(""),
        bytes("a"),
        bytes("ab"),
        deferred(Arc::new(Subquery)).kind,
        deferred(Arc::new(Subquery)).kind,
        deferred(Arc::new(Known(5))).kind,
        deferred(Arc::new(Known(6))).kind,
        ExprKind::Arithmetic(ArithmeticOp::Add, boxed(0), boxed(1)),
        ExprKind::Arithmetic(ArithmeticOp::Subtract, boxed(0), boxed(1)),
        ExprKind::Arithmetic(ArithmeticOp::Add, boxed(1), boxed(0)),
        ExprKind::Compare(CompareOp::Equal, boxed(0), boxed(1)),
        ExprKind::Compare(CompareOp::Identical, boxed(0), boxed(1)),
        ExprKind::Compare(CompareOp::Equal, boxed(1), boxed(0)),
        ExprKind::And(boxed(0), boxed(1)),
        ExprKind::And(boxed(1), boxed(0)),
        ExprKind::Or(boxed(0), boxed(1)),
        ExprKind::Average(boxed(0), boxed(1)),
        ExprKind::Not(boxed(0)),
        ExprKind::Not(boxed(1)),
        ExprKind::IsNull(boxed(0)),
        ExprKind::Negative(boxed(0)),
        ExprKind::Cast(boxed(0)),
        ExprKind::TryCast(boxed(0)),
        case(&[(0, 1)], Some(2)),
        case(&[(0, 2)], Some(2)),
        case(&[(1, 1)], Some(2)),
        case(&[(0, 1)], None),
        case(&[(0, 1)], Some(3)),
        case(&[(0, 1), (2, 3)], None),
        call(Function::Date(DateFunction::Part(DatePart::Year)), &[0]),
        call(Function::Date(DateFunction::Part(DatePart::Month)), &[0]),
        call(Function::Date(DateFunction::Part(DatePart::Year)), &[1]),
        call(Function::Date(DateFunction::Part(DatePart::Year)), &[0, 1]),
        list(&[1, 2], false, 0),
        list(&[1, 2], true, 0),
        list(&[1, 2], false, 1),
        list(&[1], false, 0),
        list(&[2, 1], false, 0),
        tabulated(&function(false), 0).kind,
        tabulated(&function(false), 0).kind,
        tabulated(&function(true), 0).kind,
        tabulated(&function(true), 1).kind,
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Whole, 8)]),
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Whole, 9)]),
        ExprKind::OrderWord(vec![OrderPart { least: 1, ..part(key(), KeyPiece::Whole, 9) }]),
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Null, 8)]),
        ExprKind::OrderWord(vec![part(key(), KeyPiece::Whole, 8), part(key(), KeyPiece::Whole, 8)]),
        ExprKind::OrderWord(vec![part(SortKey { descending: true, ..key() }, KeyPiece::Whole, 8)]),
        ExprKind::RowNumber { max: 7 },
        ExprKind::RowNumber { max: 8 },
        moment(Moment::Correlation, 0, &[0, 1]),
        moment(Moment::Correlation, 1, &[0, 1]),
        moment(Moment::Correlation, 0, &[0, 2]),
        moment(Moment::Correlation, 0, &[0]),
    ]
}

#[test]
fn kinds_of_expressions_differ() {
    assert_all_differ("kind", &kinds());
}

#[test]
fn expressions_differ_by_each_field() {
    let exprs = with_each_field_changed!(
        column(0),
        Expr { kind: ExprKind::Column(1), data_type: DataType::Int32, nullable: false }
    );
    assert_all_differ("expression", &exprs);
    assert!(column(0).is_same(&column(0)) && !column(0).is_same(&column(1)));
    // A zone is part of the type.
    let of_zone = |zone: Option<&str>| {
        Expr::column(0, DataType::Timestamp(arrow::datatypes::TimeUnit::Second, zone.map(Into::into)), true)
    };
    assert_all_differ("zone", &[of_zone(None), of_zone(Some("UTC")), of_zone(Some("+01:00"))]);
}

#[test]
fn sort_keys_differ_by_each_field() {
    let keys = with_each_field_changed!(key(), SortKey { expr: column(1), descending: true, nulls_first: true });
    assert_all_differ("key", &keys);
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

#[test]
fn host_functions_of_one_name_are_told_apart() {
    let (one, other) = (function(false), function(false));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert!(!tabulated(&one, 0).is_same(&tabulated(&other, 0)));
    assert!(tabulated(&one, 0).is_same(&tabulated(&one, 0)), "one object, in one query");
    let across = |function| Identity::in_session(&tabulated(function, 0));
    assert!(across(&one) != across(&one), "it may be another function in the next query");
    assert!(across(&function(true)) == across(&function(true)), "both say that they are the same");
}

#[test]
fn constants_that_are_not_known_yet_are_told_apart() {
    let later = || Arc::new(Subquery) as Arc<dyn DeferredScalar>;
    let (one, other) = (later(), later());
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert!(!deferred(Arc::clone(&one)).is_same(&deferred(other)));
    assert!(deferred(Arc::clone(&one)).is_same(&deferred(Arc::clone(&one))));
    assert!(Identity::in_session(&deferred(one)).is_none(), "nothing that lasts is known of it");
    let known = |value| Identity::in_session(&deferred(Arc::new(Known(value))));
    assert!(known(5).is_some() && known(5) == known(5) && known(5) != known(6));
}

fn table(session: &Arc<Session>) -> Arc<Table> {
    let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)];
    Arc::new(TableBuilder::new(session.device_set(), Arc::new(Schema::new(fields))).finish().expect("a table"))
}

/// Plan nodes, each with one field changed after the other.
fn nodes() -> Vec<Plan> {
    let session = Session::new(open_simulated(&SimOptions::default()).expect("devices")).expect("a session");
    let (table, other_table) = (table(&session), table(&session));
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
