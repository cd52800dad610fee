//! Our .slt files on stock DataFusion, on 1, 2 and 4 simulated devices, compiled or interpreted, and on GPUs.
//!
//! - `WARPJOIN_SLT_COMPLETE=1 cargo test --workspace --test sql slt::stock` writes stock DataFusion's answers into the
//!   files.
//! - `WARPJOIN_OWN_SLT_DIR=folder` is the folder of the files, for hosts without cargo.
//! - `WARPJOIN_SLT_FILE=joins` selects the files with this text in their name.

use std::path::{Path, PathBuf};

use warpjoin_device::cuda_status;
use warpjoin_sql_tests::{Engine, EngineKind, announce, complete_file, run_file};

pub(super) fn files() -> Vec<PathBuf> {
    let folder = std::env::var_os("WARPJOIN_OWN_SLT_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("slt"), PathBuf::from);
    let only = std::env::var("WARPJOIN_SLT_FILE").unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no .slt file is named {only}");
    files
}

fn completing() -> bool {
    std::env::var("WARPJOIN_SLT_COMPLETE").is_ok_and(|value| value == "1")
}

fn run_on(kind: EngineKind) {
    if !completing() || kind == EngineKind::Stock {
        run_by(&Engine::new(kind));
    }
}

fn run_resident(kind: EngineKind) {
    if !completing() {
        run_by(&Engine::new(kind).with_resident_tables());
    }
}

fn run_by(engine: &Engine) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut failures = vec![];
    for file in files() {
        if completing() {
            runtime.block_on(complete_file(engine, &file)).unwrap();
        } else {
            failures.extend(runtime.block_on(run_file(engine, &file)).unwrap());
        }
    }
    assert!(failures.is_empty(), "{} failures:\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn stock() {
    run_on(EngineKind::Stock);
}

#[test]
fn simulated_1() {
    run_on(EngineKind::Simulated(1));
}

#[test]
fn simulated_2() {
    run_on(EngineKind::Simulated(2));
}

#[test]
fn simulated_4_interpreted() {
    if !completing() {
        run_by(&Engine::new(EngineKind::Simulated(4)).interpreting());
    }
}

#[test]
fn simulated_1_resident_interpreted() {
    if !completing() {
        run_by(&Engine::new(EngineKind::Simulated(1)).with_resident_tables().interpreting());
    }
}

#[test]
fn simulated_2_resident() {
    run_resident(EngineKind::Simulated(2));
}

#[test]
fn cuda() {
    let status = cuda_status();
    if let Some(problem) = status.problem {
        let required = std::env::var("WARPJOIN_REQUIRE_GPU").is_ok_and(|value| value == "1");
        assert!(!required, "WARPJOIN_REQUIRE_GPU=1, and {problem}");
        announce(&format!("SKIP: .slt files on GPUs: {problem}"));
        return;
    }
    for devices in [1, 2, 4, 8].into_iter().filter(|&devices| devices <= status.gpus) {
        run_on(EngineKind::Cuda(devices));
        run_by(&Engine::new(EngineKind::Cuda(devices)).with_resident_tables().interpreting());
    }
}
