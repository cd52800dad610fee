//! Renders a report as a table for a terminal.
//!
//! Must not know how queries are measured.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::{Outcome, PlacementReport, QueryReport, Report};
use crate::devices::show_bytes;
use crate::tpch::clients::ClientsReport;

const HEADER: [&str; 13] = [
    "query",
    "rows",
    "answer",
    "ran on",
    "DataFusion ms",
    "first ms",
    "hot ms",
    "cold ms",
    "new literals",
    "planning",
    "device",
    "transfer",
    "ratio",
];

const CLIENTS_HEADER: [&str; 7] =
    ["clients", "queries/s", "median ms", "99 % ms", "DataFusion queries/s", "its median ms", "its 99 % ms"];

/// Renders the table of queries, the totals and the differences.
pub(in crate::tpch) fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(HEADER.map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    for at in (0..HEADER.len()).filter(|at| ![2, 3].contains(at)) {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for query in &report.queries {
        table.add_row(row(query));
    }
    table.add_row(totals(&report.queries));
    let mut text = format!("{}\n{table}", headline(report));
    for query in &report.queries {
        if let Some(difference) = &query.difference {
            text.push_str(&format!("\nquery {}: {difference}", query.query));
        }
        if let Some(variants) = &query.variants {
            text.push_str(&format!(
                "\nquery {}: {} variants, {} with an earlier plan, {} different, {} modules compiled",
                query.query,
                variants.runs,
                variants.kept,
                variants.different.len(),
                variants.compiled_modules
            ));
            variants.compiled_with.iter().for_each(|values| text.push_str(&format!("\n  compiled with {values}")));
            variants.different.iter().for_each(|difference| text.push_str(&format!("\n  {difference}")));
        }
    }
    if !report.clients.is_empty() {
        text.push_str(&format!("\n{}", clients(&report.clients)));
    }
    text
}

/// Throughput and latency with concurrent clients.
fn clients(reports: &[ClientsReport]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(CLIENTS_HEADER);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for report in reports {
        let stock = report.datafusion.as_ref();
        table.add_row(vec![
            Cell::new(report.clients),
            Cell::new(format!("{:.1}", report.device.queries_per_second())),
            show_ms(Some(report.device.median_ms)),
            show_ms(Some(report.device.p99_ms)),
            Cell::new(stock.map_or_else(|| "-".to_string(), |stock| format!("{:.1}", stock.queries_per_second()))),
            show_ms(stock.map(|stock| stock.median_ms)),
            show_ms(stock.map(|stock| stock.p99_ms)),
        ]);
    }
    table
}

/// Scale, devices, and the time to load the tables.
fn headline(report: &Report) -> String {
    let devices: Vec<String> =
        report.devices.iter().map(|device| format!("{} {}", device.label, device.name)).collect();
    let bytes = report.tables.iter().map(|table| table.device_bytes).sum();
    let seconds: f64 = report.tables.iter().map(|table| table.seconds).sum();
    format!(
        "TPC-H scale {} on {}; {} tables, {} on the devices, loaded in {seconds:.1} s",
        report.scale,
        devices.join(", "),
        report.tables.len(),
        show_bytes(bytes),
    )
}

fn row(query: &QueryReport) -> Vec<Cell> {
    let hot = query.hot.as_ref();
    vec![
        Cell::new(query.query),
        Cell::new(query.rows),
        outcome(query),
        Cell::new(placement(&query.placement)),
        show_ms(query.datafusion_ms),
        show_ms(query.first.as_ref().map(|run| run.total_ms)),
        show_ms(hot.map(|run| run.total_ms)),
        show_ms(query.cold.as_ref().map(|run| run.total_ms)),
        show_ms(query.new_literals_ms()),
        show_ms(hot.map(|run| run.planning_ms())),
        show_ms(hot.map(|run| run.device_ms)),
        show_ms(hot.map(|run| run.transfer_ms)),
        ratio(query.datafusion_ms, hot.map(|run| run.total_ms)),
    ]
}

/// Sums over the queries that have a figure; the ratio over the queries that have both.
fn totals(queries: &[QueryReport]) -> Vec<Cell> {
    let sum = |figure: &dyn Fn(&QueryReport) -> Option<f64>| {
        let figures: Vec<f64> = queries.iter().filter_map(figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>())
    };
    let hot_ms = |query: &QueryReport| query.hot.as_ref().map(|run| run.total_ms);
    let equal = queries.iter().filter(|query| query.outcome == Outcome::Equal).count();
    let on_devices = queries.iter().filter(|query| query.placement.all_on_devices()).count();
    let both = |query: &QueryReport| query.datafusion_ms.zip(hot_ms(query));
    vec![
        Cell::new("total").add_attribute(Attribute::Bold),
        Cell::new(queries.iter().map(|query| query.rows).sum::<usize>()),
        Cell::new(match queries.iter().all(|query| query.outcome == Outcome::NotCompared) {
            true => "not compared".to_string(),
            false => format!("{equal} of {} equal", queries.len()),
        }),
        Cell::new(format!("{on_devices} of {} wholly on devices", queries.len())),
        show_ms(sum(&|query| query.datafusion_ms)),
        show_ms(sum(&|query| query.first.as_ref().map(|run| run.total_ms))),
        show_ms(sum(&hot_ms)),
        show_ms(sum(&|query| query.cold.as_ref().map(|run| run.total_ms))),
        show_ms(sum(&QueryReport::new_literals_ms)),
        show_ms(sum(&|query| query.hot.as_ref().map(|run| run.planning_ms()))),
        show_ms(sum(&|query| query.hot.as_ref().map(|run| run.device_ms))),
        show_ms(sum(&|query| query.hot.as_ref().map(|run| run.transfer_ms))),
        ratio(sum(&|query| both(query).map(|both| both.0)), sum(&|query| both(query).map(|both| both.1))),
    ]
}

fn outcome(query: &QueryReport) -> Cell {
    match query.outcome {
        Outcome::Equal | Outcome::NotCompared if query.is_published == Some(true) => {
            let text = if query.outcome == Outcome::Equal { "equal, published" } else { "published" };
            Cell::new(text).fg(Color::Green)
        }
        Outcome::Equal => Cell::new("equal").fg(Color::Green),
        Outcome::Different => Cell::new("DIFFERENT").fg(Color::Red),
        Outcome::NotCompared => Cell::new("not compared"),
        Outcome::Failed => Cell::new("FAILED").fg(Color::Red),
    }
}

/// For example `device`, or `device, CPU 1 join, 2 aggregates: join RightAnti`.
fn placement(placement: &PlacementReport) -> String {
    let mut words = vec![];
    match placement.device_nodes {
        0 => {}
        1 => words.push("device".to_string()),
        nodes => words.push(format!("device x{nodes}")),
    }
    let count = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    };
    let on_cpu: Vec<String> = [count(placement.cpu_joins, "join"), count(placement.cpu_aggregates, "aggregate")]
        .into_iter()
        .flatten()
        .collect();
    if !on_cpu.is_empty() || placement.device_nodes == 0 {
        words.push(format!("CPU {}", on_cpu.join(", ")).trim_end().to_string());
    }
    if on_cpu.is_empty() && !placement.host_work.is_empty() && placement.device_nodes > 0 {
        words.push(format!("CPU {}", placement.host_work.join(", ")));
    }
    let mut text = words.join(", ");
    if !placement.reasons.is_empty() {
        text.push_str(&format!(": {}", placement.reasons.join("; ")));
    }
    text
}

fn show_ms(ms: Option<f64>) -> Cell {
    match ms {
        Some(ms) if ms >= 100.0 => Cell::new(format!("{ms:.0}")),
        Some(ms) if ms >= 10.0 => Cell::new(format!("{ms:.1}")),
        Some(ms) => Cell::new(format!("{ms:.2}")),
        None => Cell::new("-"),
    }
}

fn ratio(datafusion_ms: Option<f64>, hot_ms: Option<f64>) -> Cell {
    match datafusion_ms.zip(hot_ms) {
        Some((datafusion_ms, hot_ms)) if hot_ms > 0.0 => Cell::new(format!("{:.2}x", datafusion_ms / hot_ms)),
        _ => Cell::new("-"),
    }
}
