//! Random conditions over the columns of a query.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::ColumnData;
use super::domain::ColumnRole;
use super::expression::{any, of_same_role, scalar};

/// A condition on one or two columns.
pub(super) fn predicate(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let column = any(rng, columns);
    let name = &column.name;
    match rng.random_range(0..20) {
        0..=2 => return computed(rng, column, columns),
        3 | 4 => return format!("{name} IS {}NULL", ["", "NOT "][rng.random_range(0..2)]),
        _ => {}
    }
    if let Some(literal) = column.extreme(rng) {
        return at_a_limit(rng, column, &literal);
    }
    // Small numbers occur in every column, large ones in few.
    let number: i32 = if rng.random_bool(0.8) { rng.random_range(-3..6) } else { rng.random_range(-5..60) };
    let compare = ["=", "<>", "<>", "<", "<=", ">", ">=", ">="][rng.random_range(0..8)];
    let not = ["", "NOT "][rng.random_range(0..2)];
    match column.role {
        ColumnRole::Integer | ColumnRole::Id => match rng.random_range(0..5) {
            0 => format!("{name} {not}IN ({number}, {}, {})", number + 1, number + 7),
            // More values than the optimizer unrolls into comparisons.
            1 => {
                let list: Vec<String> = (0..12).map(|step| (number + step * 3).to_string()).collect();
                format!("{name} {not}IN ({})", list.join(", "))
            }
            2 => format!("{name} {not}BETWEEN {number} AND {}", number + 15),
            3 => format!("NOT ({name} {compare} {number})"),
            _ => format!("{name} {compare} {number}"),
        },
        ColumnRole::Text => match rng.random_range(0..6) {
            0 => format!("{name} LIKE 'v{}%'", number.rem_euclid(5)),
            1 => format!("{name} IN ('', 'v1', 'v{}')", number.abs()),
            2 => format!("{name} NOT LIKE '%{}'", number.rem_euclid(10)),
            3 => format!("{name} {}LIKE '_{}'", not, number.rem_euclid(10)),
            4 => format!("{name} {not}BETWEEN 'a' AND 'v{}'", number.rem_euclid(5)),
            _ => format!("{name} {compare} 'v{}'", number.abs()),
        },
        ColumnRole::Date => format!("{name} {compare} DATE '1994-08-{}'", number.rem_euclid(9) + 23),
        ColumnRole::Decimal => format!("{name} {compare} {number}.25"),
        ColumnRole::Float if number.rem_euclid(3) == 0 => format!("{name} {compare} 0.0"),
        ColumnRole::Float => format!("{name} {compare} {}.125", number.rem_euclid(5)),
        _ => [name.clone(), format!("NOT {name}")][rng.random_range(0..2)].clone(),
    }
}

/// A comparison of a column with an extreme role and one of its values.
fn at_a_limit(rng: &mut StdRng, column: &ColumnData, literal: &str) -> String {
    let name = &column.name;
    let compare = ["=", "<>", "<", "<=", ">", ">="][rng.random_range(0..6)];
    let other = column.extreme(rng).unwrap_or_default();
    match rng.random_range(0..6) {
        0 => format!("{name} IN ({literal}, {other})"),
        1 => format!("{name} NOT IN ({literal}, {other})"),
        2 => format!("{name} BETWEEN {literal} AND {other}"),
        3 => format!("({name} IS {}DISTINCT FROM {literal})", ["", "NOT "][rng.random_range(0..2)]),
        _ => format!("{name} {compare} {literal}"),
    }
}

/// A condition on a computed value.
fn computed(rng: &mut StdRng, column: &ColumnData, columns: &[&ColumnData]) -> String {
    let (name, function) = (&column.name, scalar(rng, column, columns));
    let other = of_same_role(rng, column, columns);
    let is = ["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN"][rng.random_range(0..6)];
    match (rng.random_range(0..4), column.role) {
        (0, ColumnRole::Boolean) => format!("{name} IS {is}"),
        (0, _) => format!("({name} {} {other}) IS {is}", ["=", "<", ">="][rng.random_range(0..3)]),
        (1, _) => format!("({name} IS {}DISTINCT FROM {other})", ["", "NOT "][rng.random_range(0..2)]),
        (2, _) => format!("{function} IS NOT NULL"),
        _ => format!("{name} {} {other}", ["=", "<>", "<", ">="][rng.random_range(0..4)]),
    }
}
