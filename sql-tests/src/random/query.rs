//! Random queries over given tables.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::data::{ColumnData, ColumnRole, TableData};
use super::expression::{any, arithmetic, group_key, integer, numeric, of_role, predicate, value};
use super::window::windows;

/// A query that joins all `tables` and then filters, projects or groups.
pub(super) fn random_query(rng: &mut StdRng, tables: &[TableData]) -> String {
    // The last table may stand in a subquery, where only its presence counts.
    let is_subquery = tables.len() > 1 && rng.random_bool(0.25);
    let (tables, last) = tables.split_at(if is_subquery { tables.len() - 1 } else { tables.len() });
    let columns: Vec<&ColumnData> = tables.iter().flat_map(|table| &table.columns).collect();
    let mut sql = from_clause(rng, tables);
    let mut filters: Vec<String> = (0..rng.random_range(0..3)).map(|_| predicate(rng, &columns)).collect();
    if let [last] = last {
        let subquery = subquery(rng, tables, last);
        // Alone it becomes a semi or anti join, beside another condition a mark.
        filters.truncate(if rng.random_bool(0.7) { 0 } else { 1 });
        filters.push(subquery);
    }
    if !filters.is_empty() {
        sql.push_str(&format!(" WHERE {}", filters.join([" AND ", " OR ", " OR "][rng.random_range(0..3)])));
    }
    match rng.random_range(0..12) {
        // Rows with what windows say of them.
        10 | 11 => {
            let count = rng.random_range(0..=3);
            let shown: Vec<String> = (0..count).map(|at| format!("{} AS o{at}", any(rng, &columns).name)).collect();
            format!("SELECT {} {sql}", [shown, windows(rng, &columns)].concat().join(", "))
        }
        // Rows.
        0..=2 if tables.len() > 1 => {
            let count = rng.random_range(1..=5);
            let values: Vec<String> = (0..count).map(|_| value(rng, &columns)).collect();
            let named: Vec<String> = values.iter().enumerate().map(|(at, value)| format!("{value} AS o{at}")).collect();
            let rows = format!("SELECT {} {sql}", named.join(", "));
            match rng.random_range(0..8) {
                0 => format!("SELECT DISTINCT{}", &rows["SELECT".len()..]),
                1 => {
                    let from = from_clause(rng, tables);
                    let filter = predicate(rng, &columns);
                    format!("{rows} UNION ALL SELECT {} {from} WHERE {filter}", named.join(", "))
                }
                _ => ordered(rng, rows, 'o', &values),
            }
        }
        // One group.
        3 => format!("SELECT {} {sql}", aggregates(rng, &columns).join(", ")),
        // Groups, perhaps with HAVING, perhaps grouped again.
        _ => {
            let count = rng.random_range(1..=3);
            let keys: Vec<String> = (0..count).map(|_| group_key(rng, &columns)).collect();
            let named: Vec<String> = keys.iter().enumerate().map(|(at, key)| format!("{key} AS k{at}")).collect();
            let having = if rng.random_bool(0.2) { " HAVING count(*) > 1" } else { "" };
            let sets = match rng.random_range(0..12) {
                0 => format!("ROLLUP ({})", keys.join(", ")),
                1 => format!("CUBE ({})", keys.join(", ")),
                2 => format!("GROUPING SETS (({}), (), ({}))", keys.join(", "), keys[0]),
                _ => keys.join(", "),
            };
            let calls = aggregates(rng, &columns);
            // The last bits of moments differ, and with them the groups.
            let is_exact = !calls[0].starts_with("stddev") && !calls[0].starts_with("var");
            let grouped = format!("SELECT {}, {} {sql} GROUP BY {sets}{having}", named.join(", "), calls.join(", "));
            if rng.random_bool(0.15) && is_exact {
                format!("SELECT a0, count(*) AS n, count(k0) AS m FROM ({grouped}) GROUP BY a0")
            } else {
                ordered(rng, grouped, 'k', &keys)
            }
        }
    }
}

/// The query, sometimes in an order: of output columns whose values are the same bits on both sides.
fn ordered(rng: &mut StdRng, sql: String, prefix: char, values: &[String]) -> String {
    let is_plain =
        |value: &String| value.chars().all(|c| c.is_alphanumeric() || c == '_') || value.ends_with("IS NULL");
    let mut keys: Vec<usize> = (0..values.len()).filter(|&at| is_plain(&values[at])).collect();
    if keys.is_empty() || rng.random_bool(0.6) {
        return sql;
    }
    keys.shuffle(rng);
    let shown = rng.random_range(1..=keys.len());
    let key = |rng: &mut StdRng, at: usize| {
        let direction = ["", " DESC"][rng.random_range(0..2)];
        let nulls = ["", " NULLS FIRST", " NULLS LAST"][rng.random_range(0..3)];
        format!("{prefix}{at}{direction}{nulls}")
    };
    let order: Vec<String> = keys[..shown].iter().map(|&at| key(rng, at)).collect();
    // An OFFSET would cut through rows that tie, too: which ones then come out is open.
    let limit = match rng.random_range(0..3) {
        0 => format!(" LIMIT {}", [0, 1, 7, 40][rng.random_range(0..4)]),
        _ => String::new(),
    };
    format!("{sql} ORDER BY {}{limit}", order.join(", "))
}

fn from_clause(rng: &mut StdRng, tables: &[TableData]) -> String {
    let mut sql = format!("FROM {}", tables[0].name);
    for (at, table) in tables.iter().enumerate().skip(1) {
        let kind = match rng.random_range(0..20) {
            0..=2 => "LEFT JOIN",
            3 | 4 => "RIGHT JOIN",
            5 => "FULL JOIN",
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

/// A condition on whether `last` has a row that matches one of the `tables`.
fn subquery(rng: &mut StdRng, tables: &[TableData], last: &TableData) -> String {
    let outer = &tables[rng.random_range(0..tables.len())];
    let not = ["", "NOT "][rng.random_range(0..2)];
    let of_last: Vec<&ColumnData> = last.columns.iter().collect();
    if rng.random_bool(0.4) {
        let (l, r) = key_columns(rng, outer, last);
        let filter = if rng.random_bool(0.5) { format!(" WHERE {}", predicate(rng, &of_last)) } else { String::new() };
        return format!("{l} {not}IN (SELECT {r} FROM {}{filter})", last.name);
    }
    let mut condition = key_pair(rng, outer, last);
    if rng.random_bool(0.3) {
        let (l, r) = (integer(rng, &outer.columns), integer(rng, &last.columns));
        condition.push_str(&format!(" AND {l} {} {r}", ["<", ">=", "<>"][rng.random_range(0..3)]));
    }
    format!("{not}EXISTS (SELECT 1 FROM {} WHERE {condition})", last.name)
}

/// An equality of two columns; mostly of columns with few values, so that rows match.
fn key_pair(rng: &mut StdRng, left: &TableData, right: &TableData) -> String {
    let (l, r) = key_columns(rng, left, right);
    format!("{l} = {r}")
}

/// Two sides of such an equality.
fn key_columns(rng: &mut StdRng, left: &TableData, right: &TableData) -> (String, String) {
    use ColumnRole::{Date, Decimal, Integer, Text};
    let mut draw = || {
        let role = [Integer, Integer, Text, Date, Decimal][rng.random_range(0..5)];
        (role, of_role(rng, &left.columns, role), of_role(rng, &right.columns, role))
    };
    let (first, second) = (draw(), draw());
    let rarity = |pair: &(ColumnRole, &ColumnData, &ColumnData)| pair.1.rarity().max(pair.2.rarity());
    let (role, l, r) = if rarity(&first) <= rarity(&second) { first } else { second };
    match role {
        Integer if rng.random_bool(0.15) => (format!("{} + {}", l.name, rng.random_range(0..4)), r.name.clone()),
        _ => (l.name.clone(), r.name.clone()),
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
            // Stock DataFusion 55.2 fails at bit_xor(DISTINCT).
            9 => format!("{}(DISTINCT {})", ["sum", "avg"][rng.random_range(0..2)], whole(rng, columns)),
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
