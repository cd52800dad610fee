//! Mistakes of synchronization in the kernels (`common/mutants.rs`) are found by the schedules of the operators under the
//! race detector; those that are not stand in `mutants_survivors.txt`, with the reason why they do no harm.
//!
//! `cargo test -p warpjoin --test operators_mutants -- --ignored --nocapture` tries all of them. `WARPJOIN_SHARD=i/n`
//! tries every n-th one from the i-th on, `WARPJOIN_MUTANTS=a|b` those whose name contains one of the texts.

mod common;
mod parquet_common;
mod strings_common;
mod tables_common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::mutants::{Mutant, all, uses};
use common::schedules;
use common::sessions::{Opener, Simulated, in_threads, say};
use warpjoin_device::{ChangedFile, ModuleSource, SimOptions};

/// The number of the mutant that this process tries.
const CHILD: &str = "WARPJOIN_MUTANT";
/// The parts that it runs for that.
const PARTS: &str = "WARPJOIN_MUTANT_PARTS";
/// Many times what all parts take. A mutant that runs for longer counts as not found.
const SECONDS_MAX: u64 = 1200;
const SEEDS: u64 = 6;

fn survivors() -> Vec<&'static str> {
    let lines = include_str!("mutants_survivors.txt").lines();
    lines.filter(|line| !line.starts_with(['#', ' ']) && !line.is_empty()).collect()
}

/// Devices that find races, in a schedule of the seed.
fn options(seed: u64, change: Option<&ChangedFile>) -> SimOptions {
    SimOptions {
        seed: Some(seed),
        races: true,
        block_threads_max: if seed.is_multiple_of(2) { 64 } else { 256 },
        // Few blocks, which then have several turns each; or some.
        multiprocessors: if seed.is_multiple_of(4) { 1 } else { 4 },
        threads_per_multiprocessor: if seed.is_multiple_of(4) { 128 } else { 2048 },
        changed_file: change.cloned(),
        ..SimOptions::default()
    }
}

/// Operators, by their numbers in `schedules::all`, then string tests, pages of Parquet and hash tables.
fn parts() -> usize {
    schedules::all().len() + 3
}

/// Runs one part with a seed, on devices like these; the modules that it compiled. Its panics tell what is wrong.
fn run_part(part: usize, seed: u64, options: &SimOptions) -> Vec<ModuleSource> {
    let cases = schedules::all();
    if let Some(case) = cases.get(part) {
        let (wrong, sources) = case.run_and_list(seed, options);
        assert_eq!(wrong, None);
        return sources;
    }
    if part == cases.len() {
        // As large as on GPUs, once in a while.
        let block_threads_max = if seed % 4 == 3 { 1024 } else { options.block_threads_max };
        let options = SimOptions { block_threads_max, ..options.clone() };
        let session = Simulated(options).open(1 + seed as usize % 3).expect("devices");
        // Several tiles for each block, once.
        strings_common::check(&session, seed, if seed == 0 { 2600 } else { 257 }, 4);
        return session.devices()[0].compiled_sources();
    }
    if part == cases.len() + 1 {
        let session = Simulated(options.clone()).open(1).expect("a device");
        let device = &session.devices()[0];
        parquet_common::check_seeds(device, seed * 24..seed * 24 + 24, 700);
        parquet_common::check_tables(&session, seed * 8..seed * 8 + 8);
        return device.compiled_sources();
    }
    let mut sources = vec![];
    for table in seed * 8..seed * 8 + 8 {
        let session = Simulated(options.clone()).open(1).expect("devices");
        tables_common::operate(&session, table, 4, true);
        sources.extend(session.devices()[0].compiled_sources());
    }
    sources
}

/// Of each part, what it compiles with the first seeds.
fn modules_of_parts() -> Vec<Vec<ModuleSource>> {
    let numbered: Vec<usize> = (0..parts()).collect();
    let mut modules = in_threads(&numbered, |&part| {
        (part, (0..3).flat_map(|seed| run_part(part, seed, &options(seed, None))).collect::<Vec<_>>())
    });
    modules.sort_by_key(|(part, _)| *part);
    modules.into_iter().map(|(_, modules)| modules).collect()
}

/// Runs parts with the change, until something fails.
fn try_mutant(change: &ChangedFile, parts: &[usize]) {
    for seed in 0..SEEDS {
        for &part in parts {
            run_part(part, seed, &options(seed, Some(change)));
        }
    }
}

/// What failed; `None` if nothing did, or not in time.
fn found(number: usize, parts: &[usize]) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["one_mutant", "--exact", "--nocapture"]).env(CHILD, number.to_string());
    command.env(PARTS, parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    let log = tempfile::NamedTempFile::new().expect("a file");
    let out = log.reopen().expect("a file");
    let mut child = command.stdout(Stdio::null()).stderr(out).env("RUST_BACKTRACE", "0").spawn().expect("runs");
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if start.elapsed() > Duration::from_secs(SECONDS_MAX) => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let Some(status) = status else {
        child.kill().and_then(|()| child.wait()).expect("it ends");
        return None;
    };
    let text = std::fs::read_to_string(log.path()).unwrap_or_default();
    let told = text.lines().find(|line| line.contains("race")).or_else(|| text.lines().find(|line| !line.is_empty()));
    (!status.success()).then(|| format!("{status}: {}", told.unwrap_or_default().chars().take(600).collect::<String>()))
}

#[test]
fn one_mutant() {
    if let Some(number) = std::env::var(CHILD).ok().and_then(|text| text.parse::<usize>().ok()) {
        let parts = std::env::var(PARTS).unwrap_or_default();
        let parts: Vec<usize> = parts.split(',').filter_map(|part| part.parse().ok()).collect();
        let outcome = catch_unwind(AssertUnwindSafe(|| try_mutant(&all()[number].change, &parts)));
        std::process::exit(i32::from(outcome.is_err()));
    }
}

/// Those that the environment asks for, with their numbers.
fn wanted(mutants: &[Mutant]) -> Vec<usize> {
    let shard = std::env::var("WARPJOIN_SHARD").ok();
    let shard = shard.as_deref().and_then(|text| text.split_once('/'));
    let (first, step) = shard.map_or((0, 1), |(i, n)| (i.parse().expect("a shard"), n.parse().expect("shards")));
    let named = std::env::var("WARPJOIN_MUTANTS").unwrap_or_default();
    let is_named = |number: &usize| named.split('|').any(|text| mutants[*number].name.contains(text));
    (first..mutants.len()).step_by(step).filter(is_named).collect()
}

#[test]
#[ignore = "takes half an hour of two cores; a shard takes less"]
fn mutants_are_found() {
    let mutants = all();
    let known = survivors();
    let modules = modules_of_parts();
    let outcomes = in_threads(&wanted(&mutants), |&number| {
        let mutant = &mutants[number];
        let has_change = |part: &usize| modules[*part].iter().any(|module| uses(&module.text, &mutant.change.file));
        let parts: Vec<usize> = (0..modules.len()).filter(has_change).collect();
        let outcome = found(number, &parts);
        let place = format!("{}:{}", mutant.change.file.name, mutant.line);
        say(&format!("{place}: {}: {}", mutant.name, outcome.as_deref().unwrap_or("SURVIVES")));
        (mutant.name.clone(), outcome.is_some())
    });
    let differs = |(name, found): &(String, bool)| known.contains(&name.as_str()) == *found;
    let differ: Vec<_> = outcomes.iter().filter(|outcome| differs(outcome)).collect();
    assert!(differ.is_empty(), "not as mutants_survivors.txt says, with whether they were found: {differ:#?}");
}

#[test]
fn survivors_are_mutants() {
    let mutants = all();
    assert!(mutants.len() > 200, "{} mutants", mutants.len());
    for name in survivors() {
        assert!(mutants.iter().any(|mutant| mutant.name == name), "{name}");
    }
    assert!(common::mutants::shared_words_exist(), "a file or a word of SHARED_WORDS is gone");
}
