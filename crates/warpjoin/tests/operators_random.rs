//! Random plans over random tables on simulated devices, against a naive oracle.
//!
//! Each run tries new cases and prints its base seed. `WARPJOIN_RANDOM_SEED=<seed>` begins with
//! that case; `WARPJOIN_RANDOM_CASES=<n>` runs so many.

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::case::Outcome;
use common::sessions::{WithoutPeers, in_turn, say, simulated};
use common::settings::Settings;
use common::{edges, random};

/// Cases of a run that asks for no number: less than a minute on two cores without optimization.
const CASES: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn regressions_equal_the_oracle() {
    random::check(&simulated(), &random::REGRESSIONS);
    random::check(&simulated(), &random::LATER_REGRESSIONS);
}

#[test]
fn random_plans_equal_the_oracle() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let base = number("WARPJOIN_RANDOM_SEED").unwrap_or_else(now);
    let cases =
        number("WARPJOIN_RANDOM_CASES").unwrap_or(if number("WARPJOIN_RANDOM_SEED").is_some() { 1 } else { CASES });
    say(&format!("random plans: {cases} cases from WARPJOIN_RANDOM_SEED={base}"));
    let seeds: Vec<u64> = (0..cases).map(|index| base.wrapping_add(index)).collect();
    let outcomes = random::check(&simulated(), &seeds);
    say(&format!("random plans: {outcomes:?}"));
    if cases >= CASES {
        let equal = outcomes.get(&Outcome::Equal).copied().unwrap_or(0);
        assert!(equal * 2 > cases as usize, "few cases say something: {outcomes:?}");
    }
}

/// Rows go through the host's memory.
#[test]
fn devices_that_cannot_reach_each_other_equal_the_oracle() {
    let (devices, runs) = (WithoutPeers(simulated()), 8);
    let several = [2, 3].map(|devices| Settings { devices, ..Settings::default() });
    edges::check(&devices, &in_turn(edges::all(true), runs), &several);
    edges::check(&devices, &in_turn(edges::of_sorts(), runs), &several);
    edges::check(&devices, &in_turn(edges::of_windows(), runs), &several);
    let seeds: Vec<u64> = (0..200).filter(|&seed| random::case(seed).settings.devices > 1).collect();
    say(&format!("random plans on devices apart: {:?}", random::check(&devices, &in_turn(seeds, runs))));
}

#[test]
fn the_oracle_itself_is_deterministic() {
    for seed in 0..5 {
        let (a, b) = (random::case(seed), random::case(seed));
        assert_eq!(format!("{}{:?}", a.plan, a.settings), format!("{}{:?}", b.plan, b.settings));
        assert_eq!(a.inputs, b.inputs);
    }
}
