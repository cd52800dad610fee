//! What a caller can choose about simulated devices.

use std::ffi::OsString;
use std::path::PathBuf;

use super::compile::toolchain;
use warpjoin_kernels::KernelFile;

/// How to open simulated devices.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// How many devices to make.
    pub devices: usize,
    /// `Some`: explores one schedule, drawn from this seed: on one OS thread, enqueued work is
    /// executed late and in an order of the seed, and lanes switch at every atomic, relaxed load
    /// and collective. The same seed gives the same run. `None`: runs fast, on all `threads`.
    pub seed: Option<u64>,
    /// With a seed, and without `sanitize`: lanes also switch at some plain loads and stores, so
    /// that races which involve no atomic show as well. Kernels are compiled apart for it.
    pub yield_at_plain_accesses: bool,
    /// With a seed, and without `sanitize`: finds races ([`crate::DeviceError::Race`]): accesses of lanes, launches, copies
    /// and the host to the same bytes that neither barriers and fences nor streams, events and waits order
    /// (`kernels/sim/races/race_order.h` says how). Relaxed loads may give values from before stores that nothing orders
    /// before them. Kernels are compiled apart for it; tests of operators take about 1.2
    /// times the CPU time.
    pub races: bool,
    /// Memory of each device, and its first budget, in bytes.
    pub memory_bytes: u64,
    /// OS threads that run blocks when there is no seed; 0 takes one per core.
    pub threads: usize,
    /// Compiles kernels with AddressSanitizer and UndefinedBehaviorSanitizer. The process must run
    /// with [`SimOptions::sanitizer_environment`]; a finding ends it.
    pub sanitize: bool,
    /// Folder of compiled kernels; see [`crate::KernelCache::open`].
    pub kernel_cache: Option<PathBuf>,
    /// For tests: takes the place of one kernel file, in whatever is compiled.
    pub changed_file: Option<ChangedFile>,
    /// Most shared memory that a block can ask for, in bytes; that of an H100 by default.
    pub shared_bytes_per_block_max: u32,
    /// Most threads of blocks that may have any number of them: few, as a lane costs far more than a row. 1,024 makes
    /// blocks as large as on GPUs.
    pub block_threads_max: u32,
    /// Streaming multiprocessors that the device reports. Few, so that kernels that size their
    /// grid by it run their grid-stride loops.
    pub multiprocessors: u32,
    /// L2 cache that the device reports, in bytes. Small, so that tests reach the plans made for
    /// tables beyond it.
    pub l2_bytes: u64,
}

/// Another text for a file of `warpjoin_kernels`.
#[derive(Debug, Clone)]
pub struct ChangedFile {
    /// The file.
    pub file: KernelFile,
    /// Its other text.
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
            threads: 0,
            sanitize: false,
            kernel_cache: None,
            changed_file: None,
            shared_bytes_per_block_max: 227 << 10,
            block_threads_max: 64,
            multiprocessors: 4,
            l2_bytes: 4 << 20,
        }
    }
}

impl SimOptions {
    /// What the environment of a process must hold for `sanitize`: the sanitizer's own library,
    /// loaded first, and options that suit fibres. `None` where the compiler has no such library.
    ///
    /// A test finds out with [`Self::sanitizer_is_loaded`], and runs itself again where it is not.
    pub fn sanitizer_environment() -> Option<Vec<(&'static str, OsString)>> {
        let library = toolchain::sanitizer_library()?;
        // Rust keeps memory until the process ends, and lanes keep their locals on fibre stacks.
        let options = "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1";
        Some(vec![("LD_PRELOAD", library.into_os_string()), ("ASAN_OPTIONS", options.into())])
    }

    /// Whether this process can open devices with `sanitize`.
    pub fn sanitizer_is_loaded() -> bool {
        toolchain::sanitizer_is_loaded()
    }
}
