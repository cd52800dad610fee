//! The driver: criterion selects and repeats the lines. Times are device times.
//!
//! Run `cargo bench -p warpjoin-benches`, with criterion's arguments after `--`: a regular expression
//! that selects lines, `--list`, `--test`, `--measurement-time`, `--save-baseline` and others. The built
//! executable can also be run with `--bench` as its first argument. WARPJOIN_BENCH_OUT is the folder of
//! the report.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use warpjoin_benches::limits::Limits;
use warpjoin_benches::report::{Report, Status};
use warpjoin_benches::{Bench, Case, Error, Line, Result, Sample, SetUp, lines};

/// Samples of a line: criterion's minimum.
const SAMPLES: usize = 10;
/// Default of `--measurement-time`: device time of a line.
const MEASUREMENT_TIME: Duration = Duration::from_millis(300);
/// Resamples of criterion's statistics, which the report does not show.
const RESAMPLES: usize = 1_000;
/// A line stops running after this time, since criterion would take ten samples of slow lines too.
const LINE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time of a failed run. Criterion does not accept zero.
const NO_TIME: Duration = Duration::from_nanos(1);

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all results were correct.
fn run() -> Result<bool> {
    let folder = output_folder();
    let mut criterion = Criterion::default()
        .output_directory(&criterion_folder(&folder))
        .sample_size(SAMPLES)
        // A single run, since `bench_line` warms up each line.
        .warm_up_time(NO_TIME)
        .measurement_time(MEASUREMENT_TIME)
        .nresamples(RESAMPLES)
        .configure_from_args();
    let bench = Bench::open()?;
    let devices = bench.members().len() as u64;
    let is_over_devices = std::env::var_os("WARPJOIN_BENCH_DEVICES").is_some();
    let lines = if is_over_devices { lines::over_devices(bench.scale(), devices) } else { lines::all(bench.scale()) };
    let mut report = if std::env::args().any(|argument| argument == "--list") {
        None
    } else {
        Some(Report::new(&bench, Limits::measure(&bench)?))
    };
    let mut selects_all = true;
    for group_lines in lines.chunk_by(|left, right| left.group == right.group) {
        let mut group = criterion.benchmark_group(group_lines[0].group);
        group.sampling_mode(SamplingMode::Flat);
        for line in group_lines {
            let outcome = bench_line(&mut group, &bench, line);
            selects_all &= outcome.is_some();
            if let (Some(report), Some((status, reason, samples))) = (&mut report, outcome) {
                report.add(line, status, reason, &samples);
                // Writes the report after each line, so that an interrupted run leaves its results.
                if status != Status::Missing {
                    report.write(&folder)?;
                }
            }
        }
        group.finish();
    }
    criterion.final_summary();
    let Some(mut report) = report else { return Ok(true) };
    if !selects_all {
        // A run of selected lines does not list missing ones.
        report.lines.retain(|entry| entry.status != Status::Missing);
    }
    println!("\n{}", report.table());
    report.write(&folder)?;
    println!("bench.json, bench.txt and plots are in {}", folder.display());
    Ok(!report.has_failures())
}

type Outcome = (Status, Option<String>, Vec<Sample>);

/// The state of a running line. It is set up once criterion has selected it.
struct Progress<'a> {
    started: Instant,
    case: Option<Box<dyn Case + 'a>>,
    samples: Vec<Sample>,
    failure: Option<String>,
}

/// Runs a line if criterion's arguments select it.
fn bench_line(group: &mut BenchmarkGroup<'_, WallTime>, bench: &Bench, line: &Line) -> Option<Outcome> {
    let set_up = match &line.set_up {
        SetUp::Ready(set_up) => set_up,
        SetUp::Missing(why) => return Some((Status::Missing, Some((*why).into()), vec![])),
    };
    let progress = RefCell::new(Progress { started: Instant::now(), case: None, samples: vec![], failure: None });
    group.throughput(Throughput::Elements(line.rows));
    group.bench_function(&line.name, |bencher| {
        let mut progress = progress.borrow_mut();
        if progress.case.is_none() && progress.failure.is_none() {
            // Two warm-up runs: the first compiles kernels and fills the memory pool, the second uses the final code tier.
            match set_up(bench).and_then(|mut case| {
                for _ in 0..2 {
                    case.run()?;
                    case.check()?;
                    bench.session().finish_compiling();
                }
                match bench.session().compile_failures().pop() {
                    // The line would measure an interpreted pipeline.
                    Some(failure) => Err(Error::Unexpected(format!("a kernel did not compile: {failure}"))),
                    None => Ok(case),
                }
            }) {
                Ok(case) => progress.case = Some(case),
                Err(error) => progress.failure = Some(error.to_string()),
            }
        }
        bencher.iter_custom(|iterations| (0..iterations).map(|_| progress.sample()).sum());
    });
    let progress = progress.into_inner();
    if let Some(failure) = progress.failure {
        eprintln!("{}: {failure}", line.id());
        return Some((Status::Failed, Some(failure), vec![]));
    }
    progress.case.map(|_| (Status::Right, None, progress.samples))
}

impl Progress<'_> {
    /// Runs and checks once, and returns the device time. Does not run after a failure. A line that has
    /// exceeded its time returns its last time again, and adds no sample.
    fn sample(&mut self) -> Duration {
        if let Some(last) = self.samples.last().filter(|_| self.started.elapsed() > LINE_TIME_MAX) {
            return Duration::from_nanos(last.device_ns).max(NO_TIME);
        }
        let Some(case) = self.case.as_mut().filter(|_| self.failure.is_none()) else { return NO_TIME };
        match case.run().and_then(|sample| case.check().map(|()| sample)) {
            Ok(sample) => {
                let time = Duration::from_nanos(sample.device_ns).max(NO_TIME);
                self.samples.push(sample);
                time
            }
            Err(error) => {
                self.failure = Some(error.to_string());
                NO_TIME
            }
        }
    }
}

/// WARPJOIN_BENCH_OUT, else a folder in cargo's target folder, else one in the current folder.
fn output_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("WARPJOIN_BENCH_OUT") {
        return folder.into();
    }
    // TARGET/PROFILE/deps/EXECUTABLE
    let executable = std::env::current_exe().unwrap_or_default();
    let deps = executable.parent().filter(|folder| folder.ends_with("deps"));
    let target = deps.and_then(|deps| deps.parent()?.parent()).map(PathBuf::from).unwrap_or_default();
    target.join("warpjoin-benches")
}

fn criterion_folder(folder: &std::path::Path) -> PathBuf {
    std::env::var_os("CRITERION_HOME").map_or_else(|| folder.join("criterion"), PathBuf::from)
}
