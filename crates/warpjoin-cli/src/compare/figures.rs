//! The figures of a report of `warpjoin tpch --json` or of the benches.
//!
//! Reads JSON by name, so that reports of other versions can be compared. Must not know what a good figure is.

use serde_json::Value;

/// Name and value of a figure; a smaller value is better.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    /// For example `device time, ms` or `join / 2^26 x 2^26`.
    pub(super) name: String,
    /// Its value.
    pub(super) value: f64,
}

/// A field of a run of a query, or a total time.
struct Field {
    name: &'static str,
    path: &'static str,
    /// Whether the figure of all queries is their maximum instead of their sum.
    is_maximum: bool,
}

const FIELDS: [Field; 6] = [
    Field { name: "hot total, ms", path: "/hot/total_ms", is_maximum: false },
    Field { name: "device time, ms", path: "/hot/device_ms", is_maximum: false },
    Field { name: "kernel time, ms", path: "/hot/kernel_ms", is_maximum: false },
    Field { name: "first runs, ms", path: "/first/total_ms", is_maximum: false },
    Field { name: "launches", path: "/hot/launches", is_maximum: false },
    Field { name: "peak device bytes", path: "/hot/peak_bytes", is_maximum: true },
];

/// All figures of a report, or why there are none.
pub(super) fn figures(report: &Value) -> Result<Vec<Figure>, String> {
    if let Some(queries) = report["queries"].as_array() {
        return tpch_figures(queries);
    }
    let lines = report["lines"].as_array().ok_or("it has neither `queries` nor `lines`")?;
    lines.iter().filter_map(|line| bench_figure(line).transpose()).collect()
}

/// The figures of all queries together.
fn tpch_figures(queries: &[Value]) -> Result<Vec<Figure>, String> {
    let value = |query: &Value, field: &Field| {
        let missing = || format!("query {} has no {}: did it fail?", query["query"], field.name);
        query.pointer(field.path).and_then(Value::as_f64).ok_or_else(missing)
    };
    let figure = |field: &Field| {
        let values = queries.iter().map(|query| value(query, field)).collect::<Result<Vec<_>, _>>()?;
        let all = if field.is_maximum { values.iter().copied().fold(0.0, f64::max) } else { values.iter().sum() };
        Ok(Figure { name: field.name.to_string(), value: all })
    };
    FIELDS.iter().map(figure).collect()
}

/// The figure of a line; none for a feature that is missing.
fn bench_figure(line: &Value) -> Result<Option<Figure>, String> {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let name = format!("{} / {}, ms", text("group"), text("name"));
    match (text("status"), line["time_ms"].as_f64()) {
        ("missing", _) => Ok(None),
        ("right", Some(value)) => Ok(Some(Figure { name, value })),
        _ => Err(format!("{name}: the line failed: {}", text("reason"))),
    }
}
