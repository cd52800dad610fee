//! The oracle of windows, from what `window.rs` documents: every frame row by row.

use std::cmp::Ordering;

use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, SortKey};
use warpjoin::window::{Frame, FrameBound, WindowCall, WindowFunction};

use super::order::order_by as order_of;
use super::plans::{Oracle, Stop};
use super::value::{Row, V};

/// A partition in its order.
struct Partition<'a> {
    rows: Vec<&'a Row>,
    /// Numbers of the peers of each row.
    peers: Vec<i64>,
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
        let partition = Partition { rows: partition.iter().map(|keyed| &keyed.row).collect(), peers };
        for at in 0..partition.rows.len() {
            let mut row = partition.rows[at].clone();
            for call in calls {
                row.push(partition.result(oracle, call, at)?);
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
    fn result(&self, oracle: &Oracle<'_>, call: &WindowCall, at: usize) -> Result<V, Stop> {
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
        let frame: Vec<usize> = (0..count).filter(|&row| self.is_in(call.frame, at, row)).collect();
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
            other => panic!("the oracle has no {other}"),
        }
    }

    fn is_in(&self, frame: Frame, at: usize, row: usize) -> bool {
        let distance = row as i128 - at as i128;
        let peers = i128::from(self.peers[row] - self.peers[at]);
        let begins = match frame.start {
            FrameBound::Partition => true,
            FrameBound::Rows(rows) => distance >= rows.into(),
            FrameBound::Groups(groups) => peers >= groups.into(),
        };
        let ends = match frame.end {
            FrameBound::Partition => true,
            FrameBound::Rows(rows) => distance <= rows.into(),
            FrameBound::Groups(groups) => peers <= groups.into(),
        };
        begins && ends
    }
}
