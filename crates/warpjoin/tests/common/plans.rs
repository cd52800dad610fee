//! The oracle of plans, from what `plan.rs` documents: nested loops and a map.

use std::cmp::Ordering;

use arrow::datatypes::DataType;
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Moment, Plan, PlanKind};

use super::expressions::Evaluator;
use super::order::Order;
use super::value::{Row, V, decimal, fault, scale, wrap};

/// What the oracle says about a plan.
pub(crate) struct Verdict {
    /// Rows in any order, or the faults that must be reported.
    pub(crate) rows: Result<Vec<Row>, Stop>,
    /// Faults that may be reported: met in values that nobody needs.
    pub(crate) faults: u8,
    /// Where the plan has an order or a limit: what may stand where.
    pub(crate) order: Option<Order>,
    /// Devices may stop before they meet a fault.
    pub(crate) is_limited: bool,
}

/// Why there are no rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A fault in a value that is needed.
    Fault,
    /// More rows than the oracle wants to make.
    TooLarge,
}

/// Whether not all rows are looked at by somebody: what would fail may be among the others.
fn is_limited(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Limit { fetch: Some(_), .. }) || plan.inputs().into_iter().any(is_limited)
}

/// Numbers of a row, unscaled.
type Pair = (i128, i128);

/// Most rows that a join may put out here.
const ROWS_MAX: usize = 30_000;
/// Most pairs of rows that a join may look at here.
const PAIRS_MAX: usize = 4_000_000;

/// Runs `plan` over the rows of its inputs.
pub(crate) fn interpret(plan: &Plan, inputs: &[Vec<Row>]) -> Verdict {
    let oracle = Oracle { inputs, evaluator: Evaluator::default() };
    let is_window = plan.is_ordered() || matches!(plan.kind, PlanKind::Limit { .. });
    let (mut rows, order) = match is_window.then(|| oracle.order(plan)) {
        Some(Ok(order)) => (Ok(order.rows()), Some(order)),
        Some(Err(stop)) => (Err(stop), None),
        None => (oracle.rows(plan), None),
    };
    if rows.as_ref().is_ok_and(|rows| rows.iter().flatten().any(|v| matches!(v, V::Poison(_)))) {
        rows = Err(Stop::Fault);
    }
    Verdict { rows, faults: oracle.evaluator.faults.get(), order, is_limited: is_limited(plan) }
}

pub(super) struct Oracle<'a> {
    inputs: &'a [Vec<Row>],
    pub(super) evaluator: Evaluator,
}

impl Oracle<'_> {
    fn rows(&self, plan: &Plan) -> Result<Vec<Row>, Stop> {
        match &plan.kind {
            PlanKind::Scan { .. } => panic!("the oracle reads inputs only"),
            PlanKind::Marked { .. } | PlanKind::RowNumbers { .. } | PlanKind::Fetch(_) => {
                panic!("only the optimiser marks plans")
            }
            PlanKind::Input { index } => Ok(self.inputs[*index].clone()),
            PlanKind::Filter { input, predicate } => {
                let mut kept = vec![];
                for row in self.rows(input)? {
                    if self.holds(predicate, &row)? {
                        kept.push(row);
                    }
                }
                Ok(kept)
            }
            PlanKind::Project { input, exprs } => {
                let rows = self.rows(input)?;
                Ok(rows.iter().map(|row| exprs.iter().map(|e| self.evaluator.value(e, row)).collect()).collect())
            }
            PlanKind::Join(join) => self.join(join),
            PlanKind::Sort { .. } | PlanKind::Limit { .. } => Ok(self.order(plan)?.rows()),
            PlanKind::Aggregate { input, group_by, aggregates } => {
                self.aggregate(&self.rows(input)?, group_by, aggregates)
            }
            PlanKind::GroupingSets { input, group_by, sets, aggregates } => {
                let (rows, mut out) = (self.rows(input)?, vec![]);
                for set in sets {
                    let keys: Vec<Expr> = set.keys.iter().map(|&key| group_by[key].clone()).collect();
                    for row in self.aggregate(&rows, &keys, aggregates)? {
                        let mut padded = vec![V::Null; group_by.len()];
                        set.keys.iter().zip(&row).for_each(|(&key, value)| padded[key] = value.clone());
                        padded.push(V::Int(set.id.into()));
                        padded.extend_from_slice(&row[keys.len()..]);
                        out.push(padded);
                    }
                }
                Ok(out)
            }
            PlanKind::Window { input, partition_by, order_by, calls } => {
                super::windows::window(self, self.rows(input)?, partition_by, order_by, calls)
            }
            PlanKind::Union { inputs } => {
                let mut rows = vec![];
                for input in inputs {
                    rows.extend(self.rows(input)?);
                }
                Ok(rows)
            }
            PlanKind::Shared(plan) => self.rows(plan),
            PlanKind::Numbered { .. } | PlanKind::HasRows { .. } => panic!("no part of plans that are handed in"),
        }
    }

    fn holds(&self, predicate: &Expr, row: &[V]) -> Result<bool, Stop> {
        match self.evaluator.value(predicate, row) {
            V::Poison(_) => Err(Stop::Fault),
            value => Ok(value == V::Bool(true)),
        }
    }

    /// The rows of a sort or limit, and of projections of one.
    fn order(&self, plan: &Plan) -> Result<Order, Stop> {
        match &plan.kind {
            PlanKind::Sort { input, keys, skip, fetch } => {
                let mut keyed = vec![];
                for row in self.rows(input)? {
                    let key: Row = keys.iter().map(|key| self.evaluator.value(&key.expr, &row)).collect();
                    if key.iter().any(|v| matches!(v, V::Poison(_))) {
                        return Err(Stop::Fault);
                    }
                    keyed.push((key, row));
                }
                Ok(Order::of(keyed, keys).window(*skip, *fetch))
            }
            PlanKind::Limit { input, skip, fetch } => {
                let order = if input.is_ordered() { self.order(input)? } else { Order::of_any(self.rows(input)?) };
                Ok(order.window(*skip, *fetch))
            }
            PlanKind::Project { input, exprs } => {
                let order = self.order(input)?;
                Ok(order.map(|row| exprs.iter().map(|e| self.evaluator.value(e, row)).collect()))
            }
            _ => panic!("no order"),
        }
    }

    /// Keys as they compare; `None` where the row matches nothing.
    fn key(&self, keys: &[&Expr], row: &[V], null_matches: bool) -> Result<Option<Row>, Stop> {
        let key: Row = keys.iter().map(|key| self.evaluator.value(key, row).canonical()).collect();
        if key.iter().any(|v| matches!(v, V::Poison(_))) {
            return Err(Stop::Fault);
        }
        Ok((null_matches || !key.iter().any(V::is_null)).then_some(key))
    }

    fn join(&self, join: &JoinPlan) -> Result<Vec<Row>, Stop> {
        let (build, probe) = (self.rows(&join.build)?, self.rows(&join.probe)?);
        if build.len() * probe.len() > PAIRS_MAX {
            return Err(Stop::TooLarge);
        }
        let keys = |side: &[Row], keys: Vec<&Expr>| {
            side.iter().map(|row| self.key(&keys, row, join.null_equals_null)).collect::<Result<Vec<_>, _>>()
        };
        let build_keys = keys(&build, join.on.iter().map(|(b, _)| b).collect())?;
        let probe_keys = keys(&probe, join.on.iter().map(|(_, p)| p).collect())?;
        let equal = |a: &Row, b: &Row| a.iter().zip(b).all(|(x, y)| x.order(y).is_eq());
        let put_out = |both: &[V]| join.output.iter().map(|&column| both[column].clone()).collect::<Row>();
        let build_nulls = vec![V::Null; join.build.schema.fields().len()];
        let mut build_matched = vec![false; build.len()];
        let has_null_key = build_keys.iter().any(Option::is_none);
        let mut rows = vec![];
        for (p, p_key) in probe.iter().zip(&probe_keys) {
            let mut is_matched = false;
            for (number, (b, b_key)) in build.iter().zip(&build_keys).enumerate() {
                let (Some(p_key), Some(b_key)) = (p_key, b_key) else { continue };
                if !equal(b_key, p_key) {
                    continue;
                }
                let both: Row = b.iter().chain(p).cloned().collect();
                if !join.residual.as_ref().map_or(Ok(true), |residual| self.holds(residual, &both))? {
                    continue;
                }
                if matches!(join.kind, JoinKind::Inner | JoinKind::ProbeOuter | JoinKind::Full)
                    || join.kind == JoinKind::ProbeSemi && !is_matched
                {
                    rows.push(put_out(&both));
                }
                is_matched = true;
                build_matched[number] = true;
                if rows.len() > ROWS_MAX {
                    return Err(Stop::TooLarge);
                }
            }
            let is_not_in = || build.is_empty() || (p_key.is_some() && !has_null_key);
            let alone: Row = build_nulls.iter().chain(p).cloned().chain([V::Bool(is_matched)]).collect();
            if match join.kind {
                JoinKind::Inner | JoinKind::ProbeSemi => false,
                JoinKind::ProbeAnti | JoinKind::ProbeOuter | JoinKind::Full => !is_matched,
                JoinKind::NotIn => !is_matched && is_not_in(),
                JoinKind::ProbeMark => true,
            } {
                rows.push(put_out(&alone));
            }
        }
        if join.kind == JoinKind::Full {
            let probe_nulls = vec![V::Null; join.probe.schema.fields().len()];
            for (b, _) in build.iter().zip(&build_matched).filter(|(_, is_matched)| !**is_matched) {
                rows.push(put_out(&b.iter().chain(&probe_nulls).cloned().collect::<Row>()));
            }
        }
        Ok(rows)
    }

    fn aggregate(&self, rows: &[Row], keys: &[Expr], calls: &[AggregateCall]) -> Result<Vec<Row>, Stop> {
        let keys: Vec<&Expr> = keys.iter().collect();
        let mut tagged = vec![];
        for row in rows {
            tagged.push((self.key(&keys, row, true)?.unwrap_or_default(), row));
        }
        let order = |a: &Row, b: &Row| a.iter().zip(b).map(|(x, y)| x.order(y)).find(|o| o.is_ne());
        tagged.sort_by(|(a, _), (b, _)| order(a, b).unwrap_or(std::cmp::Ordering::Equal));
        let mut out = vec![];
        for group in tagged.chunk_by(|(a, _), (b, _)| order(a, b).is_none()) {
            let mut row = group[0].0.clone();
            for call in calls {
                row.push(self.aggregated(call, group.iter().map(|(_, row)| *row))?);
            }
            out.push(row);
        }
        if keys.is_empty() && out.is_empty() {
            out.push(calls.iter().map(|call| self.aggregated(call, std::iter::empty())).collect::<Result<_, _>>()?);
        }
        Ok(out)
    }

    pub(super) fn aggregated<'r>(&self, call: &AggregateCall, rows: impl Iterator<Item = &'r Row>) -> Result<V, Stop> {
        if let (AggregateFunction::Moment(moment), Some(argument)) = (call.function, &call.argument) {
            return self.moment(moment, argument, call.second.as_ref().unwrap_or(argument), rows);
        }
        let Some(argument) = &call.argument else { return Ok(V::Int(rows.count() as i128)) };
        if matches!(call.function, AggregateFunction::First | AggregateFunction::Last) {
            return self.first(call, argument, rows);
        }
        let values: Vec<V> = rows.map(|row| self.evaluator.value(argument, row)).filter(|v| !v.is_null()).collect();
        if values.iter().any(|v| matches!(v, V::Poison(_))) {
            return Err(Stop::Fault);
        }
        let values = if call.is_distinct { distinct(values) } else { values };
        let extreme = |wanted: std::cmp::Ordering| {
            let better = |a: V, b: &V| if b.order(&a) == wanted { b.clone() } else { a };
            let mut values = values.iter();
            values.next().map_or(V::Null, |first| values.fold(first.clone(), better))
        };
        Ok(match call.function {
            AggregateFunction::Count => V::Int(values.len() as i128),
            AggregateFunction::Min => extreme(std::cmp::Ordering::Less),
            AggregateFunction::Max => extreme(std::cmp::Ordering::Greater),
            _ if values.is_empty() => V::Null,
            AggregateFunction::Sum => sum(&values, &call.data_type),
            AggregateFunction::Avg => self.average(&values, &argument.data_type, &call.data_type),
            AggregateFunction::BitAnd => bits(&values, |a, b| a & b),
            AggregateFunction::BitOr => bits(&values, |a, b| a | b),
            AggregateFunction::BitXor => bits(&values, |a, b| a ^ b),
            AggregateFunction::Median => quantile(values, None),
            AggregateFunction::Percentile { share_bits } => quantile(values, Some(f64::from_bits(share_bits))),
            other => panic!("the oracle has no {other}"),
        })
    }

    /// The first or last row in the call's order, and in that of the input.
    fn first<'r>(&self, call: &AggregateCall, argument: &Expr, rows: impl Iterator<Item = &'r Row>) -> Result<V, Stop> {
        let mut kept: Vec<(Row, &Row)> = vec![];
        for row in rows {
            // Faults are noted of all rows.
            let key: Row = call.order_by.iter().map(|key| self.evaluator.value(&key.expr, row)).collect();
            self.evaluator.value(argument, row);
            if !call.filter.as_ref().map_or(Ok(true), |filter| self.holds(filter, row))? {
                continue;
            }
            if let Some(poison) = key.iter().find(|v| matches!(v, V::Poison(_))) {
                // Devices look for no row of which nobody reads a value.
                return Ok(poison.clone());
            }
            kept.push((key, row));
        }
        kept.sort_by(|(a, _), (b, _)| {
            let orders = call.order_by.iter().zip(a.iter().zip(b)).map(|(key, (x, y))| match (x, y) {
                (V::Null, V::Null) => Ordering::Equal,
                (V::Null, _) => {
                    if key.nulls_first {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
                (_, V::Null) => {
                    if key.nulls_first {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
                }
                _ if key.descending => y.order(x),
                _ => x.order(y),
            });
            orders.fold(Ordering::Equal, Ordering::then)
        });
        let found = if call.function == AggregateFunction::First { kept.first() } else { kept.last() };
        Ok(found.map_or(V::Null, |(_, row)| self.evaluator.value(argument, row)))
    }

    /// Of doubles: two passes.
    fn moment_of_doubles<'r>(
        &self,
        moment: Moment,
        (x, y): (&Expr, &Expr),
        rows: impl Iterator<Item = &'r Row>,
    ) -> Result<V, Stop> {
        let mut pairs: Vec<(f64, f64)> = vec![];
        let double = |expr: &Expr, value: &V| match value {
            V::Float(x) => Ok(*x),
            V::Int(x) => Ok(*x as f64 / 10f64.powi(scale(&expr.data_type).into())),
            _ => Err(Stop::Fault),
        };
        for row in rows {
            match (self.evaluator.value(x, row), self.evaluator.value(y, row)) {
                (V::Null, _) | (_, V::Null) => {}
                (a, b) => pairs.push((double(x, &a)?, double(y, &b)?)),
            }
        }
        let n = pairs.len() as f64;
        let divisor = if is_of_sample(moment) { n - 1.0 } else { n };
        if pairs.is_empty() || divisor == 0.0 {
            return Ok(V::Null);
        }
        // From the first pair, so that equal values have no distance.
        let (x0, y0) = pairs[0];
        let mean = pairs.iter().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + (x - x0) / n, sum.1 + (y - y0) / n));
        let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
        for (x, y) in pairs.iter().map(|(x, y)| (x - x0 - mean.0, y - y0 - mean.1)) {
            (xx, yy, xy) = (xx + x * x, yy + y * y, xy + x * y);
        }
        // A mean that is rounded by as much as this tells a wrong spread; no sum of doubles does better.
        let is_lost = |largest: f64, squares: f64| {
            let spread = (squares / n).sqrt();
            spread > 0.0 && largest * f64::EPSILON > 1e-5 * spread
        };
        let largest = pairs.iter().fold((0.0f64, 0.0f64), |most, (x, y)| (most.0.max(x.abs()), most.1.max(y.abs())));
        if is_lost(largest.0, xx) || is_lost(largest.1, yy) {
            return Err(Stop::TooLarge);
        }
        Ok(match moment {
            Moment::Correlation if xx == 0.0 || yy == 0.0 => V::Null,
            Moment::Correlation => V::Float(xy / xx.sqrt() / yy.sqrt()),
            Moment::DeviationPopulation | Moment::DeviationSample => V::Float((xy / divisor).sqrt()),
            moment => regression(moment, (xy, xx, yy)).unwrap_or(V::Float(xy / divisor)),
        })
    }

    /// From exact sums of distances from the first pair.
    fn moment<'r>(&self, moment: Moment, x: &Expr, y: &Expr, rows: impl Iterator<Item = &'r Row>) -> Result<V, Stop> {
        if x.data_type.is_floating() || y.data_type.is_floating() {
            return self.moment_of_doubles(moment, (x, y), rows);
        }
        let mut pairs: Vec<Pair> = vec![];
        for row in rows {
            match (self.evaluator.value(x, row), self.evaluator.value(y, row)) {
                (V::Null, _) | (_, V::Null) => {}
                (V::Int(x), V::Int(y)) => pairs.push((x, y)),
                _ => return Err(Stop::Fault),
            }
        }
        let is_sample = is_of_sample(moment);
        let n = pairs.len() as i128;
        if n < 1 + i128::from(is_sample) {
            return Ok(V::Null);
        }
        let (x0, y0) = pairs[0];
        let central = |of: &dyn Fn(&Pair) -> Pair| -> Option<f64> {
            let (mut a, mut b, mut ab) = (0i128, 0i128, 0i128);
            for (x, y) in pairs.iter().map(of) {
                (a, b, ab) = (a.checked_add(x)?, b.checked_add(y)?, ab.checked_add(x.checked_mul(y)?)?);
            }
            Some(ab.checked_mul(n)?.checked_sub(a.checked_mul(b)?)? as f64 / n as f64)
        };
        let sums = (
            central(&|&(x, y)| (x.wrapping_sub(x0), y.wrapping_sub(y0))),
            central(&|&(x, _)| (x.wrapping_sub(x0), x.wrapping_sub(x0))),
            central(&|&(_, y)| (y.wrapping_sub(y0), y.wrapping_sub(y0))),
        );
        let (Some(xy), Some(xx), Some(yy)) = sums else { return Err(Stop::TooLarge) };
        let ten = |expr: &Expr| 10f64.powi(scale(&expr.data_type).into());
        let (x, y) = (ten(x), ten(y));
        let (xy, xx, yy) = (xy / (x * y), xx / (x * x), yy / (y * y));
        let mean = xy / (n - i128::from(is_sample)) as f64;
        Ok(match moment {
            Moment::Correlation if xx == 0.0 || yy == 0.0 => V::Null,
            Moment::Correlation => V::Float(xy / xx.sqrt() / yy.sqrt()),
            Moment::DeviationPopulation | Moment::DeviationSample => V::Float(mean.sqrt()),
            moment => regression(moment, (xy, xx, yy)).unwrap_or(V::Float(mean)),
        })
    }

    fn average(&self, values: &[V], from: &DataType, to: &DataType) -> V {
        match (sum(values, from), decimal(from), decimal(to)) {
            (V::Float(total), _, _) => V::Float(total / values.len() as f64),
            (V::Int(_), Some((_, from)), Some((precision, to))) => {
                let V::Int(total) = sum(values, &DataType::Decimal128(38, from)) else { return V::Null };
                match 10i128.checked_pow((to - from) as u32).and_then(|factor| total.checked_mul(factor)) {
                    Some(scaled) if (scaled / values.len() as i128).abs() < 10i128.pow(precision.into()) => {
                        V::Int(scaled / values.len() as i128)
                    }
                    _ => {
                        // Reported even where nobody needs the mean.
                        self.evaluator.faults.set(self.evaluator.faults.get() | fault::OVERFLOW);
                        V::Poison(fault::OVERFLOW)
                    }
                }
            }
            other => panic!("the oracle has no average of {other:?}"),
        }
    }
}

/// The value so far behind the first one; without a share, in the middle.
fn quantile(mut values: Vec<V>, share: Option<f64>) -> V {
    values.sort_by(V::order);
    let distance = share.map_or((values.len() - 1) as f64 / 2.0, |share| share * (values.len() - 1) as f64);
    let weight = share.map_or(0.5, |_| (distance.fract() * 1e6).floor() / 1e6);
    let (lower, upper) = (distance.floor() as usize, distance.ceil() as usize);
    match (&values[lower], &values[upper]) {
        _ if lower == upper => values[lower].clone(),
        (V::Int(a), V::Int(b)) => V::Int((a + b) / 2),
        (V::Float(a), V::Float(b)) if share.is_none() => V::Float((a + b) / 2.0),
        (V::Float(a), V::Float(b)) => V::Float(a + (b - a) * weight),
        other => panic!("the oracle has no quantile of {other:?}"),
    }
}

/// Each value once.
fn distinct(mut values: Vec<V>) -> Vec<V> {
    values.sort_by(V::order);
    values.dedup_by(|a, b| a.order(b).is_eq());
    values
}

/// Integers brought together bit by bit.
fn bits(values: &[V], merge: fn(i128, i128) -> i128) -> V {
    let ints = values.iter().filter_map(|v| if let V::Int(x) = v { Some(*x) } else { None });
    ints.reduce(merge).map_or(V::Null, V::Int)
}

/// Whether a statistic is null of one value.
fn is_of_sample(moment: Moment) -> bool {
    use Moment::{Correlation, CovarianceSample, DeviationSample, RegressionR2, RegressionSlope, VarianceSample};
    let of_two = [Correlation, CovarianceSample, DeviationSample, RegressionR2, RegressionSlope, VarianceSample];
    of_two.contains(&moment)
}

/// A statistic of the line through pairs (y, x), from the sums of products of their distances from the means.
fn regression(moment: Moment, (yx, yy, xx): (f64, f64, f64)) -> Option<V> {
    Some(match moment {
        Moment::RegressionSlope if xx == 0.0 => V::Null,
        Moment::RegressionR2 if xx == 0.0 || yy == 0.0 => V::Null,
        Moment::RegressionSlope => V::Float(yx / xx),
        Moment::RegressionR2 => V::Float(yx * yx / (xx * yy)),
        Moment::RegressionSxx => V::Float(xx),
        Moment::RegressionSyy => V::Float(yy),
        Moment::RegressionSxy => V::Float(yx),
        _ => return None,
    })
}

/// A sum that wraps in the bits of its type.
fn sum(values: &[V], data_type: &DataType) -> V {
    if let V::Float(_) = values[0] {
        return V::Float(values.iter().map(|v| if let V::Float(x) = v { *x } else { 0.0 }).sum());
    }
    let add = |total: i128, v: &V| if let V::Int(x) = v { total.wrapping_add(*x) } else { total };
    V::Int(wrap(values.iter().fold(0, add), data_type))
}
