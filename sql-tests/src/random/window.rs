//! Random window functions, of frames that rows which tie in the order have in common.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::{ColumnData, ColumnRole};
use super::expression::{any, predicate};

/// One to three calls, named `w0` and on.
pub(super) fn windows(rng: &mut StdRng, columns: &[&ColumnData]) -> Vec<String> {
    let count = rng.random_range(1..=3);
    (0..count).map(|at| format!("{} AS w{at}", call(rng, columns))).collect()
}

fn call(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let partitions: Vec<String> = (0..[0, 1, 1, 2][rng.random_range(0..4)])
        .map(|_| any(rng, &of_roles(columns, &[ColumnRole::Integer, ColumnRole::Text, ColumnRole::Date])).name.clone())
        .collect();
    let partition =
        if partitions.is_empty() { String::new() } else { format!("PARTITION BY {} ", partitions.join(", ")) };
    let key = any(rng, &of_roles(columns, &[ColumnRole::Integer, ColumnRole::Date, ColumnRole::Decimal]));
    let order = format!(
        "ORDER BY {}{}{}",
        key.name,
        ["", " DESC"][rng.random_range(0..2)],
        ["", " NULLS FIRST", " NULLS LAST"][rng.random_range(0..3)]
    );
    if rng.random_bool(0.25) {
        let function = ["rank", "dense_rank", "percent_rank", "cume_dist"][rng.random_range(0..4)];
        return format!("{function}() OVER ({partition}{order})");
    }
    let frame = frame(rng, key);
    // What floats come to is open in the last digits, which taking values out again brings to the front.
    let argument = &any(rng, &of_roles(columns, &[ColumnRole::Integer, ColumnRole::Decimal])).name;
    let function = match rng.random_range(0..7) {
        0 => "count(*)".to_string(),
        1 => format!("count({})", any(rng, columns).name),
        2 => format!("{}({})", ["min", "max"][rng.random_range(0..2)], any(rng, &of_roles(columns, &VALUES)).name),
        3 => format!("avg({argument})"),
        4 => format!("{}({argument})", ["min", "max"][rng.random_range(0..2)]),
        _ => format!("sum({argument})"),
    };
    let filter =
        if rng.random_bool(0.2) { format!(" FILTER (WHERE {})", predicate(rng, columns)) } else { String::new() };
    format!("{function}{filter} OVER ({partition}{order}{frame})")
}

const VALUES: [ColumnRole; 3] = [ColumnRole::Text, ColumnRole::Float, ColumnRole::Date];

fn of_roles<'a>(columns: &[&'a ColumnData], roles: &[ColumnRole]) -> Vec<&'a ColumnData> {
    columns.iter().filter(|column| roles.contains(&column.role)).copied().collect()
}

/// A frame by the distance of keys, by peers, or none.
fn frame(rng: &mut StdRng, key: &ColumnData) -> String {
    let is_range = rng.random_bool(0.6);
    let mut distance = || {
        let number = [0, 1, 2, 5, 20][rng.random_range(0..5)];
        match key.role {
            _ if !is_range => number.to_string(),
            ColumnRole::Date if number == 5 => "INTERVAL '1' MONTH".to_string(),
            ColumnRole::Date => format!("INTERVAL '{number}' DAY"),
            ColumnRole::Decimal => format!("{number}.5"),
            _ => number.to_string(),
        }
    };
    let (near, far) = (distance(), distance());
    let bounds = match rng.random_range(0..7) {
        0 => return String::new(),
        1 => format!("UNBOUNDED PRECEDING AND {far} FOLLOWING"),
        2 => format!("{near} PRECEDING AND UNBOUNDED FOLLOWING"),
        3 => format!("{near} PRECEDING AND CURRENT ROW"),
        4 => format!("CURRENT ROW AND {far} FOLLOWING"),
        _ => format!("{near} PRECEDING AND {far} FOLLOWING"),
    };
    format!(" {} BETWEEN {bounds}", if is_range { "RANGE" } else { "GROUPS" })
}
