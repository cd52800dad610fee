//! LIKE and comparisons of strings on devices equal Arrow's kernels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod strings_common;

use common::sanitized::{is_child, run_again};
use common::sessions::{Opener, Simulated, gpus, in_threads, simulated};
use strings_common::{SIZES, check};
use warpjoin::Session;
use warpjoin_device::{SimOptions, open_simulated};

fn cases() -> Vec<(u64, usize, usize)> {
    let many = std::env::var("WARPJOIN_RANDOM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let devices = [1, 2, 4];
    (0..many)
        .flat_map(|round| (0u64..).zip(SIZES).map(move |(index, size)| (round * 100 + index, size)))
        .flat_map(|(seed, size)| devices.map(|devices| (seed, size, devices)))
        .collect()
}

fn check_all(opener: &dyn Opener) {
    let tested = in_threads(&cases(), |&(seed, size, devices)| {
        opener.open(devices).map_or(0, |session| check(&session, seed, size, 12))
    });
    // The cases of letters that are not ASCII are the host's, and nothing but ANDs and ORs of nothing is tested by nobody.
    let tested: usize = tested.iter().sum();
    assert!(tested > cases().len() * 2, "devices made {tested} tests");
}

#[test]
fn random_tests_equal_arrow() {
    check_all(&simulated());
}

#[test]
fn random_tests_equal_arrow_on_gpus() {
    if let Some(gpus) = gpus("random_tests_equal_arrow_on_gpus") {
        check_all(&gpus);
    }
}

#[test]
fn random_tests_are_clean() {
    const NAME: &str = "random_tests_are_clean";
    if !is_child() {
        return run_again(NAME, &[NAME, "--exact"]);
    }
    let opener = Simulated(SimOptions { sanitize: true, ..SimOptions::default() });
    for (seed, size) in [(1, 31), (2, 257), (3, 700)] {
        check(&opener.open(2).unwrap(), seed, size, 6);
    }
}

/// Strings that have no room beside the table are tested on the host.
#[test]
fn strings_without_room_are_tested_on_the_host() {
    let mut on_devices = vec![];
    for memory_bytes in [96 << 10, 128 << 10, 192 << 10, 1 << 20, 64 << 20] {
        let options = SimOptions { memory_bytes, ..SimOptions::default() };
        let session = Session::new(open_simulated(&options).unwrap()).unwrap();
        on_devices.push(check(&session, 21, 3000, 4));
        assert_eq!(session.devices()[0].memory().used_bytes(), 0, "all memory is given back");
    }
    assert!(on_devices[0] == 0 && on_devices[4] > 0, "{on_devices:?}");
}
