//! Checks before execution whether devices support a plan.

use arrow::datatypes::DataType;
use warpjoin_codegen::{IN_LIST_MAX, check_cast};
use warpjoin_columns::Reason;
use warpjoin_columns::column::check_type;
use warpjoin_columns::column::holds_strings;
use warpjoin_columns::expr::{ArithmeticOp, Expr, ExprKind, Scalar};
use warpjoin_plan::plan::{
    AggregateCall, AggregateFunction, GroupingSet, JoinKind, JoinPlan, Mark, Plan, PlanKind, Share, SortKey, Way,
};
use warpjoin_plan::window::WindowCall;

use crate::exec::window::check_frame;

/// Maximum nesting of a plan's operators and of an expression's operations. Deeper ones run on the CPU. All recursive
/// functions over both fit a stack of 2 MiB in a debug build (`tests/deep_plans.rs`).
const PLAN_DEPTH_MAX: usize = 100;
const EXPR_DEPTH_MAX: usize = 1000;

/// Checks types, expressions, joins and aggregates of a plan, without looking at data.
///
/// # Errors
/// The first reason for which devices can't run it.
pub fn check(plan: &Plan) -> Result<(), Reason> {
    check_depth(plan)?;
    check_nodes(plan)
}

fn check_nodes(plan: &Plan) -> Result<(), Reason> {
    plan.inputs().into_iter().try_for_each(check_nodes)?;
    check_node(plan)
}

/// Limits the depth: recursive functions visit plans on threads with small stacks.
fn check_depth(plan: &Plan) -> Result<(), Reason> {
    let mut plans = vec![(plan, 1)];
    while let Some((plan, depth)) = plans.pop() {
        if depth > PLAN_DEPTH_MAX {
            return Err(Reason::Limit(format!("a plan of more than {PLAN_DEPTH_MAX} nested operators")));
        }
        plans.extend(plan.inputs().into_iter().map(|input| (input, depth + 1)));
    }
    Ok(())
}

/// The same of an expression.
fn check_expr(expr: &Expr) -> Result<(), Reason> {
    let mut exprs = vec![(expr, 1)];
    while let Some((expr, depth)) = exprs.pop() {
        if depth > EXPR_DEPTH_MAX {
            return Err(Reason::Limit(format!("an expression of more than {EXPR_DEPTH_MAX} nested operations")));
        }
        exprs.extend(expr.children().into_iter().map(|child| (child, depth + 1)));
    }
    check_operations(expr)
}

/// As [`check`], for the topmost node only; its inputs have been checked.
///
/// # Errors
/// As [`check`].
pub fn check_node(plan: &Plan) -> Result<(), Reason> {
    for field in plan.schema.fields() {
        check_type(field.data_type())?;
    }
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } => Ok(()),
        PlanKind::Filter { predicate, .. } => check_expr(predicate),
        PlanKind::Project { exprs, .. } => exprs.iter().try_for_each(check_expr),
        PlanKind::Join(join) => check_join(join),
        PlanKind::RowNumbers { .. } | PlanKind::Fetch(_) => {
            Err(Reason::Node("for row ids in the input plan; only the optimizer adds these".into()))
        }
        PlanKind::HasRows { .. } => Err(Reason::Node("HasRows in the input plan; only the optimizer adds it".into())),
        PlanKind::Marked { mark: Mark::Shared(Share::Left(_) | Share::Found(_)), .. } => Ok(()),
        PlanKind::Marked { .. } => Err(Reason::Node("Marked in the input plan; only the optimizer adds it".into())),
        PlanKind::Sort { keys, .. } => keys.iter().try_for_each(|key| check_expr(&key.expr)),
        PlanKind::Limit { .. } => Ok(()),
        PlanKind::Aggregate { group_by, aggregates, .. } => check_aggregates(group_by, aggregates),
        PlanKind::GroupingSets { group_by, sets, aggregates, .. } => {
            check_sets(plan, group_by.len(), sets)?;
            check_aggregates(group_by, aggregates)
        }
        PlanKind::Window { partition_by, order_by, calls, .. } => {
            partition_by.iter().try_for_each(check_expr)?;
            order_by.iter().try_for_each(|key| check_expr(&key.expr))?;
            calls.iter().try_for_each(|call| check_window_call(call, order_by))
        }
        PlanKind::Union { inputs } => check_union(plan, inputs),
        PlanKind::Shared(_) | PlanKind::Numbered { .. } => Ok(()),
    }
}

fn check_aggregates(group_by: &[Expr], aggregates: &[AggregateCall]) -> Result<(), Reason> {
    group_by.iter().try_for_each(check_expr)?;
    aggregates.iter().try_for_each(check_aggregate)?;
    aggregates.iter().filter(|call| call.is_distinct).try_for_each(check_distinct)
}

fn check_window_call(call: &WindowCall, order_by: &[SortKey]) -> Result<(), Reason> {
    let spec = call.function.spec();
    let declined = |what: &str| Err(Reason::Aggregate(format!("{}{what}", call.function)));
    if spec.reads_frame {
        check_frame(call.frame, order_by)?;
    }
    for expr in call.argument.iter().chain(&call.default) {
        check_expr(expr)?;
    }
    if call.ignores_nulls && !spec.skips_nulls {
        return declined(" that skips nulls");
    }
    let argument = call.argument.as_ref().map(|argument| &argument.data_type);
    if !(spec.takes)(call.function, argument, &call.data_type) {
        let of = argument.map(ToString::to_string).unwrap_or_default();
        return declined(&format!("({of}) of a window as {}", call.data_type));
    }
    match &call.default {
        Some(default) if !spec.has_default || default.data_type != call.data_type => {
            declined(" with a default of another type")
        }
        _ => Ok(()),
    }
}

fn check_sets(plan: &Plan, keys: usize, sets: &[GroupingSet]) -> Result<(), Reason> {
    let declined = |why: &str| Err(Reason::Aggregate(format!("with grouping sets{why}")));
    match plan.schema.fields().get(keys) {
        Some(id) if id.data_type().is_unsigned_integer() => {}
        _ => return declined(" without an unsigned grouping id column after the keys"),
    }
    let is_in_order = |set: &GroupingSet| set.keys.iter().is_sorted_by(|a, b| a < b);
    if sets.iter().any(|set| !is_in_order(set) || set.keys.last().is_some_and(|&key| key >= keys)) {
        return declined(" whose key positions are not ascending or are out of range");
    }
    if sets.is_empty() || sets.len() > SETS_MAX {
        return declined(&format!(": {} of them", sets.len()));
    }
    Ok(())
}

/// Maximum grouping sets: each is a group-by with its own kernels.
const SETS_MAX: usize = 128;

fn check_union(plan: &Plan, inputs: &[Plan]) -> Result<(), Reason> {
    let types = |plan: &Plan| plan.schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
    if inputs.is_empty() || inputs.iter().any(|input| types(input) != types(plan)) {
        return Err(Reason::Node("union of different types".into()));
    }
    Ok(())
}

fn check_join(join: &JoinPlan) -> Result<(), Reason> {
    if join.on.is_empty() {
        return Err(Reason::Join("without an equality".into()));
    }
    for (build, probe) in &join.on {
        check_expr(build)?;
        check_expr(probe)?;
        let is_same =
            build.data_type == probe.data_type || holds_strings(&build.data_type) && holds_strings(&probe.data_type);
        if !is_same {
            return Err(Reason::Join(format!("of {} with {}", build.data_type, probe.data_type)));
        }
    }
    let build_width = join.build.schema.fields().len();
    if join.kind.is_existence() && join.output.iter().any(|&column| column < build_width) {
        return Err(Reason::Join(format!("{:?} that puts out columns of the build side", join.kind)));
    }
    if join.kind == JoinKind::NotIn && (join.on.len() != 1 || join.null_equals_null) {
        return Err(Reason::Join("NotIn of anything but one key".into()));
    }
    join.residual.as_ref().map_or(Ok(()), check_expr)
}

fn check_aggregate(call: &AggregateCall) -> Result<(), Reason> {
    let (function, spec) = (call.function, call.function.spec());
    let arguments: Vec<&Expr> = call.argument.iter().chain(&call.second).collect();
    if arguments.is_empty() {
        return match function {
            AggregateFunction::Count => Ok(()),
            _ => Err(Reason::Aggregate(format!("{function} without an argument"))),
        };
    }
    if arguments.len() != spec.arguments {
        return Err(Reason::Aggregate(format!("{function} of {} arguments", arguments.len())));
    }
    for argument in arguments {
        check_expr(argument)?;
        let is_share = |share_bits: u64| (0.0..=1.0).contains(&f64::from_bits(share_bits));
        let is_taken = match function {
            AggregateFunction::Percentile { share_bits } if !is_share(share_bits) => false,
            _ if spec.way == Way::FirstRow && call.is_distinct => false,
            _ => (spec.takes)(&argument.data_type, &call.data_type),
        };
        if !is_taken {
            return Err(Reason::Aggregate(format!("{function}({})", argument.data_type)));
        }
    }
    call.order_by.iter().map(|key| &key.expr).chain(&call.filter).try_for_each(check_expr)
}

/// Whether a float is cast from an integer or a decimal, so that it is never -0.0 or NaN.
fn is_of_exact(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Cast(number) if number.data_type.is_integer() || number.data_type.is_decimal())
}

/// DISTINCT distinguishes -0.0 and 0.0, which are one group key.
fn check_distinct(call: &AggregateCall) -> Result<(), Reason> {
    match &call.argument {
        Some(_) if call.second.is_some() => Err(Reason::Aggregate(format!("{} of distinct pairs", call.function))),
        Some(argument) if !argument.data_type.is_floating() || is_of_exact(argument) => Ok(()),
        Some(argument) => Err(Reason::Aggregate(format!("{}(DISTINCT {})", call.function, argument.data_type))),
        None => Err(Reason::Aggregate(format!("{} of distinct rows", call.function))),
    }
}

/// Checks one expression and all below it.
#[recursive::recursive]
fn check_operations(expr: &Expr) -> Result<(), Reason> {
    for child in expr.children() {
        check_operations(child)?;
    }
    check_type(&expr.data_type)?;
    match &expr.kind {
        ExprKind::Cast(operand) | ExprKind::TryCast(operand) => check_cast(&operand.data_type, &expr.data_type),
        ExprKind::Function(function, arguments) => {
            let types: Vec<&DataType> = arguments.iter().map(|argument| &argument.data_type).collect();
            function.check(&types, &expr.data_type)
        }
        ExprKind::Arithmetic(op, left, right) => {
            if is_arithmetic(*op, &left.data_type, &right.data_type, &expr.data_type) {
                Ok(())
            } else {
                Err(Reason::Expression(format!("{} {op} {}", left.data_type, right.data_type)))
            }
        }
        ExprKind::Compare(op, left, right) => {
            let both = |is_it: fn(&DataType) -> bool| is_it(&left.data_type) && is_it(&right.data_type);
            if left.data_type == right.data_type || both(DataType::is_decimal) || both(holds_strings) {
                Ok(())
            } else {
                Err(Reason::Expression(format!("{} {op} {}", left.data_type, right.data_type)))
            }
        }
        ExprKind::InList { list, .. } if list.is_empty() || list.len() > IN_LIST_MAX => {
            Err(Reason::Expression(format!("IN list of {} values", list.len())))
        }
        ExprKind::Literal(Scalar::Parameter(number)) => {
            Err(Reason::Expression(format!("constant ${number} without a value")))
        }
        _ => Ok(()),
    }
}

/// Whether Arrow has this arithmetic: of numbers of one kind, and of timestamps and durations of one
/// unit.
fn is_arithmetic(op: ArithmeticOp, left: &DataType, right: &DataType, to: &DataType) -> bool {
    use DataType::{Duration, Timestamp};
    let is_sum = matches!(op, ArithmeticOp::Add | ArithmeticOp::Subtract);
    match (left, right, to) {
        (Timestamp(a, _), Timestamp(b, _), Duration(c)) => op == ArithmeticOp::Subtract && a == b && b == c,
        (Timestamp(a, _), Duration(b), Timestamp(c, _)) => is_sum && a == b && b == c,
        (Duration(a), Timestamp(b, _), Timestamp(c, _)) => op == ArithmeticOp::Add && a == b && b == c,
        (Duration(a), Duration(b), Duration(c)) => is_sum && a == b && b == c,
        _ => left.is_decimal() && right.is_decimal() || left == right && (left.is_integer() || left.is_floating()),
    }
}
