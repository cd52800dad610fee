//! ORDER BY, LIMIT and OFFSET of random queries.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Adds a random ORDER BY, LIMIT and OFFSET, or none, to the query. `keys` need not be output columns.
///
/// Rows may tie: [`warpjoin_cli::answers::Reference`] then accepts all correct answers.
pub(super) fn ordered(rng: &mut StdRng, sql: String, keys: &[String]) -> String {
    if keys.is_empty() || rng.random_bool(0.45) {
        return if rng.random_bool(0.1) { format!("{sql}{}", limit(rng)) } else { sql };
    }
    let mut keys = keys.to_vec();
    keys.shuffle(rng);
    keys.truncate(rng.random_range(1..=keys.len().min(3)));
    let order: Vec<String> = keys.iter().map(|key| format!("{key}{}", direction(rng))).collect();
    let limit = if rng.random_bool(0.5) { limit(rng) } else { String::new() };
    format!("{sql} ORDER BY {}{limit}", order.join(", "))
}

fn direction(rng: &mut StdRng) -> String {
    let direction = ["", " DESC"][rng.random_range(0..2)];
    let nulls = ["", " NULLS FIRST", " NULLS LAST"][rng.random_range(0..3)];
    format!("{direction}{nulls}")
}

fn limit(rng: &mut StdRng) -> String {
    let rows = [0, 1, 2, 7, 7, 40, 40, 1000][rng.random_range(0..8)];
    let skipped = [0, 1, 3, 10, 500][rng.random_range(0..5)];
    match rng.random_range(0..5) {
        0 => format!(" OFFSET {skipped}"),
        1 | 2 => format!(" LIMIT {rows} OFFSET {skipped}"),
        _ => format!(" LIMIT {rows}"),
    }
}
