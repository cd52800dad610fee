//! Random expressions over the columns of a query.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::ColumnData;
use super::domain::ColumnRole;
use super::predicate::predicate;

/// One of `columns`.
pub(super) fn any<'a>(rng: &mut StdRng, columns: &[&'a ColumnData]) -> &'a ColumnData {
    columns[rng.random_range(0..columns.len())]
}

/// One of `choices`.
pub(super) fn pick(rng: &mut StdRng, choices: &[String]) -> String {
    choices[rng.random_range(0..choices.len())].clone()
}

/// One of the columns with one of `roles`.
pub(super) fn of_roles<'a>(rng: &mut StdRng, columns: &[&'a ColumnData], roles: &[ColumnRole]) -> &'a ColumnData {
    let fitting: Vec<&ColumnData> = columns.iter().filter(|column| roles.contains(&column.role)).copied().collect();
    any(rng, &fitting)
}

/// The name of a column of small integers.
pub(super) fn integer(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    of_roles(rng, columns, &[ColumnRole::Integer]).name.clone()
}

/// A column of numbers whose sums are exact. Sometimes a column with NaN and infinities.
pub(super) fn numeric<'a>(rng: &mut StdRng, columns: &[&'a ColumnData]) -> &'a ColumnData {
    let takes_nan = rng.random_bool(0.1);
    let is_numeric = |column: &&&ColumnData| {
        matches!(column.role, ColumnRole::Integer | ColumnRole::Decimal | ColumnRole::Float)
            && (takes_nan || !column.has_nan)
    };
    let fitting: Vec<&ColumnData> = columns.iter().filter(is_numeric).copied().collect();
    any(rng, &fitting)
}

/// The name of a column with the role of `column`, so that they can be compared.
pub(super) fn of_same_role(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    of_roles(rng, columns, &[column.role]).name.clone()
}

/// A random function of a column, by the column's role.
pub(super) fn scalar(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    let name = &column.name;
    let small = rng.random_range(1..6);
    let other = of_same_role(rng, column, columns);
    let choices = match column.role {
        ColumnRole::Integer | ColumnRole::Id => integer_functions(name, &other, small),
        ColumnRole::Decimal => decimal_functions(name, small),
        ColumnRole::Float => float_functions(column, small),
        ColumnRole::Date => date_functions(rng, name, small),
        ColumnRole::Text => text_functions(rng, name, &other, small, columns),
        ColumnRole::Boolean => vec![format!("coalesce({name}, false)"), format!("NOT {name}")],
        ColumnRole::ExtremeInteger | ColumnRole::ExtremeDate | ColumnRole::ExtremeDecimal => {
            let limit = column.extreme(rng).unwrap_or_default();
            vec![
                format!("nullif({name}, {limit})"),
                format!("coalesce({name}, {limit})"),
                format!("greatest({name}, {limit})"),
                format!("CASE WHEN {name} < {limit} THEN {name} END"),
            ]
        }
        // Without greatest and least, which treat NaN differently in DataFusion.
        ColumnRole::ExtremeFloat => {
            let limit = column.extreme(rng).unwrap_or_default();
            vec![format!("coalesce({name}, {limit})"), format!("CASE WHEN {name} < {limit} THEN {name} END")]
        }
    };
    pick(rng, &choices)
}

fn integer_functions(name: &str, other: &str, small: i32) -> Vec<String> {
    vec![
        format!("abs(CAST({name} AS BIGINT))"),
        format!("-CAST({name} AS BIGINT)"),
        format!("greatest({name}, {small})"),
        format!("least({name}, {other})"),
        format!("{name} & {small}"),
        format!("CAST({name} AS BIGINT) | {small}"),
        format!("CAST({name} AS BIGINT) >> 1"),
        format!("round(CAST({name} AS BIGINT), -1)"),
        format!("nullif({name}, {small})"),
        format!("coalesce({name}, {other}, {small})"),
        format!("CAST({name} AS BIGINT) / {small}"),
        format!("CAST({name} AS DOUBLE) / {small}"),
        format!("TRY_CAST(CAST({name} AS BIGINT) * 40 AS TINYINT)"),
        format!("CAST({name} AS DECIMAL(12, 2))"),
        format!("character_length(CAST({name} AS VARCHAR) || '{small}')"),
    ]
}

fn decimal_functions(name: &str, small: i32) -> Vec<String> {
    let mut choices = ["abs", "ceil", "floor", "round", "trunc"].map(|function| format!("{function}({name})")).to_vec();
    choices.extend([
        format!("round({name}, 1)"),
        format!("round({name}, -1)"),
        format!("trunc({name}, 1)"),
        format!("TRY_CAST({name} * 10 AS TINYINT)"),
        format!("CAST({name} AS DECIMAL(14, 4)) * {small}"),
        format!("{name} * {name}"),
        format!("{name} + {small}.125"),
        format!("CAST({name} AS DECIMAL(12, 1))"),
        format!("{name} % {small}"),
    ]);
    choices
}

fn float_functions(ColumnData { name, has_nan, .. }: &ColumnData, small: i32) -> Vec<String> {
    // inf % x is a NaN with another sign than the data's NaN, and DataFusion treats the two as different keys.
    let finite = if *has_nan { format!("nullif(abs({name}), CAST('inf' AS DOUBLE))") } else { name.clone() };
    vec![
        format!("floor({name})"),
        format!("ceil({name})"),
        format!("round({name})"),
        format!("round({name}, 2)"),
        format!("trunc({name}, 1)"),
        format!("sqrt(abs({name}))"),
        format!("signum({name} - {small})"),
        format!("{finite} % 0.375"),
        format!("{name} + {small}"),
        format!("nullif({name}, 0.0)"),
    ]
}

fn date_functions(rng: &mut StdRng, name: &str, small: i32) -> Vec<String> {
    let part = ["year", "month", "day", "dow", "doy", "week", "quarter", "hour"][rng.random_range(0..8)];
    let (long, short) = (["year", "quarter", "month"][rng.random_range(0..3)], ["week", "day"][rng.random_range(0..2)]);
    vec![
        format!("extract({part} FROM {name})"),
        format!("date_trunc('{long}', {name})"),
        format!("date_trunc('{short}', {name})"),
        format!("{name} + INTERVAL '{small} month'"),
        format!("{name} - INTERVAL '{small} month'"),
        format!("{name} - INTERVAL '{small} days'"),
        format!("CAST({name} AS DATE)"),
        format!("CAST({name} AS DATE) - DATE '1994-08-27'"),
        format!("CAST(extract(month FROM {name}) AS VARCHAR) || '/' || CAST(CAST({name} AS DATE) AS VARCHAR)"),
    ]
}

fn text_functions(rng: &mut StdRng, name: &str, other: &str, small: i32, columns: &[&ColumnData]) -> Vec<String> {
    vec![
        format!("upper({name})"),
        format!("substr({name}, 1, {small})"),
        format!("character_length({name})"),
        format!("{name} || '!'"),
        format!("nullif({name}, 'v{small}')"),
        format!("coalesce({name}, {other}, 'none')"),
        format!("CASE WHEN {} THEN {name} ELSE 'other' END", predicate(rng, columns)),
    ]
}

/// An output expression.
pub(super) fn value(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    match rng.random_range(0..10) {
        0 => arithmetic(rng, columns),
        1 => format!("CASE WHEN {} THEN {} END", predicate(rng, columns), numeric(rng, columns).name),
        2 | 3 => {
            // Prefer dates, which have the most functions.
            let is_date = rng.random_bool(0.4);
            let column = if is_date { of_roles(rng, columns, &[ColumnRole::Date]) } else { any(rng, columns) };
            scalar(rng, column, columns)
        }
        4 => case(rng, columns),
        _ => any(rng, columns).name.clone(),
    }
}

/// A CASE of several branches.
fn case(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let column = any(rng, columns);
    let other = of_same_role(rng, column, columns);
    let (first, second) = (predicate(rng, columns), predicate(rng, columns));
    format!("CASE WHEN {first} THEN {} WHEN {second} THEN NULL ELSE {other} END", column.name)
}

/// A number computed from one or two columns.
pub(super) fn arithmetic(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let names: Vec<&str> = (0..2).map(|_| numeric(rng, columns).name.as_str()).collect();
    match rng.random_range(0..20) {
        0..=7 => {
            let column = numeric(rng, columns);
            let role = [ColumnRole::Integer, ColumnRole::Decimal, ColumnRole::Float];
            let column = if role.contains(&column.role) { column } else { of_roles(rng, columns, &role) };
            number_of(rng, column, columns)
        }
        8..=11 => format!("CAST({} AS DOUBLE) + {}", names[0], rng.random_range(1..9)),
        // In 64 bits, so that results do not depend on where smaller types wrap.
        12..=14 => format!("CAST({} AS BIGINT) * 3 - CAST({} AS BIGINT)", names[0], names[1]),
        _ => format!("CAST({} AS BIGINT) % {}", names[0], rng.random_range(2..9)),
    }
}

/// An expression that fails for some rows: a division by zero, an overflow or a cast. A query has at most one.
pub(super) fn fault(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let (a, b) = (integer(rng, columns), integer(rng, columns));
    let limit = of_roles(rng, columns, &[ColumnRole::ExtremeInteger]);
    let choices = [
        format!("CAST({a} AS BIGINT) / CAST({b} AS BIGINT)"),
        format!("CAST({a} AS BIGINT) % CAST({b} AS BIGINT)"),
        format!("CAST({a} AS BIGINT) + 9223372036854775800"),
        format!("CAST({a} AS BIGINT) * 4611686018427387904"),
        format!("CAST(CAST({a} AS BIGINT) * 40 AS TINYINT)"),
        format!("CAST({} AS SMALLINT)", limit.name),
    ];
    pick(rng, &choices)
}

/// A function of a column with a numeric result.
fn number_of(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    let text = scalar(rng, column, columns);
    if text.contains("VARCHAR") { format!("CAST({} AS DOUBLE)", column.name) } else { text }
}

/// A key to group or partition by.
pub(super) fn group_key(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    match rng.random_range(0..8) {
        0 => format!("{} IS NULL", any(rng, columns).name),
        1 => format!("CASE WHEN {} THEN 1 ELSE 2 END", predicate(rng, columns)),
        2 => format!("CAST({} AS BIGINT) % {}", integer(rng, columns), rng.random_range(2..9)),
        3 | 4 => {
            let column = any(rng, columns);
            scalar(rng, column, columns)
        }
        _ => any(rng, columns).name.clone(),
    }
}
