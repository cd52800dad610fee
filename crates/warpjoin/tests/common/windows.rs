//! The oracle of windows, from what `window.rs` documents: every frame row by row.

use std::cmp::Ordering;

use arrow::datatypes::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, Days, Months, NaiveDate};
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, SortKey};
use warpjoin::window::{Distance, Frame, FrameBound, WindowCall, WindowFunction};

use super::order::order_by as order_of;
use super::plans::{Oracle, Stop};
use super::value::{Row, V, int_bounds};

/// A partition in its order.
struct Partition<'a> {
    rows: Vec<&'a Row>,
    /// Numbers of the peers of each row.
    peers: Vec<i64>,
    /// The only key of the order, and its values.
    key: Option<(&'a SortKey, Vec<&'a V>)>,
}

/// A row with the values that it is sorted by.
struct Keyed {
    partition: Row,
    order: Row,
    row: Row,
}

/// Each row with what the calls make of those around it.
pub(super) fn window(
    oracle: &Oracle<'_>,
    rows: Vec<Row>,
    partition_by: &[Expr],
    order_by: &[SortKey],
    calls: &[WindowCall],
) -> Result<Vec<Row>, Stop> {
    let mut keyed = vec![];
    for row in rows {
        let partition: Row = partition_by.iter().map(|expr| oracle.evaluator.value(expr, &row)).collect();
        let order: Row = order_by.iter().map(|key| oracle.evaluator.value(&key.expr, &row)).collect();
        if partition.iter().chain(&order).any(|v| matches!(v, V::Poison(_))) {
            return Err(Stop::Fault);
        }
        keyed.push(Keyed { partition, order, row });
    }
    let partitions = |a: &Keyed, b: &Keyed| first(a.partition.iter().zip(&b.partition).map(|(a, b)| a.order(b)));
    let orders = |a: &Keyed, b: &Keyed| {
        let pairs = a.order.iter().zip(&b.order);
        first(order_by.iter().zip(pairs).map(|(key, (a, b))| order_of(key, a, b)))
    };
    keyed.sort_by(|a, b| partitions(a, b).then(orders(a, b)));
    let mut out = vec![];
    for partition in keyed.chunk_by(|a, b| partitions(a, b).is_eq()) {
        let mut peers = vec![0];
        for pair in partition.windows(2) {
            peers.push(peers[peers.len() - 1] + i64::from(orders(&pair[0], &pair[1]).is_ne()));
        }
        let key = match order_by {
            [key] => Some((key, partition.iter().map(|keyed| &keyed.order[0]).collect())),
            _ => None,
        };
        let partition = Partition { rows: partition.iter().map(|keyed| &keyed.row).collect(), peers, key };
        let mut bounds = vec![];
        for call in calls {
            let Frame { start, end } = call.frame;
            bounds.push([partition.range_rows(start, false)?, partition.range_rows(end, true)?]);
        }
        for at in 0..partition.rows.len() {
            let mut row = partition.rows[at].clone();
            for (call, bounds) in calls.iter().zip(&bounds) {
                row.push(partition.result(oracle, call, bounds, at)?);
            }
            out.push(row);
        }
    }
    Ok(out)
}

fn first(orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.fold(Ordering::Equal, Ordering::then)
}

impl Partition<'_> {
    /// Where the bound of each row's frame is, row by row, none before that of the row before; nothing of other bounds.
    fn range_rows(&self, bound: FrameBound, is_end: bool) -> Result<Vec<usize>, Stop> {
        let FrameBound::Range { is_following, distance } = bound else { return Ok(vec![]) };
        let (key, values) = self.key.as_ref().expect("one key");
        let (mut last, mut rows) = (0, vec![]);
        for value in values {
            match apart(value, key, is_following, distance) {
                Some(target) => {
                    let is_before = |row: &&V| match order_of(key, row, &target) {
                        Ordering::Less => true,
                        Ordering::Equal => is_end,
                        Ordering::Greater => false,
                    };
                    last += values[last..].iter().take_while(|row| is_before(row)).count();
                }
                // Whether nulls count there depends on the direction in which DataFusion goes.
                None if values.iter().any(|v| v.is_null()) && key.nulls_first != is_following => {
                    return Err(Stop::Fault);
                }
                None if is_following => last = values.len(),
                None => {}
            }
            rows.push(last);
        }
        Ok(rows)
    }

    fn result(&self, oracle: &Oracle<'_>, call: &WindowCall, bounds: &[Vec<usize>; 2], at: usize) -> Result<V, Stop> {
        let argument = |row: usize| match &call.argument {
            Some(argument) => match oracle.evaluator.value(argument, self.rows[row]) {
                V::Poison(_) => Err(Stop::Fault),
                value => Ok(value),
            },
            None => Ok(V::Null),
        };
        // Faults are noted of all rows.
        argument(at)?;
        let count = self.rows.len();
        let is_peer = |row: &usize| self.peers[*row] == self.peers[at];
        let before = (0..count).find(is_peer).unwrap_or(at);
        let up_to = (0..count).filter(is_peer).count() + before;
        let frame: Vec<usize> = (0..count).filter(|&row| self.is_in(call.frame, bounds, at, row)).collect();
        let is_there = |&row: &usize| !call.ignores_nulls || !argument(row).is_ok_and(|value| value.is_null());
        let frame: Vec<usize> = frame.into_iter().filter(is_there).collect();
        let of_frame =
            |place: Option<usize>| place.and_then(|place| frame.get(place)).map_or(Ok(V::Null), |&r| argument(r));
        let number = |number: usize| Ok(V::Int(number as i128));
        match call.function {
            WindowFunction::RowNumber => number(at + 1),
            WindowFunction::Rank => number(before + 1),
            WindowFunction::DenseRank => number(self.peers[at] as usize + 1),
            WindowFunction::PercentRank => Ok(V::Float(before as f64 / (count.max(2) - 1) as f64)),
            WindowFunction::CumeDist => Ok(V::Float(up_to as f64 / count as f64)),
            WindowFunction::Ntile(parts) => {
                // Rows are dealt out: the first parts get one more.
                let parts = parts as usize;
                let mut left = at;
                for part in 0.. {
                    let size = count / parts + usize::from(part < count % parts);
                    if left < size {
                        return number(part + 1);
                    }
                    left -= size;
                }
                Err(Stop::TooLarge)
            }
            WindowFunction::Shift(rows) if call.ignores_nulls => {
                let mut others: Vec<usize> = if rows > 0 { (at + 1..count).collect() } else { (0..at).rev().collect() };
                others.retain(is_there);
                match others.get(usize::try_from(rows.unsigned_abs() - 1).unwrap_or(usize::MAX)) {
                    Some(&other) => argument(other),
                    None => {
                        let default = call.default.as_ref();
                        Ok(default.map_or(V::Null, |default| oracle.evaluator.value(default, self.rows[at])))
                    }
                }
            }
            WindowFunction::Shift(rows) => match usize::try_from(at as i128 + i128::from(rows)) {
                Ok(other) if other < count => argument(other),
                _ => {
                    Ok(call.default.as_ref().map_or(V::Null, |default| oracle.evaluator.value(default, self.rows[at])))
                }
            },
            WindowFunction::First => of_frame(Some(0)),
            WindowFunction::Last => of_frame(frame.len().checked_sub(1)),
            WindowFunction::Nth(place @ 1..) => of_frame(Some(place as usize - 1)),
            WindowFunction::Nth(0) => Ok(V::Null),
            WindowFunction::Nth(place) => of_frame(frame.len().checked_sub(place.unsigned_abs() as usize)),
            WindowFunction::Aggregate(function) => {
                let aggregate = AggregateCall::new(function, call.argument.clone(), call.data_type.clone());
                oracle.aggregated(&aggregate, frame.iter().map(|&row| self.rows[row]))
            }
        }
    }

    fn is_in(&self, frame: Frame, [starts, ends]: &[Vec<usize>; 2], at: usize, row: usize) -> bool {
        let distance = row as i128 - at as i128;
        let peers = i128::from(self.peers[row] - self.peers[at]);
        let begins = match frame.start {
            FrameBound::Partition => true,
            FrameBound::Rows(rows) => distance >= rows.into(),
            FrameBound::Groups(groups) => peers >= groups.into(),
            FrameBound::Range { .. } => row >= starts[at],
        };
        let ends = match frame.end {
            FrameBound::Partition => true,
            FrameBound::Rows(rows) => distance <= rows.into(),
            FrameBound::Groups(groups) => peers <= groups.into(),
            FrameBound::Range { .. } => row < ends[at],
        };
        begins && ends
    }
}

/// What is so far away from the value of a key; `None`: no value of its type.
fn apart(value: &V, key: &SortKey, is_following: bool, distance: Distance) -> Option<V> {
    let adds = is_following != key.descending;
    let data_type = &key.expr.data_type;
    Some(match (value, distance) {
        (V::Null, _) => V::Null,
        (V::Int(value), Distance::Units(units)) => {
            let moved = if adds { value.checked_add(units)? } else { value.checked_sub(units)? };
            let (least, most) = int_bounds(data_type)?;
            match moved {
                moved if data_type.is_unsigned_integer() && moved < 0 => V::Int(0),
                moved if moved < least || moved > most || !is_of_calendar(moved, data_type) => return None,
                moved => V::Int(moved),
            }
        }
        (V::Int(days), Distance::Months(months, days_behind)) => {
            let date = NaiveDate::from_num_days_from_ce_opt(i32::try_from(*days).ok()? + DAYS_OF_1970)?;
            let (months, days) = (Months::new(months), Days::new(days_behind.into()));
            let moved = if adds {
                date.checked_add_months(months)?.checked_add_days(days)?
            } else {
                date.checked_sub_months(months)?.checked_sub_days(days)?
            };
            V::Int((moved.num_days_from_ce() - DAYS_OF_1970).into())
        }
        (V::Float(value), Distance::Double(bits)) => {
            let distance = f64::from_bits(bits) * if adds { 1.0 } else { -1.0 };
            match data_type {
                _ if value.is_nan() => V::Float(*value),
                DataType::Float32 => V::Float((*value as f32 + distance as f32).into()),
                _ => V::Float(value + distance),
            }
        }
        other => panic!("no distance of {other:?}"),
    })
}

/// 1970-01-01 in days from 0000-12-31.
const DAYS_OF_1970: i32 = 719_163;

/// Whether the calendar has a day, or the day of a time.
fn is_of_calendar(value: i128, data_type: &DataType) -> bool {
    let in_64_bits = i64::try_from(value);
    match (data_type, in_64_bits) {
        (DataType::Date32, Ok(days)) => {
            i32::try_from(days).is_ok_and(|days| NaiveDate::from_num_days_from_ce_opt(days + DAYS_OF_1970).is_some())
        }
        (DataType::Timestamp(TimeUnit::Second, _), Ok(value)) => DateTime::from_timestamp(value, 0).is_some(),
        (DataType::Timestamp(TimeUnit::Millisecond, _), Ok(value)) => DateTime::from_timestamp_millis(value).is_some(),
        (DataType::Timestamp(TimeUnit::Microsecond, _), Ok(value)) => DateTime::from_timestamp_micros(value).is_some(),
        _ => true,
    }
}
