//! The edges and random plans of the operators on GPUs: a visible SKIP where there is none, which
//! `WARPJOIN_REQUIRE_GPU=1` turns into a failure.

mod common;

use common::sessions::{Opener, WithoutPeers, gpus, in_turn, say};
use common::settings::Settings;
use common::{edges, random};

#[test]
fn edges_equal_the_oracle_on_gpus() {
    if let Some(gpus) = gpus("edges_equal_the_oracle_on_gpus") {
        let mut settings = edges::settings();
        for devices in (1..=8).filter(|&devices| gpus.open(devices).is_some()) {
            settings.push(Settings { devices, ..Settings::default() });
        }
        edges::check(&gpus, &edges::all(false), &settings);
        edges::check(&gpus, &edges::of_functions(), &settings);
    }
}

/// What the tools of compute-sanitizer are run on: they take many times as long. `WARPJOIN_SMALL_RUNS=8`: an eighth of it.
#[test]
fn small_inputs_equal_the_oracle_on_gpus() {
    let runs = std::env::var("WARPJOIN_SMALL_RUNS").map_or(1, |runs| runs.parse().expect("a number"));
    if let Some(gpus) = gpus("small_inputs_equal_the_oracle_on_gpus") {
        edges::check(&gpus, &in_turn(edges::all(true), runs), &edges::settings());
        edges::check(&gpus, &in_turn(edges::of_sorts(), runs), &edges::sort_settings());
        edges::check(&gpus, &in_turn(edges::of_windows(), runs), &edges::sort_settings());
    }
}

/// Rows go through the host's memory.
#[test]
fn gpus_that_cannot_reach_each_other_equal_the_oracle() {
    if let Some(gpus) = gpus("gpus_that_cannot_reach_each_other_equal_the_oracle") {
        let gpus = WithoutPeers(gpus);
        let several: Vec<Settings> = (2..=8)
            .filter(|&devices| gpus.open(devices).is_some())
            .map(|devices| Settings { devices, ..Settings::default() })
            .collect();
        if several.is_empty() {
            say("SKIP gpus_that_cannot_reach_each_other_equal_the_oracle: one GPU");
            return;
        }
        edges::check(&gpus, &edges::all(true), &several);
        edges::check(&gpus, &edges::of_sorts(), &several);
        say(&format!("random plans on GPUs apart: {:?}", random::check(&gpus, &(0..200).collect::<Vec<u64>>())));
    }
}

#[test]
fn random_plans_equal_the_oracle_on_gpus() {
    if let Some(gpus) = gpus("random_plans_equal_the_oracle_on_gpus") {
        let seeds: Vec<u64> = (0..400).collect();
        say(&format!("random plans on GPUs: {:?}", random::check(&gpus, &seeds)));
    }
}
