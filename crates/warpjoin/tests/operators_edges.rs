//! The operators at their edges, on simulated devices: see `common::edges`.

mod common;

use common::edges;
use common::sessions::{Opener, simulated};
use common::settings::Settings;
use warpjoin::Session;
use warpjoin_device::{SimOptions, open_simulated};

#[test]
fn edges_equal_the_oracle() {
    edges::check(&simulated(), &edges::all(false), &edges::settings());
}

/// The edges of group-bys are there for its four ways to a group: each must be taken.
#[test]
fn every_way_to_a_group_is_taken() {
    let opener = simulated();
    for (mode, code) in [
        ("private", "block_slot_keyed("),
        ("dense", "group_row_dense("),
        ("narrow", "group_row_narrow("),
        ("narrow", "block_slot("),
        ("word", "group_row_narrow("),
        ("wide", "group_row_wide("),
    ] {
        for edge in edges::all(false).iter().filter(|e| e.name.starts_with(&format!("{mode} keys, 6000"))) {
            let session = opener.open(1).expect("a session");
            edge.case.run(&session, &Settings::default()).expect("rows");
            let sources = session.devices()[0].compiled_sources();
            assert!(sources.iter().any(|source| source.text.contains(code)), "{}", edge.name);
        }
    }
}

/// A thread, and a warp even more, adds up more than the 2^20 rows of a source that it is bound to.
#[test]
fn sums_behind_duplicate_keys_do_not_overflow() {
    for keys in [0, 1] {
        let (case, wanted) = edges::sum_behind_duplicates(1 << 16, keys);
        let session = simulated().open(1).expect("a session");
        assert_eq!(case.run(&session, &Settings::default()).expect("rows"), wanted, "{keys} keys");
    }
}

/// Work must not depend on more than the eight devices that kernels are made for.
#[test]
fn sessions_of_too_many_devices_are_refused() {
    let devices = |count| open_simulated(&SimOptions { devices: count, ..SimOptions::default() }).expect("devices");
    assert!(Session::new(devices(8)).is_ok());
    assert!(Session::new(devices(9)).is_err());
    assert!(Session::new(vec![]).is_err());
}
