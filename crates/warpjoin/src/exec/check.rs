//! Says before anything runs whether devices can do a plan.

use arrow::datatypes::DataType;

use crate::Reason;
use crate::codegen::{check_cast, is_string};
use crate::column::check_type;
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind};

/// Checks types, expressions, joins and aggregates of a plan, without looking at data.
///
/// # Errors
/// The first thing that devices can't do.
pub fn check(plan: &Plan) -> Result<(), Reason> {
    for field in plan.schema.fields() {
        check_type(field.data_type())?;
    }
    for input in plan.inputs() {
        check(input)?;
    }
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } => Ok(()),
        PlanKind::Filter { predicate, .. } => check_expr(predicate),
        PlanKind::Project { exprs, .. } => exprs.iter().try_for_each(check_expr),
        PlanKind::Join(join) => check_join(join),
        PlanKind::Aggregate { group_by, aggregates, .. } => {
            group_by.iter().try_for_each(check_expr)?;
            aggregates.iter().try_for_each(check_aggregate)
        }
    }
}

fn check_join(join: &JoinPlan) -> Result<(), Reason> {
    if join.on.is_empty() {
        return Err(Reason::Join("without an equality".into()));
    }
    for (build, probe) in &join.on {
        check_expr(build)?;
        check_expr(probe)?;
        let is_same = build.data_type == probe.data_type || is_string(&build.data_type) && is_string(&probe.data_type);
        if !is_same {
            return Err(Reason::Join(format!("of {} with {}", build.data_type, probe.data_type)));
        }
    }
    let build_width = join.build.schema.fields().len();
    if join.kind == JoinKind::ProbeSemi && join.output.iter().any(|&column| column < build_width) {
        return Err(Reason::Join("ProbeSemi that puts out columns of the build side".into()));
    }
    join.residual.as_ref().map_or(Ok(()), check_expr)
}

fn check_aggregate(call: &AggregateCall) -> Result<(), Reason> {
    let Some(argument) = &call.argument else {
        return match call.function {
            AggregateFunction::Count => Ok(()),
            function => Err(Reason::Aggregate(format!("{function} without an argument"))),
        };
    };
    check_expr(argument)?;
    let data_type = &argument.data_type;
    let declined = || Err(Reason::Aggregate(format!("{}({data_type})", call.function)));
    match call.function {
        AggregateFunction::Count => Ok(()),
        AggregateFunction::Min | AggregateFunction::Max if *data_type == call.data_type => Ok(()),
        AggregateFunction::Sum | AggregateFunction::Avg if is_string(data_type) || *data_type == DataType::Boolean => {
            declined()
        }
        AggregateFunction::Sum => match (data_type, &call.data_type) {
            (DataType::Float32 | DataType::Float64, DataType::Float64) => Ok(()),
            (DataType::Duration(_), _) => declined(),
            (from, to) if from.is_integer() && matches!(to, DataType::Int64 | DataType::UInt64) => Ok(()),
            (from, to) if from.is_decimal() && to.is_decimal() => Ok(()),
            _ => declined(),
        },
        AggregateFunction::Avg => match (data_type, &call.data_type) {
            (DataType::Float64, DataType::Float64) => Ok(()),
            (from, DataType::Decimal128(..)) if from.is_decimal() => Ok(()),
            _ => declined(),
        },
        _ => declined(),
    }
}

/// Checks one expression and all below it.
fn check_expr(expr: &Expr) -> Result<(), Reason> {
    for child in expr.children() {
        check_expr(child)?;
    }
    check_type(&expr.data_type)?;
    match &expr.kind {
        ExprKind::Cast(operand) => check_cast(&operand.data_type, &expr.data_type),
        ExprKind::Arithmetic(op, left, right) => {
            let is_number = |t: &DataType| t.is_integer() || t.is_floating() || t.is_decimal();
            let is_float = left.data_type.is_floating();
            if !is_number(&left.data_type) || !is_number(&right.data_type) || is_float && *op == ArithmeticOp::Modulo {
                return Err(Reason::Expression(format!("{} {op} {}", left.data_type, right.data_type)));
            }
            Ok(())
        }
        ExprKind::Compare(op, left, right) if is_string(&left.data_type) || is_string(&right.data_type) => {
            Err(Reason::Expression(format!("{} {op} {}", left.data_type, right.data_type)))
        }
        ExprKind::Case { .. } if is_string(&expr.data_type) => Err(Reason::Expression("CASE of strings".into())),
        ExprKind::Literal(_) if is_string(&expr.data_type) => Err(Reason::Expression("string literal".into())),
        _ => Ok(()),
    }
}
