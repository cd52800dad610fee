//! DataFusion's own .slt files, compared with stock DataFusion.
//!
//! All queries are planned, so that each run checks the shares on devices. One query in 24 runs on both engines; which ones
//! run changes every hour. Variables:
//!
//! - `WARPJOIN_FILES_ALL=1` runs all queries, `WARPJOIN_FILES_EVERY=n` one query in n, or none if n is 0.
//! - `WARPJOIN_SLT_FILE=joins` selects the files with this text in their name.
//! - `WARPJOIN_SLT_DIR=folder` is the folder of the files, for hosts without cargo.
//! - `WARPJOIN_TEST_DEVICE=cuda WARPJOIN_TEST_DEVICES=1` selects the engine, by default two simulated devices.
//! - `WARPJOIN_FILES_COMPLETE=1` writes the shares and, of all files, the caps of this run to `datafusion_files.txt`.
//! - `WARPJOIN_FILES_REASONS=1` prints all reasons why operators stay on the CPU.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use warpjoin_sql_tests::{
    Caps, Engine, EngineKind, Expectations, FileResult, FileRule, Slice, announce, datafusion_files, list_files,
    run_datafusion_file,
};

use super::workers;

/// One query in `EVERY` runs in CI.
const EVERY: usize = 24;

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

fn slice() -> Slice {
    let every = match std::env::var("WARPJOIN_FILES_EVERY") {
        Ok(every) => every.parse().unwrap(),
        Err(_) if is_set("WARPJOIN_FILES_ALL") => 1,
        Err(_) => EVERY,
    };
    let hours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3600;
    Slice { first: usize::try_from(hours).unwrap(), every }
}

/// Runs `files` on a few workers. Returns the results in the order of `files`.
fn run_files(folder: &Path, files: &[String], slice: Slice) -> Vec<FileResult> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build().unwrap();
    let kind = EngineKind::from_environment(&[2]).unwrap()[0];
    let (engine, stock) = (Engine::new(kind), Engine::new(EngineKind::Stock));
    let (files, folder): (Arc<Vec<String>>, Arc<Path>) = (Arc::new(files.to_vec()), Arc::from(folder));
    let next = Arc::new(AtomicUsize::new(0));
    let worker = || {
        let (files, folder, next) = (Arc::clone(&files), Arc::clone(&folder), Arc::clone(&next));
        let (engine, stock) = (engine.clone(), stock.clone());
        async move {
            let mut results = vec![];
            while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < files.len()) {
                let start = Instant::now();
                let result = run_datafusion_file(&folder, &files[at], &engine, &stock, slice).await.unwrap();
                announce(&format!("{}  {:.1} s", line(&files[at], &result), start.elapsed().as_secs_f64()));
                results.push((at, result));
            }
            results
        }
    };
    let handles: Vec<_> = (0..workers()).map(|_| runtime.spawn(worker())).collect();
    let mut results: Vec<_> = handles.into_iter().flat_map(|handle| runtime.block_on(handle).unwrap()).collect();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

const COLUMNS: &str = "file: queries, refused; with operators, wholly on devices, partly; ran, both fail, ambiguous, wrong; failed statements; skipped";

fn line(name: &str, result: &FileResult) -> String {
    let skipped: Vec<String> = result.skipped.iter().map(|(why, count)| format!("{count} {why}")).collect();
    format!(
        "{name}: {} {}; {} {}% {}%; {} {} {} {}; {}; {}",
        result.queries,
        result.refused,
        result.with_operators,
        result.share(result.whole),
        result.share(result.some),
        result.ran,
        result.both_fail,
        result.ambiguous,
        result.failures.len(),
        result.failed_statements,
        skipped.join(", ")
    )
}

/// Describes how a file's shares fall below the expectation.
fn shortfall(name: &str, result: &FileResult, rule: Option<&FileRule>) -> Option<String> {
    let (whole, some) = (result.share(result.whole), result.share(result.some));
    match rule {
        None => Some(format!("{name} is not in datafusion_files.txt: add its shares {whole} {some}, or skip it")),
        Some(&FileRule::Floor { whole: least, some: least_some }) if whole < least || some < least_some => {
            Some(format!("{name}: {whole}% wholly and {some}% partly on devices, expected {least}% and {least_some}%"))
        }
        Some(_) => None,
    }
}

fn announce_reasons(total: &FileResult) {
    let mut reasons: Vec<_> = total.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = if is_set("WARPJOIN_FILES_REASONS") { usize::MAX } else { 12 };
    for (reason, count) in reasons.into_iter().take(shown) {
        announce(&format!("  {count} x {reason}"));
    }
}

#[test]
fn answers_match_stock_datafusion() {
    let folder = match datafusion_files() {
        Ok(folder) => folder,
        Err(error) => {
            assert!(!is_set("WARPJOIN_REQUIRE_NVRTC"), "{error}");
            announce(&format!("SKIP: DataFusion's files: {error}"));
            return;
        }
    };
    let only = std::env::var("WARPJOIN_SLT_FILE").unwrap_or_default();
    let mut expectations = Expectations::parse(include_str!("../../datafusion_files.txt")).unwrap();
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    let mut files = vec![];
    for file in list_files(&folder).unwrap().into_iter().filter(|file| file.contains(&only)) {
        match expectations.rule(&file) {
            Some(FileRule::Skip(why)) => *skipped.entry(why).or_default() += 1,
            _ => files.push(file),
        }
    }
    announce(COLUMNS);
    let slice = slice();
    let results = run_files(&folder, &files, slice);
    let (mut total, mut failures) = (FileResult::default(), vec![]);
    for (file, result) in files.iter().zip(&results) {
        total.add(result);
        failures.extend(shortfall(file, result, expectations.rule(file)));
    }
    announce(&line(&format!("total of {} files", files.len()), &total));
    skipped.into_iter().for_each(|(why, count)| announce(&format!("  {count} files skipped: {why}")));
    announce_reasons(&total);
    if is_set("WARPJOIN_FILES_COMPLETE") {
        for (file, result) in files.iter().zip(&results) {
            let rule = FileRule::Floor { whole: result.share(result.whole), some: result.share(result.some) };
            expectations.rules.insert(file.clone(), rule);
        }
        if only.is_empty() {
            let Caps { ambiguous, both_fail, .. } = expectations.caps;
            expectations.caps = Caps::of(&total);
            if slice.every != 1 {
                expectations.caps = Caps { ambiguous, both_fail, ..expectations.caps };
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("datafusion_files.txt");
        std::fs::write(path, expectations.to_text()).unwrap();
        failures.clear();
    }
    failures.extend(expectations.caps.exceeded(&total, slice));
    failures.extend(total.failures);
    assert!(failures.is_empty(), "{} failures:\n\n{}", failures.len(), failures.join("\n\n"));
}
