//! DataFusion's own .slt files on joins, aggregates, subqueries and more, against stock DataFusion on simulated devices.
//!
//! `WARPJOIN_FILES_ALL=1` runs every query, and not a part that changes from hour to hour; `WARPJOIN_SLT_FILE=joins` runs
//! files of that name; `WARPJOIN_FILES_PLAN=1` plans queries on devices, runs none and compares nothing; `WARPJOIN_FILES_COMPLETE=1`, with all queries, writes the shares that the test keeps from falling.

// Helpers outside #[test] functions may fail a test too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use warpjoin_sql_tests::{Engine, EngineKind, announce, datafusion_files, run_datafusion_file};

/// A run of CI takes one of so many queries.
const EVERY: usize = 8;
/// File and least percentage of its queries with joins or aggregates that have one on a device.
const SHARES: &str = include_str!("../datafusion_files.txt");

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

#[test]
fn answers_are_stock_datafusions() {
    let folder = match datafusion_files() {
        Ok(folder) => folder,
        Err(error) => {
            assert!(!is_set("WARPJOIN_REQUIRE_NVRTC"), "{error}");
            announce(&format!("SKIP: DataFusion's files: {error}"));
            return;
        }
    };
    let only = std::env::var("WARPJOIN_SLT_FILE").unwrap_or_default();
    let shares: BTreeMap<&str, usize> = SHARES
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(file, share)| (file, share.trim().parse().unwrap()))
        .collect();
    let every = if is_set("WARPJOIN_FILES_ALL") { 1 } else { EVERY };
    let hours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3600;
    let (engine, stock) = (Engine::new(EngineKind::Simulated(2)), Engine::new(EngineKind::Stock));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut failures, mut lines, mut total, mut device) = (vec![], String::new(), 0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (file, least) in shares.into_iter().filter(|(file, _)| file.contains(&only)) {
        let path = folder.join(Path::new(file));
        let part = (hours as usize, every);
        let result = runtime.block_on(run_datafusion_file(&path, &engine, &stock, part)).unwrap();
        let share = result.on_devices * 100 / result.with_operators.max(1);
        announce(&format!(
            "{file}: {} queries, {} with joins or aggregates, {share}% on devices, {} ambiguous, {} wrong",
            result.queries,
            result.with_operators,
            result.ambiguous,
            result.failures.len()
        ));
        (total, device) = (total + result.with_operators, device + result.on_devices);
        result.reasons.into_iter().for_each(|(reason, count)| *reasons.entry(reason).or_default() += count);
        let is_counted = every == 1 && !is_set("WARPJOIN_FILES_COMPLETE") && !is_set("WARPJOIN_FILES_PLAN");
        if is_counted && share < least {
            failures.push(format!("{file}: {share}% on devices, {least}% before"));
        }
        writeln!(lines, "{file} {share}").unwrap();
        failures.extend(result.failures);
    }
    announce(&format!("DataFusion's files: {device} of {total} queries with joins or aggregates have one on a device"));
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons.iter().take(if is_set("WARPJOIN_FILES_PLAN") { usize::MAX } else { 12 }) {
        announce(&format!("  {count} x {reason}"));
    }
    if is_set("WARPJOIN_FILES_COMPLETE") && every == 1 && only.is_empty() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("datafusion_files.txt"), lines).unwrap();
    }
    assert!(failures.is_empty(), "{} failures:\n\n{}", failures.len(), failures.join("\n\n"));
}
