//! Kernels under AddressSanitizer and UndefinedBehaviorSanitizer. Each test runs itself again in a
//! child process that has loaded them, and checks how that process ended.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;
use sim_common::*;
use std::process::{Command, Output};
use warpjoin_device::{Launch, SimOptions, open_simulated};

const CASE: &str = "WJ_SANITIZER_CASE";

/// Runs the test of this name in a child process with sanitizers; `None` if the compiler has none.
fn run_child(test: &str) -> Option<Output> {
    let Some(environment) = SimOptions::sanitizer_environment() else {
        eprintln!("SKIPPED {test}: the compiler has no AddressSanitizer");
        return None;
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, test).envs(environment);
    Some(command.output().unwrap())
}

fn is_child() -> bool {
    std::env::var_os(CASE).is_some()
}

fn run_sanitized(body: &str, launch: Launch, slots: u64) {
    for seed in [None, Some(1)] {
        let device = open_simulated(&SimOptions { sanitize: true, ..options(seed) }).unwrap().remove(0);
        run(&device, body, launch, slots);
    }
}

fn expect(test: &str, body: &str, finding: Option<&str>) {
    let launch = Launch { blocks: 3, block_threads: 64, shared_bytes: 520 };
    if is_child() {
        return run_sanitized(body, launch, 64);
    }
    let Some(output) = run_child(test) else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    match finding {
        Some(finding) => assert!(!output.status.success() && text.contains(finding), "{}: {text}", output.status),
        None => assert!(output.status.success(), "{}: {text}", output.status),
    }
}

#[test]
fn a_good_kernel_passes() {
    let body = "volatile u64 local[32]; u64* shared = &shared_as<u64>();
        for (u32 i = 0; i < 32; ++i) { local[i] = __shfl_xor_sync(~0u, i, 1); atomicAdd(p.out + i, 1ull); __syncthreads(); }
        shared[threadIdx.x] = local[threadIdx.x % 32]; __syncthreads(); p.out[threadIdx.x] = shared[63 - threadIdx.x];";
    expect("a_good_kernel_passes", body, None);
}

#[test]
fn a_write_past_a_buffer_is_found() {
    expect(
        "a_write_past_a_buffer_is_found",
        "__syncthreads(); p.out[threadIdx.x + 1] = 1;",
        Some("heap-buffer-overflow"),
    );
}

#[test]
fn a_write_past_shared_memory_is_found() {
    let body = "__syncthreads(); (&shared_as<u64>())[threadIdx.x + 2] = 1;";
    expect("a_write_past_shared_memory_is_found", body, Some("heap-buffer-overflow"));
}

#[test]
fn an_index_past_a_local_array_is_found() {
    let body =
        "volatile u64 local[4]; u64 at = threadIdx.x; __syncthreads(); local[at & 7] = 1; p.out[0] = local[at & 3];";
    expect("an_index_past_a_local_array_is_found", body, Some("runtime error"));
}

#[test]
fn signed_overflow_is_found() {
    let body = "i64 x = 0x7fffffffffffffffll - (i64)(p.n - 64); __syncwarp(); p.out[0] = (u64)(x + (i64)threadIdx.x);";
    expect("signed_overflow_is_found", body, Some("signed integer overflow"));
}

#[test]
fn kernel_errors_are_reported_under_sanitizers() {
    const NAME: &str = "kernel_errors_are_reported_under_sanitizers";
    if is_child() {
        for seed in [None, Some(1)] {
            let device = open_simulated(&SimOptions { sanitize: true, ..options(seed) }).unwrap().remove(0);
            for _ in 0..3 {
                let body = "volatile u64 local[9]; local[threadIdx.x % 9] = 1; if (threadIdx.x) __syncthreads();";
                assert!(error_of(&device, body, shape(3, 64)).contains("exit"));
                run(&device, "volatile u64 local[30]; local[threadIdx.x % 30] = 1; __syncthreads();", shape(3, 64), 1);
            }
        }
    } else if let Some(output) = run_child(NAME) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn sanitizing_needs_a_process_with_sanitizers() {
    if !SimOptions::sanitizer_is_loaded() {
        assert!(open_simulated(&SimOptions { sanitize: true, ..options(None) }).is_err());
    }
}
