//! Generates data for external tables whose files are missing.
//!
//! DataFusion's .slt files read CSV files that are not in the package. Answers are compared with stock DataFusion's, not with
//! those in the .slt files, so any rows with the declared columns work.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use datafusion::sql::parser::CreateExternalTable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const ROWS: usize = 100;
/// Columns of `aggregate_test_100.csv` with distinct texts. They are the same for all names of its table.
const UNIQUE_TEXTS: [&str; 2] = ["c10", "c13"];

/// Writes a file of random rows for a CSV table with declared columns and no declared order; `None` for other tables.
pub(super) fn stand_in(table: &CreateExternalTable, location: &str, scratch: &Path) -> Option<PathBuf> {
    let is_csv = table.file_type.eq_ignore_ascii_case("csv");
    if !is_csv || table.columns.is_empty() || !table.order_exprs.is_empty() || !table.table_partition_cols.is_empty() {
        return None;
    }
    let option = |name: &str| {
        let found = table.options.iter().find(|(key, _)| key.trim_start_matches("format.").eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_string().trim_matches('\'').to_string())
    };
    if option("compression").is_some_and(|compression| !compression.eq_ignore_ascii_case("uncompressed")) {
        return None;
    }
    let delimiter = option("delimiter").unwrap_or_else(|| ",".to_string());
    let types: Vec<String> = table.columns.iter().map(|column| column.data_type.to_string().to_lowercase()).collect();
    // Rows depend only on location and columns, so both sessions get the same rows.
    let mut hasher = DefaultHasher::new();
    (location, &types).hash(&mut hasher);
    let mut rng = StdRng::seed_from_u64(hasher.finish());
    let mut text = String::new();
    if option("has_header").is_none_or(|value| value.eq_ignore_ascii_case("true")) {
        let names: Vec<String> = table.columns.iter().map(|column| column.name.value.clone()).collect();
        text.push_str(&format!("{}\n", names.join(&delimiter)));
    }
    // Columns without ties in DataFusion's data have none here: the order of tied rows is undefined, but changes answers.
    let mut seen = HashSet::new();
    for row in 0..ROWS {
        let mut draw = |(column, name): (usize, &String)| {
            if UNIQUE_TEXTS.contains(&table.columns[column].name.value.as_str()) {
                return Some(format!("{:02}{row:02}", rng.random_range(0..100)));
            }
            loop {
                let value = value(&mut rng, name)?;
                if !is_wide_integer(name) || seen.insert((column, value.clone())) {
                    return Some(value);
                }
            }
        };
        let values = types.iter().enumerate().map(&mut draw).collect::<Option<Vec<_>>>()?;
        text.push_str(&format!("{}\n", values.join(&delimiter)));
    }
    let file = scratch.join(format!("stand_in_{:016x}.csv", hasher.finish()));
    std::fs::write(&file, text).ok()?;
    Some(file)
}

/// Whether 100 random values of the type are mostly distinct.
fn is_wide_integer(name: &str) -> bool {
    ["smallint", "int", "integer", "bigint"].contains(&name.split([' ', '(']).next().unwrap_or_default())
}

/// A random value of a SQL type. Integers are large, but small enough that sums of them do not overflow.
fn value(rng: &mut StdRng, name: &str) -> Option<String> {
    let is_unsigned = name.contains("unsigned");
    let mut whole = |limit: i64| rng.random_range(if is_unsigned { 0 } else { -limit }..limit).to_string();
    Some(match name.split([' ', '(']).next()? {
        "tinyint" => rng.random_range(1..6).to_string(),
        "smallint" => whole(30_000),
        "int" | "integer" => whole(2_000_000_000),
        "bigint" => whole(1 << 50),
        "real" | "float" | "double" => rng.random_range(0.0..1.0_f64).to_string(),
        "decimal" | "numeric" => format!("{}.{:02}", rng.random_range(0..100), rng.random_range(0..100)),
        "varchar" | "text" | "string" | "char" => ["a", "b", "c", "d", "e"][rng.random_range(0..5)].to_string(),
        "date" => format!("2021-{:02}-{:02}", rng.random_range(1..13), rng.random_range(1..29)),
        "timestamp" => {
            format!("2021-01-{:02}T{:02}:15:00", rng.random_range(1..29), rng.random_range(0..24))
        }
        "boolean" => rng.random_bool(0.5).to_string(),
        _ => return None,
    })
}
