//! Random plans over random tables.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpjoin::exec::MemoryUse;
use warpjoin::expr::Expr;
use warpjoin::function::Function;
use warpjoin::plan::{
    AggregateCall, AggregateFunction, GroupingSet, JoinKind, JoinPlan, Moment, Plan, PlanKind, SortKey,
};

use warpjoin::window::{Distance, Frame, FrameBound, WindowCall, WindowFunction};

use super::case::{Case, Outcome};
use super::data::{self, Pool, TYPES};
use super::edges::{frames_of, window, window_aggregates};
use super::random_expr::{ExprMaker, arguments_of, call_of};
use super::sessions::{Opener, in_threads};
use super::settings;
use super::value::decimal;

/// Seeds that once showed a bug, or a shape worth keeping: of inner and semi joins.
pub(crate) const REGRESSIONS: [u64; 8] = [
    89,   // two faults, of which either may be reported
    1037, // products of Decimal32 wrapped
    1092, // remainders and products of Decimal32
    1195, // strings that the build side lacks matched null
    2841, // a value that failed its cast was the number of a dense group
    4, 2789, 2846,
];
/// Seeds that failed since there are other kinds of join.
pub(crate) const LATER_REGRESSIONS: [u64; 11] = [
    188,           // NOT IN took a reduced build side without rows for an empty one
    1795584902719, // date_bin of a value that is never null was null
    1795654510784, // an order that fails of last values that nobody reads
    1795696981992, // round() in a kernel that had a variable of that name
    1795696982091, // a spread that is lost in the rounding of the mean
    1795711570581, // NOT IN in passes took a build side beyond the probe keys' bounds for an empty one
    1795799559416, // a literal of 32 bits whose bounds were wider than its type
    1795811333000, // the bound of an intermediate's rows was taken for the rows that its table must hold
    1795815562861, // a key of an order that its pipeline has other bounds for than its plan
    502058,        // ranges of a sort that were cut again and again, with all rows in the last one
    7700121,       // a decimal that overflows before it is divided by 0: the oracle saw one of the two faults
];

/// The case of a seed.
pub(crate) fn case(seed: u64) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let count = rng.random_range(2..=4);
    let pools: Vec<Pool> = (0..count)
        .map(|_| {
            let data_type = TYPES.choose(&mut rng).expect("some").clone();
            data::pool(&mut rng, &data_type)
        })
        .collect();
    let kinds = (!REGRESSIONS.contains(&seed)).then(|| StdRng::seed_from_u64(!seed));
    let mut maker = PlanMaker { rng, kinds, pools, inputs: vec![], joins_left: 3, groups_left: 2 };
    let depth = maker.rng.random_range(1..=5);
    let mut plan = maker.relation(depth);
    if maker.rng.random_bool(0.3) {
        plan = maker.project(plan, false);
    }
    let mut settings = settings::random(&mut maker.rng);
    if LATER_REGRESSIONS.contains(&seed) {
        // Found before there was a choice.
        settings.memory_use = MemoryUse::Auto;
    }
    if let Some(rng) = maker.kinds.take() {
        plan = with_functions(plan, StdRng::seed_from_u64(seed ^ 0x55));
        plan = with_window(plan, StdRng::seed_from_u64(seed ^ 0x77));
        plan = maker.window(plan, rng);
    }
    Case { inputs: maker.inputs, plan, settings }
}

/// Adds functions of columns to some plans, chosen from all specs.
fn with_functions(plan: Plan, mut rng: StdRng) -> Plan {
    let all = columns(&plan);
    if all.is_empty() || rng.random_bool(0.8) {
        return plan;
    }
    let samples: Vec<Function> = Function::samples().collect();
    let mut exprs = all.clone();
    for _ in 0..20 {
        let function = *samples.choose(&mut rng).expect("some");
        let argument = all.choose(&mut rng).expect("some");
        let alike: Vec<&Expr> = all.iter().filter(|other| other.data_type == argument.data_type).collect();
        let other = (*alike.choose(&mut rng).expect("at least the argument")).clone();
        // A failing query tests nothing else.
        let may_fail = (function.spec().may_fail)(&argument.data_type) && rng.random_bool(0.9);
        if !may_fail {
            exprs.extend(call_of(function, arguments_of(function, &[argument.clone(), other])));
        }
    }
    let types: Vec<_> = exprs.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
    let kind = PlanKind::Project { input: Box::new(plan), exprs };
    node(kind, types.iter().map(|(t, n)| (t, *n)))
}

/// A window over some plans: of functions that do not tell peers apart, as rows of random tables may be equal.
fn with_window(plan: Plan, mut rng: StdRng) -> Plan {
    use FrameBound::{Groups, Partition};
    if plan.schema.fields().is_empty() || rng.random_bool(0.75) {
        return plan;
    }
    let all = columns(&plan);
    let is_exact = is_exact(&plan);
    let keys: Vec<Expr> = all.iter().filter(|expr| is_exact || !expr.data_type.is_floating()).cloned().collect();
    let some = |rng: &mut StdRng, of: &[Expr], most: usize| -> Vec<Expr> {
        (0..rng.random_range(0..=most)).filter_map(|_| of.choose(rng).cloned()).collect()
    };
    let partition_by = some(&mut rng, &keys, 2);
    let order_by: Vec<SortKey> = some(&mut rng, &keys, 2)
        .into_iter()
        .map(|expr| SortKey { expr, descending: rng.random(), nulls_first: rng.random() })
        .collect();
    let mut frames = vec![
        Frame::PARTITION,
        Frame { start: Partition, end: Groups(0) },
        Frame { start: Groups(0), end: Groups(0) },
        Frame { start: Groups(-2), end: Groups(1) },
        Frame { start: Groups(1), end: Partition },
    ];
    if let [key] = order_by.as_slice()
        && (key.expr.data_type.is_integer() || key.expr.data_type.is_decimal())
    {
        let widths = [0, 1, 5, 30, 200, 1 << 40];
        let (near, far) = (rng.random_range(0..widths.len()), rng.random_range(0..widths.len()));
        let units = |at: usize| Distance::Units(widths[at]);
        frames.extend(frames_of(units(near.min(far)), units(near.max(far))));
    }
    let mut calls = vec![];
    for argument in some(&mut rng, &all, 3) {
        let all = window_aggregates(&argument, *frames.choose(&mut rng).expect("some"));
        calls.push(all.choose(&mut rng).expect("some").clone());
    }
    for (function, data_type) in [
        (WindowFunction::Rank, DataType::UInt64),
        (WindowFunction::DenseRank, DataType::UInt64),
        (WindowFunction::PercentRank, DataType::Float64),
        (WindowFunction::CumeDist, DataType::Float64),
    ] {
        if rng.random_bool(0.3) {
            calls.push(WindowCall {
                function,
                argument: None,
                default: None,
                ignores_nulls: false,
                frame: Frame::PARTITION,
                data_type,
            });
        }
    }
    window(plan, partition_by, order_by, calls)
}

/// Runs the cases of these seeds, where there are enough devices; how often each outcome occurred.
pub(crate) fn check(opener: &dyn Opener, seeds: &[u64]) -> BTreeMap<Outcome, usize> {
    let results = in_threads(seeds, |&seed| {
        let run = || {
            let case = case(seed);
            opener.open(case.settings.devices).map(|session| case.check(&session))
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Some(Err("a panic".into())));
        (seed, result)
    });
    let mut outcomes = BTreeMap::new();
    let mut failures = vec![];
    for (seed, result) in results {
        match result {
            Some(Ok(outcome)) => *outcomes.entry(outcome).or_insert(0) += 1,
            Some(Err(difference)) => failures.push(format!("WARPJOIN_RANDOM_SEED={seed}: {difference}")),
            None => {}
        }
    }
    assert!(failures.is_empty(), "{} differences\n{}", failures.len(), failures.join("\n\n"));
    outcomes
}

struct PlanMaker {
    rng: StdRng,
    /// Draws kinds of join; `None`: only those that were there when the seed was noted.
    kinds: Option<StdRng>,
    pools: Vec<Pool>,
    inputs: Vec<RecordBatch>,
    joins_left: usize,
    groups_left: usize,
}

/// Column expressions of a schema.
fn columns(plan: &Plan) -> Vec<Expr> {
    let fields = plan.schema.fields().iter().enumerate();
    fields.map(|(index, field)| Expr::column(index, field.data_type().clone(), field.is_nullable())).collect()
}

/// A plan node whose columns have these types.
pub(crate) fn node<'a>(kind: PlanKind, columns: impl Iterator<Item = (&'a DataType, bool)>) -> Plan {
    let fields: Vec<Field> = columns
        .enumerate()
        .map(|(index, (t, nullable))| Field::new(format!("c{index}"), t.clone(), nullable))
        .collect();
    Plan { kind, schema: Arc::new(Schema::new(fields)) }
}

/// The node that reads the input of this number.
pub(crate) fn input(inputs: &[RecordBatch], index: usize) -> Plan {
    Plan { kind: PlanKind::Input { index }, schema: inputs[index].schema() }
}

impl PlanMaker {
    fn relation(&mut self, depth: usize) -> Plan {
        if depth == 0 {
            return self.leaf();
        }
        if self.kinds.as_mut().is_some_and(|rng| rng.random_bool(0.1)) {
            let input = self.relation(depth - 1);
            return self.union(input);
        }
        match self.rng.random_range(0..10) {
            0..=3 if self.joins_left > 0 => {
                self.joins_left -= 1;
                let build = self.relation(depth - 1);
                let probe = self.relation(depth - 1);
                self.join(build, probe)
            }
            4..=5 if self.groups_left > 0 => {
                self.groups_left -= 1;
                let input = self.relation(depth - 1);
                self.aggregate(input)
            }
            6..=7 => {
                let input = self.relation(depth - 1);
                self.filter(input)
            }
            8 => {
                let input = self.relation(depth - 1);
                self.project(input, true)
            }
            _ => self.relation(depth - 1),
        }
    }

    fn leaf(&mut self) -> Plan {
        if self.inputs.is_empty() || self.rng.random_bool(0.8) {
            let batch = data::table(&mut self.rng, &self.pools);
            self.inputs.push(batch);
        }
        let index = self.rng.random_range(0..self.inputs.len());
        input(&self.inputs, index)
    }

    fn exprs(&mut self, plan: &Plan, exact: bool) -> ExprMaker<'_> {
        ExprMaker { rng: &mut self.rng, pools: &self.pools, columns: columns(plan), exact }
    }

    fn filter(&mut self, input: Plan) -> Plan {
        let predicate = self.exprs(&input, true).predicate(2);
        let schema = input.schema.clone();
        Plan { kind: PlanKind::Filter { input: Box::new(input), predicate }, schema }
    }

    fn project(&mut self, input: Plan, exact: bool) -> Plan {
        let count = self.rng.random_range(1..=4);
        let mut maker = self.exprs(&input, exact);
        let exprs: Vec<Expr> = (0..count).map(|_| maker.any(2)).collect();
        let types: Vec<_> = exprs.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
        let kind = PlanKind::Project { input: Box::new(input), exprs };
        node(kind, types.iter().map(|(t, n)| (t, *n)))
    }

    /// A relation, and rows of it with columns of the same types in each other's place.
    fn union(&mut self, input: Plan) -> Plan {
        let own = columns(&input);
        let moved: Vec<Expr> = own
            .iter()
            .map(|column| {
                let alike: Vec<&Expr> = own.iter().filter(|other| other.data_type == column.data_type).collect();
                (*alike.choose(&mut self.rng).expect("at least the column itself")).clone()
            })
            .collect();
        let types: Vec<_> = own.iter().map(|e| (e.data_type.clone(), true)).collect();
        let kept = if self.rng.random_bool(0.5) { self.filter(input.clone()) } else { input.clone() };
        let kind = PlanKind::Project { input: Box::new(kept), exprs: moved };
        let other = node(kind, types.iter().map(|(t, n)| (t, *n)));
        node(PlanKind::Union { inputs: vec![input, other] }, types.iter().map(|(t, n)| (t, *n)))
    }

    fn join(&mut self, build: Plan, probe: Plan) -> Plan {
        let (build_columns, probe_columns) = (columns(&build), columns(&probe));
        let pairs: Vec<(Expr, Expr)> = build_columns
            .iter()
            .flat_map(|b| probe_columns.iter().map(move |p| (b.clone(), p.clone())))
            .filter(|(b, p)| b.data_type == p.data_type)
            .collect();
        let count = *[1, 1, 1, 2, 3].choose(&mut self.rng).expect("some");
        let on: Vec<(Expr, Expr)> = pairs.choose_multiple(&mut self.rng, count).cloned().collect();
        if on.is_empty() {
            return probe;
        }
        let both: Vec<Expr> = build_columns
            .iter()
            .chain(&probe_columns)
            .enumerate()
            .map(|(index, e)| Expr::column(index, e.data_type.clone(), e.nullable))
            .collect();
        let residual = self.rng.random_bool(0.3).then(|| {
            ExprMaker { rng: &mut self.rng, pools: &self.pools, columns: both.clone(), exact: true }.predicate(1)
        });
        let mut output: Vec<usize> = match self.rng.random_range(0..10) {
            0 => vec![],
            1..=4 => (0..both.len()).collect(),
            _ => (0..self.rng.random_range(1..=6)).map(|_| self.rng.random_range(0..both.len())).collect(),
        };
        let null_equals_null = self.rng.random_bool(0.2);
        let kind = if self.rng.random_bool(0.25) { JoinKind::ProbeSemi } else { JoinKind::Inner };
        let kind = self.kinds.as_mut().and_then(|rng| KINDS.choose(rng).copied().flatten()).unwrap_or(kind);
        let is_not_in = kind == JoinKind::NotIn;
        let on = if is_not_in { on[..1].to_vec() } else { on };
        let null_equals_null = null_equals_null && !is_not_in;
        let mark = both.len();
        let put_out = put_out(kind, both, build_columns.len());
        output.retain(|&column| !kind.is_existence() || column >= build_columns.len());
        if let (JoinKind::ProbeMark, Some(rng)) = (kind, &mut self.kinds) {
            output.insert(rng.random_range(0..=output.len()), mark);
        }
        let types: Vec<_> = output.iter().map(|&i| put_out[i].clone()).collect();
        let join = JoinPlan { build, probe, on, kind, null_equals_null, residual, output };
        node(PlanKind::Join(Box::new(join)), types.iter().map(|(t, n)| (t, *n)))
    }

    /// The plan in some order, or some rows of it, or as it is.
    fn window(&self, input: Plan, mut rng: StdRng) -> Plan {
        let mut bound = |chance: f64| rng.random_bool(chance).then(|| rng.random_range(0..200));
        let (skip, fetch) = (bound(0.3).unwrap_or(0), bound(0.5));
        let schema = input.schema.clone();
        // The last bits of computed floats may differ from the oracle's.
        let is_exact = is_exact(&input);
        let keys: Vec<Expr> = columns(&input).into_iter().filter(|e| is_exact || !e.data_type.is_floating()).collect();
        let kind = match rng.random_range(0..10) {
            0..=3 if !keys.is_empty() => {
                let count = *[1, 1, 2, 3, 5].choose(&mut rng).expect("some");
                let mut key = || SortKey {
                    expr: keys.choose(&mut rng).expect("some").clone(),
                    descending: rng.random(),
                    nulls_first: rng.random(),
                };
                PlanKind::Sort { keys: (0..count).map(|_| key()).collect(), input: Box::new(input), skip, fetch }
            }
            4 => PlanKind::Limit { input: Box::new(input), skip, fetch },
            _ => return input,
        };
        Plan { kind, schema }
    }

    fn aggregate(&mut self, input: Plan) -> Plan {
        let keys = *[0, 1, 1, 1, 2, 2, 3, 5].choose(&mut self.rng).expect("some");
        let calls = self.rng.random_range(if keys == 0 { 1..=5 } else { 0..=5 });
        let ordered = self.kinds.as_mut().map_or(0, |rng| rng.random_range(0..8usize)).saturating_sub(5);
        let takes_all = self.kinds.is_some();
        let mut maker = self.exprs(&input, true);
        let group_by: Vec<Expr> = (0..keys).map(|_| maker.any(1)).collect();
        let mut aggregates: Vec<AggregateCall> = (0..calls).map(|_| call(&mut maker)).collect();
        let has_moments = aggregates.iter().any(|call| matches!(call.function, AggregateFunction::Moment(_)));
        if (takes_all || !has_moments) && maker.rng.random_bool(0.3) {
            distinct(&mut maker, &mut aggregates);
        }
        aggregates.extend((0..ordered).map(|_| ordered_call(&mut maker)));
        let calls: Vec<_> = aggregates.iter().map(result_type).collect();
        let mut types: Vec<_> = group_by.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
        let has_sets = |rng: &mut StdRng| rng.random_bool(0.3).then(|| sets(rng, group_by.len()));
        if let Some(sets) = self.kinds.as_mut().and_then(has_sets) {
            types.iter_mut().for_each(|(_, nullable)| *nullable = true);
            types.push((DataType::UInt32, false));
            types.extend(calls);
            let kind = PlanKind::GroupingSets { input: Box::new(input), group_by, sets, aggregates };
            return node(kind, types.iter().map(|(t, n)| (t, *n)));
        }
        types.extend(calls);
        let kind = PlanKind::Aggregate { input: Box::new(input), group_by, aggregates };
        node(kind, types.iter().map(|(t, n)| (t, *n)))
    }
}

/// Whether all floats are those of inputs.
fn is_exact(plan: &Plan) -> bool {
    !matches!(plan.kind, PlanKind::Aggregate { .. } | PlanKind::Project { .. } | PlanKind::Window { .. })
        && plan.inputs().into_iter().all(is_exact)
}

/// Type of a result, and whether it may be null.
pub(crate) fn result_type(call: &AggregateCall) -> (DataType, bool) {
    (call.data_type.clone(), call.function != AggregateFunction::Count)
}

/// A few sets of so many keys: any of them, or each of the next without its last key.
fn sets(rng: &mut StdRng, keys: usize) -> Vec<GroupingSet> {
    let is_rollup = rng.random_bool(0.5);
    let count = if is_rollup { keys as u64 + 1 } else { rng.random_range(1..=4) };
    (0..count)
        .map(|id| {
            let keys = (0..keys).filter(|&key| if is_rollup { key as u64 >= id } else { rng.random_bool(0.5) });
            GroupingSet { keys: keys.collect(), id }
        })
        .collect()
}

/// Kinds of join, as often as they should occur; `None`: an inner or semi join.
const KINDS: [Option<JoinKind>; 10] = [
    None,
    None,
    None,
    None,
    Some(JoinKind::ProbeAnti),
    Some(JoinKind::NotIn),
    Some(JoinKind::ProbeMark),
    Some(JoinKind::ProbeOuter),
    Some(JoinKind::ProbeOuter),
    Some(JoinKind::Full),
];

/// Types that a join can put out and whether they may be null, of the columns of both sides.
pub(crate) fn put_out(kind: JoinKind, both: Vec<Expr>, build_width: usize) -> Vec<(DataType, bool)> {
    let is_padded = |index| kind == JoinKind::Full || kind == JoinKind::ProbeOuter && index < build_width;
    let types = both.into_iter().enumerate().map(|(index, e)| (e.data_type, e.nullable || is_padded(index)));
    types.chain((kind == JoinKind::ProbeMark).then_some((DataType::Boolean, false))).collect()
}

/// Makes some of the calls distinct ones of a few arguments.
fn distinct(maker: &mut ExprMaker<'_>, calls: &mut [AggregateCall]) {
    let arguments: Vec<Expr> = (0..2).map(|_| maker.any(1)).filter(|e| !e.data_type.is_floating()).collect();
    for call in calls.iter_mut().filter(|call| !matches!(call.function, AggregateFunction::Moment(_))) {
        if let (true, Some(argument)) = (maker.rng.random_bool(0.5), arguments.choose(maker.rng)) {
            let made = aggregate_call(call.function, argument.clone());
            *call = made.map_or_else(|| call.clone(), AggregateCall::distinct);
        }
    }
}

/// A first or last value, of which the order tells all: rows that are equal in it have the same one.
fn ordered_call(maker: &mut ExprMaker<'_>) -> AggregateCall {
    let mut exprs: Vec<Expr> = (0..maker.rng.random_range(1..=3)).map(|_| maker.any(1)).collect();
    let argument = exprs[0].clone();
    let front = maker.rng.random_range(0..exprs.len());
    exprs.swap(0, front);
    let mut key = |expr| SortKey { expr, descending: maker.rng.random(), nulls_first: maker.rng.random() };
    let order_by: Vec<SortKey> = exprs.into_iter().map(&mut key).collect();
    let filter = maker.rng.random_bool(0.3).then(|| maker.predicate(1));
    let function = if maker.rng.random() { AggregateFunction::First } else { AggregateFunction::Last };
    let data_type = argument.data_type.clone();
    AggregateCall { order_by, filter, ..AggregateCall::new(function, Some(argument), data_type) }
}

/// A random aggregate that devices have.
fn call(maker: &mut ExprMaker<'_>) -> AggregateCall {
    use AggregateFunction::{Avg, BitAnd, BitOr, BitXor, Count, Max, Min, Sum};
    let argument = maker.any(1);
    if maker.rng.random_bool(0.15) {
        let moment = *Moment::ALL.choose(maker.rng).expect("some");
        let second = (moment.arguments() == 2).then(|| maker.any(1));
        if let Some(call) = moment_call(moment, argument.clone(), second) {
            return call;
        }
    }
    let function = *[Count, Sum, Sum, Min, Max, Avg, BitAnd, BitOr, BitXor].choose(maker.rng).expect("some");
    aggregate_call(function, argument).unwrap_or(AggregateCall::new(Count, None, DataType::Int64))
}

/// A statistic of numbers, or of pairs; `None` where devices have none.
pub(crate) fn moment_call(moment: Moment, argument: Expr, second: Option<Expr>) -> Option<AggregateCall> {
    let is_exact = |e: &Expr| e.data_type.is_integer() || e.data_type.is_decimal();
    if !is_exact(&argument)
        || second.is_some() != (moment.arguments() == 2)
        || second.as_ref().is_some_and(|e| !is_exact(e))
    {
        return None;
    }
    let call = AggregateCall::new(AggregateFunction::Moment(moment), Some(argument), DataType::Float64);
    Some(AggregateCall { second, ..call })
}

/// The call with the result type that DataFusion gives it; `None` where there is no such function.
pub(crate) fn aggregate_call(function: AggregateFunction, argument: Expr) -> Option<AggregateCall> {
    use AggregateFunction::{Avg, BitAnd, BitOr, BitXor, Count, Sum};
    let from = &argument.data_type;
    let data_type = match (function, decimal(from)) {
        (Count, _) => DataType::Int64,
        (Sum, Some((p, s))) => with_precision(from, p + 10, s),
        (Sum, None) if from.is_unsigned_integer() => DataType::UInt64,
        (Sum, None) if from.is_integer() => DataType::Int64,
        (Sum, None) if from.is_floating() => DataType::Float64,
        (Avg, Some((p, s))) => with_precision(from, p + 4, s + 4),
        (Avg, None) if *from == DataType::Float64 => DataType::Float64,
        (Sum | Avg, _) => return None,
        (BitAnd | BitOr | BitXor, _) if !from.is_integer() => return None,
        _ => from.clone(),
    };
    Some(AggregateCall::new(function, Some(argument), data_type))
}

/// The decimal type of the same width, with this precision as far as it reaches.
pub(crate) fn with_precision(width: &DataType, precision: u8, scale: i8) -> DataType {
    match width {
        DataType::Decimal32(..) => DataType::Decimal32(precision.min(9), scale.min(9)),
        DataType::Decimal64(..) => DataType::Decimal64(precision.min(18), scale.min(18)),
        _ => DataType::Decimal128(precision.min(38), scale.min(38)),
    }
}
