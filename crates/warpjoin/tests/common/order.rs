//! What may stand where in the rows of a sort or limit: rows of equal keys may come in any order.

use std::cmp::Ordering;
use std::ops::Range;

use warpjoin::plan::SortKey;

use super::value::{Row, V, compare};

/// Rows in order, and which of them are put out.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Rows of equal keys side by side, under one number.
    all: Vec<(usize, Row)>,
    window: Range<usize>,
}

/// How two values of a key compare.
pub(super) fn order_by(key: &SortKey, a: &V, b: &V) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if key.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if key.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) if key.descending => b.order(a),
        (false, false) => a.order(b),
    }
}

impl Order {
    /// Rows by their keys.
    pub(crate) fn of(mut keyed: Vec<(Row, Row)>, keys: &[SortKey]) -> Self {
        let order = |a: &Row, b: &Row| {
            let parts = keys.iter().zip(a.iter().zip(b)).map(|(key, (a, b))| order_by(key, a, b));
            parts.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        };
        keyed.sort_by(|(a, _), (b, _)| order(a, b));
        let mut number = 0;
        let mut all: Vec<(usize, Row)> = vec![];
        for (place, (key, row)) in keyed.iter().enumerate() {
            if place > 0 && order(&keyed[place - 1].0, key).is_ne() {
                number += 1;
            }
            all.push((number, row.clone()));
        }
        Self { window: 0..all.len(), all }
    }

    /// Rows of which any may stand anywhere.
    pub(crate) fn of_any(rows: Vec<Row>) -> Self {
        Self { window: 0..rows.len(), all: rows.into_iter().map(|row| (0, row)).collect() }
    }

    /// The rows of a window of this one.
    pub(crate) fn window(self, skip: u64, fetch: Option<u64>) -> Self {
        let bound = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        let start = self.window.start.saturating_add(bound(skip)).min(self.window.end);
        let end = start.saturating_add(fetch.map_or(usize::MAX, bound)).min(self.window.end);
        Self { window: start..end, ..self }
    }

    /// Other columns.
    pub(crate) fn map(self, project: impl Fn(&Row) -> Row) -> Self {
        Self { all: self.all.iter().map(|(number, row)| (*number, project(row))).collect(), ..self }
    }

    /// Rows that may be put out.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.all[self.window.clone()].iter().map(|(_, row)| row.clone()).collect()
    }

    /// Compares rows in their order with this one.
    ///
    /// # Errors
    /// In words, where they differ.
    pub(crate) fn check(&self, got: Vec<Row>) -> Result<(), String> {
        if got.len() != self.window.len() {
            return Err(format!("{} rows in order instead of {}", got.len(), self.window.len()));
        }
        let mut rest = got.as_slice();
        let mut place = 0;
        for ties in self.all.chunk_by(|(a, _), (b, _)| a == b) {
            let range = place..place + ties.len();
            place = range.end;
            let wanted = range.end.min(self.window.end).saturating_sub(range.start.max(self.window.start));
            let (here, behind) = rest.split_at(wanted);
            rest = behind;
            let mut ties: Vec<Row> = ties.iter().map(|(_, row)| row.clone()).collect();
            let checked = if wanted == ties.len() { compare(here.to_vec(), ties) } else { is_part(here, &mut ties) };
            checked.map_err(|difference| format!("rows in order at {}: {difference}", range.start))?;
        }
        Ok(())
    }
}

/// Whether each of the rows is one of `all`.
fn is_part(rows: &[Row], all: &mut Vec<Row>) -> Result<(), String> {
    for row in rows {
        let is_same = |other: &Row| row.len() == other.len() && row.iter().zip(other).all(|(a, b)| a.is_close(b));
        let found = all.iter().position(is_same).ok_or_else(|| format!("{row:?} is none of {} rows", all.len()))?;
        all.swap_remove(found);
    }
    Ok(())
}
