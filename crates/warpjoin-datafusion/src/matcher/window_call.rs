//! Translates window expressions: ranking functions, values of other rows, aggregates over frames.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array, new_null_array};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::functions_window::cume_dist::CumeDist;
use datafusion::functions_window::lead_lag::WindowShift;
use datafusion::functions_window::nth_value::{NthValue, NthValueKind};
use datafusion::functions_window::ntile::Ntile;
use datafusion::functions_window::rank::Rank;
use datafusion::functions_window::row_number::RowNumber;
use datafusion::logical_expr::WindowFrame;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;
use warpjoin::Reason;
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateFunction, SortKey};
use warpjoin::window::{Frame, WindowCall, WindowFunction, WindowWay};

use super::aggregate::Call;
use super::relation::{PhysicalExprs, Relation};
use super::window_frame::frame_of;
use crate::translate::translate;

impl Relation {
    /// Translates a window expression.
    pub(super) fn window_call(&self, expr: &dyn WindowExpr, order_by: &[SortKey]) -> Result<WindowCall, Reason> {
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
        let (aggregate, is_filtered) = match (plain, sliding) {
            (Some(plain), _) => (plain.get_aggregate_expr(), has_filter(plain)),
            (_, Some(sliding)) => (sliding.get_aggregate_expr(), has_filter(sliding)),
            _ => return Err(Reason::Aggregate(expr.name().to_string())),
        };
        if is_filtered {
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

    /// Translates a window function that is not an aggregate.
    fn standard_call(
        &self,
        expr: &WindowUDFExpr,
        (frame, order_by): (&WindowFrame, &[SortKey]),
        data_type: DataType,
    ) -> Result<WindowCall, Reason> {
        let declined = |what: &str| Reason::Aggregate(format!("{} {what}", expr.fun().name()));
        let Some((function, ignores_nulls)) = function_of(expr) else { return Err(declined("of a window")) };
        let spec = function.spec();
        let frame = if spec.reads_frame { frame_of(frame, order_by)? } else { Frame::PARTITION };
        let default = if spec.has_default { self.default_of(expr, &data_type)? } else { None };
        let argument = match spec.way {
            WindowWay::Place => None,
            WindowWay::OtherRow | WindowWay::Frame => {
                let arguments = StandardWindowFunctionExpr::expressions(expr);
                let argument = arguments.first().ok_or_else(|| declined("without an argument"))?;
                Some(translate(argument, self.scope())?)
            }
        };
        Ok(WindowCall { function, argument, default, ignores_nulls, frame, data_type })
    }

    /// The value of LAG and LEAD where the other row does not exist.
    fn default_of(&self, expr: &WindowUDFExpr, data_type: &DataType) -> Result<Option<Expr>, Reason> {
        let Some(default) = expr.args().get(2) else { return Ok(None) };
        let value = default.downcast_ref::<Literal>().map(Literal::value);
        let Some(value) = value.and_then(|value| value.cast_to(data_type).ok()) else {
            return Err(Reason::Aggregate(format!("{} with an unsupported default", expr.fun().name())));
        };
        if value.is_null() {
            return Ok(None);
        }
        let literal: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(value));
        translate(&literal, self.scope()).map(Some)
    }
}

/// The device function, and whether it skips nulls. `None`: devices have no such function, or it cannot be determined.
fn function_of(expr: &WindowUDFExpr) -> Option<(WindowFunction, bool)> {
    let implementation: &dyn Any = expr.fun().inner().as_ref();
    let by_place = if implementation.is::<RowNumber>() {
        WindowFunction::RowNumber
    } else if let Some(rank) = implementation.downcast_ref::<Rank>() {
        match rank {
            rank if *rank == Rank::basic() => WindowFunction::Rank,
            rank if *rank == Rank::dense_rank() => WindowFunction::DenseRank,
            _ => WindowFunction::PercentRank,
        }
    } else if implementation.is::<CumeDist>() {
        WindowFunction::CumeDist
    } else if implementation.is::<Ntile>() {
        WindowFunction::Ntile(u64::try_from(integer(expr.args().first())?).ok()?)
    } else if implementation.is::<WindowShift>() {
        return shift_of(expr);
    } else {
        return value_of(expr, *implementation.downcast_ref::<NthValue>()?.kind());
    };
    // Nulls do not change these functions.
    Some((by_place, false))
}

/// LAG or LEAD. The direction and IGNORE NULLS follow from the range of rows that the evaluator asks for, because the expression
/// exposes neither.
fn shift_of(expr: &WindowUDFExpr) -> Option<(WindowFunction, bool)> {
    /// A row with more rows before and after it than any supported distance.
    const ROW: usize = 1 << 62;
    const ROWS: usize = usize::MAX;
    const DISTANCE_MAX: usize = 1 << 60;
    let Range { start, end } = expr.create_evaluator().ok()?.get_range(ROW, ROWS).ok()?;
    let written = match expr.args().get(1) {
        None => 1,
        rows => integer(rows)?,
    };
    let distance = usize::try_from(written.unsigned_abs()).ok()?;
    if distance > DISTANCE_MAX {
        // Beyond the rows of any partition, either way: every row has the default.
        return Some((WindowFunction::Shift(1 << 60), false));
    }
    if distance == 0 {
        // The row's own value. Only IGNORE NULLS replaces a null with the default.
        let null = new_null_array(&DataType::UInt64, 1);
        let value = expr.create_evaluator().ok()?.evaluate(&[null], &(0..1)).ok()?;
        return value.is_null().then_some((WindowFunction::Shift(0), false));
    }
    let (before, behind) = (ROW.checked_sub(start)?, end.checked_sub(ROW)?);
    let (is_before, skips_nulls) = match (before, behind) {
        (before, 1) if before == distance => (true, false),
        (ROW, 1) => (true, true),
        (0, behind) if behind == distance => (false, false),
        (0, behind) if behind == ROWS - ROW => (false, true),
        _ => return None,
    };
    let rows = i64::try_from(distance).ok()?;
    Some((WindowFunction::Shift(if is_before { -rows } else { rows }), skips_nulls))
}

/// Maximum supported position: [`taken`] evaluates twice as many rows.
const PLACE_MAX: u64 = 1 << 16;

/// FIRST_VALUE, LAST_VALUE or NTH_VALUE. The end from which it counts and IGNORE NULLS follow from the rows whose values its
/// evaluator returns.
fn value_of(expr: &WindowUDFExpr, kind: NthValueKind) -> Option<(WindowFunction, bool)> {
    let written = match kind {
        NthValueKind::First | NthValueKind::Last => 1,
        NthValueKind::Nth => integer(expr.args().get(1))?,
    };
    let place = written.unsigned_abs();
    if place == 0 {
        return Some((WindowFunction::Nth(0), false));
    }
    if place > PLACE_MAX {
        return None;
    }
    let is_first = match taken(expr, place, None)? {
        Some(row) if row == place => true,
        Some(row) if row == place + 2 => false,
        _ => return None,
    };
    // The first row from that end is null: is it skipped?
    let null_row = if is_first { 1 } else { 2 * place + 1 };
    let skips_nulls = match taken(expr, place, Some(null_row))? {
        Some(row) if row == place + 1 => true,
        row if row == Some(if is_first { place } else { place + 2 }).filter(|row| *row != null_row) => false,
        _ => return None,
    };
    let place = i64::try_from(place).ok()?;
    let function = match (kind, is_first) {
        (NthValueKind::First, true) => WindowFunction::First,
        (NthValueKind::Last, false) => WindowFunction::Last,
        (NthValueKind::Nth, true) => WindowFunction::Nth(place),
        (NthValueKind::Nth, false) => WindowFunction::Nth(-place),
        (NthValueKind::First | NthValueKind::Last, _) => return None,
    };
    Some((function, skips_nulls))
}

/// The row whose value the evaluator returns, of `2 * place + 1` rows, one of which may be null. Rows count from 1.
#[allow(clippy::option_option, reason = "no row is not the same as an evaluator that fails")]
fn taken(expr: &WindowUDFExpr, place: u64, null_row: Option<u64>) -> Option<Option<u64>> {
    let rows = (1..=2 * place + 1).map(|row| (Some(row) != null_row).then_some(row));
    let rows: ArrayRef = Arc::new(rows.collect::<UInt64Array>());
    let all = 0..rows.len();
    match expr.create_evaluator().ok()?.evaluate(&[rows], &all).ok()? {
        ScalarValue::UInt64(row) => Some(row),
        _ => None,
    }
}

/// Whether a windowed aggregate has a filter. DataFusion exposes it only in the debug output. Any output that does not end as
/// expected counts as a filter.
pub(super) fn has_filter(expr: &impl WindowExpr) -> bool {
    !format!("{expr:?}").ends_with("filter: None }")
}

/// An integer literal. Null is 0, as in DataFusion.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use arrow::datatypes::{Field, Schema, SchemaRef};
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::functions_window::{lead_lag, nth_value, row_number};
    use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, WindowUDF};
    use datafusion::physical_expr::expressions::{col, lit};
    use datafusion::physical_plan::windows::{create_udwf_window_expr, create_window_expr};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", DataType::Utf8, true), Field::new("b", DataType::Boolean, true)]))
    }

    /// The translation of a call, and of the reversed call.
    fn translated(
        function: &Arc<WindowUDF>,
        number: Option<i64>,
        ignores_nulls: bool,
    ) -> [Option<(WindowFunction, bool)>; 2] {
        let mut arguments = vec![col("x", &schema()).unwrap()];
        arguments.extend(number.map(lit));
        let call = create_udwf_window_expr(function, &arguments, &schema(), "w".into(), ignores_nulls).unwrap();
        let of =
            |expr: &dyn StandardWindowFunctionExpr| expr.as_any().downcast_ref::<WindowUDFExpr>().and_then(function_of);
        [of(call.as_ref()), call.reverse_expr().and_then(|reversed| of(reversed.as_ref()))]
    }

    #[test]
    fn evaluators_tell_direction_and_ignore_nulls() {
        use WindowFunction::{First, Last, Nth, RowNumber, Shift};
        for skips in [false, true] {
            let some = |function: WindowFunction| Some((function, skips));
            assert_eq!(translated(&lead_lag::lag_udwf(), None, skips), [some(Shift(-1)), some(Shift(1))]);
            assert_eq!(translated(&lead_lag::lead_udwf(), None, skips), [some(Shift(1)), some(Shift(-1))]);
            for rows in [1, 2, 7, 1 << 40, -1, -3] {
                assert_eq!(
                    translated(&lead_lag::lag_udwf(), Some(rows), skips),
                    [some(Shift(-rows)), some(Shift(rows))]
                );
                assert_eq!(
                    translated(&lead_lag::lead_udwf(), Some(rows), skips),
                    [some(Shift(rows)), some(Shift(-rows))]
                );
            }
            for rows in [i64::MAX, i64::MIN] {
                // Beyond any partition, the direction and the nulls make no difference.
                let beyond = [Some((Shift(1 << 60), false)); 2];
                assert_eq!(translated(&lead_lag::lag_udwf(), Some(rows), skips), beyond);
                assert_eq!(translated(&lead_lag::lead_udwf(), Some(rows), skips), beyond);
            }
            let own = [Some((Shift(0), false)); 2];
            assert_eq!(translated(&lead_lag::lag_udwf(), Some(0), skips), own);
            assert_eq!(translated(&nth_value::first_value_udwf(), None, skips), [some(First), some(Last)]);
            assert_eq!(translated(&nth_value::last_value_udwf(), None, skips), [some(Last), some(First)]);
            for place in [1, 2, 3, 100, -1, -2, -50] {
                let both = [some(Nth(place)), some(Nth(-place))];
                assert_eq!(translated(&nth_value::nth_value_udwf(), Some(place), skips), both, "{place}");
            }
            assert_eq!(translated(&nth_value::nth_value_udwf(), Some(1 << 40), skips), [None, None]);
            let zeroth = [Some((Nth(0), false)); 2];
            assert_eq!(translated(&nth_value::nth_value_udwf(), Some(0), skips), zeroth);
        }
        let call = create_udwf_window_expr(&row_number::row_number_udwf(), &[], &schema(), "w".into(), true).unwrap();
        let call = call.as_any().downcast_ref::<WindowUDFExpr>().unwrap();
        assert_eq!(function_of(call), Some((RowNumber, false)));
    }

    #[test]
    fn every_device_function_exists_in_datafusion() {
        let own = datafusion::functions_window::all_default_window_functions();
        let ours: Vec<&str> = WindowFunction::all().flat_map(|function| function.spec().sql.iter().copied()).collect();
        assert!(ours.iter().all(|name| own.iter().any(|own| own.name() == *name)), "{ours:?}");
        assert_eq!(ours.len(), own.len());
    }

    #[test]
    fn filters_are_seen() {
        for (end, is_moving) in [(WindowFrameBound::CurrentRow, false), (WindowFrameBound::CurrentRow, true)] {
            let start = if is_moving { ScalarValue::UInt64(Some(2)) } else { ScalarValue::UInt64(None) };
            let frame = WindowFrame::new_bounds(WindowFrameUnits::Rows, WindowFrameBound::Preceding(start), end);
            for filter in [None, Some(col("b", &schema()).unwrap()), Some(lit(ScalarValue::Boolean(None)))] {
                let function = WindowFunctionDefinition::AggregateUDF(sum_udaf());
                let arguments = [lit(1i64)];
                let has_one = filter.is_some();
                let frame = Arc::new(frame.clone());
                let expr = create_window_expr(
                    &function,
                    "filter: None }".into(),
                    &arguments,
                    &[],
                    &[],
                    frame,
                    schema(),
                    false,
                    false,
                    filter,
                );
                let expr = expr.unwrap();
                let plain = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>().map(has_filter);
                let sliding = expr.as_any().downcast_ref::<SlidingAggregateWindowExpr>().map(has_filter);
                assert_eq!(plain.or(sliding), Some(has_one), "{is_moving}");
            }
        }
    }
}
