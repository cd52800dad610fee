//! Windows. Aggregates over whole partitions are a group-by, joined back to its input by the partition, where the input gives
//! the same rows each time; all else is a window of the device plan.
//!
//! Like joins they start a part: on the CPU they go from row to row.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::cume_dist::CumeDist;
use datafusion::functions_window::lead_lag::{WindowShift, WindowShiftKind};
use datafusion::functions_window::nth_value::{NthValue, NthValueKind};
use datafusion::functions_window::ntile::Ntile;
use datafusion::functions_window::rank::Rank;
use datafusion::functions_window::row_number::RowNumber;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use warpjoin::Reason;
use warpjoin::exec::check;
use warpjoin::expr::{Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind, SortKey};
use warpjoin::window::{Frame, FrameBound, WindowCall, WindowFunction};

use super::aggregate::Call;
use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation, checked};
use super::window_frame::frame_of;
use super::{Matcher, Outcome};
use crate::translate::translate;

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
    /// Each row with the results of a window behind it, and what that adds to a part.
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

    /// The same by a group-by, of whole partitions.
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

    /// The same as further calls of a window of these partitions that this is already, where its order does.
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

    fn window_call(&self, expr: &dyn WindowExpr, order_by: &[SortKey]) -> Result<WindowCall, Reason> {
        let field = expr.field().map_err(|error| Reason::Node(error.to_string()))?;
        let data_type = field.data_type().clone();
        if let Some(standard) = expr.as_any().downcast_ref::<StandardWindowExpr>() {
            let function: &dyn StandardWindowFunctionExpr = standard.get_standard_func_expr().as_ref();
            let Some(function) = function.as_any().downcast_ref::<WindowUDFExpr>() else {
                return Err(Reason::Aggregate(expr.name().to_string()));
            };
            return self.standard_call(function, (expr.get_window_frame(), order_by), data_type);
        }
        let plain = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>();
        let sliding = expr.as_any().downcast_ref::<SlidingAggregateWindowExpr>();
        let (aggregate, text) = match (plain, sliding) {
            (Some(plain), _) => (plain.get_aggregate_expr(), format!("{plain:?}")),
            (_, Some(sliding)) => (sliding.get_aggregate_expr(), format!("{sliding:?}")),
            _ => return Err(Reason::Aggregate(expr.name().to_string())),
        };
        if !has_no_filter(&text) {
            return Err(Reason::Aggregate(format!("{} of a window with a filter", expr.name())));
        }
        let mut exprs: PhysicalExprs = vec![];
        let call = Call::new(aggregate, None, &mut exprs)?.of(&self.translate_all(&exprs)?, &data_type);
        if call.is_distinct || call.second.is_some() || call.filter.is_some() || !call.order_by.is_empty() {
            return Err(Reason::Aggregate(format!("{} of a window", expr.name())));
        }
        let function = match call.function {
            AggregateFunction::First => WindowFunction::First,
            AggregateFunction::Last => WindowFunction::Last,
            function => WindowFunction::Aggregate(function),
        };
        let frame = frame_of(expr.get_window_frame(), order_by)?;
        Ok(WindowCall { function, argument: call.argument, default: None, ignores_nulls: false, frame, data_type })
    }

    /// A function that is no aggregate.
    fn standard_call(
        &self,
        expr: &WindowUDFExpr,
        (frame, order_by): (&WindowFrame, &[SortKey]),
        data_type: DataType,
    ) -> Result<WindowCall, Reason> {
        let name = expr.fun().name();
        let declined = |what: &str| Err(Reason::Aggregate(format!("{name} {what}")));
        // Not to be seen by others in any other way.
        let text = format!("{expr:?}");
        let ignores_nulls = text.ends_with("is_reversed: false, ignore_nulls: true }");
        if !ignores_nulls && !text.ends_with("is_reversed: false, ignore_nulls: false }") {
            return declined("of a window read from behind");
        }
        let implementation: &dyn Any = expr.fun().inner().as_ref();
        let number = |position: usize| integer(expr.args().get(position));
        let mut call = WindowCall {
            function: WindowFunction::RowNumber,
            argument: None,
            default: None,
            ignores_nulls,
            frame: Frame::PARTITION,
            data_type,
        };
        let mut reads_value = false;
        call.function = if implementation.is::<RowNumber>() {
            WindowFunction::RowNumber
        } else if let Some(rank) = implementation.downcast_ref::<Rank>() {
            let is = |other: Rank| *rank == other;
            match (is(Rank::basic()), is(Rank::dense_rank())) {
                (true, _) => WindowFunction::Rank,
                (_, true) => WindowFunction::DenseRank,
                _ => WindowFunction::PercentRank,
            }
        } else if implementation.is::<CumeDist>() {
            WindowFunction::CumeDist
        } else if implementation.is::<Ntile>() {
            match number(0).map(u64::try_from) {
                Some(Ok(parts @ 1..)) => WindowFunction::Ntile(parts),
                _ => return declined("of no number of parts"),
            }
        } else if let Some(shift) = implementation.downcast_ref::<WindowShift>() {
            reads_value = true;
            call.default = self.default_of(expr, &call.data_type)?;
            let rows = match (expr.args().get(1), number(1)) {
                (None, _) => 1,
                (_, Some(rows)) => rows,
                _ => return declined("by no number of rows"),
            };
            WindowFunction::Shift(if *shift.kind() == WindowShiftKind::Lag { rows.saturating_neg() } else { rows })
        } else if let Some(nth) = implementation.downcast_ref::<NthValue>() {
            reads_value = true;
            call.frame = frame_of(frame, order_by)?;
            match (nth.kind(), number(1)) {
                (NthValueKind::First, _) => WindowFunction::First,
                (NthValueKind::Last, _) => WindowFunction::Last,
                (NthValueKind::Nth, Some(place)) if place != i64::MIN => WindowFunction::Nth(place),
                (NthValueKind::Nth, _) => return declined("of no place"),
            }
        } else {
            return declined("of a window");
        };
        // It changes nothing of a place.
        call.ignores_nulls &= reads_value;
        if reads_value {
            let arguments = StandardWindowFunctionExpr::expressions(expr);
            let Some(argument) = arguments.first() else { return declined("of nothing") };
            call.argument = Some(translate(argument, self.scope())?);
        }
        Ok(call)
    }

    /// What LAG and LEAD say where there is no row.
    fn default_of(&self, expr: &WindowUDFExpr, data_type: &DataType) -> Result<Option<Expr>, Reason> {
        let Some(default) = expr.args().get(2) else { return Ok(None) };
        let value = default.downcast_ref::<Literal>().map(Literal::value);
        let Some(value) = value.and_then(|value| value.cast_to(data_type).ok()) else {
            return Err(Reason::Aggregate(format!("{} with such a default", expr.fun().name())));
        };
        if value.is_null() {
            return Ok(None);
        }
        let literal: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(value));
        translate(&literal, self.scope()).map(Some)
    }
}

/// A call in an order of so many keys and more, where fewer rows are peers; `None` where that matters.
fn in_finer_order(call: WindowCall, keys: usize) -> Option<WindowCall> {
    use WindowFunction::{Aggregate, First, Last, Nth, Ntile, RowNumber, Shift};
    // Without keys all rows of a partition are peers.
    let bound = |bound: FrameBound| match bound {
        FrameBound::Groups(0) if keys == 0 => Some(FrameBound::Partition),
        FrameBound::Groups(_) | FrameBound::Range { .. } => None,
        bound => Some(bound),
    };
    match call.function {
        RowNumber | Ntile(_) | Shift(_) => Some(call),
        First | Last | Nth(_) | Aggregate(_) => {
            let frame = Frame { start: bound(call.frame.start)?, end: bound(call.frame.end)? };
            Some(WindowCall { frame, ..call })
        }
        _ => None,
    }
}

/// A number that is written down; null is 0, as it is for DataFusion.
fn integer(expr: Option<&Arc<dyn PhysicalExpr>>) -> Option<i64> {
    let value = expr?.downcast_ref::<Literal>()?.value();
    if value.is_null() {
        return Some(0);
    }
    if !value.data_type().is_integer() {
        return None;
    }
    match value.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(number) => number,
        _ => None,
    }
}

/// A filter is not to be seen by others in any other way; what is printed otherwise counts as one.
fn has_no_filter(text: &str) -> bool {
    text.ends_with("filter: None }")
}

/// The aggregate of a window that is the whole partition of every row.
fn whole_partition(expr: &dyn WindowExpr) -> Result<&AggregateFunctionExpr, Reason> {
    let declined = |what: &str| Err(Reason::Aggregate(format!("{} {what}", expr.name())));
    let Some(plain) = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>() else {
        return declined("of a window that moves, or by place");
    };
    if !has_no_filter(&format!("{plain:?}")) {
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
        // Of rows that are equal in its order any may be the first.
        PlanKind::Limit { .. } | PlanKind::Window { .. } => false,
        PlanKind::Sort { skip, fetch, .. } => *skip == 0 && fetch.is_none(),
        PlanKind::Aggregate { aggregates, .. } => !aggregates.iter().any(|call| call.data_type.is_floating()),
        _ => true,
    };
    is_itself && plan.inputs().into_iter().all(is_repeatable)
}
