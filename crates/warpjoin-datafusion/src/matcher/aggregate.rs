//! Group-bys: a partial aggregate and its final one become one group-by of the device plan.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use warpjoin::Reason;
use warpjoin::expr::{Expr, ExprKind};
use warpjoin::plan::{AggregateCall, AggregateFunction, GroupingSet, Plan, PlanKind, SortKey, Way};

use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation, checked};
use super::{Matcher, Outcome, input_of_transparent, skip_transparent};

impl Matcher<'_> {
    pub(super) fn aggregate(&mut self, node: &Arc<dyn ExecutionPlan>, last: &AggregateExec) -> Result<Outcome> {
        // `first` reads the input rows. It is the node itself if the aggregate has a single step.
        let first_node = match last.mode() {
            AggregateMode::Single | AggregateMode::SinglePartitioned => node,
            AggregateMode::Final | AggregateMode::FinalPartitioned => skip_transparent(last.input()),
            AggregateMode::Partial | AggregateMode::PartialReduce => {
                self.decline(node, Reason::Aggregate(format!("{:?}, without its final step", last.mode())));
                return self.keep(node);
            }
        };
        let first = match first_node.downcast_ref::<AggregateExec>() {
            Some(first) if Arc::ptr_eq(first_node, node) || *first.mode() == AggregateMode::Partial => first,
            _ => {
                self.decline(node, Reason::Aggregate("final, without its partial step".to_string()));
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
                self.decline(node, reason);
                let input = self.close(input)?;
                Ok(Outcome::Host(with_raw_input(node, first_node, &input)?))
            }
        }
    }
}

/// `node` with another input for `first`, which is `node` itself or an aggregate below it.
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
        None => input_of_transparent(node),
    };
    let child = child.ok_or_else(|| DataFusionError::Internal(format!("no aggregate below {}", node.name())))?;
    replace_children_if_necessary(Arc::clone(node), vec![with_raw_input(child, first, input)?])
}

fn aggregate_relation(first: &AggregateExec, last: &AggregateExec, input: &Relation) -> Result<Relation, Reason> {
    let groups = first.group_expr();
    let (group_count, call_count) = (groups.expr().len(), first.aggr_expr().len());
    // A final step also has the grouping set's id as a key.
    let is_final = !std::ptr::eq(first, last);
    let last_count = group_count + usize::from(is_final && groups.has_grouping_set());
    if last.group_expr().expr().len() != last_count || last.aggr_expr().len() != call_count {
        return Err(Reason::Aggregate("with different partial and final steps".to_string()));
    }
    let mut exprs: PhysicalExprs = groups.expr().iter().map(|(expr, _)| Arc::clone(expr)).collect();
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
    let input = input.input();
    let kind = if groups.has_grouping_set() {
        PlanKind::GroupingSets { input, group_by, sets: grouping_sets(groups.groups())?, aggregates }
    } else {
        PlanKind::Aggregate { input, group_by, aggregates }
    };
    checked(Plan { kind, schema: last.schema() })
}

/// The grouping sets with DataFusion's ids. The low bits of an id are set for keys that are not in the set; the last key is
/// bit 0. The bits above count earlier sets with the same keys.
fn grouping_sets(nulls: &[Vec<bool>]) -> Result<Vec<GroupingSet>, Reason> {
    let mut sets: Vec<GroupingSet> = vec![];
    for is_null in nulls {
        let keys: Vec<usize> = (0..is_null.len()).filter(|&key| !is_null[key]).collect();
        let before = sets.iter().filter(|set| set.keys == keys).count() as u64;
        let missing = is_null.iter().fold(0u64, |bits, &is_null| bits << 1 | u64::from(is_null));
        let bits = 64 - before.leading_zeros() as usize + is_null.len();
        if bits > 64 {
            return Err(Reason::Aggregate(format!("with {bits} bits of grouping sets")));
        }
        let ordinal = if before == 0 { 0 } else { before << is_null.len() };
        sets.push(GroupingSet { keys, id: missing | ordinal });
    }
    Ok(sets)
}

/// An aggregate call. Its expressions are positions in a list that all calls share.
pub(super) struct Call {
    function: AggregateFunction,
    is_distinct: bool,
    argument: Option<usize>,
    second: Option<usize>,
    /// Further arguments: only rows where no argument is null count.
    others: Vec<usize>,
    filter: Option<usize>,
    /// Sort keys: expression, descending, nulls first.
    order_by: Vec<(usize, bool, bool)>,
    ignores_nulls: bool,
}

impl Call {
    pub(super) fn new(
        call: &AggregateFunctionExpr,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        exprs: &mut PhysicalExprs,
    ) -> Result<Self, Reason> {
        let name = call.fun().name();
        let function = function_called(call).ok_or_else(|| Reason::Aggregate(name.to_string()))?;
        let spec = function.spec();
        // DISTINCT does not change functions that ignore duplicates, such as min.
        let is_distinct = call.is_distinct() && spec.counts_each || spec.also_distinct.contains(&name);
        let is_ordered = spec.way == Way::FirstRow;
        let is_percentile = matches!(function, AggregateFunction::Percentile { .. });
        if !call.order_bys().is_empty() && !is_ordered && !is_percentile {
            return Err(Reason::Aggregate(format!("{name} with ORDER BY")));
        }
        let mut arguments = call.expressions();
        if is_percentile {
            // The percentile is part of the function.
            arguments.truncate(1);
        }
        let is_of_pairs = spec.arguments == 2;
        let second = if is_of_pairs { arguments.pop() } else { None };
        let counts_all = function == AggregateFunction::Count && !is_distinct && !arguments.is_empty();
        let place = spec.place_in_pair(name).filter(|place| !is_distinct && *place < arguments.len());
        if let Some(place) = place {
            arguments.swap(0, place);
        }
        let others = if counts_all || place.is_some() { arguments.split_off(1) } else { vec![] };
        let argument = match (arguments.pop(), arguments.is_empty()) {
            (Some(argument), true) => argument,
            _ => return Err(Reason::Aggregate(format!("{name} of several arguments"))),
        };
        let mut position = |expr: Arc<dyn PhysicalExpr>| {
            exprs.push(expr);
            exprs.len() - 1
        };
        let counts_rows = function == AggregateFunction::Count && is_value(&argument) && !is_distinct;
        let argument =
            if counts_rows && filter.is_none() && others.is_empty() { None } else { Some(position(argument)) };
        let second = second.map(&mut position);
        let others = others.into_iter().map(&mut position).collect();
        let filter = filter.map(|filter| position(Arc::clone(filter)));
        let order_by = if is_ordered { call.order_bys() } else { &[] };
        let order_by = (order_by.iter())
            .map(|key| (position(Arc::clone(&key.expr)), key.options.descending, key.options.nulls_first))
            .collect();
        Ok(Self {
            function,
            is_distinct,
            argument,
            second,
            others,
            filter,
            order_by,
            ignores_nulls: call.ignore_nulls(),
        })
    }

    /// The device plan's call over the translated expressions.
    pub(super) fn of(&self, translated: &[Expr], data_type: &DataType) -> AggregateCall {
        if self.function.spec().way != Way::FirstRow {
            let (argument, second) = self.arguments(translated);
            let made = AggregateCall::new(self.function, argument, data_type.clone());
            return AggregateCall { is_distinct: self.is_distinct, second, ..made };
        }
        let argument = self.argument.map(|position| translated[position].clone());
        let is_some = argument.as_ref().filter(|argument| self.ignores_nulls && argument.nullable).map(is_some);
        let filter = self.filter.map(|position| translated[position].clone());
        let filter = match (filter, is_some) {
            (Some(filter), Some(is_some)) => {
                let nullable = filter.nullable;
                Some(boolean(ExprKind::And(Box::new(filter), Box::new(is_some)), nullable))
            }
            (filter, is_some) => filter.or(is_some),
        };
        let key = |&(position, descending, nulls_first): &(usize, bool, bool)| SortKey {
            expr: translated[position].clone(),
            descending,
            nulls_first,
        };
        let order_by = self.order_by.iter().map(key).collect();
        AggregateCall { order_by, filter, ..AggregateCall::new(self.function, argument, data_type.clone()) }
    }

    /// The arguments. The first one is null where FILTER is not true, so that the row is ignored.
    fn arguments(&self, translated: &[Expr]) -> (Option<Expr>, Option<Expr>) {
        // Sums of a pair are exact for both arguments or for none.
        let is_exact = [self.argument, self.second].iter().flatten().all(|&position| {
            let exact = exact(&translated[position]);
            !exact.data_type.is_floating()
        });
        let expr = |position: usize| match self.function {
            function if function.spec().way == Way::Moment && is_exact => exact(&translated[position]).clone(),
            _ => translated[position].clone(),
        };
        let second = self.second.map(expr);
        let Some(argument) = self.argument.map(expr) else { return (None, second) };
        let own = self.filter.map(|position| translated[position].clone());
        let others = self.others.iter().map(|&position| is_some(&translated[position]));
        let both = |a: Expr, b: Expr| {
            let nullable = a.nullable || b.nullable;
            boolean(ExprKind::And(Box::new(a), Box::new(b)), nullable)
        };
        let Some(filter) = own.into_iter().chain(others).reduce(both) else { return (Some(argument), second) };
        let data_type = argument.data_type.clone();
        let kind = ExprKind::Case { branches: vec![(filter, argument)], otherwise: None };
        (Some(Expr { kind, data_type, nullable: true }), second)
    }
}

fn boolean(kind: ExprKind, nullable: bool) -> Expr {
    Expr { kind, data_type: DataType::Boolean, nullable }
}

fn is_some(expr: &Expr) -> Expr {
    let is_null = boolean(ExprKind::IsNull(Box::new(expr.clone())), false);
    boolean(ExprKind::Not(Box::new(is_null)), false)
}

/// The operand of a cast from integer or decimal to double: moments of the operand are exact.
fn exact(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Cast(number) if number.data_type.is_integer() || number.data_type.is_decimal() => number,
        _ => expr,
    }
}

/// The fraction of a percentile, if it is a constant. For a descending order it is counted from the other end.
fn share_bits(call: &AggregateFunctionExpr) -> Option<u64> {
    let arguments = call.expressions();
    let share = match arguments.get(1)?.downcast_ref::<Literal>()?.value() {
        ScalarValue::Float64(Some(share)) => *share,
        _ => return None,
    };
    let descending = call.order_bys().first().is_some_and(|key| key.options.descending);
    Some(if descending { 1.0 - share } else { share }.to_bits())
}

/// Whether the expression is a non-null constant, so that counting it counts rows.
fn is_value(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>().is_some_and(|literal| !ScalarValue::is_null(literal.value()))
}

/// The device function of a call, with its parameters.
fn function_called(call: &AggregateFunctionExpr) -> Option<AggregateFunction> {
    match function_of(call.fun())? {
        AggregateFunction::Percentile { .. } => Some(AggregateFunction::Percentile { share_bits: share_bits(call)? }),
        function => Some(function),
    }
}

/// The device function for one of DataFusion's, whatever its parameters. The name and the implementing type must be DataFusion's,
/// because a session may register another function under the same name.
pub(crate) fn function_of(function: &AggregateUDF) -> Option<AggregateFunction> {
    static FUNCTIONS: LazyLock<HashMap<String, (TypeId, AggregateFunction)>> = LazyLock::new(|| {
        let own = all_default_aggregate_functions().into_iter();
        let known = own.filter_map(|own| Some((own.name().to_string(), (type_of(&own), function_named(own.name())?))));
        known.collect()
    });
    let (_, known) = FUNCTIONS.get(function.name()).filter(|(own, _)| *own == type_of(function))?;
    Some(*known)
}

fn type_of(function: &AggregateUDF) -> TypeId {
    let implementation: &dyn Any = function.inner().as_ref();
    implementation.type_id()
}

/// The device function with a DataFusion name.
fn function_named(name: &str) -> Option<AggregateFunction> {
    AggregateFunction::all().find(|function| function.spec().names().any(|known| known == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_function_exists_in_datafusion() {
        let own = all_default_aggregate_functions();
        for function in AggregateFunction::all() {
            for name in function.spec().names() {
                assert!(own.iter().any(|own| own.name() == name), "{name}");
            }
        }
    }
}
