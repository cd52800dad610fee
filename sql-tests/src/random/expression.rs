//! Random expressions over the columns of a query.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::{ColumnData, ColumnRole};

/// A column of that role.
pub(super) fn of_role<'a>(rng: &mut StdRng, columns: &'a [ColumnData], role: ColumnRole) -> &'a ColumnData {
    let fitting: Vec<&ColumnData> = columns.iter().filter(|column| column.role == role).collect();
    fitting[rng.random_range(0..fitting.len())]
}

pub(super) fn integer(rng: &mut StdRng, columns: &[ColumnData]) -> String {
    of_role(rng, columns, ColumnRole::Integer).name.clone()
}

pub(super) fn any<'a>(rng: &mut StdRng, columns: &[&'a ColumnData]) -> &'a ColumnData {
    columns[rng.random_range(0..columns.len())]
}

pub(super) fn numeric<'a>(rng: &mut StdRng, columns: &[&'a ColumnData]) -> &'a ColumnData {
    let is_numeric =
        |column: &&&ColumnData| matches!(column.role, ColumnRole::Integer | ColumnRole::Decimal | ColumnRole::Float);
    let fitting: Vec<&ColumnData> = columns.iter().filter(is_numeric).copied().collect();
    any(rng, &fitting)
}

pub(super) fn predicate(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let column = any(rng, columns);
    let name = &column.name;
    // Small numbers are in every column, large ones in few.
    let number: i32 = if rng.random_bool(0.8) { rng.random_range(-3..6) } else { rng.random_range(-5..60) };
    if rng.random_bool(0.15) {
        return computed_predicate(rng, column, columns);
    }
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
        ColumnRole::Float if number.rem_euclid(3) == 0 => format!("{name} {compare} 0.0"),
        ColumnRole::Float => format!("{name} {compare} {}.125", number.rem_euclid(5)),
        ColumnRole::Boolean => [name.clone(), format!("NOT {name}")][rng.random_range(0..2)].clone(),
    }
}

/// A condition on something computed.
fn computed_predicate(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    let (name, function) = (&column.name, scalar(rng, column, columns));
    let same: Vec<&ColumnData> = columns.iter().filter(|other| other.role == column.role).copied().collect();
    let other = &any(rng, &same).name;
    let is = ["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"][rng.random_range(0..6)];
    match (rng.random_range(0..4), column.role) {
        (0, ColumnRole::Boolean) => format!("{name} IS {is}"),
        (0, _) => format!("({name} {} {other}) IS {is}", ["=", "<", ">="][rng.random_range(0..3)]),
        (1, _) => format!("{name} IS {}DISTINCT FROM {other}", ["", "NOT "][rng.random_range(0..2)]),
        (2, _) => format!("{function} IS NOT NULL"),
        _ => format!("{name} {} {other}", ["=", "<>", "<", ">="][rng.random_range(0..4)]),
    }
}

/// A function of a column, by its role.
fn scalar(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    let name = &column.name;
    let small = rng.random_range(1..6);
    let pick = |rng: &mut StdRng, choices: &[String]| choices[rng.random_range(0..choices.len())].clone();
    match column.role {
        ColumnRole::Integer => {
            let other = of_same_role(rng, column, columns);
            let choices = [
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
                format!("TRY_CAST(CAST({name} AS BIGINT) * 40 AS TINYINT)"),
                format!("CAST({name} AS DECIMAL(12, 2))"),
                format!("character_length(CAST({name} AS VARCHAR) || '{small}')"),
            ];
            pick(rng, &choices)
        }
        ColumnRole::Decimal => {
            let choices = ["abs", "ceil", "floor", "round", "trunc"].map(|function| format!("{function}({name})"));
            let more = [
                format!("round({name}, 1)"),
                format!("round({name}, -1)"),
                format!("trunc({name}, 1)"),
                format!("TRY_CAST({name} * 10 AS TINYINT)"),
                format!("CAST({name} AS DECIMAL(14, 4)) * {small}"),
                format!("{name} % {small}"),
            ];
            pick(rng, &[&choices[..], &more[..]].concat())
        }
        ColumnRole::Float => {
            let choices = [
                format!("floor({name})"),
                format!("ceil({name})"),
                format!("round({name})"),
                format!("round({name}, 2)"),
                format!("trunc({name}, 1)"),
                format!("sqrt(abs({name}))"),
                format!("signum({name} - {small})"),
                format!("{name} % 0.375"),
                format!("CAST({name} AS DECIMAL(12, 2))"),
                format!("greatest({name}, {small}.5)"),
            ];
            pick(rng, &choices)
        }
        ColumnRole::Date => {
            let part = ["year", "month", "day", "dow", "doy", "week", "quarter", "hour"][rng.random_range(0..8)];
            let unit = ["year", "month", "week", "day"][rng.random_range(0..4)];
            let choices = [
                format!("extract({part} FROM {name})"),
                format!("date_trunc('{unit}', {name})"),
                format!("{name} + INTERVAL '{small} month'"),
                format!("{name} - INTERVAL '{small} days'"),
                format!("CAST({name} AS DATE)"),
                format!("CAST({name} AS DATE) - DATE '1994-08-27'"),
                format!("CAST(extract(month FROM {name}) AS VARCHAR) || '/' || CAST(CAST({name} AS DATE) AS VARCHAR)"),
            ];
            pick(rng, &choices)
        }
        ColumnRole::Text => {
            let other = of_same_role(rng, column, columns);
            let choices = [
                format!("upper({name})"),
                format!("substr({name}, 1, {small})"),
                format!("character_length({name})"),
                format!("{name} || '!'"),
                format!("coalesce({name}, {other}, 'none')"),
                format!("CASE WHEN {} THEN {name} ELSE 'other' END", predicate(rng, columns)),
                format!("CASE WHEN {} THEN {name} ELSE {other} END", predicate(rng, columns)),
                format!("upper(coalesce({name}, {other}))"),
                format!("{name} || {other}"),
                format!("concat(substr({name}, 1, {small}), '-', {other})"),
                format!("CASE WHEN {name} LIKE {other} || '%' THEN {other} || '!' ELSE {name} END"),
            ];
            pick(rng, &choices)
        }
        ColumnRole::Boolean => format!("coalesce({name}, false)"),
    }
}

fn of_same_role(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    let same: Vec<&ColumnData> = columns.iter().filter(|other| other.role == column.role).copied().collect();
    any(rng, &same).name.clone()
}

/// An output expression.
pub(super) fn value(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let column = numeric(rng, columns);
    match rng.random_range(0..8) {
        0 => arithmetic(rng, columns),
        2 | 3 => {
            let column = any(rng, columns);
            scalar(rng, column, columns)
        }
        1 => format!("CASE WHEN {} THEN {} END", predicate(rng, columns), column.name),
        _ => any(rng, columns).name.clone(),
    }
}

pub(super) fn arithmetic(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let names: Vec<&str> = (0..2).map(|_| numeric(rng, columns).name.as_str()).collect();
    // Of 64 bits, so that no small type wraps where another would not.
    match rng.random_range(0..5) {
        3 | 4 => {
            let column = numeric(rng, columns);
            scalar(rng, column, columns)
        }
        0 => format!("CAST({} AS DOUBLE) + {}", names[0], rng.random_range(1..9)),
        1 => format!("CAST({} AS BIGINT) * 3 - CAST({} AS BIGINT)", names[0], names[1]),
        _ => format!("CAST({} AS BIGINT) % {}", names[0], rng.random_range(2..9)),
    }
}

pub(super) fn group_key(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    match rng.random_range(0..8) {
        0 => format!("{} IS NULL", any(rng, columns).name),
        1 => format!("CASE WHEN {} THEN 1 ELSE 2 END", predicate(rng, columns)),
        2 => format!("CAST({} AS BIGINT) % {}", numeric(rng, columns).name, rng.random_range(2..9)),
        3 | 4 => {
            let column = any(rng, columns);
            scalar(rng, column, columns)
        }
        _ => any(rng, columns).name.clone(),
    }
}
