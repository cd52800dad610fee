//! Group-bys: a partial aggregate and its final one become one.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf};
use datafusion::functions_aggregate::bool_and_or::{BoolAnd, BoolOr};
use datafusion::functions_aggregate::correlation::Correlation;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::covariance::{CovariancePopulation, CovarianceSample};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use warpjoin::Reason;
use warpjoin::exec::check;
use warpjoin::expr::{Expr, ExprKind};
use warpjoin::plan::{AggregateCall, AggregateFunction, Moment, Plan, PlanKind};

use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation};
use super::{Matcher, Outcome, beneath, seen_through};

impl Matcher<'_> {
    pub(super) fn aggregate(&mut self, node: &Arc<dyn ExecutionPlan>, last: &AggregateExec) -> Result<Outcome> {
        // `first` reads raw rows; for an aggregate in one step it is the node itself.
        let first_node = match last.mode() {
            AggregateMode::Single | AggregateMode::SinglePartitioned => node,
            AggregateMode::Final | AggregateMode::FinalPartitioned => beneath(last.input()),
            AggregateMode::Partial | AggregateMode::PartialReduce => {
                self.decline(node, Reason::Aggregate(format!("{:?}, apart from its final one", last.mode())), true);
                return self.keep(node);
            }
        };
        let first = match first_node.downcast_ref::<AggregateExec>() {
            Some(first) if Arc::ptr_eq(first_node, node) || *first.mode() == AggregateMode::Partial => first,
            _ => {
                self.decline(node, Reason::Aggregate("final, apart from its partial one".to_string()), true);
                return self.keep(node);
            }
        };
        let input = self.visit(first.input())?;
        let candidate = self.input(&input);
        let relation = candidate.and_then(|candidate| {
            let relation = aggregate_relation(first, last, &candidate.relation)?;
            Ok((relation, candidate))
        });
        match relation {
            Ok((relation, candidate)) => {
                let chain = with_raw_input(node, first_node, candidate.template())?;
                let added = Operators { aggregates: 1, ..Operators::default() };
                Ok(Outcome::Device(Box::new(Candidate::grown_to(node, chain, relation, vec![candidate], added))))
            }
            Err(reason) => {
                self.decline(node, reason, true);
                let input = self.close(input)?;
                Ok(Outcome::Host(with_raw_input(node, first_node, &input)?))
            }
        }
    }
}

/// `node` with the input of `first`, which is itself or below it, replaced.
fn with_raw_input(
    node: &Arc<dyn ExecutionPlan>,
    first: &Arc<dyn ExecutionPlan>,
    input: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if Arc::ptr_eq(node, first) {
        return replace_children_if_necessary(Arc::clone(node), vec![Arc::clone(input)]);
    }
    let child = match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) => Some(aggregate.input()),
        None => seen_through(node),
    };
    let child = child.ok_or_else(|| DataFusionError::Internal(format!("no aggregate below {}", node.name())))?;
    replace_children_if_necessary(Arc::clone(node), vec![with_raw_input(child, first, input)?])
}

fn aggregate_relation(first: &AggregateExec, last: &AggregateExec, input: &Relation) -> Result<Relation, Reason> {
    let groups = first.group_expr();
    if groups.has_grouping_set() {
        return Err(Reason::Aggregate("with grouping sets".to_string()));
    }
    let (group_count, call_count) = (groups.expr().len(), first.aggr_expr().len());
    if last.group_expr().expr().len() != group_count || last.aggr_expr().len() != call_count {
        return Err(Reason::Aggregate("whose partial and final steps differ".to_string()));
    }
    let mut exprs: PhysicalExprs = groups.input_exprs();
    let mut calls = Vec::with_capacity(call_count);
    for (call, filter) in first.aggr_expr().iter().zip(first.filter_expr()) {
        calls.push(Call::new(call, filter.as_ref(), &mut exprs)?);
    }
    let translated = input.translate_all(&exprs)?;
    let group_by = translated[..group_count].to_vec();
    let mut aggregates = Vec::with_capacity(call_count);
    for (call, output) in calls.into_iter().zip(last.aggr_expr()) {
        aggregates.push(call.of(&translated, output.field().data_type()));
    }
    let kind = PlanKind::Aggregate { input: Box::new(input.plan.clone()), group_by, aggregates };
    let plan = Plan { kind, schema: last.schema() };
    check(&plan)?;
    Ok(Relation { plan })
}

/// An aggregate whose expressions are positions in a common list.
pub(super) struct Call {
    function: AggregateFunction,
    is_distinct: bool,
    argument: Option<usize>,
    second: Option<usize>,
    filter: Option<usize>,
}

impl Call {
    pub(super) fn new(
        call: &AggregateFunctionExpr,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        exprs: &mut PhysicalExprs,
    ) -> Result<Self, Reason> {
        let name = call.fun().name();
        let function = function_of(call).ok_or_else(|| Reason::Aggregate(name.to_string()))?;
        // What equal arguments do not change takes all of them.
        let is_distinct = call.is_distinct() && counts_each(function);
        if !call.order_bys().is_empty() {
            return Err(Reason::Aggregate(format!("{name} with ORDER BY")));
        }
        let mut arguments = call.expressions();
        let is_of_pairs = matches!(function, AggregateFunction::Moment(moment) if moment.is_of_pairs());
        let second = if is_of_pairs { arguments.pop() } else { None };
        let argument = match (arguments.pop(), arguments.is_empty()) {
            (Some(argument), true) => argument,
            _ => return Err(Reason::Aggregate(format!("{name} of several arguments"))),
        };
        let mut position = |expr: Arc<dyn PhysicalExpr>| {
            exprs.push(expr);
            exprs.len() - 1
        };
        let counts_rows = function == AggregateFunction::Count && is_value(&argument) && !is_distinct;
        let argument = if counts_rows && filter.is_none() { None } else { Some(position(argument)) };
        let second = second.map(&mut position);
        Ok(Self { function, is_distinct, argument, second, filter: filter.map(|filter| position(Arc::clone(filter))) })
    }

    /// The call over the translated expressions.
    pub(super) fn of(&self, translated: &[Expr], data_type: &DataType) -> AggregateCall {
        let (argument, second) = self.arguments(translated);
        let made = AggregateCall::new(self.function, argument, data_type.clone());
        AggregateCall { is_distinct: self.is_distinct, second, ..made }
    }

    /// The arguments; where FILTER does not hold the first is null, and so does not count.
    fn arguments(&self, translated: &[Expr]) -> (Option<Expr>, Option<Expr>) {
        let expr = |position: usize| match self.function {
            AggregateFunction::Moment(_) => exact(&translated[position]).clone(),
            _ => translated[position].clone(),
        };
        let second = self.second.map(expr);
        let Some(argument) = self.argument.map(expr) else { return (None, second) };
        let Some(filter) = self.filter.map(|position| translated[position].clone()) else {
            return (Some(argument), second);
        };
        let data_type = argument.data_type.clone();
        let kind = ExprKind::Case { branches: vec![(filter, argument)], otherwise: None };
        (Some(Expr { kind, data_type, nullable: true }), second)
    }
}

/// The integer or decimal that is cast to a double: its moments are exact.
fn exact(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Cast(number) if number.data_type.is_integer() || number.data_type.is_decimal() => number,
        _ => expr,
    }
}

/// Whether the expression is a constant that is not null: counting it counts rows.
fn is_value(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>().is_some_and(|literal| !ScalarValue::is_null(literal.value()))
}

/// DataFusion's own function, told by its type: a session may have another one under the same name.
fn function_of(call: &AggregateFunctionExpr) -> Option<AggregateFunction> {
    let implementation: &dyn Any = call.fun().inner().as_ref();
    Some(match implementation {
        it if it.is::<Count>() => AggregateFunction::Count,
        it if it.is::<Sum>() => AggregateFunction::Sum,
        it if it.is::<Min>() => AggregateFunction::Min,
        it if it.is::<Max>() => AggregateFunction::Max,
        it if it.is::<Avg>() => AggregateFunction::Avg,
        it if it.is::<VariancePopulation>() => AggregateFunction::Moment(Moment::VariancePopulation),
        it if it.is::<VarianceSample>() => AggregateFunction::Moment(Moment::VarianceSample),
        it if it.is::<StddevPop>() => AggregateFunction::Moment(Moment::DeviationPopulation),
        it if it.is::<Stddev>() => AggregateFunction::Moment(Moment::DeviationSample),
        it if it.is::<CovariancePopulation>() => AggregateFunction::Moment(Moment::CovariancePopulation),
        it if it.is::<CovarianceSample>() => AggregateFunction::Moment(Moment::CovarianceSample),
        it if it.is::<Correlation>() => AggregateFunction::Moment(Moment::Correlation),
        // False is less than true.
        it if it.is::<BoolAnd>() => AggregateFunction::Min,
        it if it.is::<BoolOr>() => AggregateFunction::Max,
        _ if *call.fun() == *bit_and_udaf() => AggregateFunction::BitAnd,
        _ if *call.fun() == *bit_or_udaf() => AggregateFunction::BitOr,
        _ if *call.fun() == *bit_xor_udaf() => AggregateFunction::BitXor,
        _ => return None,
    })
}

/// Whether it matters how often an argument comes.
fn counts_each(function: AggregateFunction) -> bool {
    use AggregateFunction::{BitAnd, BitOr, Max, Min};
    !matches!(function, Min | Max | BitAnd | BitOr)
}
