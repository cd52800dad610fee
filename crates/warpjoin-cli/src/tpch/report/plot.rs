//! Draws a report as a plot: the time of each query on warpjoin and on stock DataFusion.
//!
//! Must not know how queries are measured.

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use super::Report;
use crate::error::{CliError, Result};

const SIZE_PIXELS: (u32, u32) = (860, 380);
/// Colors of stock DataFusion and warpjoin.
const COLORS: [RGBColor; 2] = [RGBColor(160, 160, 160), RGBColor(31, 119, 180)];
const NAMES: [&str; 2] = ["stock DataFusion", "warpjoin"];
/// Half the width of a query's two bars.
const HALF: f64 = 0.38;

impl Report {
    /// An SVG with two bars per query, in milliseconds on a logarithmic axis.
    ///
    /// # Errors
    /// When no query ran on both engines.
    pub fn plot(&self) -> Result<String> {
        let times: Vec<(u32, [f64; 2])> = (self.queries.iter())
            .filter_map(|query| Some((query.query, [query.datafusion_ms?, query.hot.as_ref()?.total_ms])))
            .collect();
        if times.is_empty() {
            return Err(CliError::Usage(
                "no query of the report ran on both engines: run it without --no-oracle".to_string(),
            ));
        }
        let mut svg = String::new();
        draw(self, &times, &mut svg).map_err(|error| CliError::Internal(format!("cannot draw the plot: {error}")))?;
        Ok(svg)
    }
}

fn draw(report: &Report, times: &[(u32, [f64; 2])], svg: &mut String) -> std::result::Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let all = || times.iter().flat_map(|(_, pair)| *pair).filter(|&ms| ms > 0.0);
    let low = 10_f64.powf(all().fold(f64::MAX, f64::min).log10().floor());
    let high = all().fold(0.0, f64::max) * 3.0;
    let root = SVGBackend::with_string(svg, SIZE_PIXELS).into_drawing_area();
    root.fill(&WHITE).map_err(|error| text(&error))?;
    let device = report.devices.first().map_or("no device", |device| device.name.as_str());
    let caption = format!("TPC-H scale {}, hot, {} x {device}", report.scale, report.devices.len());
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(0.4..times.len() as f64 + 0.6, (low..high.max(low * 10.0)).log_scale())
        .map_err(|error| text(&error))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(times.len() * 2)
        .x_desc("query")
        .y_desc("ms")
        .x_label_formatter(&|x| {
            let at = x.round();
            let is_bar = (x - at).abs() < 0.01 && at >= 1.0;
            let query = if is_bar { times.get(at as usize - 1) } else { None };
            query.map_or_else(String::new, |(query, _)| query.to_string())
        })
        .draw()
        .map_err(|error| text(&error))?;
    for (index, (color, name)) in COLORS.into_iter().zip(NAMES).enumerate() {
        let bars = times.iter().enumerate().map(|(at, (_, pair))| {
            let left = at as f64 + 1.0 - HALF + HALF * index as f64;
            Rectangle::new([(left, low), (left + HALF * 0.94, pair[index].max(low))], color.filled())
        });
        chart
            .draw_series(bars)
            .map_err(|error| text(&error))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .draw()
        .map_err(|error| text(&error))?;
    root.present().map_err(|error| text(&error))
}
