//! Options of simulated devices.
//!
//! Must not know how work is executed.

use std::ffi::OsString;
use std::path::PathBuf;

use super::compile::toolchain;
use warpjoin_kernels::KernelFile;

/// How to open simulated devices.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Number of devices.
    pub devices: usize,
    /// `Some`: runs one schedule, drawn from this seed, on one OS thread. Enqueued work is executed
    /// late and in random order, and lanes switch at every atomic, relaxed load and collective. The
    /// same seed gives the same run. `None`: runs fast, on all `threads`.
    pub seed: Option<u64>,
    /// Lanes also switch at some plain loads and stores, which exposes races that involve no atomic.
    /// Needs a seed, and excludes `sanitize`. Kernels are compiled separately for it.
    pub yield_at_plain_accesses: bool,
    /// Detects races ([`DeviceError::Race`](crate::DeviceError::Race)): accesses of lanes, launches, copies and the host to the same bytes that are
    /// not ordered by barriers, fences, streams, events or waits (`kernels/sim/races/race_order.h` defines the order).
    /// Relaxed loads may return values older than a store that is not ordered before them. Needs a seed, and excludes
    /// `sanitize`. Kernels are compiled separately for it; tests of operators take about 1.2 times the CPU time.
    pub races: bool,
    /// Memory of each device, and its initial budget, in bytes.
    pub memory_bytes: u64,
    /// Budget of all devices for buffers in the host's memory, in bytes.
    pub host_memory_bytes: u64,
    /// OS threads that run blocks when there is no seed; 0 means one per core.
    pub threads: usize,
    /// Compiles kernels with AddressSanitizer and UndefinedBehaviorSanitizer. The process must run
    /// with [`SimOptions::sanitizer_environment`]. A finding ends the process.
    pub sanitize: bool,
    /// Folder of compiled kernels; see [`crate::KernelCache::open`].
    pub kernel_cache: Option<PathBuf>,
    /// For tests: replaces one kernel file in every compilation.
    pub changed_file: Option<ChangedFile>,
    /// Maximum shared memory of a block, in bytes. The default is that of an H100.
    pub shared_bytes_per_block_max: u32,
    /// Maximum threads of a block whose kernel accepts any block size. Few by default, since a lane costs far more than a
    /// row. 1,024 makes blocks as large as on GPUs.
    pub block_threads_max: u32,
    /// Number of streaming multiprocessors that the device reports. Few by default, so that kernels
    /// with a grid sized by it iterate in their grid-stride loops.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds at once, as the device reports. Fewer make fewer blocks, which then have several turns
    /// each.
    pub threads_per_multiprocessor: u32,
    /// L2 cache that the device reports, in bytes. Small by default, so that tests cover the plans for
    /// tables that exceed it.
    pub l2_bytes: u64,
}

/// A replacement text for a file of `warpjoin_kernels`.
#[derive(Debug, Clone)]
pub struct ChangedFile {
    /// The file.
    pub file: KernelFile,
    /// The replacement.
    pub text: String,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            devices: 1,
            seed: None,
            yield_at_plain_accesses: false,
            races: false,
            memory_bytes: 4 << 30,
            host_memory_bytes: 4 << 30,
            threads: 0,
            sanitize: false,
            kernel_cache: None,
            changed_file: None,
            shared_bytes_per_block_max: 227 << 10,
            block_threads_max: 64,
            multiprocessors: 4,
            threads_per_multiprocessor: 2048,
            l2_bytes: 4 << 20,
        }
    }
}

impl SimOptions {
    /// Environment variables that a process needs for `sanitize`: they preload the sanitizer's
    /// library, and set options that work with fibers. `None` if the compiler has no such library.
    ///
    /// A test checks [`Self::sanitizer_is_loaded`], and runs itself again if it is not.
    pub fn sanitizer_environment() -> Option<Vec<(&'static str, OsString)>> {
        let library = toolchain::sanitizer_library()?;
        // Rust's statics look like leaks, and lanes keep their locals on fiber stacks.
        let options = "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1";
        Some(vec![("LD_PRELOAD", library.into_os_string()), ("ASAN_OPTIONS", options.into())])
    }

    /// Whether this process can open devices with `sanitize`.
    pub fn sanitizer_is_loaded() -> bool {
        toolchain::sanitizer_is_loaded()
    }
}
