//! Window aggregates over whole partitions: a group-by, joined back to its input by the partition.
//!
//! Like sorts they join a part, or start one over a resident table. What depends on the place of a row in its partition
//! stays on the CPU.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use warpjoin::Reason;
use warpjoin::exec::check;
use warpjoin::expr::{Expr, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind};

use super::aggregate::Call;
use super::candidate::Operators;
use super::relation::{PhysicalExprs, Relation};
use super::{Matcher, Outcome};

impl Matcher<'_> {
    /// A node of window functions; `None` for other nodes.
    pub(super) fn window(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Outcome>> {
        let (input, exprs) = if let Some(window) = node.downcast_ref::<WindowAggExec>() {
            (window.input(), window.window_expr())
        } else if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
            (window.input(), window.window_expr())
        } else {
            return Ok(None);
        };
        let added = |_: &Relation, _| Operators { joins: 1, aggregates: 1, sorts: 0 };
        let outcome = self.row_wise_with(node, input, added, |input| input.windows(exprs, &node.schema()))?;
        Ok(Some(outcome))
    }
}

impl Relation {
    /// Each row with aggregates of its partition behind it.
    fn windows(&self, exprs: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Result<Relation, Reason> {
        let Some(first) = exprs.first() else { return Err(Reason::Node("a window without functions".to_string())) };
        if !is_repeatable(&self.plan) {
            return Err(Reason::Aggregate(
                "of a window over rows that may differ when they are made again".to_string(),
            ));
        }
        let keys = first.partition_by();
        let mut all: PhysicalExprs = keys.to_vec();
        let mut calls = vec![];
        for expr in exprs {
            if expr.partition_by() != keys {
                return Err(Reason::Aggregate("of windows with several partitions".to_string()));
            }
            let aggregate = whole_partition(expr.as_ref())?;
            calls.push((Call::new(aggregate, None, &mut all)?, expr));
        }
        let translated = self.translate_all(&all)?;
        let group_by = translated[..keys.len()].to_vec();
        if let Some(key) = group_by.iter().find(|key| key.data_type.is_floating()) {
            return Err(Reason::Aggregate(format!("of a window by {}", key.data_type)));
        }
        let mut aggregates = vec![];
        for (call, expr) in calls {
            let field = expr.field().map_err(|error| Reason::Node(error.to_string()))?;
            aggregates.push(call.of(&translated, field.data_type()));
        }
        let plan = self.joined_back(group_by, aggregates, schema);
        check(&plan)?;
        Ok(Relation::new(plan))
    }

    /// The rows, each with the aggregates of its group.
    fn joined_back(&self, group_by: Vec<Expr>, aggregates: Vec<AggregateCall>, schema: &SchemaRef) -> Plan {
        let (keys, calls, width) = (group_by.len(), aggregates.len(), self.plan.schema.fields().len());
        let of_keys = group_by.iter().map(|key| (key.data_type.clone(), key.nullable));
        let of_calls =
            aggregates.iter().map(|call| (call.data_type.clone(), !matches!(call.function, AggregateFunction::Count)));
        let fields: Vec<Field> = (of_keys.chain(of_calls).enumerate())
            .map(|(index, (data_type, nullable))| Field::new(format!("{index}"), data_type, nullable))
            .collect();
        let mut on: Vec<(Expr, Expr)> = group_by
            .iter()
            .enumerate()
            .map(|(index, key)| (Expr::column(index, key.data_type.clone(), key.nullable), key.clone()))
            .collect();
        if on.is_empty() {
            let constant = || Expr::literal(Scalar::Int(0), DataType::Int64);
            on.push((constant(), constant()));
        }
        let kind = PlanKind::Aggregate { input: self.input(), group_by, aggregates };
        let build_width = keys + calls;
        let join = JoinPlan {
            build: Plan { kind, schema: Arc::new(Schema::new(fields)) },
            probe: *self.input(),
            on,
            kind: JoinKind::Inner,
            null_equals_null: true,
            residual: None,
            output: (build_width..build_width + width).chain(keys..build_width).collect(),
        };
        Plan { kind: PlanKind::Join(Box::new(join)), schema: Arc::clone(schema) }
    }
}

/// The aggregate of a window that is the whole partition of every row.
fn whole_partition(expr: &dyn WindowExpr) -> Result<&AggregateFunctionExpr, Reason> {
    let declined = |what: &str| Err(Reason::Aggregate(format!("{} {what}", expr.name())));
    let Some(plain) = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>() else {
        return declined("of a window that moves, or by place");
    };
    // A filter is not to be seen by others in any other way; what is printed otherwise counts as one.
    if !format!("{plain:?}").ends_with("filter: None }") {
        return declined("of a window with a filter");
    }
    let frame = expr.get_window_frame();
    // Without an order all rows of a partition are peers.
    let is_open = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => frame.units == WindowFrameUnits::Range && expr.order_by().is_empty(),
        bound => bound.is_unbounded(),
    };
    if is_open(&frame.start_bound) && is_open(&frame.end_bound) {
        Ok(plain.get_aggregate_expr())
    } else {
        declined("of a part of its partition")
    }
}

/// Whether a plan that is run twice gives the same rows: its first rows may be others, and its sums of floats may differ in
/// their last bit, which a filter or a key may look at.
fn is_repeatable(plan: &Plan) -> bool {
    let is_itself = match &plan.kind {
        PlanKind::Limit { .. } => false,
        PlanKind::Sort { skip, fetch, .. } => *skip == 0 && fetch.is_none(),
        PlanKind::Aggregate { aggregates, .. } => !aggregates.iter().any(|call| call.data_type.is_floating()),
        _ => true,
    };
    is_itself && plan.inputs().into_iter().all(is_repeatable)
}
