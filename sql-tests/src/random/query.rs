//! Random queries over given tables.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::{ColumnData, ColumnRole, TableData};

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

/// A column of that role.
fn of_role<'a>(rng: &mut StdRng, columns: &'a [ColumnData], role: ColumnRole) -> &'a ColumnData {
    let fitting: Vec<&ColumnData> = columns.iter().filter(|column| column.role == role).collect();
    fitting[rng.random_range(0..fitting.len())]
}

fn integer(rng: &mut StdRng, columns: &[ColumnData]) -> String {
    of_role(rng, columns, ColumnRole::Integer).name.clone()
}

fn any<'a>(rng: &mut StdRng, columns: &[&'a ColumnData]) -> &'a ColumnData {
    columns[rng.random_range(0..columns.len())]
}

fn numeric<'a>(rng: &mut StdRng, columns: &[&'a ColumnData]) -> &'a ColumnData {
    let is_numeric =
        |column: &&&ColumnData| matches!(column.role, ColumnRole::Integer | ColumnRole::Decimal | ColumnRole::Float);
    let fitting: Vec<&ColumnData> = columns.iter().filter(is_numeric).copied().collect();
    any(rng, &fitting)
}

fn predicate(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let column = any(rng, columns);
    let name = &column.name;
    // Small numbers are in every column, large ones in few.
    let number: i32 = if rng.random_bool(0.8) { rng.random_range(-3..6) } else { rng.random_range(-5..60) };
    if rng.random_bool(0.1) {
        return format!("{name} IS {}NULL", ["", "NOT "][rng.random_range(0..2)]);
    }
    let compare = ["=", "<>", "<>", "<", "<=", ">", ">=", ">="][rng.random_range(0..8)];
    match column.role {
        ColumnRole::Integer => match rng.random_range(0..4) {
            0 => {
                format!("{name} {}IN ({number}, {}, {})", ["", "NOT "][rng.random_range(0..2)], number + 1, number + 7)
            }
            1 => format!("{name} BETWEEN {number} AND {}", number + 15),
            2 => format!("NOT ({name} {compare} {number})"),
            _ => format!("{name} {compare} {number}"),
        },
        ColumnRole::Text => match rng.random_range(0..4) {
            0 => format!("{name} LIKE 'v{}%'", number.rem_euclid(5)),
            1 => format!("{name} IN ('', 'v1', 'v{}')", number.abs()),
            2 => format!("{name} NOT LIKE '%{}'", number.rem_euclid(10)),
            _ => format!("{name} {compare} 'v{}'", number.abs()),
        },
        ColumnRole::Date => format!("{name} {compare} DATE '1994-08-{}'", number.rem_euclid(9) + 23),
        ColumnRole::Decimal => format!("{name} {compare} {number}.25"),
        ColumnRole::Float => format!("{name} {compare} {}.125", number.rem_euclid(5)),
        ColumnRole::Boolean => [name.clone(), format!("NOT {name}")][rng.random_range(0..2)].clone(),
    }
}

/// An output expression.
fn value(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let column = numeric(rng, columns);
    match rng.random_range(0..6) {
        0 => arithmetic(rng, columns),
        1 => format!("CASE WHEN {} THEN {} END", predicate(rng, columns), column.name),
        _ => any(rng, columns).name.clone(),
    }
}

fn arithmetic(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let names: Vec<&str> = (0..2).map(|_| numeric(rng, columns).name.as_str()).collect();
    // Of 64 bits, so that no small type wraps where another would not.
    match rng.random_range(0..3) {
        0 => format!("CAST({} AS DOUBLE) + {}", names[0], rng.random_range(1..9)),
        1 => format!("CAST({} AS BIGINT) * 3 - CAST({} AS BIGINT)", names[0], names[1]),
        _ => format!("CAST({} AS BIGINT) % {}", names[0], rng.random_range(2..9)),
    }
}

fn group_key(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    match rng.random_range(0..8) {
        0 => format!("{} IS NULL", any(rng, columns).name),
        1 => format!("CASE WHEN {} THEN 1 ELSE 2 END", predicate(rng, columns)),
        2 => format!("CAST({} AS BIGINT) % {}", numeric(rng, columns).name, rng.random_range(2..9)),
        _ => any(rng, columns).name.clone(),
    }
}

/// One to four aggregates, named `a0` and on.
fn aggregates(rng: &mut StdRng, columns: &[&ColumnData]) -> Vec<String> {
    let count = rng.random_range(1..=4);
    let mut calls = vec![];
    for at in 0..count {
        let number = numeric(rng, columns).name.clone();
        let call = match rng.random_range(0..9) {
            0 => "count(*)".to_string(),
            1 => format!("count({})", any(rng, columns).name),
            2 | 3 => format!("sum({number})"),
            4 => format!("avg({number})"),
            5 => format!("sum({})", arithmetic(rng, columns)),
            6 => format!("sum(CASE WHEN {} THEN {number} ELSE 0 END)", predicate(rng, columns)),
            7 => format!("min({number})"),
            _ => format!("max({number})"),
        };
        calls.push(format!("{call} AS a{at}"));
    }
    calls
}
