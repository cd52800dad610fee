//! Windows. Aggregates over whole partitions become a group-by that is joined back to its input by the partition, if
//! the input gives the same rows each time. All others become a window of the device plan.
//!
//! Like joins they start a part: the CPU evaluates windows row by row.

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
use warpjoin::expr::{Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind, SortKey};
use warpjoin::window::{Frame, FrameBound, WindowCall};

use super::aggregate::Call;
use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation, checked};
use super::window_call::has_filter;
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
        let input = self.visit(input)?;
        let candidate = self.input(&input);
        let grown = candidate.and_then(|candidate| {
            let (relation, added) = candidate.relation.window(exprs, &node.schema())?;
            Ok((candidate, relation, added))
        });
        Ok(Some(match grown {
            Ok((candidate, relation, added)) => {
                Outcome::Device(Box::new(Candidate::grown(node, relation, vec![candidate], added)?))
            }
            Err(reason) => {
                self.decline(node, reason);
                self.keep_over(node, vec![input])?
            }
        }))
    }
}

impl Relation {
    /// The rows with the results of a window appended, and the operators that this adds to a part.
    fn window(&self, exprs: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Result<(Relation, Operators), Reason> {
        if let Some(relation) = self.more_of_a_window(exprs, schema) {
            return Ok((relation, Operators::default()));
        }
        match self.windows(exprs, schema) {
            Ok(relation) => Ok((relation, Operators { joins: 1, aggregates: 1, ..Operators::default() })),
            Err(_) => {
                let relation = self.sorted_windows(exprs, schema)?;
                Ok((relation, Operators { sorts: 1, ..Operators::default() }))
            }
        }
    }

    /// The same by a group-by, for whole partitions.
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

impl Relation {
    /// The same by a sort: rows come in the order of the window.
    fn sorted_windows(&self, exprs: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Result<Relation, Reason> {
        let Some(first) = exprs.first() else { return Err(Reason::Node("a window without functions".to_string())) };
        let (partition_by, order_by) = (first.partition_by(), first.order_by());
        if exprs.iter().any(|expr| expr.partition_by() != partition_by || expr.order_by() != order_by) {
            return Err(Reason::Aggregate("of windows with several partitions or orders".to_string()));
        }
        let keys: PhysicalExprs = order_by.iter().map(|key| Arc::clone(&key.expr)).collect();
        let order_by: Vec<SortKey> = (self.translate_all(&keys)?.into_iter().zip(order_by))
            .map(|(expr, key)| SortKey {
                expr,
                descending: key.options.descending,
                nulls_first: key.options.nulls_first,
            })
            .collect();
        let calls = exprs.iter().map(|expr| self.window_call(expr.as_ref(), &order_by)).collect::<Result<_, _>>()?;
        let (input, partition_by) = (self.input(), self.translate_all(partition_by)?);
        let kind = PlanKind::Window { input, partition_by, order_by, calls };
        checked(Plan { kind, schema: Arc::clone(schema) })
    }

    /// The same as further calls of an existing window with these partitions, if its order suffices.
    fn more_of_a_window(&self, exprs: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Option<Relation> {
        // The window, and which of its columns are seen.
        let (window, seen) = match &self.plan.kind {
            PlanKind::Window { .. } => (self.plan.as_ref(), None),
            PlanKind::Project { input, exprs } => {
                let column = |expr: &Expr| if let ExprKind::Column(column) = expr.kind { Some(column) } else { None };
                (input.as_ref(), Some(exprs.iter().map(column).collect::<Option<Vec<usize>>>()?))
            }
            _ => return None,
        };
        let PlanKind::Window { input, partition_by, order_by, calls } = &window.kind else { return None };
        let more = self.sorted_windows(exprs, schema).ok()?;
        let PlanKind::Window { partition_by: own_partition, order_by: own_order, calls: own_calls, .. } =
            Arc::unwrap_or_clone(more.plan).kind
        else {
            return None;
        };
        let at = |column: usize| seen.as_ref().map_or(column, |seen| seen[column]);
        let own_partition: Vec<Expr> = own_partition.iter().map(|expr| expr.remap(&at)).collect();
        let own_order: Vec<SortKey> =
            own_order.iter().map(|key| SortKey { expr: key.expr.remap(&at), ..*key }).collect();
        let is_prefix = own_order.len() <= order_by.len() && own_order.iter().zip(order_by).all(|(a, b)| a.is_same(b));
        let is_partition = own_partition.len() == partition_by.len()
            && own_partition.iter().zip(partition_by).all(|(a, b)| a.is_same(b));
        if !is_prefix || !is_partition {
            return None;
        }
        // The columns of the input come first.
        let (width, first) = (input.schema.fields().len(), window.schema.fields().len());
        let mut all = calls.clone();
        for call in own_calls {
            let mut reads_results = false;
            let read = call.argument.iter().chain(&call.default);
            read.for_each(|expr| expr.visit_columns(&mut |column| reads_results |= at(column) >= width));
            if reads_results {
                return None;
            }
            let moved = |expr: Option<Expr>| expr.map(|expr| expr.remap(&at));
            let call = WindowCall { argument: moved(call.argument), default: moved(call.default), ..call };
            all.push(match own_order.len() {
                keys if keys == order_by.len() => call,
                keys => in_finer_order(call, keys)?,
            });
        }
        let added = schema.fields()[self.plan.schema.fields().len()..].iter();
        let fields: Vec<_> = window.schema.fields().iter().chain(added).cloned().collect();
        let kind = PlanKind::Window {
            input: input.clone(),
            partition_by: own_partition,
            order_by: order_by.clone(),
            calls: all,
        };
        let mut plan = Plan { kind, schema: Arc::new(Schema::new(fields)) };
        if let Some(seen) = &seen {
            let shown = seen.iter().copied().chain(first..plan.schema.fields().len());
            let exprs = shown
                .map(|column| {
                    let field = plan.schema.field(column);
                    Expr::column(column, field.data_type().clone(), field.is_nullable())
                })
                .collect();
            plan = Plan { kind: PlanKind::Project { input: Box::new(plan), exprs }, schema: Arc::clone(schema) };
        }
        plan.schema = Arc::clone(schema);
        check(&plan).ok()?;
        Some(Relation::new(plan))
    }
}

/// A call with `keys` order keys, evaluated in an order with more keys, where fewer rows are peers; `None` if the
/// result would differ.
fn in_finer_order(call: WindowCall, keys: usize) -> Option<WindowCall> {
    let spec = call.function.spec();
    // Without keys all rows of a partition are peers.
    let bound = |bound: FrameBound| match bound {
        FrameBound::Groups(0) if keys == 0 => Some(FrameBound::Partition),
        FrameBound::Groups(_) | FrameBound::Range { .. } => None,
        bound => Some(bound),
    };
    if spec.reads_peers {
        return None;
    }
    if !spec.reads_frame {
        return Some(call);
    }
    let frame = Frame { start: bound(call.frame.start)?, end: bound(call.frame.end)? };
    Some(WindowCall { frame, ..call })
}

/// The aggregate of a window that is the whole partition of every row.
fn whole_partition(expr: &dyn WindowExpr) -> Result<&AggregateFunctionExpr, Reason> {
    let declined = |what: &str| Err(Reason::Aggregate(format!("{}: {what}", expr.name())));
    let Some(plain) = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>() else {
        return declined("only plain aggregate windows can become a group-by");
    };
    if has_filter(plain) {
        return declined("windows with a FILTER cannot become a group-by");
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
        declined("the frame is not the whole partition")
    }
}

/// Whether a plan that runs twice gives the same rows. A limit may give other rows, and sums of floats may differ in
/// the last bit, which can change a filter or a key.
fn is_repeatable(plan: &Plan) -> bool {
    let is_itself = match &plan.kind {
        // Of rows that are equal in its order any may be the first.
        PlanKind::Limit { .. } | PlanKind::Window { .. } => false,
        PlanKind::Sort { skip, fetch, .. } => *skip == 0 && fetch.is_none(),
        PlanKind::Aggregate { aggregates, .. } => !aggregates.iter().any(|call| call.data_type.is_floating()),
        _ => true,
    };
    is_itself && plan.inputs().into_iter().all(is_repeatable)
}
