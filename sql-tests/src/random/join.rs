//! Random FROM clauses and subqueries with all kinds of joins.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::{ColumnData, TableData};
use super::domain::ColumnRole;
use super::expression::{any, integer, of_roles};
use super::predicate::predicate;

/// A FROM clause and its visible columns.
#[derive(Debug)]
pub(super) struct From<'a> {
    /// Such as `FROM t0 JOIN t1 ON t0_c1 = t1_c2`.
    pub(super) sql: String,
    /// Columns of all tables except those behind semi and anti joins.
    pub(super) columns: Vec<&'a ColumnData>,
}

/// Joins all `tables`.
pub(super) fn from_clause<'a>(rng: &mut StdRng, tables: &'a [TableData]) -> From<'a> {
    let mut from = From { sql: format!("FROM {}", tables[0].name), columns: tables[0].columns.iter().collect() };
    for table in &tables[1..] {
        let of_table: Vec<&ColumnData> = table.columns.iter().collect();
        let kind = match rng.random_range(0..40) {
            0..=4 => "LEFT JOIN",
            5..=8 => "RIGHT JOIN",
            9 | 10 => "FULL JOIN",
            11 | 12 => "LEFT SEMI JOIN",
            13 | 14 => "LEFT ANTI JOIN",
            15 | 16 => "RIGHT SEMI JOIN",
            17 => "RIGHT ANTI JOIN",
            18 if table.rows <= 100 => "CROSS JOIN",
            _ => "JOIN",
        };
        let on = if kind == "CROSS JOIN" { String::new() } else { condition(rng, &from.columns, &of_table, kind) };
        from.sql.push_str(&format!(" {kind} {}{on}", table.name));
        match kind {
            "LEFT SEMI JOIN" | "LEFT ANTI JOIN" => {}
            "RIGHT SEMI JOIN" | "RIGHT ANTI JOIN" => from.columns = of_table,
            _ => from.columns.extend(of_table),
        }
    }
    from
}

fn condition(rng: &mut StdRng, earlier: &[&ColumnData], table: &[&ColumnData], kind: &str) -> String {
    if kind == "JOIN" && rng.random_bool(0.03) {
        let (l, r) = (integer(rng, earlier), integer(rng, table));
        return format!(" ON {l} {} {r}", ["<", ">="][rng.random_range(0..2)]);
    }
    let count = [1, 1, 1, 1, 1, 1, 2, 3][rng.random_range(0..8)];
    let keys: Vec<String> = (0..count).map(|_| key_pair(rng, earlier, table)).collect();
    let mut on = format!(" ON {}", keys.join(" AND "));
    if rng.random_bool(0.2) {
        let (l, r) = (integer(rng, earlier), integer(rng, table));
        on.push_str(&format!(" AND {l} {} {r}", ["<", ">=", "<>"][rng.random_range(0..3)]));
    }
    // For outer joins, a condition on one side differs between ON and WHERE.
    if rng.random_bool(0.15) {
        let side = if rng.random_bool(0.5) { earlier } else { table };
        on.push_str(&format!(" AND {}", predicate(rng, side)));
    }
    on
}

/// A condition with a subquery over `last`: IN, EXISTS or a comparison with a scalar subquery.
pub(super) fn subquery(rng: &mut StdRng, outer: &[&ColumnData], last: &TableData) -> String {
    let not = ["", "NOT "][rng.random_range(0..2)];
    let of_last: Vec<&ColumnData> = last.columns.iter().collect();
    let filter = if rng.random_bool(0.5) { format!(" WHERE {}", predicate(rng, &of_last)) } else { String::new() };
    match rng.random_range(0..10) {
        0..=3 => {
            let (l, r) = key_columns(rng, outer, &of_last);
            format!("{l} {not}IN (SELECT {r} FROM {}{filter})", last.name)
        }
        4..=7 => {
            let mut condition = key_pair(rng, outer, &of_last);
            if rng.random_bool(0.3) {
                let (l, r) = (integer(rng, outer), integer(rng, &of_last));
                condition.push_str(&format!(" AND {l} {} {r}", ["<", ">=", "<>"][rng.random_range(0..3)]));
            }
            format!("{not}EXISTS (SELECT 1 FROM {} WHERE {condition})", last.name)
        }
        _ => {
            let compare = ["<", ">=", "<>", "="][rng.random_range(0..4)];
            format!("{} {compare} {}", integer(rng, outer), scalar_subquery(rng, outer, last))
        }
    }
}

/// A scalar subquery: an aggregate over `table`, perhaps correlated with `outer`.
pub(super) fn scalar_subquery(rng: &mut StdRng, outer: &[&ColumnData], table: &TableData) -> String {
    let of_table: Vec<&ColumnData> = table.columns.iter().collect();
    let value = integer(rng, &of_table);
    let function = ["min", "max", "sum", "count", "avg"][rng.random_range(0..5)];
    let condition = match rng.random_range(0..3) {
        0 => String::new(),
        1 => format!(" WHERE {}", predicate(rng, &of_table)),
        // Equal types, because DataFusion does not decorrelate an equality with a cast.
        _ => {
            let pairs: Vec<(&str, &str)> = outer
                .iter()
                .flat_map(|o| of_table.iter().filter(|i| i.data_type == o.data_type).map(|i| (&*o.name, &*i.name)))
                .collect();
            let (l, r) = pairs[rng.random_range(0..pairs.len())];
            format!(" WHERE {l} = {r}")
        }
    };
    format!("(SELECT {function}({value}) FROM {}{condition})", table.name)
}

/// An equality of two columns, mostly of columns with few values so that rows match.
fn key_pair(rng: &mut StdRng, left: &[&ColumnData], right: &[&ColumnData]) -> String {
    let (l, r) = key_columns(rng, left, right);
    match rng.random_bool(0.05) {
        true => format!("({l} IS NOT DISTINCT FROM {r})"),
        false => format!("{l} = {r}"),
    }
}

/// The two sides of such an equality.
fn key_columns(rng: &mut StdRng, left: &[&ColumnData], right: &[&ColumnData]) -> (String, String) {
    use ColumnRole::{Boolean, Date, Decimal, ExtremeDate, ExtremeFloat, ExtremeInteger, Float, Integer, Text};
    const FREQUENT: [ColumnRole; 6] = [Integer, Integer, Integer, Text, Date, Decimal];
    const SELDOM: [ColumnRole; 5] = [ExtremeInteger, ExtremeDate, ExtremeFloat, Float, Boolean];
    let mut draw = || {
        let role = match rng.random_bool(0.85) {
            true => FREQUENT[rng.random_range(0..FREQUENT.len())],
            false => SELDOM[rng.random_range(0..SELDOM.len())],
        };
        (role, of_roles(rng, left, &[role]), of_roles(rng, right, &[role]))
    };
    let (first, second) = (draw(), draw());
    let rarity = |pair: &(ColumnRole, &ColumnData, &ColumnData)| pair.1.rarity().max(pair.2.rarity());
    let (role, l, r) = if rarity(&first) <= rarity(&second) { first } else { second };
    match role {
        Integer if rng.random_bool(0.15) => (format!("{} + {}", l.name, rng.random_range(0..4)), r.name.clone()),
        _ => (l.name.clone(), r.name.clone()),
    }
}

/// A column of each side that a set operation can combine.
pub(super) fn of_one_role<'a>(
    rng: &mut StdRng,
    left: &[&'a ColumnData],
    right: &[&'a ColumnData],
) -> (&'a ColumnData, &'a ColumnData) {
    let first = any(rng, left);
    let same: Vec<&ColumnData> = right.iter().filter(|other| other.data_type == first.data_type).copied().collect();
    // DataFusion does not always find a common type of two decimals.
    let takes_others = first.role != ColumnRole::ExtremeDecimal && rng.random_bool(0.5);
    match same.is_empty() || takes_others {
        true if first.role != ColumnRole::ExtremeDecimal => (first, of_roles(rng, right, &[first.role])),
        true => (of_roles(rng, left, &[ColumnRole::Integer]), of_roles(rng, right, &[ColumnRole::Integer])),
        false => (first, any(rng, &same)),
    }
}
