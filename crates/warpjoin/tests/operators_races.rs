//! Every operator under the race detector of simulated devices, in schedules drawn from seeds, with blocks of 64 threads and
//! with blocks as large as on GPUs. `WARPJOIN_SEEDS` explores another number of seeds than the usual few.

mod common;
mod strings_common;
mod tables_common;

use common::schedules::{all, explore, seeds};
use common::sessions::{Opener, Simulated, in_threads};
use warpjoin_device::SimOptions;

/// Devices that find races.
fn racing(seed: u64) -> SimOptions {
    // Blocks have several turns each.
    SimOptions { seed: Some(seed), races: true, threads_per_multiprocessor: 256, ..SimOptions::default() }
}

#[test]
fn operators_do_not_race() {
    explore(&all(), &seeds(3), &racing(0));
}

#[test]
fn operators_do_not_race_in_blocks_as_on_gpus() {
    explore(&all(), &seeds(1), &SimOptions { block_threads_max: 1024, ..racing(0) });
}

#[test]
fn string_tests_do_not_race() {
    let tested = in_threads(&seeds(4), |&seed| {
        let session = Simulated(racing(seed)).open(1 + seed as usize % 3).expect("devices");
        strings_common::check(&session, seed, 257 + seed as usize % 2 * 400, 6)
    });
    assert!(tested.iter().sum::<usize>() > 0, "devices made no test");
}

#[test]
fn hash_tables_do_not_race() {
    for seed in seeds(2) {
        let first = seed * 8;
        tables_common::check(&Simulated(racing(seed)), &(first..first + 8).collect::<Vec<_>>(), 5);
    }
}

#[test]
fn hash_tables_do_not_race_in_blocks_as_on_gpus() {
    let options = SimOptions { block_threads_max: 1024, ..racing(1) };
    for seed in seeds(1) {
        let first = 100 + seed * 4;
        tables_common::check(&Simulated(options.clone()), &(first..first + 4).collect::<Vec<_>>(), 4);
    }
}
