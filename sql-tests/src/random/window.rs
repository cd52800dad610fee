//! Random window functions with all kinds of frames.
//!
//! ROWS frames and functions of positions have a total order. RANGE and GROUPS frames are ordered by one column, so that rows
//! tie.

use rand::Rng;
use rand::rngs::StdRng;

use super::aggregate::total_order;
use super::data::ColumnData;
use super::domain::ColumnRole;
use super::expression::{any, of_roles};
use super::predicate::predicate;

/// One to three calls, named `w0` and on.
pub(super) fn windows(rng: &mut StdRng, columns: &[&ColumnData]) -> Vec<String> {
    let count = rng.random_range(1..=3);
    (0..count).map(|at| format!("{} AS w{at}", window(rng, columns))).collect()
}

/// One window call, without a name.
pub(super) fn window(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let partition = partition(rng, columns);
    match rng.random_range(0..10) {
        0 | 1 => ranking(rng, columns, &partition),
        2 | 3 => navigation(rng, columns, &partition),
        4 | 5 => {
            let order = total_order(rng, columns);
            let frame = rows_frame(rng);
            format!("{} OVER ({partition}ORDER BY {order}{frame})", aggregate(rng, columns))
        }
        _ => {
            let key = of_roles(rng, columns, &[ColumnRole::Integer, ColumnRole::Date, ColumnRole::Decimal]);
            let order = order_by(rng, key);
            let frame = range_frame(rng, key);
            format!("{} OVER ({partition}{order}{frame})", aggregate(rng, columns))
        }
    }
}

fn partition(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let roles = [ColumnRole::Integer, ColumnRole::Text, ColumnRole::Date, ColumnRole::Boolean, ColumnRole::Float];
    let keys: Vec<String> = (0..[0, 1, 1, 2][rng.random_range(0..4)])
        .map(|_| match rng.random_bool(0.8) {
            true => of_roles(rng, columns, &roles).name.clone(),
            false => any(rng, columns).name.clone(),
        })
        .collect();
    if keys.is_empty() { String::new() } else { format!("PARTITION BY {} ", keys.join(", ")) }
}

fn order_by(rng: &mut StdRng, key: &ColumnData) -> String {
    format!(
        "ORDER BY {}{}{}",
        key.name,
        ["", " DESC"][rng.random_range(0..2)],
        ["", " NULLS FIRST", " NULLS LAST"][rng.random_range(0..3)]
    )
}

fn ranking(rng: &mut StdRng, columns: &[&ColumnData], partition: &str) -> String {
    match rng.random_range(0..6) {
        0 => format!("row_number() OVER ({partition}ORDER BY {})", total_order(rng, columns)),
        1 => {
            let order = total_order(rng, columns);
            format!("ntile({}) OVER ({partition}ORDER BY {order})", rng.random_range(1..6))
        }
        kind => {
            let function = ["rank", "dense_rank", "percent_rank", "cume_dist"][kind - 2];
            let key = any(rng, columns);
            format!("{function}() OVER ({partition}{})", order_by(rng, key))
        }
    }
}

/// A function that returns a value of another row.
fn navigation(rng: &mut StdRng, columns: &[&ColumnData], partition: &str) -> String {
    let argument = &any(rng, columns).name;
    let nulls = ["", "", " IGNORE NULLS"][rng.random_range(0..3)];
    let order = total_order(rng, columns);
    match rng.random_range(0..5) {
        0 | 1 => {
            let function = ["lag", "lead"][rng.random_range(0..2)];
            let distance = [0, 1, 1, 2, 5][rng.random_range(0..5)];
            // Stock DataFusion loses values between batches for larger distances.
            let distance = if function == "lead" && !nulls.is_empty() { distance.min(1) } else { distance };
            format!("{function}({argument}, {distance}){nulls} OVER ({partition}ORDER BY {order})")
        }
        2 => {
            let (at, frame) = (rng.random_range(1..4), rows_frame(rng));
            format!("nth_value({argument}, {at}) OVER ({partition}ORDER BY {order}{frame})")
        }
        _ => {
            let function = ["first_value", "last_value"][rng.random_range(0..2)];
            let frame = rows_frame(rng);
            format!("{function}({argument}){nulls} OVER ({partition}ORDER BY {order}{frame})")
        }
    }
}

/// An aggregate over a frame.
fn aggregate(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    // No floats: removing values from a moving sum would amplify differences in the last digits.
    let argument = of_roles(rng, columns, &[ColumnRole::Integer, ColumnRole::Decimal]).name.clone();
    let filter =
        if rng.random_bool(0.2) { format!(" FILTER (WHERE {})", predicate(rng, columns)) } else { String::new() };
    let without_nan: Vec<&ColumnData> = columns.iter().filter(|column| !column.has_nan).copied().collect();
    let extremum = ["min", "max"][rng.random_range(0..2)];
    let function = match rng.random_range(0..7) {
        0 => "count(*)".to_string(),
        1 => format!("count({})", any(rng, columns).name),
        2 => format!("{extremum}({})", any(rng, &without_nan).name),
        3 => format!("avg({argument})"),
        4 => format!("{extremum}({argument})"),
        _ => format!("sum({argument})"),
    };
    format!("{function}{filter}")
}

fn rows_frame(rng: &mut StdRng) -> String {
    let mut distance = || [0, 1, 2, 5, 40][rng.random_range(0..5)].to_string();
    let (near, far) = (distance(), distance());
    bounds(rng, "ROWS", &near, &far)
}

/// A RANGE or GROUPS frame, or none.
fn range_frame(rng: &mut StdRng, key: &ColumnData) -> String {
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
    bounds(rng, if is_range { "RANGE" } else { "GROUPS" }, &near, &far)
}

fn bounds(rng: &mut StdRng, unit: &str, near: &str, far: &str) -> String {
    let bounds = match rng.random_range(0..8) {
        0 => return String::new(),
        1 => format!("UNBOUNDED PRECEDING AND {far} FOLLOWING"),
        2 => format!("{near} PRECEDING AND UNBOUNDED FOLLOWING"),
        3 => format!("{near} PRECEDING AND CURRENT ROW"),
        4 => format!("CURRENT ROW AND {far} FOLLOWING"),
        5 => "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING".to_string(),
        _ => format!("{near} PRECEDING AND {far} FOLLOWING"),
    };
    format!(" {unit} BETWEEN {bounds}")
}
