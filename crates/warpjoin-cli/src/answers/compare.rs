//! Equality of rows, and of lists of rows.
//!
//! Must not know which order a query fixes.

use std::cmp::Ordering;

use super::{Cell, FLOAT_TOLERANCE};

/// Maximum number of rows with equal exact cells that are matched one by one.
const MATCHED_ROWS_MAX: usize = 4096;

/// The first difference of two lists of equal length, regardless of order.
pub(super) fn multiset_difference(actual: &[Vec<Cell>], expected: &[Vec<Cell>]) -> Option<String> {
    if actual.iter().zip(expected).all(|(a, e)| same_row(a, e)) {
        return None;
    }
    let (mut actual, mut expected): (Vec<_>, Vec<_>) = (actual.iter().collect(), expected.iter().collect());
    actual.sort_by(|a, b| total_order(a, b));
    expected.sort_by(|a, b| total_order(a, b));
    let mut start = 0;
    while start < actual.len() {
        let exact = exact_cells(expected[start]);
        let mut end = start;
        while end < expected.len() && exact_cells(expected[end]) == exact {
            end += 1;
        }
        let (expected, actual) = (&expected[start..end], &actual[start..end]);
        if !expected.iter().zip(actual).all(|(e, a)| same_row(a, e)) && !matches_one_by_one(actual, expected) {
            let (a, e) = actual.iter().zip(expected).find(|(a, e)| !same_row(a, e))?;
            return Some(format!("row ({}) instead of ({})", show_row(a), show_row(e)));
        }
        start = end;
    }
    None
}

/// Whether the rows match in any pairing. Floats that differ by rounding may have sorted differently.
fn matches_one_by_one(actual: &[&Vec<Cell>], expected: &[&Vec<Cell>]) -> bool {
    if actual.len() > MATCHED_ROWS_MAX {
        return false;
    }
    let mut open = actual.to_vec();
    expected.iter().all(|row| match open.iter().position(|candidate| same_row(candidate, row)) {
        Some(at) => {
            open.swap_remove(at);
            true
        }
        None => false,
    })
}

/// Compares exact cells first, so that rows that differ only in floats are adjacent.
fn total_order(a: &[Cell], b: &[Cell]) -> Ordering {
    let exact = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Cell::Exact(a), Cell::Exact(b)) => a.cmp(b),
        (Cell::Null, Cell::Null) | (Cell::Float(_), Cell::Float(_)) => Ordering::Equal,
        _ => rank(a).cmp(&rank(b)),
    });
    let floats = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => a.total_cmp(b),
        _ => Ordering::Equal,
    });
    exact.chain(floats).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn rank(cell: &Cell) -> u8 {
    match cell {
        Cell::Null => 0,
        Cell::Float(_) => 1,
        Cell::Exact(_) => 2,
    }
}

/// The cells of a row, without the values of floats.
pub(super) fn exact_cells(row: &[Cell]) -> Vec<String> {
    row.iter()
        .map(|cell| match cell {
            Cell::Null => "0".to_string(),
            Cell::Float(_) => "1".to_string(),
            Cell::Exact(text) => format!("2{text}"),
        })
        .collect()
}

pub(super) fn same_row(a: &[Cell], b: &[Cell]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_cell(a, b))
}

pub(super) fn same_cell(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Float(a), Cell::Float(b)) => same_float(*a, *b),
        _ => a == b,
    }
}

fn same_float(a: f64, b: f64) -> bool {
    let is_close = || (a - b).abs() <= FLOAT_TOLERANCE * a.abs().max(b.abs());
    // The tolerance of an infinity is infinite, so `is_close` needs finite values.
    a == b || (a.is_nan() && b.is_nan()) || (a.is_finite() && b.is_finite() && is_close())
}

pub(super) fn show(cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".to_string(),
        Cell::Float(value) => value.to_string(),
        Cell::Exact(text) => text.clone(),
    }
}

pub(super) fn show_row(row: &[Cell]) -> String {
    row.iter().map(show).collect::<Vec<_>>().join(", ")
}
