//! Runs and checks every line at a tiny size on a simulated device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpjoin::Session;
use warpjoin_benches::limits::Limits;
use warpjoin_benches::report::{Report, Status};
use warpjoin_benches::{Bench, Line, Result, Sample, Scale, SetUp, lines};
use warpjoin_device::{SimOptions, open_simulated};

const SCALE: Scale = Scale { bits: 18 };

fn session(devices: usize) -> Arc<Session> {
    let options = SimOptions { threads: 1, devices, ..SimOptions::default() };
    Session::new(open_simulated(&options).expect("a device")).expect("a session")
}

fn run(bench: &Bench, line: &Line) -> Result<Vec<Sample>> {
    let SetUp::Ready(set_up) = &line.set_up else { return Ok(vec![]) };
    let mut case = set_up(bench)?;
    // Twice: the second run finds poison where the first run wrote.
    (0..2)
        .map(|_| {
            let sample = case.run()?;
            case.check()?;
            Ok(sample)
        })
        .collect()
}

/// Runs all lines on one thread per core. Returns the failures.
fn run_all(session: &Arc<Session>, lines: &[Line]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || {
            let bench = Bench::new(session.clone(), SCALE).expect("a bench");
            let mut failures = vec![];
            while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                match run(&bench, line) {
                    Ok(samples) if samples.iter().any(|sample| sample.device_ns < sample.kernel_ns) => {
                        failures.push(format!("{}: kernels take longer than the whole run", line.id()));
                    }
                    Ok(_) => {}
                    Err(error) => failures.push(format!("{}: {error}", line.id())),
                }
            }
            failures
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    })
}

#[test]
fn every_line_runs_with_a_correct_result() {
    let lines = lines::all(SCALE);
    let failures = run_all(&session(1), &lines);
    assert!(failures.is_empty(), "{} of {} lines fail:\n{}", failures.len(), lines.len(), failures.join("\n"));
}

#[test]
fn every_line_over_devices_runs_with_a_correct_result() {
    for devices in [1, 3] {
        let lines = lines::over_devices(SCALE, devices);
        let failures = run_all(&session(devices as usize), &lines);
        assert!(failures.is_empty(), "{devices} devices:\n{}", failures.join("\n"));
    }
}

#[test]
fn links_are_measured() {
    let bench = Bench::new(session(3), SCALE).expect("a bench");
    let limits = Limits::measure(&bench).expect("limits");
    assert!(limits.devices == 3 && limits.link_bytes_per_s.is_some_and(|rate| rate.is_finite() && rate > 0.0));
}

#[test]
fn limits_are_measured_and_reported() {
    let bench = Bench::new(session(1), SCALE).expect("a bench");
    let limits = Limits::measure(&bench).expect("limits");
    for rate in [limits.copy_bytes_per_s, limits.read_bytes_per_s, limits.write_bytes_per_s] {
        assert!(rate.is_finite() && rate > 0.0);
    }
    for curve in [&limits.random_reads, &limits.random_writes, &limits.random_cas, &limits.random_adds] {
        assert!(curve.0.iter().all(|&(_, rate)| rate.is_finite() && rate > 0.0));
        assert!(curve.0.is_sorted_by(|left, right| left.0 < right.0));
    }
    let mut report = Report::new(&bench, limits);
    let lines = lines::all(SCALE);
    report.add(&lines[0], Status::Missing, Some("not implemented".into()), &[]);
    let table = report.table();
    assert!(table.contains("SIMULATED DEVICE") && table.contains("not implemented"), "{table}");
}
