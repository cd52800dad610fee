//! Random queries over given tables.

use rand::Rng;
use rand::rngs::StdRng;

use super::aggregate::{Aggregates, aggregate, aggregates};
use super::data::{ColumnData, TableData};
use super::expression::{any, arithmetic, fault, group_key, integer, value};
use super::join::{From, from_clause, of_one_role, scalar_subquery, subquery};
use super::order::ordered;
use super::predicate::predicate;
use super::window::{window, windows};

/// FROM and WHERE clauses of a query.
struct Source<'a> {
    sql: String,
    columns: Vec<&'a ColumnData>,
    /// The table that a subquery in the select list reads.
    first_table: &'a TableData,
    tables: usize,
}

/// A random query over all `tables`.
pub(super) fn random_query(rng: &mut StdRng, tables: &[TableData]) -> String {
    match rng.random_range(0..24) {
        0 | 1 => set_operation(rng, tables),
        2 | 3 => shared(rng, tables),
        4 => twins(rng, tables),
        form => {
            let source = source(rng, tables);
            match form {
                // Plain rows of a single table would test only its scan.
                5..=8 if source.tables > 1 => rows(rng, &source),
                9..=12 => rows_with_windows(rng, &source),
                13 | 14 => one_group(rng, &source),
                _ => groups(rng, &source),
            }
        }
    }
}

/// Joins all tables and filters their rows.
fn source<'a>(rng: &mut StdRng, tables: &'a [TableData]) -> Source<'a> {
    // A condition with a subquery may read the last table.
    let is_subquery = tables.len() > 1 && rng.random_bool(0.25);
    let (joined, last) = tables.split_at(if is_subquery { tables.len() - 1 } else { tables.len() });
    let From { mut sql, columns } = from_clause(rng, joined);
    let mut filters: Vec<String> =
        (0..[0, 0, 1, 1, 2][rng.random_range(0..5)]).map(|_| predicate(rng, &columns)).collect();
    if let [last] = last {
        let subquery = subquery(rng, &columns, last);
        // DataFusion makes a semi or anti join of a single condition, and a mark join if there is another one.
        filters.truncate(if rng.random_bool(0.7) { 0 } else { 1 });
        filters.push(subquery);
    }
    if !filters.is_empty() {
        sql.push_str(&format!(" WHERE {}", filters.join([" AND ", " AND ", " OR "][rng.random_range(0..3)])));
    }
    Source { sql, columns, first_table: &tables[0], tables: tables.len() }
}

fn named(prefix: char, values: &[String]) -> Vec<String> {
    values.iter().enumerate().map(|(at, value)| format!("{value} AS {prefix}{at}")).collect()
}

fn names(prefix: char, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}{at}")).collect()
}

fn rows(rng: &mut StdRng, source: &Source) -> String {
    let Source { sql, columns, first_table, .. } = source;
    let mut values: Vec<String> = (0..rng.random_range(1..=5)).map(|_| value(rng, columns)).collect();
    match rng.random_range(0..16) {
        0 => values.push(fault(rng, columns)),
        1 => values.push(scalar_subquery(rng, columns, first_table)),
        _ => {}
    }
    let select = named('o', &values).join(", ");
    let mut keys = names('o', values.len());
    if rng.random_bool(0.2) {
        return ordered(rng, format!("SELECT DISTINCT {select} {sql}"), &keys);
    }
    keys.extend((0..2).map(|_| any(rng, columns).name.clone()));
    keys.push(group_key(rng, columns));
    ordered(rng, format!("SELECT {select} {sql}"), &keys)
}

/// Rows with window functions, or a query over them.
fn rows_with_windows(rng: &mut StdRng, source: &Source) -> String {
    let Source { sql, columns, .. } = source;
    let shown: Vec<String> = (0..rng.random_range(0..=3)).map(|_| any(rng, columns).name.clone()).collect();
    let calls = windows(rng, columns);
    let mut keys = names('o', shown.len());
    keys.extend(names('w', calls.len()));
    let rows = format!("SELECT {} {sql}", [named('o', &shown), calls].concat().join(", "));
    match rng.random_range(0..10) {
        0 => format!("SELECT count(*) AS n, count(w0) AS m FROM ({rows}) AS r WHERE w0 IS NOT NULL"),
        // First rows of each partition.
        1 => {
            let (partition, order) = (group_key(rng, columns), super::aggregate::total_order(rng, columns));
            let function = ["row_number", "rank", "dense_rank"][rng.random_range(0..3)];
            let call = format!("{function}() OVER (PARTITION BY {partition} ORDER BY {order})");
            format!(
                "SELECT * FROM (SELECT {} AS o0, {call} AS w0 {sql}) AS r WHERE w0 <= {}",
                any(rng, columns).name,
                rng.random_range(1..4)
            )
        }
        2..=4 => ordered(rng, rows, &keys),
        _ => rows,
    }
}

fn one_group(rng: &mut StdRng, source: &Source) -> String {
    let Source { sql, columns, .. } = source;
    let mut calls = aggregates(rng, columns, false).calls;
    if rng.random_bool(0.06) {
        calls.push(format!("sum({}) AS fault", fault(rng, columns)));
    }
    format!("SELECT {} {sql}", calls.join(", "))
}

/// Groups, perhaps with HAVING or grouping sets, perhaps grouped again.
fn groups(rng: &mut StdRng, source: &Source) -> String {
    let Source { sql, columns, .. } = source;
    let keys: Vec<String> = (0..rng.random_range(1..=3)).map(|_| group_key(rng, columns)).collect();
    let having = match rng.random_range(0..10) {
        0 => " HAVING count(*) > 1".to_string(),
        1 => format!(" HAVING {} IS NOT NULL", aggregate(rng, columns, true)),
        2 => format!(" HAVING sum({}) >= {}", integer(rng, columns), rng.random_range(-2..9)),
        _ => String::new(),
    };
    let sets = match rng.random_range(0..12) {
        0 => format!("ROLLUP ({})", keys.join(", ")),
        1 => format!("CUBE ({})", keys.join(", ")),
        2 => format!("GROUPING SETS (({}), (), ({}))", keys.join(", "), keys[0]),
        _ => keys.join(", "),
    };
    let Aggregates { mut calls, is_exact } = aggregates(rng, columns, true);
    let aggregates = calls.len();
    if sets.starts_with(&keys[0]) {
        // Any value of a key is the key.
        calls.extend(rng.random_bool(0.1).then(|| format!("any_value({}) AS v0", keys[0])));
    } else {
        let of = &keys[..rng.random_range(1..=keys.len())];
        calls.extend(rng.random_bool(0.5).then(|| format!("grouping({}) AS v0", of.join(", "))));
    }
    let key_columns = named('k', &keys).join(", ");
    let grouped = format!("SELECT {key_columns}, {} {sql} GROUP BY {sets}{having}", calls.join(", "));
    // The last bits of moments differ between engines, so do not group or sort by them.
    match rng.random_range(0..20) {
        0 | 1 if is_exact[0] => {
            format!("SELECT a0, count(*) AS n, count(k0) AS m FROM ({grouped}) AS g GROUP BY a0")
        }
        2 if sets.starts_with(&keys[0]) => format!("SELECT DISTINCT {key_columns} {sql}"),
        3 if is_exact[0] => {
            format!("SELECT k0, a0, rank() OVER (ORDER BY a0) AS w0 FROM ({grouped}) AS g")
        }
        _ => {
            let exact = names('a', aggregates)
                .into_iter()
                .zip(is_exact)
                .filter_map(|(name, is_exact)| is_exact.then_some(name));
            let mut order: Vec<String> = names('k', keys.len()).into_iter().chain(exact).collect();
            if !sets.contains("(") {
                order.push(format!("count({})", any(rng, columns).name));
            }
            ordered(rng, grouped, &order)
        }
    }
}

/// A set operation over rows of one or two tables.
fn set_operation(rng: &mut StdRng, tables: &[TableData]) -> String {
    let (first, last) = (&tables[0], &tables[tables.len() - 1]);
    let (left, right): (Vec<&ColumnData>, Vec<&ColumnData>) =
        (first.columns.iter().collect(), last.columns.iter().collect());
    let pairs: Vec<_> = (0..rng.random_range(1..=3)).map(|_| of_one_role(rng, &left, &right)).collect();
    let operation =
        ["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"][rng.random_range(0..6)];
    let list = |side: Vec<&str>| {
        let named: Vec<String> = side.iter().enumerate().map(|(at, name)| format!("{name} AS o{at}")).collect();
        named.join(", ")
    };
    let (l, r) = (
        list(pairs.iter().map(|(left, _)| &*left.name).collect()),
        list(pairs.iter().map(|(_, right)| &*right.name).collect()),
    );
    let mut filter = |columns: &[&ColumnData]| match rng.random_bool(0.6) {
        true => format!(" WHERE {}", predicate(rng, columns)),
        false => String::new(),
    };
    let (on_left, on_right) = (filter(&left), filter(&right));
    let sql = format!("SELECT {l} FROM {}{on_left} {operation} SELECT {r} FROM {}{on_right}", first.name, last.name);
    match rng.random_range(0..4) {
        0 => format!("SELECT o0, count(*) AS n FROM ({sql}) AS u GROUP BY o0"),
        1 => format!("SELECT count(*) AS n, count(o0) AS m FROM ({sql}) AS u"),
        _ => ordered(rng, sql, &names('o', pairs.len())),
    }
}

/// A common table expression that is read twice.
fn shared(rng: &mut StdRng, tables: &[TableData]) -> String {
    let source = source(rng, tables);
    let Source { sql, columns, .. } = &source;
    let key = if rng.random_bool(0.5) { integer(rng, columns) } else { any(rng, columns).name.clone() };
    let calls = [integer(rng, columns), integer(rng, columns)];
    let common = match rng.random_bool(0.7) {
        true => format!("SELECT {key} AS k, sum({}) AS s, count({}) AS c {sql} GROUP BY {key}", calls[0], calls[1]),
        false => format!("SELECT DISTINCT {key} AS k, {} AS s, {} AS c {sql}", calls[0], calls[1]),
    };
    let query = match rng.random_range(0..4) {
        0 => "SELECT a.k AS o0, a.s AS o1, b.c AS o2 FROM x AS a JOIN x AS b ON a.k = b.k".to_string(),
        1 => "SELECT a.k AS o0, a.c AS o1, b.s AS o2 FROM x AS a LEFT JOIN x AS b ON a.c = b.s".to_string(),
        2 => "SELECT k AS o0, s AS o1, c AS o2 FROM x WHERE c > 1 UNION ALL SELECT k, c, s FROM x WHERE s < 9"
            .to_string(),
        _ => "SELECT k AS o0, s AS o1, c AS o2 FROM x WHERE s >= (SELECT avg(s) FROM x)".to_string(),
    };
    ordered(rng, format!("WITH x AS ({common}) {query}"), &names('o', 3))
}

/// Two subqueries that differ in one detail and must not be shared.
fn twins(rng: &mut StdRng, tables: &[TableData]) -> String {
    let source = source(rng, tables);
    let Source { sql, columns, .. } = &source;
    let (argument, order) = (any(rng, columns).name.clone(), super::aggregate::total_order(rng, columns));
    let key = any(rng, columns).name.clone();
    let number = integer(rng, columns);
    let (first, second) = match rng.random_range(0..7) {
        0 => {
            let function = ["lag", "lead", "first_value", "last_value"][rng.random_range(0..4)];
            let call =
                |nulls: &str| format!("{function}({argument}){nulls} OVER (PARTITION BY {key} ORDER BY {order})");
            (call(" IGNORE NULLS"), call(""))
        }
        1 => {
            let call = |far: i32| {
                format!(
                    "sum({number}) OVER (PARTITION BY {key} ORDER BY {order} ROWS BETWEEN {far} PRECEDING AND CURRENT ROW)"
                )
            };
            (call(1), call(2))
        }
        2 => {
            let call =
                |distance: i32| format!("lag({argument}, {distance}) OVER (PARTITION BY {key} ORDER BY {order})");
            (call(1), call(2))
        }
        3 => (window(rng, columns), window(rng, columns)),
        4 => {
            let grouped = |distinct: &str| format!("SELECT sum({distinct}{number}) AS v {sql} GROUP BY {key}");
            return both(&grouped(""), &grouped("DISTINCT "));
        }
        5 => {
            let filter = predicate(rng, columns);
            let grouped = |filter: &str| format!("SELECT count({argument}){filter} AS v {sql} GROUP BY {key}");
            return both(&grouped(""), &grouped(&format!(" FILTER (WHERE {filter})")));
        }
        _ => {
            let value = arithmetic(rng, columns);
            // The minimum of 0.0 and -0.0 may be either, and count(DISTINCT) distinguishes them. Adding 0 makes them equal.
            let grouped = |function: &str| format!("SELECT {function}({value}) + 0 AS v {sql} GROUP BY {key}");
            return both(&grouped("min"), &grouped("max"));
        }
    };
    both(&format!("SELECT {first} AS v {sql}"), &format!("SELECT {second} AS v {sql}"))
}

fn both(first: &str, second: &str) -> String {
    let summary = "count(*) AS n, count(v) AS m, count(DISTINCT v) AS d";
    format!("SELECT {summary} FROM ({first}) AS x UNION ALL SELECT {summary} FROM ({second}) AS y")
}
