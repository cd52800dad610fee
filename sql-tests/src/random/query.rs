//! Random queries over given tables.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::{ColumnData, ColumnRole, TableData};
use super::expression::{any, arithmetic, group_key, integer, numeric, of_role, predicate, value};

/// A query that joins all `tables` and then filters, projects or groups.
pub(super) fn random_query(rng: &mut StdRng, tables: &[TableData]) -> String {
    let columns: Vec<&ColumnData> = tables.iter().flat_map(|table| &table.columns).collect();
    let mut sql = from_clause(rng, tables);
    let filters: Vec<String> = (0..rng.random_range(0..3)).map(|_| predicate(rng, &columns)).collect();
    if !filters.is_empty() {
        sql.push_str(&format!(" WHERE {}", filters.join([" AND ", " OR ", " OR "][rng.random_range(0..3)])));
    }
    match rng.random_range(0..10) {
        // Rows.
        0..=2 if tables.len() > 1 => {
            let count = rng.random_range(1..=5);
            let exprs: Vec<String> = (0..count).map(|at| format!("{} AS o{at}", value(rng, &columns))).collect();
            format!("SELECT {} {sql}", exprs.join(", "))
        }
        // One group.
        3 => format!("SELECT {} {sql}", aggregates(rng, &columns).join(", ")),
        // Groups, perhaps with HAVING, perhaps grouped again.
        _ => {
            let count = rng.random_range(1..=3);
            let keys: Vec<String> = (0..count).map(|_| group_key(rng, &columns)).collect();
            let named: Vec<String> = keys.iter().enumerate().map(|(at, key)| format!("{key} AS k{at}")).collect();
            let having = if rng.random_bool(0.2) { " HAVING count(*) > 1" } else { "" };
            let grouped = format!(
                "SELECT {}, {} {sql} GROUP BY {}{having}",
                named.join(", "),
                aggregates(rng, &columns).join(", "),
                keys.join(", ")
            );
            if rng.random_bool(0.15) {
                format!("SELECT a0, count(*) AS n, count(k0) AS m FROM ({grouped}) GROUP BY a0")
            } else {
                grouped
            }
        }
    }
}

fn from_clause(rng: &mut StdRng, tables: &[TableData]) -> String {
    let mut sql = format!("FROM {}", tables[0].name);
    for (at, table) in tables.iter().enumerate().skip(1) {
        let kind = match rng.random_range(0..20) {
            0 => "LEFT JOIN",
            1 => "RIGHT JOIN",
            _ => "JOIN",
        };
        let earlier = &tables[rng.random_range(0..at)];
        let keys: Vec<String> =
            (0..[1, 1, 1, 1, 1, 1, 2, 3][rng.random_range(0..8)]).map(|_| key_pair(rng, earlier, table)).collect();
        let mut on = keys.join(" AND ");
        if rng.random_bool(0.2) {
            let (l, r) = (integer(rng, &earlier.columns), integer(rng, &table.columns));
            on.push_str(&format!(" AND {l} {} {r}", ["<", ">=", "<>"][rng.random_range(0..3)]));
        }
        sql.push_str(&format!(" {kind} {} ON {on}", table.name));
    }
    sql
}

/// An equality of two columns; mostly of columns with few values, so that rows match.
fn key_pair(rng: &mut StdRng, left: &TableData, right: &TableData) -> String {
    use ColumnRole::{Date, Decimal, Integer, Text};
    let mut draw = || {
        let role = [Integer, Integer, Text, Date, Decimal][rng.random_range(0..5)];
        (role, of_role(rng, &left.columns, role), of_role(rng, &right.columns, role))
    };
    let (first, second) = (draw(), draw());
    let rarity = |pair: &(ColumnRole, &ColumnData, &ColumnData)| pair.1.rarity().max(pair.2.rarity());
    let (role, l, r) = if rarity(&first) <= rarity(&second) { first } else { second };
    match role {
        Integer if rng.random_bool(0.15) => format!("{} + {} = {}", l.name, rng.random_range(0..4), r.name),
        _ => format!("{} = {}", l.name, r.name),
    }
}

/// A column of integers.
fn whole(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let fitting: Vec<&ColumnData> =
        columns.iter().filter(|column| column.role == ColumnRole::Integer).copied().collect();
    any(rng, &fitting).name.clone()
}

/// One to four aggregates, named `a0` and on.
fn aggregates(rng: &mut StdRng, columns: &[&ColumnData]) -> Vec<String> {
    let count = rng.random_range(1..=4);
    let mut calls = vec![];
    for at in 0..count {
        let number = numeric(rng, columns).name.clone();
        let call = match rng.random_range(0..14) {
            0 => "count(*)".to_string(),
            1 => format!("count({})", any(rng, columns).name),
            2 | 3 => format!("sum({number})"),
            4 => format!("avg({number})"),
            5 => format!("sum({})", arithmetic(rng, columns)),
            6 => format!("sum(CASE WHEN {} THEN {number} ELSE 0 END)", predicate(rng, columns)),
            7 => format!("min({number})"),
            8 => format!("count(DISTINCT {})", group_key(rng, columns)),
            9 => format!("{}(DISTINCT {})", ["sum", "avg", "bit_xor"][rng.random_range(0..3)], whole(rng, columns)),
            10 => format!("{}({})", ["bit_and", "bit_or", "bit_xor"][rng.random_range(0..3)], whole(rng, columns)),
            11 => format!("{}({})", ["bool_and", "bool_or"][rng.random_range(0..2)], predicate(rng, columns)),
            12 => format!("sum({number}) FILTER (WHERE {})", predicate(rng, columns)),
            13 => format!(
                "{}({})",
                ["stddev", "var_pop", "stddev_pop", "var"][rng.random_range(0..4)],
                whole(rng, columns)
            ),
            _ => format!("max({number})"),
        };
        calls.push(format!("{call} AS a{at}"));
    }
    calls
}
