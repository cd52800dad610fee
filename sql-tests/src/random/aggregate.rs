//! Random aggregate calls.

use rand::Rng;
use rand::rngs::StdRng;

use super::data::ColumnData;
use super::domain::ColumnRole;
use super::expression::{any, arithmetic, group_key, integer, numeric, of_roles, pick};
use super::predicate::predicate;

/// Aggregates of a query, named `a0` and on.
#[derive(Debug)]
pub(super) struct Aggregates {
    /// Such as `sum(t0_c1) AS a0`.
    pub(super) calls: Vec<String>,
    /// Whether each result has the same bits for any order of rows.
    pub(super) is_exact: Vec<bool>,
}

/// One to four aggregates. `is_grouped`: the query has a GROUP BY.
pub(super) fn aggregates(rng: &mut StdRng, columns: &[&ColumnData], is_grouped: bool) -> Aggregates {
    let count = rng.random_range(1..=4);
    let calls: Vec<String> = (0..count).map(|at| format!("{} AS a{at}", aggregate(rng, columns, is_grouped))).collect();
    let inexact = ["stddev", "var", "covar", "corr", "median", "percentile", "regr_"];
    // Rounded to decimal places, floats are no longer multiples of a power of two.
    let rounded = ["trunc(", "round("];
    let is_exact = |call: &String| {
        !inexact.iter().any(|name| call.starts_with(name)) && !rounded.iter().any(|name| call.contains(name))
    };
    let is_exact = calls.iter().map(is_exact).collect();
    Aggregates { calls, is_exact }
}

/// One aggregate call, without a name.
pub(super) fn aggregate(rng: &mut StdRng, columns: &[&ColumnData], is_grouped: bool) -> String {
    let number = numeric(rng, columns).name.clone();
    let whole = integer(rng, columns);
    match rng.random_range(0..22) {
        0 => "count(*)".to_string(),
        1 => format!("count({})", any(rng, columns).name),
        2 | 3 => format!("sum({number})"),
        4 => format!("avg({number})"),
        5 => format!("sum({})", arithmetic(rng, columns)),
        6 => format!("sum(CASE WHEN {} THEN {number} ELSE 0 END)", predicate(rng, columns)),
        7 | 8 => format!("{}({})", ["min", "max"][rng.random_range(0..2)], extremum_argument(rng, columns, is_grouped)),
        9 => format!("count(DISTINCT {})", group_key(rng, columns)),
        // Stock DataFusion 55.2 fails for bit_xor(DISTINCT).
        10 => format!("{}(DISTINCT {whole})", ["sum", "avg", "min", "max"][rng.random_range(0..4)]),
        11 => format!("{}({whole})", ["bit_and", "bit_or", "bit_xor"][rng.random_range(0..3)]),
        12 => format!("{}({})", ["bool_and", "bool_or"][rng.random_range(0..2)], predicate(rng, columns)),
        13 => format!("sum({number}) FILTER (WHERE {})", predicate(rng, columns)),
        14 => format!("count(*) FILTER (WHERE {})", predicate(rng, columns)),
        15 => format!("{}({whole})", ["stddev", "var_pop", "stddev_pop", "var"][rng.random_range(0..4)]),
        16 => {
            let other = integer(rng, columns);
            format!("{}({whole}, {other})", ["covar_samp", "covar_pop", "corr"][rng.random_range(0..3)])
        }
        17 => ordered(rng, columns),
        18 => pick(rng, &[format!("median({whole})"), format!("percentile_cont(CAST({whole} AS DOUBLE), 0.25)")]),
        19 => {
            let functions = ["slope", "r2", "sxx", "syy", "sxy", "avgx", "avgy", "count"];
            format!("regr_{}({whole}, {})", functions[rng.random_range(0..functions.len())], integer(rng, columns))
        }
        // DataFusion's estimate of so few values is exact.
        20 => format!("approx_distinct({})", predicate(rng, columns)),
        // DataFusion's sums of integers wrap. Its sums of decimals at their limits are not tested.
        _ => format!("sum({})", of_roles(rng, columns, &[ColumnRole::ExtremeInteger]).name),
    }
}

/// Any column, but none with NaN if the query is grouped: only DataFusion's ungrouped extrema order NaN as the devices do.
fn extremum_argument(rng: &mut StdRng, columns: &[&ColumnData], is_grouped: bool) -> String {
    let fitting: Vec<&ColumnData> = columns.iter().filter(|column| !(is_grouped && column.has_nan)).copied().collect();
    any(rng, &fitting).name.clone()
}

/// The first or last value in a total order.
fn ordered(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let function = ["first_value", "last_value"][rng.random_range(0..2)];
    let nulls = ["", " IGNORE NULLS"][rng.random_range(0..2)];
    let (argument, order) = (any(rng, columns).name.clone(), total_order(rng, columns));
    format!("{function}({argument} ORDER BY {order}){nulls}")
}

/// Sort keys of a total order: a column, and the row numbers of all tables.
pub(super) fn total_order(rng: &mut StdRng, columns: &[&ColumnData]) -> String {
    let direction = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"][rng.random_range(0..4)];
    let mut keys = vec![format!("{}{direction}", any(rng, columns).name)];
    let ids = columns.iter().filter(|column| column.role == ColumnRole::Id);
    keys.extend(ids.map(|column| format!("{}{}", column.name, ["", " DESC"][rng.random_range(0..2)])));
    keys.join(", ")
}
