//! First rows of a window's partitions (`row_number() <= k`, `rank() <= k`): rows that cannot be among them are dropped before
//! the window sorts its input.
//!
//! The rows of a partition are dealt into k buckets. The largest of the buckets' minima is a bound of the k-th smallest value, as
//! each bucket has a row at or below it. About `k * (1 + 1/2 + ... + 1/k)` rows of a partition are at or below the bound.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, OrderPart, Scalar};

use super::estimate::estimate;
use super::safety::{is_plain, never_fails};
use crate::plan::build::{
    aggregate, arithmetic, case, cast, column, columns, compare, join_node, keys_or_constant, numbered, project,
};
use crate::plan::rewrite::words_of;
use crate::plan::{AggregateCall, AggregateFunction, InputTables, JoinKind, JoinPlan, Plan, PlanKind};
use crate::window::{Frame, FrameBound, WindowCall, WindowFunction};

/// Minimum rows of a window's input.
const ROWS_MIN: f64 = (1u64 << 20) as f64;
/// Minimum rows for each row that is left: dropping rows takes a group-by and a pass.
const ROWS_A_ROW_LEFT_MIN: f64 = 4.0;
/// Maximum rows of a partition that may be asked for.
const RANK_MAX: u64 = 1024;
/// Minimum buckets that a parameter allows for: other values of it run the same plan.
const BUCKETS_MIN: u64 = 16;

/// The plan with such rows dropped where that pays. With `forced`, for every input of `forced` rows or more.
pub(super) fn place(plan: Plan, inputs: InputTables<'_>, forced: Option<u64>, notes: &mut Vec<String>) -> Plan {
    if !plan.holds(&|plan| Ranked::of(plan).is_some()) {
        return plan;
    }
    plan.rewritten(&mut |mut plan| {
        let Some(ranked) = Ranked::of(&plan) else { return plan };
        let rank_max = ranked.rank_max.clone();
        let Some(left) = ranked.rows_left(inputs, forced) else { return plan };
        let mut below = &mut plan;
        loop {
            match &mut below.kind {
                PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } => below = input,
                PlanKind::Window { input, partition_by, order_by, .. } => {
                    let bounds = input.bounds(inputs);
                    // Keys with a single value have no word.
                    if let Some(word) = words_of(order_by, &bounds).into_iter().next() {
                        let name = input.first_column();
                        notes.push(format!("first rows: about {left:.0} rows of {name} are left for the window"));
                        input.replace(|input| with_first_rows(input, partition_by, word, &rank_max));
                    }
                    return plan;
                }
                _ => return plan,
            }
        }
    })
}

/// A filter on a rank, above a window.
struct Ranked<'a> {
    window_input: &'a Plan,
    partition_by: &'a [Expr],
    /// A constant: rows of a higher rank are dropped.
    rank_max: &'a Expr,
}

impl<'a> Ranked<'a> {
    fn of(plan: &'a Plan) -> Option<Self> {
        let PlanKind::Filter { input, predicate } = &plan.kind else { return None };
        let mut conditions = vec![];
        predicate.add_conjuncts(&mut conditions);
        // Dropped rows must not hide errors.
        if !conditions.iter().all(|condition| never_fails(condition)) {
            return None;
        }
        conditions.into_iter().filter_map(bounded).find_map(|(column, rank_max)| Self::above(input, column, rank_max))
    }

    /// `column` of `plan` is the rank.
    fn above(plan: &'a Plan, column: usize, rank_max: &'a Expr) -> Option<Self> {
        match &plan.kind {
            PlanKind::Project { input, exprs } if exprs.iter().all(never_fails) => match exprs[column].kind {
                ExprKind::Column(column) => Self::above(input, column, rank_max),
                _ => None,
            },
            PlanKind::Window { input, partition_by, order_by, calls } => {
                let call = &calls[column.checked_sub(input.schema.fields().len())?];
                let is_rank = matches!(call.function, WindowFunction::RowNumber | WindowFunction::Rank);
                // Groups have one zero, partitions two.
                let is_grouped = !partition_by.iter().any(|key| key.data_type.is_floating());
                let is_there = (0..input.schema.fields().len()).all(|column| is_plain(input, column));
                let is_ranked = is_rank && is_grouped && !order_by.is_empty();
                let is_possible = is_ranked && is_there && calls.iter().all(looks_back);
                let window_input: &Plan = input;
                is_possible.then_some(Self { window_input, partition_by, rank_max })
            }
            _ => None,
        }
    }

    /// Rows that are expected to be left; `None` if dropping the others does not pay.
    fn rows_left(&self, inputs: InputTables<'_>, forced: Option<u64>) -> Option<f64> {
        let input = estimate(self.window_input, inputs.0);
        let partitions = self.partition_by.iter().map(|key| input.distinct_of(key)).product::<f64>().min(input.rows);
        let rank_max = rank_of(self.rank_max)?;
        let left = partitions * rank_max as f64 * (1.0 + (rank_max as f64).ln());
        let is_wanted = match forced {
            Some(rows_min) => input.rows >= rows_min as f64,
            None => input.rows >= ROWS_MIN && left * ROWS_A_ROW_LEFT_MIN <= input.rows,
        };
        is_wanted.then_some(left)
    }
}

/// The column and the constant of `column <= constant` and the like.
fn bounded(condition: &Expr) -> Option<(usize, &Expr)> {
    let ExprKind::Compare(op, left, right) = &condition.kind else { return None };
    let (value, constant) = match op {
        CompareOp::Less | CompareOp::LessOrEqual | CompareOp::Equal => (left, right),
        CompareOp::Greater | CompareOp::GreaterOrEqual => (right, left),
        CompareOp::NotEqual | CompareOp::Identical => return None,
    };
    match value.kind {
        ExprKind::Column(column) if rank_of(constant).is_some() && value.data_type == constant.data_type => {
            Some((column, constant))
        }
        _ => None,
    }
}

/// The value that a constant has now, if it is a rank.
fn rank_of(constant: &Expr) -> Option<u64> {
    match constant.bound().kind {
        ExprKind::Literal(Scalar::Int(rank)) if constant.data_type == DataType::UInt64 => {
            u64::try_from(rank).ok().filter(|rank| (1..=RANK_MAX).contains(rank))
        }
        _ => None,
    }
}

/// Whether a call depends only on rows before its own, and on peers.
fn looks_back(call: &WindowCall) -> bool {
    let is_before = match call.function {
        WindowFunction::RowNumber | WindowFunction::Rank | WindowFunction::DenseRank => true,
        WindowFunction::Shift(rows) => rows <= 0,
        WindowFunction::First | WindowFunction::Last | WindowFunction::Nth(_) | WindowFunction::Aggregate(_) => {
            let Frame { start: _, end } = call.frame;
            matches!(end, FrameBound::Rows(..=0) | FrameBound::Groups(..=0))
        }
        WindowFunction::PercentRank | WindowFunction::CumeDist | WindowFunction::Ntile(_) => false,
    };
    is_before && call.argument.iter().chain(&call.default).all(never_fails)
}

/// The rows that may be among the first `rank_max` of their partition. `word` orders them.
fn with_first_rows(rows: Plan, partition_by: &[Expr], word: Vec<OrderPart>, rank_max: &Expr) -> Plan {
    let rows = if is_scanned(&rows) { rows } else { rows.into_shared() };
    let (width, keys) = (rows.schema.fields().len(), partition_by.len());
    let word = Expr { kind: ExprKind::OrderWord(word), data_type: DataType::UInt64, nullable: false };

    let dealt = numbered(rows.clone());
    let bucket = bucket_of(&column(&dealt, width), rank_max);
    let by_bucket = partition_by.iter().cloned().chain([bucket]).collect();
    let of = |function, argument, data_type| AggregateCall::new(function, argument, data_type);
    let minima = aggregate(dealt, by_bucket, vec![of(AggregateFunction::Min, Some(word.clone()), DataType::UInt64)]);
    let calls = vec![
        of(AggregateFunction::Max, Some(column(&minima, keys + 1)), DataType::UInt64),
        of(AggregateFunction::Count, None, DataType::Int64),
    ];
    let partitions = aggregate(minima.clone(), columns(&minima, keys), calls);
    let buckets = cast(column(&partitions, keys + 1), DataType::UInt64);
    let has_all = compare(CompareOp::GreaterOrEqual, &buckets, rank_max);
    let all = Expr::literal(Scalar::Int(u64::MAX.into()), DataType::UInt64);
    let bound = case(vec![(has_all, column(&partitions, keys))], Some(all), DataType::UInt64, true);
    let bounds = project(partitions.clone(), columns(&partitions, keys).into_iter().chain([bound]).collect());

    let probed = |key: &Expr| key.remap(&|column| keys + 1 + column);
    let residual = compare(CompareOp::LessOrEqual, &probed(&word), &column(&bounds, keys));
    let on = keys_or_constant(columns(&bounds, keys).into_iter().zip(partition_by.iter().cloned()).collect());
    let output = (keys + 1..keys + 1 + width).collect();
    let (kind, null_equals_null) = (JoinKind::Inner, true);
    join_node(JoinPlan { build: bounds, probe: rows, on, kind, null_equals_null, residual: Some(residual), output })
}

/// The bucket of a row, of `rank_max` buckets.
fn bucket_of(number: &Expr, rank_max: &Expr) -> Expr {
    if matches!(rank_max.kind, ExprKind::Literal(_)) {
        return modulo(number, rank_max.clone());
    }
    // A parameter may be zero in another run, or more than there are buckets: then there are too few, and all rows are kept.
    let buckets_max = rank_of(rank_max).unwrap_or(1).next_power_of_two().max(BUCKETS_MIN);
    let [zero, one, most] = [0, 1, buckets_max].map(|n| Expr::literal(Scalar::Int(n.into()), DataType::UInt64));
    let is_rank = compare(CompareOp::Greater, rank_max, &zero);
    let buckets = case(vec![(is_rank, rank_max.clone())], Some(one), DataType::UInt64, false);
    modulo(&modulo(number, most), buckets)
}

fn modulo(number: &Expr, by: Expr) -> Expr {
    arithmetic(ArithmeticOp::Modulo, number.clone(), by)
}

/// Whether the rows are read from a table again at no cost but reading.
fn is_scanned(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } | PlanKind::Shared(_) => true,
        PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } => is_scanned(input),
        _ => false,
    }
}
