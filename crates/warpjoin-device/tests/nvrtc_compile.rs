//! Compilation with NVRTC. Needs no GPU.
//!
//! Without libnvrtc each test prints SKIP and passes, or fails with `WARPJOIN_REQUIRE_NVRTC=1`.
#![allow(clippy::panic, reason = "tests")]

mod cuda_common;

use std::io::Write;

use warpjoin_device::{DeviceError, ModuleSource, compile_for_architecture, cuda_status};

/// Uses each feature that kernels need from `common/simt.cuh` and from CUDA.
const FEATURES: &str = r#"
#include "common/simt.cuh"

struct Params { const u64* input; u64* output; u64 rows; };

struct Tile { u64 sums[32]; u32 ballots[32]; };

WJ_DEVICE u64 mixed(u64 key) {
    u128 product = (u128)key * 0x9E3779B97F4A7C15ull;
    i128 difference = (i128)product - (i128)SEED;
    return (u64)(difference >> 64) ^ (u64)difference;
}

WJ_ENTRY(first, Params, 256) {
    Tile& tile = shared_as<Tile>();
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 sum = 0;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) sum += mixed(p.input[row]);
    for (u32 offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    u32 ballot = __ballot_sync(0xffffffffu, (sum & 1) != 0);
    if (lane == 0) { tile.sums[warp] = sum; tile.ballots[warp] = ballot; }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&p.output[0], tile.sums[0] + tile.ballots[0]);
}

WJ_ENTRY(second, Params, 1024) {
    u64 seen = load_relaxed(&p.output[0]);
    if (threadIdx.x == 0) atomicCAS(&p.output[1], seen, p.rows);
    __syncwarp();
}
"#;

fn source(text: &str, entries: &[&str]) -> ModuleSource {
    ModuleSource {
        name: "features".into(),
        text: text.into(),
        entries: entries.iter().map(|&entry| entry.into()).collect(),
        defines: vec!["SEED=42".into()],
    }
}

/// Whether NVRTC is installed. Prints a SKIP line if not.
fn nvrtc(test: &str) -> bool {
    match cuda_status().nvrtc {
        Some(_) => true,
        None if std::env::var("WARPJOIN_REQUIRE_NVRTC").is_ok_and(|value| value == "1") => {
            panic!("{test}: WARPJOIN_REQUIRE_NVRTC=1 and no NVRTC")
        }
        None => {
            // Not captured by the test harness.
            let _ = writeln!(std::io::stderr(), "SKIP {test}: no libnvrtc (put its folder on LD_LIBRARY_PATH)");
            false
        }
    }
}

fn log_of(result: Result<Vec<u8>, DeviceError>) -> String {
    match result {
        Err(DeviceError::KernelCompile { module, target, log }) => {
            assert_eq!((module.as_str(), target.as_str()), ("features", "sm_90"));
            log
        }
        other => panic!("not a compile error: {other:?}"),
    }
}

#[test]
fn every_feature_compiles_for_every_architecture() {
    if !nvrtc("every_feature_compiles_for_every_architecture") {
        return;
    }
    let mut seen = Vec::new();
    for architecture in ["sm_80", "sm_90", "sm_100"] {
        let cubin = compile_for_architecture(&source(FEATURES, &["first", "second"]), architecture)
            .unwrap_or_else(|error| panic!("{architecture}: {error}"));
        assert!(cubin.starts_with(b"\x7fELF"), "{architecture}: not a cubin");
        assert!(!seen.contains(&cubin), "{architecture}: the same binary as another");
        seen.push(cubin);
    }
}

/// Finds compile errors in the kernels of the GPU tests without a GPU.
#[test]
fn the_kernels_of_gpu_tests_compile() {
    if nvrtc("the_kernels_of_gpu_tests_compile") {
        compile_for_architecture(&cuda_common::source(), "sm_90").unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn threads_compile_concurrently() {
    if !nvrtc("threads_compile_concurrently") {
        return;
    }
    std::thread::scope(|scope| {
        for at in 0..8 {
            scope.spawn(move || {
                let text = format!("{FEATURES}\nWJ_ENTRY(own_{at}, Params, 32) {{ p.output[2] = {at}; }}\n");
                for entry in ["first", &format!("own_{at}")] {
                    let cubin = compile_for_architecture(&source(&text, &[entry]), "sm_90");
                    assert!(cubin.is_ok(), "{cubin:?}");
                }
            });
        }
    });
}

#[test]
fn compile_errors_name_the_line() {
    if !nvrtc("compile_errors_name_the_line") {
        return;
    }
    let text = "#include \"common/simt.cuh\"\nstruct Params { u64 a; };\nWJ_ENTRY(first, Params, 32) {\n    u64 b = p.missing;\n}\n";
    let log = log_of(compile_for_architecture(&source(text, &["first"]), "sm_90"));
    assert!(log.contains("features.cu(4)") && log.contains("missing"), "{log}");
}

#[test]
fn other_headers_are_not_found() {
    if !nvrtc("other_headers_are_not_found") {
        return;
    }
    let log = log_of(compile_for_architecture(&source("#include \"common/none.cuh\"\n", &[]), "sm_90"));
    assert!(log.contains("common/none.cuh"), "{log}");
}

#[test]
fn a_missing_entry_is_an_error() {
    if !nvrtc("a_missing_entry_is_an_error") {
        return;
    }
    for missing in ["third", "firs", "first2"] {
        let log = log_of(compile_for_architecture(&source(FEATURES, &["first", missing]), "sm_90"));
        assert!(log.contains(missing), "{log}");
    }
}

#[test]
fn unknown_architectures_are_errors_that_list_the_known_ones() {
    if !nvrtc("unknown_architectures_are_errors_that_list_the_known_ones") {
        return;
    }
    for architecture in ["sm_20", "sm_999", "hopper", ""] {
        match compile_for_architecture(&source(FEATURES, &["first"]), architecture) {
            Err(error @ DeviceError::UnknownArchitecture { .. }) => {
                let words = error.to_string();
                assert!(words.contains("sm_90") && words.contains(architecture), "{words}");
            }
            other => panic!("{architecture}: {other:?}"),
        }
    }
}

#[test]
fn floating_point_rounds_as_on_the_cpu() {
    if !nvrtc("floating_point_rounds_as_on_the_cpu") {
        return;
    }
    // With contraction, both texts would compile to the same binary.
    let text = "#include \"common/simt.cuh\"\nstruct Params { f64* a; };\nWJ_ENTRY(first, Params, 32) { p.a[0] = p.a[1] * p.a[2] + p.a[3]; }\n";
    let plain = compile_for_architecture(&source(text, &["first"]), "sm_90");
    let mut fused = source(text, &["first"]);
    fused.text = text.replace("p.a[1] * p.a[2] + p.a[3]", "fma(p.a[1], p.a[2], p.a[3])");
    let fused = compile_for_architecture(&fused, "sm_90");
    assert_ne!(plain.expect("compiles"), fused.expect("compiles"));
}

#[test]
fn zero_bytes_in_text_are_errors() {
    if !nvrtc("zero_bytes_in_text_are_errors") {
        return;
    }
    assert!(matches!(compile_for_architecture(&source("a\0b", &[]), "sm_90"), Err(DeviceError::Invalid(_))));
}

/// Set in a process that ends while its threads compile.
const ENDING: &str = "WARPJOIN_TEST_ENDING";

#[test]
fn a_process_may_end_while_threads_compile() {
    if std::env::var_os(ENDING).is_some() {
        for thread in 0..4 {
            std::thread::spawn(move || {
                for number in 0.. {
                    let mut source = source(FEATURES, &["first", "second"]);
                    source.defines = vec![format!("SEED={number}{thread}")];
                    let _ = compile_for_architecture(&source, "sm_90");
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(700));
        std::process::exit(0);
    }
    if !nvrtc("a_process_may_end_while_threads_compile") {
        return;
    }
    for _ in 0..5 {
        let mut process = std::process::Command::new(std::env::current_exe().expect("this program"));
        let status = process.args(["--exact", "a_process_may_end_while_threads_compile"]).env(ENDING, "1").status();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "{status:?}");
    }
}
