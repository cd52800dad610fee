//! Small cases of the operators under AddressSanitizer and UndefinedBehaviorSanitizer: each test
//! runs itself again in a process that has them loaded.

mod common;
mod tables_common;

use common::sanitized::{is_child, run_again};
use common::sessions::{Simulated, in_turn};
use common::{edges, random};
use warpjoin_device::SimOptions;

/// Runs `work` sanitized, in a process of its own.
fn sanitized(test: &str, work: impl Fn(&Simulated)) {
    if is_child() {
        return work(&Simulated(SimOptions { sanitize: true, ..SimOptions::default() }));
    }
    run_again(test, &[test, "--exact"]);
}

#[test]
fn edges_are_clean() {
    // One setting of one device, and the one with most traffic between devices.
    let mut settings = edges::settings();
    settings.retain(|settings| settings.hash_bits != 64);
    sanitized("edges_are_clean", |devices| edges::check(devices, &some_edges(), &settings));
}

/// Orders and limits of few rows, digit by digit where the settings say so.
#[test]
fn sorts_are_clean() {
    let is_small = |edge: &edges::Edge| edge.case.inputs.iter().all(|batch| batch.num_rows() <= 400);
    sanitized("sorts_are_clean", |devices| {
        let some = in_turn(edges::of_sorts().into_iter().filter(is_small), 12);
        edges::check(devices, &some, &edges::sort_settings()[1..4]);
    });
}

/// Windows of few rows.
#[test]
fn windows_are_clean() {
    let is_small = |edge: &edges::Edge| edge.case.inputs.iter().all(|batch| batch.num_rows() <= 200);
    sanitized("windows_are_clean", |devices| {
        let some = in_turn(edges::of_windows().into_iter().filter(is_small), 27);
        edges::check(devices, &some, &edges::sort_settings()[1..4]);
    });
}

/// A share of the edges of few rows, and of functions: compiling for the sanitizers takes long.
fn some_edges() -> Vec<edges::Edge> {
    in_turn(edges::all(true).into_iter().chain(edges::of_functions()), 15)
}

#[test]
fn random_plans_are_clean() {
    let seeds: Vec<u64> = (100..120).collect();
    sanitized("random_plans_are_clean", |devices| {
        random::check(devices, &seeds);
    });
}

#[test]
fn hash_tables_are_clean() {
    let seeds: Vec<u64> = (0..20).collect();
    sanitized("hash_tables_are_clean", |devices| tables_common::check(devices, &seeds, 4));
}
