//! Draws plots of throughput for docs/benchmarks.md, as SVG.
//!
//! Must not know how figures are computed.

use std::collections::BTreeMap;

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use super::{Entry, Report, Status};
use crate::{Error, Result};

const SIZE_PIXELS: (u32, u32) = (720, 400);
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
];

/// The style of a plot.
struct Style {
    name: &'static str,
    title: &'static str,
    x: &'static str,
    logarithmic: bool,
}

const STYLES: [Style; 6] = [
    Style { name: "join_build_rows", title: "Join with 2^27 probe rows", x: "build rows", logarithmic: true },
    Style { name: "join_load_factor", title: "Join", x: "load factor", logarithmic: false },
    Style { name: "join_match_rate", title: "Join", x: "match rate", logarithmic: false },
    Style { name: "group_by_groups", title: "Group-by of 2^27 rows", x: "groups", logarithmic: true },
    Style { name: "partition_bits", title: "Radix partition of 2^27 rows", x: "bits", logarithmic: false },
    Style { name: "table_load_factor", title: "Hash table", x: "load factor", logarithmic: false },
];

type Curves<'a> = BTreeMap<&'a str, Vec<(f64, f64)>>;

/// Name and SVG text of each plot with points.
pub(super) fn all(report: &Report) -> Result<Vec<(&'static str, String)>> {
    let mut plots = vec![];
    for style in &STYLES {
        let curves = curves(&report.lines, style.name);
        if !curves.is_empty() {
            let svg = draw(style, &report.device, &curves)
                .map_err(|reason| Error::Report { path: format!("{}.svg", style.name).into(), reason })?;
            plots.push((style.name, svg));
        }
    }
    Ok(plots)
}

fn curves<'a>(lines: &'a [Entry], plot: &str) -> Curves<'a> {
    let mut curves = Curves::new();
    for entry in lines.iter().filter(|entry| entry.status == Status::Right) {
        if let Some(point) = entry.plot.as_ref().filter(|point| point.plot == plot) {
            curves.entry(&point.series).or_default().push((point.x, entry.rows_per_s * 1e-9));
        }
    }
    for points in curves.values_mut() {
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    curves
}

fn draw(style: &Style, device: &str, curves: &Curves<'_>) -> Result<String, String> {
    let points = || curves.values().flatten();
    let most = points().map(|&(_, y)| y).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), &(x, _)| (low.min(x), high.max(x)));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE_PIXELS).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        let mut builder = ChartBuilder::on(&root);
        builder
            .caption(format!("{}, {device}", style.title), ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(52);
        // Room for the legend.
        let y = 0.0..most * 1.3;
        // An axis needs an extent even for a single point.
        if style.logarithmic {
            let x = (low / 1.2..high * 1.2).log_scale().base(2.0);
            let chart = builder.build_cartesian_2d(x, y).map_err(|error| error.to_string())?;
            finish(chart, style, curves)?;
        } else {
            let x = low - 0.02..high + 0.02;
            let chart = builder.build_cartesian_2d(x, y).map_err(|error| error.to_string())?;
            finish(chart, style, curves)?;
        }
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

/// Draws axes, curves and legend.
fn finish<'a, X>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, plotters::coord::types::RangedCoordf64>>,
    style: &Style,
    curves: &Curves<'_>,
) -> Result<(), String>
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    let label = |x: &f64| match *x {
        x if style.logarithmic && x >= 1.0 => format!("2^{:.0}", x.log2()),
        x if style.name.ends_with("_bits") => format!("{x:.0}"),
        x => format!("{x:.2}"),
    };
    chart
        .configure_mesh()
        .x_desc(style.x)
        .y_desc("G rows/s")
        .x_label_formatter(&label)
        .y_label_formatter(&|y| format!("{y:.1}"))
        .light_line_style(WHITE)
        .draw()
        .map_err(|error| error.to_string())?;
    for (index, (series, points)) in curves.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        chart
            .draw_series(line)
            .map_err(|error| error.to_string())?
            .label(*series)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .draw()
        .map_err(|error| error.to_string())
}
