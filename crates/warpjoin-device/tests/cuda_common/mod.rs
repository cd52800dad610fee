//! Shared by the GPU tests: opening GPUs, skipping visibly without one, and test kernels.
#![allow(dead_code, clippy::panic, reason = "tests, each of which uses a part")]

use std::io::Write;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpjoin_device::{CudaOptions, Device, Kernel, Launch, ModuleSource, open_cuda};

/// The GPUs of this machine. If CUDA cannot be used, prints a SKIP line and returns `None`, or fails
/// with `WARPJOIN_REQUIRE_GPU=1`.
pub(crate) fn gpus_with(test: &str, options: &CudaOptions) -> Option<Vec<Device>> {
    match open_cuda(options) {
        Ok(devices) => Some(devices),
        Err(error) if std::env::var("WARPJOIN_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("{test}: WARPJOIN_REQUIRE_GPU=1 and {error}")
        }
        Err(error) => {
            // Not captured by the test harness.
            let _ = writeln!(std::io::stderr(), "SKIP {test}: {error}");
            None
        }
    }
}

/// The GPUs, without a kernel cache.
pub(crate) fn gpus(test: &str) -> Option<Vec<Device>> {
    gpus_with(test, &CudaOptions { kernel_cache: Some("off".into()), ..CudaOptions::default() })
}

/// The first GPU, with a kernel cache in `dir`.
pub(crate) fn gpu_with_cache(test: &str, dir: &Path) -> Option<Device> {
    let options = CudaOptions { devices: Some(1), kernel_cache: Some(dir.into()), ..CudaOptions::default() };
    gpus_with(test, &options)?.into_iter().next()
}

/// A GPU for exclusive use by one test of the process, since some calls wait for all work in a context.
pub(crate) struct Alone {
    device: Device,
    _lock: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

pub(crate) fn gpu(test: &str) -> Option<Alone> {
    let lock = alone();
    Some(Alone { device: gpus(test)?.into_iter().next()?, _lock: lock })
}

/// Excludes other tests of the process from using a GPU, since all devices of a GPU share its budget.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn random_bytes(bytes: usize, seed: u64) -> Vec<u8> {
    // SplitMix64, eight bytes per step: tests draw hundreds of MiB in unoptimized builds.
    let mut content = vec![0; bytes.next_multiple_of(8)];
    let mut state = seed;
    for word in content.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    content.truncate(bytes);
    content
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}

pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The kernels of these tests.
pub(crate) fn source() -> ModuleSource {
    ModuleSource {
        name: "cuda_test".into(),
        text: KERNELS.into(),
        entries: ["scale", "spin", "nothing", "reverse", "trap", "count"].map(String::from).into(),
        defines: vec!["ADDEND=5".into()],
    }
}

pub(crate) fn kernel(device: &Device, name: &str) -> Kernel {
    device.compile(&source()).expect("compiles").kernel(name).expect("is an entry")
}

pub(crate) fn launch(blocks: u32, block_threads: u32) -> Launch {
    Launch { blocks, block_threads, shared_bytes: 0 }
}

const KERNELS: &str = r#"
#include "common/simt.cuh"

struct Scale { const u64* input; u64* output; u64 rows; u64 factor; };

WJ_ENTRY(scale, Scale, 256) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride)
        p.output[row] = p.input[row] * p.factor + ADDEND;
}

struct Spin { u64 cycles; u64* output; u64 value; };

// Blocks the stream for `cycles` cycles, then writes.
WJ_ENTRY(spin, Spin, 32) {
    long long start = clock64();
    for (u64 round = 0; round < p.cycles; ++round)
        if ((u64)(clock64() - start) >= p.cycles) break;
    if (threadIdx.x == 0 && p.output) p.output[0] = p.value;
}

struct Nothing {};

WJ_ENTRY(nothing, Nothing, 32) {}

struct Reverse { u64* values; u64 rows; };

// Reverses the rows through dynamic shared memory, with one block.
WJ_ENTRY(reverse, Reverse, 1024) {
    u64* words = &shared_as<u64>();
    for (u64 row = threadIdx.x; row < p.rows; row += blockDim.x) words[row] = p.values[row];
    __syncthreads();
    for (u64 row = threadIdx.x; row < p.rows; row += blockDim.x) p.values[row] = words[p.rows - 1 - row];
}

// Breaks the context without accessing memory.
WJ_ENTRY(trap, Nothing, 32) { asm volatile("trap;"); }

struct Count { u64* counters; u64 rounds; };

WJ_ENTRY(count, Count, 256) {
    for (u64 round = 0; round < p.rounds; ++round) atomicAdd(&p.counters[(threadIdx.x + round) % 4], 1ull);
}
"#;
