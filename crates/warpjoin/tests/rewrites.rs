//! Nodes that are made of others: what they become, and that nothing is left to be planned when they run.

mod common;

use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use warpjoin::exec::{self, JoinOrder, Materialization};
use warpjoin::expr::{CompareOp, DeferredScalar, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, Plan, PlanKind, SortKey};
use warpjoin::window::{Frame, WindowCall, WindowFunction};
use warpjoin::{CodeTier, ExecOptions, QueryMetrics, Session, Table};

use common::case::upload;
use common::decisions::assert_announced;
use common::int_plans::{batch, below, int, join, of_ints, scan, sums};
use common::sessions::{Opener, simulated};
use common::value::{Row, V, rows_of};

/// Rows in order, and what they cost.
fn run(session: &Arc<Session>, plan: &Plan, options: &ExecOptions) -> (Vec<Row>, QueryMetrics) {
    let output = exec::run(session, plan, &[], options).expect("rows");
    assert_announced(session, plan, &[], options, &output.metrics);
    let mut rows = rows_of(&output.batches);
    rows.sort_by_key(|row| format!("{row:?}"));
    (rows, output.metrics)
}

fn as_given() -> ExecOptions {
    ExecOptions { join_order: JoinOrder::AsGiven, ..ExecOptions::default() }
}

fn named(metrics: &QueryMetrics, words: &str) -> usize {
    metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains(words)).count()
}

/// Numbers, some of which may be null.
fn nullable(name: &str, values: Vec<Option<i64>>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]));
    RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values))]).expect("a batch")
}

fn not_in(build: &Arc<Table>, probe: &Arc<Table>, nulls: [bool; 2]) -> Plan {
    let mut plan = join(scan(build), scan(probe), (0, 0), JoinKind::NotIn, vec![1]);
    if let PlanKind::Join(join) = &mut plan.kind {
        join.on = vec![(Expr::column(0, DataType::Int64, nulls[0]), Expr::column(0, DataType::Int64, nulls[1]))];
    }
    plan
}

/// Null build keys are counted where there can be any.
#[test]
fn not_in_asks_for_nulls_where_there_can_be_any() {
    let some = |step: i64| (0..90).map(|row| (row % step != 0).then_some(row)).collect::<Vec<_>>();
    let all = |rows: i64| (0..rows).map(Some).collect::<Vec<_>>();
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        for (build, probe, left, counts) in [
            (all(40), all(100), 60, 0),
            (all(40), some(7), 50 - 7, 0),
            (all(0), some(7), 90, 0),
            (some(7), some(7), 0, 1),
            (all(40), some(7), 50 - 7, 1),
            (all(0), some(7), 90, 1),
            // No key of the probe side is on the build side, which has rows all the same.
            ((200..240).map(Some).collect(), some(7), 90 - 13, 0),
            ((200..240).map(Some).collect(), some(7), 90 - 13, 1),
            ((200..240).map(Some).collect(), vec![None; 30], 0, 0),
        ] {
            let nulls = [counts == 1, probe.contains(&None)];
            let tables = [nullable("b", build), nullable("p", probe)].map(|batch| upload(&session, &batch));
            let plan = not_in(&tables[0], &tables[1], nulls);
            for reduced_rows_min in [None, Some(0)] {
                let (rows, metrics) = run(&session, &plan, &ExecOptions { reduced_rows_min, ..as_given() });
                assert_eq!(rows.len(), left, "{nulls:?}, reduced from {reduced_rows_min:?} rows on");
                assert_eq!(named(&metrics, "-> Count"), counts, "{:?}", metrics.pipelines);
            }
        }
    }
}

/// Any 50 rows, the same for both joins.
#[test]
fn full_joins_read_a_limited_side_once() {
    for devices in [1, 2, 4] {
        let session = simulated().open(devices).expect("a session");
        let numbers = upload(&session, &batch(vec![("n", (0..6000).collect())]));
        let input = Box::new(scan(&numbers));
        let few = of_ints(PlanKind::Limit { input, skip: 0, fetch: Some(50) }, 1);
        let plan = join(few, below(scan(&numbers), 0, 3000), (0, 0), JoinKind::Full, vec![0, 1]);
        let (rows, metrics) = run(&session, &plan, &as_given());
        let with = |column: usize| rows.iter().filter(|row| row[column] != V::Null).count();
        assert_eq!((with(0), with(1)), (50, 3000));
        assert_eq!(named(&metrics, "-> Limit"), 1, "{:?}", metrics.pipelines);
        let said = exec::explain(&plan, &session, &as_given()).pipelines;
        assert!(said.last().is_some_and(|line| line.starts_with("Union[pipelines ")), "{said:?}");
    }
}

/// A side that probes a table is written down for both joins.
#[test]
fn full_joins_probe_the_tables_of_a_side_once() {
    let session = simulated().open(1).expect("a session");
    let few = upload(&session, &batch(vec![("f", (0..40).map(|row| row * 3).collect())]));
    let numbers = upload(&session, &batch(vec![("n", (0..600).collect())]));
    let side = join(scan(&few), scan(&numbers), (0, 0), JoinKind::ProbeSemi, vec![1]);
    let plan = join(side, scan(&few), (0, 0), JoinKind::Full, vec![0, 1]);
    let (rows, metrics) = run(&session, &plan, &as_given());
    assert_eq!(rows.len(), 40);
    let probes = metrics.pipelines.iter().filter(|it| it.name.contains("Probe -> Materialise") && it.rows_in == 600);
    assert_eq!(probes.count(), 1, "{:?}", metrics.pipelines);
}

/// The build side has only rows with a key of the probe side, of which few are left: they are found once.
#[test]
fn small_probe_sides_reduce_build_sides() {
    use JoinKind::{ProbeAnti, ProbeMark, ProbeOuter, ProbeSemi};
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let large = batch(vec![
            ("l_key", (0..5000).map(|row| row / 2).collect()),
            ("l_value", (0..5000).collect()),
            ("l_other", vec![7; 5000]),
        ]);
        let small = batch(vec![("s_key", (0..900).map(|row| row * 5).collect()), ("s_value", (0..900).collect())]);
        let [large, small] = [large, small].map(|batch| upload(&session, &batch));
        for (kind, output) in [
            (ProbeOuter, vec![1, 4, 0]),
            (ProbeSemi, vec![4, 3]),
            (ProbeAnti, vec![4]),
            (ProbeMark, vec![4, 5]),
            (JoinKind::Full, vec![1, 3, 4]),
        ] {
            for is_filtered in [true, false] {
                let probe = if is_filtered { below(scan(&small), 1, 300) } else { scan(&small) };
                let plan = join(scan(&large), probe, (0, 0), kind, output.clone());
                let forced = ExecOptions { reduced_rows_min: Some(0), ..as_given() };
                let ((rows, metrics), (wanted, before)) =
                    (run(&session, &plan, &forced), run(&session, &plan, &as_given()));
                assert_eq!(rows, wanted, "{kind:?}");
                let is_said = |metrics: &QueryMetrics| {
                    metrics.decisions.iter().any(|line| line.starts_with("reduced build side: keys of s_key"))
                };
                assert!(is_said(&metrics) && !is_said(&before), "{kind:?}: {:?}", metrics.decisions);
                let written = usize::from(is_filtered);
                assert_eq!(named(&metrics, "Filter -> Project -> Materialise"), written, "{:?}", metrics.pipelines);
            }
        }
        // Where so few rows are at stake, nobody does it unasked.
        let plan = join(scan(&large), below(scan(&small), 1, 3), (0, 0), ProbeOuter, vec![1]);
        assert!(run(&session, &plan, &as_given()).1.decisions.is_empty());
    }
}

/// Rows are listed behind a join, and behind a second one whose key is a column of the first one's build side.
#[test]
fn rows_behind_joins_are_listed() {
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let facts = batch(vec![
            ("f_key", (0..9000).map(|row| row * 7919 % 500).collect()),
            ("f_value", (0..9000).map(|row| row % 11).collect()),
        ]);
        let first = batch(vec![
            ("a_key", (0..200).map(|row| row * 2).collect()),
            ("a_next", (0..200).map(|row| row * 1_000_003 % 97).collect()),
        ]);
        let second = batch(vec![
            ("b_key", (0..97).step_by(3).collect()),
            ("b_value", (0..97).step_by(3).map(|row| row * 10_000_000_019).collect()),
        ]);
        let [facts, first, second] = [facts, first, second].map(|batch| upload(&session, &batch));
        // Key, value and next key; then all of them and the second value.
        let near = join(scan(&first), below(scan(&facts), 1, 9), (0, 0), JoinKind::Inner, vec![2, 3, 1]);
        let far = join(scan(&second), near.clone(), (0, 2), JoinKind::Inner, vec![1, 2, 3, 4]);
        let groups = sums(far.clone(), 2, 0);
        for plan in [near, far, groups] {
            let (wanted, _) = run(&session, &plan, &as_given());
            assert!(!wanted.is_empty());
            for code_tier in [CodeTier::Compiled, CodeTier::Interpreted] {
                let options = ExecOptions { compact_rows_min: Some(0), code_tier, ..as_given() };
                let (rows, metrics) = run(&session, &plan, &options);
                assert_eq!(rows, wanted, "{code_tier:?}");
                assert!(named(&metrics, "Probe -> Compact") > 0, "{:?}", metrics.pipelines);
            }
        }
    }
}

/// Whether a key has another value, a smaller or a larger one is told by its extremes: of rows with null keys, null values, keys
/// whose values are all null, one value, or several.
#[test]
fn extremes_tell_of_inequalities() {
    use JoinKind::{ProbeAnti, ProbeMark, ProbeSemi};
    let nullable = |first: &str, second: &str, rows: Vec<(Option<i64>, Option<i64>)>| {
        let (keys, values): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let fields = [first, second].map(|name| Field::new(name, DataType::Int64, true));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys)), Arc::new(Int64Array::from(values))];
        RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).expect("a batch")
    };
    let some = |value: i64, without: i64| (value % without != 0).then_some(value);
    let build_rows: Vec<_> = (0..3000).map(|row| (some(row / 4, 31), some(row * row % 5, 3))).collect();
    let probe_rows: Vec<_> = (0..700).map(|row| (some(row * 3 % 800, 37), some(row % 7 - 1, 5))).collect();
    let column = |index: usize| Expr::column(index, DataType::Int64, true);
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let tables = [("b", &build_rows), ("p", &probe_rows)].map(|(side, rows)| {
            let [key, value] = ["k", "v"].map(|name| format!("{side}_{name}"));
            upload(&session, &nullable(&key, &value, rows.clone()))
        });
        for (kind, output) in [(ProbeSemi, vec![3, 2]), (ProbeAnti, vec![2, 3]), (ProbeMark, vec![3, 4])] {
            use CompareOp::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
            for (op, is_mirrored) in [NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Equal]
                .into_iter()
                .flat_map(|op| [(op, false), (op, true)])
            {
                let mut plan = join(scan(&tables[0]), scan(&tables[1]), (0, 0), kind, output.clone());
                if let PlanKind::Join(join) = &mut plan.kind {
                    let (left, right) = if is_mirrored { (3, 1) } else { (1, 3) };
                    join.on = vec![(column(0), column(0))];
                    join.residual = Some(common::int_plans::compare(op, column(left), column(right)));
                }
                let forced = ExecOptions { extremes_rows_min: Some(0), ..as_given() };
                let (rows, metrics) = run(&session, &plan, &forced);
                let holds = |left: i64, right: i64| match op {
                    Less => left < right,
                    LessOrEqual => left <= right,
                    Greater => left > right,
                    GreaterOrEqual => left >= right,
                    Equal => left == right,
                    _ => left != right,
                };
                let exists = |&(key, value): &(Option<i64>, Option<i64>)| {
                    build_rows.iter().any(|&(build_key, build_value)| {
                        let (Some(build), Some(value)) = (build_value, value) else { return false };
                        let (left, right) = if is_mirrored { (value, build) } else { (build, value) };
                        key.is_some() && build_key == key && holds(left, right)
                    })
                };
                let wanted = match kind {
                    ProbeSemi => probe_rows.iter().filter(|row| exists(row)).count(),
                    ProbeAnti => probe_rows.iter().filter(|row| !exists(row)).count(),
                    _ => probe_rows.len(),
                };
                assert_eq!(rows.len(), wanted, "{kind:?} {op:?} {is_mirrored}");
                assert_eq!(rows, run(&session, &plan, &as_given()).0, "{kind:?} {op:?} {is_mirrored}");
                let is_said = metrics.decisions.iter().any(|line| line.starts_with("extremes: rows of b_k:3000"));
                assert_eq!(is_said, op != Equal, "{:?}", metrics.decisions);
                assert_eq!(named(&metrics, "[lists") > 0, op == Equal, "{:?}", metrics.pipelines);
            }
        }
    }
}

/// A table of groups, decimals and texts.
fn decimals(session: &Arc<Session>, unit: i128) -> Arc<Table> {
    let rows = 0..3000i64;
    let decimal = DataType::Decimal128(38, 2);
    let amounts = Decimal128Array::from_iter_values(rows.clone().map(|row| i128::from(row * 7919 % 3000 - 40) * unit));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row % 30))),
        Arc::new(amounts.with_data_type(decimal.clone())),
        Arc::new(StringArray::from_iter_values(rows.map(|row| format!("text {row}")))),
    ];
    let fields = [("g", DataType::Int64), ("amount", decimal), ("text", DataType::Utf8)];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false)).to_vec();
    upload(session, &RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch"))
}

/// Minima and maxima of such values are made of other aggregates: their joins keep lists.
#[test]
fn wide_decimals_have_no_extremes() {
    let session = simulated().open(1).expect("a session");
    let table = decimals(&session, 1 << 100);
    let mut plan = join(scan(&table), scan(&table), (0, 0), JoinKind::ProbeSemi, vec![3, 4]);
    let amount = |index: usize| Expr::column(index, DataType::Decimal128(38, 2), false);
    plan.schema = Arc::new(Schema::new(vec![
        Field::new("g", DataType::Int64, false),
        Field::new("amount", DataType::Decimal128(38, 2), false),
    ]));
    if let PlanKind::Join(join) = &mut plan.kind {
        join.residual = Some(common::int_plans::compare(CompareOp::NotEqual, amount(1), amount(4)));
    }
    let forced = ExecOptions { extremes_rows_min: Some(0), ..as_given() };
    let (rows, metrics) = run(&session, &plan, &forced);
    assert_eq!(rows.len(), 3000);
    assert!(metrics.decisions.iter().all(|line| !line.starts_with("extremes")), "{:?}", metrics.decisions);
}

fn grouped(input: Plan, call: AggregateCall) -> Plan {
    let schema =
        Schema::new(vec![Field::new("g", DataType::Int64, true), Field::new("v", call.data_type.clone(), true)]);
    let kind = PlanKind::Aggregate { input: Box::new(input), group_by: vec![int(0)], aggregates: vec![call] };
    Plan { kind, schema: Arc::new(schema) }
}

/// Bounds of the table's column tell before anything runs whether an accumulator holds a minimum.
#[test]
fn minima_beyond_64_bits_are_known_by_bounds() {
    let data_type = DataType::Decimal128(38, 2);
    let amount = Expr::column(1, data_type.clone(), false);
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        for (unit, is_wide) in [(1, false), (1 << 52, false), (1 << 53, true), (1 << 100, true)] {
            let table = decimals(&session, unit);
            for function in [AggregateFunction::Min, AggregateFunction::Max] {
                let plan = grouped(scan(&table), AggregateCall::new(function, Some(amount.clone()), data_type.clone()));
                let said = exec::explain(&plan, &session, &as_given()).pipelines;
                assert_eq!(said.iter().any(|line| line.contains("Probe")), is_wide, "{unit}: {said:?}");
                let (rows, _) = run(&session, &plan, &as_given());
                let of_group = |group: i64| (0..3000).filter(move |row| row % 30 == group);
                let amounts = |group: i64| of_group(group).map(|row| i128::from(row * 7919 % 3000 - 40) * unit);
                let wanted = |group: i64| match function {
                    AggregateFunction::Min => amounts(group).min(),
                    _ => amounts(group).max(),
                };
                assert_eq!(rows.len(), 30);
                for row in rows {
                    let V::Int(group) = row[0] else { panic!("{row:?}") };
                    assert_eq!(Some(&row[1]), wanted(group as i64).map(V::Int).as_ref(), "{group}");
                }
            }
        }
    }
}

/// Rows that a join leaves are written down, for they are read twice: without the argument of a first value, which is read
/// where its row is found.
#[test]
fn arguments_of_first_values_are_read_late() {
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let table = decimals(&session, 1);
        let text = Expr::column(2, DataType::Utf8, false);
        let key =
            SortKey { expr: Expr::column(1, DataType::Decimal128(38, 2), false), descending: true, nulls_first: false };
        let first = AggregateCall::new(AggregateFunction::First, Some(text), DataType::Utf8);
        let keys = upload(&session, &batch(vec![("key", (0..20).collect())]));
        let mut input = join(scan(&keys), scan(&table), (0, 0), JoinKind::ProbeSemi, vec![1, 2, 3]);
        input.schema = table.schema();
        let plan = grouped(input, AggregateCall { order_by: vec![key], ..first });
        let of = |materialization| ExecOptions { materialization, ..as_given() };
        let (wanted, early) = run(&session, &plan, &of(Materialization::Early));
        let (rows, late) = run(&session, &plan, &of(Materialization::Late));
        assert_eq!((rows.len(), &rows), (20, &wanted));
        let is_said = |line: &String| line.starts_with("late: ") && line.contains("text of 3000 rows");
        let is_late = |metrics: &QueryMetrics| metrics.decisions.iter().any(is_said);
        assert!(is_late(&late) && !is_late(&early), "{:?}", late.decisions);
    }
}

/// A constant whose value changes between runs of one plan.
#[derive(Debug)]
struct Setting(AtomicU64);

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("$k")
    }
}

impl DeferredScalar for Setting {
    fn value(&self) -> Result<Scalar, ArrowError> {
        Ok(Scalar::Int(self.0.load(Ordering::Relaxed).into()))
    }

    fn bound(&self) -> Option<Scalar> {
        self.value().ok()
    }
}

/// The first rows of 50 partitions of 60 rows, by a value that occurs once in each.
#[test]
fn rows_that_can_not_be_first_are_dropped_before_a_window() {
    let rows = batch(vec![
        ("p", (0..3000).map(|row| row % 50).collect()),
        ("v", (0..3000).map(|row| (row * 7919) % 3001).collect()),
    ]);
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let table = upload(&session, &rows);
        let call = WindowCall {
            function: WindowFunction::RowNumber,
            argument: None,
            default: None,
            ignores_nulls: false,
            frame: Frame::PARTITION,
            data_type: DataType::UInt64,
        };
        let fields = ["p", "v"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(
            fields.into_iter().chain([Field::new("r", DataType::UInt64, false)]).collect::<Vec<_>>(),
        ));
        let kind = PlanKind::Window {
            input: Box::new(scan(&table)),
            partition_by: vec![int(0)],
            order_by: vec![SortKey { expr: int(1), descending: false, nulls_first: false }],
            calls: vec![call],
        };
        let window = Plan { kind, schema: schema.clone() };
        let setting = Arc::new(Setting(AtomicU64::new(3)));
        let constants = [
            (ExprKind::Literal(Scalar::Int(3)), vec![3]),
            // Zero and more than there are buckets: the plan for three rows would have kept too few.
            (ExprKind::Deferred(setting.clone()), vec![3, 0, 1, 40, 70]),
        ];
        for (kind, values) in constants {
            let constant = Expr { kind, data_type: DataType::UInt64, nullable: false };
            let rank = Expr::column(2, DataType::UInt64, false);
            let predicate = common::int_plans::compare(CompareOp::LessOrEqual, rank, constant);
            let plan =
                Plan { kind: PlanKind::Filter { input: Box::new(window.clone()), predicate }, schema: schema.clone() };
            for value in values {
                setting.0.store(value, Ordering::Relaxed);
                let (plain, _) = run(&session, &plan, &ExecOptions { ranked_rows_min: Some(u64::MAX), ..as_given() });
                assert_eq!(plain.len() as u64, 50 * value.min(60));
                let (rows, metrics) = run(&session, &plan, &ExecOptions { ranked_rows_min: Some(0), ..as_given() });
                assert_eq!(rows, plain, "{value}");
                let is_said = metrics.decisions.iter().any(|line| line.starts_with("first rows: about"));
                assert_eq!(is_said, value > 0, "{:?}", metrics.decisions);
                if value == 3 {
                    let sorted =
                        metrics.pipelines.iter().filter(|it| it.name.contains("-> Window")).map(|it| it.rows_in);
                    assert!(sorted.sum::<u64>() < 600, "{:?}", metrics.pipelines);
                }
            }
        }
    }
}

/// A lane would go over thousands of matches one by one.
#[test]
fn few_rows_with_many_matches_do_not_probe() {
    let large = batch(vec![
        ("k", (0..40_000).map(|row| row * row % 4).collect()),
        ("v", (0..40_000).map(|row| row % 1000).collect()),
    ]);
    // A key twice, and one without a match.
    let small = batch(vec![("k", vec![0, 1, 7, 1]), ("w", vec![10, 20, 30, 40])]);
    for devices in [1, 2] {
        let session = simulated().open(devices).expect("a session");
        let (large, small) = (upload(&session, &large), upload(&session, &small));
        let mut plan = join(scan(&large), scan(&small), (0, 0), JoinKind::ProbeOuter, vec![3, 1, 2]);
        for below in [None, Some(500)] {
            if let (PlanKind::Join(join), Some(below)) = (&mut plan.kind, below) {
                let below =
                    Expr { kind: ExprKind::Literal(Scalar::Int(below)), data_type: DataType::Int64, nullable: false };
                join.residual = Some(common::int_plans::compare(CompareOp::Less, int(1), below));
            }
            let (plain, _) = run(&session, &plan, &ExecOptions { swapped_matches_min: Some(u64::MAX), ..as_given() });
            let (rows, metrics) = run(&session, &plan, &as_given());
            assert_eq!(rows, plain, "below {below:?}");
            assert_eq!(rows.len(), if below.is_some() { 20_001 + 10_000 } else { 40_001 + 20_000 });
            let is_said = metrics.decisions.iter().any(|line| line.starts_with("outer join: "));
            assert!(is_said, "{:?}", metrics.decisions);
            assert!(
                metrics.pipelines.iter().all(|it| it.rows_out < 1000 || it.rows_in > 1000),
                "{:?}",
                metrics.pipelines
            );
        }
    }
}
