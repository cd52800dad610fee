//! Tests of reports with made-up samples.

use super::*;
use crate::limits::Curve;
use crate::{SetUp, Work};

fn report() -> Report {
    let flat = |rate| Curve(vec![(1 << 20, rate)]);
    Report {
        device: "a device".into(),
        software: "a driver".into(),
        kind: "cuda".into(),
        version: "0",
        date: date::now(),
        scale_bits: 0,
        limits: Limits {
            devices: 1,
            link_bytes_per_s: None,
            copy_bytes_per_s: 2e12,
            read_bytes_per_s: 2e12,
            write_bytes_per_s: 2e12,
            random_reads: flat(1e9),
            random_writes: flat(1e9),
            random_cas: flat(1e9),
            random_adds: flat(1e9),
            gathers: vec![(4, 1e9)],
        },
        lines: vec![],
    }
}

fn line(unit: Unit, x: f64) -> Line {
    let work = Work::streams(1_000_000_000, 1_000_000_000);
    let mut line = Line::new("join", format!("line {x}"), SetUp::Missing("a test"))
        .against(unit, 4.0, Some((8.0, "a peer")))
        .plotted("join_build_rows", "series", x);
    line.rows = 8_000_000;
    line.moved_bytes = 2_000_000_000;
    line.designs = vec![Design { name: "copy", work }];
    line
}

fn samples(times_ns: &[u64]) -> Vec<Sample> {
    times_ns.iter().map(|&device_ns| Sample { device_ns, kernel_ns: device_ns / 2, ..Sample::default() }).collect()
}

#[test]
fn figures_are_computed_from_the_median() {
    let mut report = report();
    let times = samples(&[9_000_000, 2_000_000, 1_000_000]);
    report.add(&line(Unit::Milliseconds, 1024.0), Status::Right, None, &times);
    let entry = &report.lines[0];
    assert_eq!((entry.time_ms, entry.kernel_ms, entry.fastest_ms, entry.samples), (2.0, 1.0, 1.0, 3));
    assert_eq!((entry.rows_per_s.round(), entry.gb_per_s.round()), (4e9, 1000.0));
    assert_eq!((entry.limit_ms, entry.limit_design, entry.share_of_limit), (1.0, "copy", 0.5));
    assert_eq!(entry.target.as_ref().and_then(|target| entry.ratio_to(target)), Some(2.0));
    report.add(&line(Unit::GigaRowsPerSecond, 1.0), Status::Right, None, &times);
    let ratio = |entry: &Entry| entry.target.as_ref().and_then(|target| entry.ratio_to(target));
    assert_eq!(ratio(&report.lines[1]).map(|ratio| (ratio * 100.0).round()), Some(100.0));
}

#[test]
fn a_target_can_be_relative_to_another_line() {
    let mut report = report();
    report.add(&line(Unit::Milliseconds, 1.0), Status::Right, None, &samples(&[3_000_000]));
    let relative = |to: &str| Some(Relative { to: to.into(), factor: 1.5, write_bytes: 2_000_000_000 });
    for to in ["join/line 1", "join/line 7"] {
        report.add(&Line { relative: relative(to), ..line(Unit::Milliseconds, 2.0) }, Status::Right, None, &[]);
    }
    let targets: Vec<_> = report.lines[1..].iter().map(|entry| entry.target.as_ref().map(|t| t.value)).collect();
    assert_eq!(targets, [Some(6.0), None]);
}

#[test]
fn wrong_results_have_no_time() {
    let mut report = report();
    report.add(&line(Unit::Milliseconds, 1.0), Status::Failed, Some("wrong".into()), &samples(&[5]));
    assert!(report.has_failures());
    let entry = &report.lines[0];
    assert_eq!((entry.time_ms, entry.samples, entry.rows_per_s), (0.0, 0, 0.0));
    assert!(report.table().contains("FAILED"));
    assert!(plot::all(&report).expect("no plots").is_empty());
}

#[test]
fn json_has_one_object_per_line_and_device_date_and_version() {
    let mut report = report();
    report.add(&line(Unit::Milliseconds, 1.0), Status::Right, None, &samples(&[1_000_000]));
    report.add(&line(Unit::Milliseconds, 2.0), Status::Missing, Some("a test".into()), &[]);
    let folder = std::env::temp_dir().join(format!("warpjoin-benches-{}", std::process::id()));
    report.write(&folder).expect("written");
    let text = std::fs::read_to_string(folder.join("bench.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for key in ["device", "date", "version", "limits"] {
        assert!(!json[key].is_null(), "{key}");
    }
    let lines = json["lines"].as_array().expect("lines");
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["time_ms"], 1.0);
    assert_eq!(lines[0]["target"]["value"], 4.0);
    assert_eq!((lines[0]["peer"]["of"].as_str(), lines[0]["unit"].as_str()), (Some("a peer"), Some("ms")));
    assert_eq!((lines[1]["status"].as_str(), lines[1]["reason"].as_str()), (Some("missing"), Some("a test")));
    let svg = std::fs::read_to_string(folder.join("join_build_rows.svg")).expect("a plot");
    assert!(svg.starts_with("<svg") && svg.contains("build rows") && svg.contains("series"));
    std::fs::remove_dir_all(&folder).expect("removed");
}
