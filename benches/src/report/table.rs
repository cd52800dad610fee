//! Renders the report as text for a terminal.
//!
//! Must not know how figures are computed.

use super::{Entry, Report, Status};
use crate::{Figure, Unit};

/// The limits, then one row per line.
pub(super) fn render(report: &Report) -> String {
    let mut text = format!("warpjoin {} on {} ({}), {}\n", report.version, report.device, report.software, report.date);
    if report.kind != "cuda" {
        text += "A SIMULATED DEVICE: times are meaningless.\n";
    }
    if report.scale_bits > 0 {
        text += &format!("All sizes are divided by 2^{}; targets apply to full sizes.\n", report.scale_bits);
    }
    text += &limits(report);
    text += "\nms: median device time by events, from the start of the first launch to the end of the last; kernels: kernels only.\n\
             GB/s: inputs read once and outputs written once, per time. Limit: minimum time of the fastest known design at the\n\
             rates above. Ratios to target and peer: 1 or more is as good or better.\n\n";
    let header =
        ["line", "ms", "kernels", "G rows/s", "GB/s", "limit ms", "share", "target", "ratio", "best peer", "ratio"];
    let mut rows: Vec<Vec<String>> = vec![header.map(String::from).to_vec()];
    rows.extend(report.lines.iter().map(cells));
    let reasons = report.lines.iter().map(|entry| entry.reason.as_deref().and_then(|reason| reason.lines().next()));
    for (row, reason) in aligned(&rows).into_iter().zip(std::iter::once(None).chain(reasons)) {
        text += &row;
        if let Some(reason) = reason {
            text += &format!("  ({reason})");
        }
        text += "\n";
    }
    text
}

fn limits(report: &Report) -> String {
    let limits = &report.limits;
    let tera = |rate: f64| rate * 1e-12;
    let curve = |points: &[(u64, f64)], name: &dyn Fn(u64) -> String| {
        points.iter().map(|&(x, rate)| format!("{} {:.1}", name(x), rate * 1e-9)).collect::<Vec<_>>().join(", ")
    };
    let addresses = |count| super::super::lines::count_name(count);
    let links = limits.link_bytes_per_s.map_or(String::new(), |rate| {
        format!("  all to all          {:.0} GB/s out of each of {} devices\n", rate * 1e-9, limits.devices)
    });
    format!(
        "\nLimits of this device, measured in this run\n\
         \x20 copy, read + write  {:.2} TB/s\n\
         \x20 streaming read      {:.2} TB/s\n\
         \x20 streaming write     {:.2} TB/s\n\
         \x20 random 8 B reads    {} G/s\n\
         \x20 random 8 B writes   {} G/s\n\
         \x20 random 64-bit CAS   {} G/s\n\
         \x20 random 64-bit adds  {} addresses, G/s\n\
         \x20 gather, 2^27 places {} G/s\n{links}",
        tera(limits.copy_bytes_per_s),
        tera(limits.read_bytes_per_s),
        tera(limits.write_bytes_per_s),
        curve(&limits.random_reads.0, &bytes_name),
        curve(&limits.random_writes.0, &bytes_name),
        curve(&limits.random_cas.0, &bytes_name),
        curve(&limits.random_adds.0, &addresses),
        curve(&limits.gathers, &|bytes| format!("{bytes} B")),
    )
}

fn bytes_name(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{} GB", b >> 30),
        b if b >= 1 << 20 => format!("{} MB", b >> 20),
        b if b >= 1 << 10 => format!("{} KB", b >> 10),
        b => format!("{b} B"),
    }
}

fn cells(entry: &Entry) -> Vec<String> {
    let name = format!("{}/{}", entry.group, entry.name);
    let against = |figure: &Option<Figure>| match figure {
        None => [String::new(), String::new()],
        Some(figure) => {
            let unit = if entry.unit == Unit::Milliseconds { "ms" } else { "G/s" };
            let value = format!("{} {unit} {}", figure.value, figure.of).trim_end().to_string();
            [value, entry.ratio_to(figure).map_or(String::new(), |ratio| format!("{ratio:.2}"))]
        }
    };
    let figures = match entry.status {
        Status::Right => vec![
            format!("{:.3}", entry.time_ms),
            format!("{:.3}", entry.kernel_ms),
            format!("{:.2}", entry.rows_per_s * 1e-9),
            format!("{:.0}", entry.gb_per_s),
            format!("{:.3}", entry.limit_ms),
            format!("{:.0}%", entry.share_of_limit * 100.0),
        ],
        Status::Missing => {
            vec!["missing".into(), String::new(), String::new(), String::new(), String::new(), String::new()]
        }
        Status::Failed => {
            vec!["FAILED".into(), String::new(), String::new(), String::new(), String::new(), String::new()]
        }
    };
    let mut cells = vec![name];
    cells.extend(figures);
    cells.extend(against(&entry.target));
    cells.extend(against(&entry.peer));
    cells
}

/// Pads cells to columns of equal width: the first column aligned left, the others right.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let cell = |(column, cell): (usize, &String)| {
        let width = widths[column];
        if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    };
    let row = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
    rows.iter().map(|cells| row(cells).trim_end().to_string()).collect()
}
