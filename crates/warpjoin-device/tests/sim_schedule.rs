//! Schedules of lanes: a seed replays one, seeds differ, and some expose races.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;
use sim_common::*;
use warpjoin_device::{SimOptions, open_simulated};

/// Each lane takes a ticket, which records the order in which lanes ran.
const TICKETS: &str = "u64 at = atomicAdd(p.out + p.n - 1, 1ull); p.out[at] = blockIdx.x * blockDim.x + threadIdx.x;";
/// A read-modify-write that is not atomic, and may lose updates.
const RACY: &str = "u64 seen = load_relaxed(p.out); p.out[0] = seen + 1;";
const ATOMIC: &str = "u64 seen = load_relaxed(p.out), before;
    do { before = seen; seen = atomicCAS(p.out, before, before + 1); } while (seen != before);";

#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        let order = || run(&open(Some(seed)), TICKETS, shape(5, 64), 321);
        assert_eq!(order(), order(), "seed {seed}");
    }
}

#[test]
fn seeds_differ_and_all_lanes_run() {
    let mut orders = std::collections::HashSet::new();
    for seed in 0..50 {
        let mut order = run(&open(Some(seed)), TICKETS, shape(5, 64), 321);
        assert_eq!(order.pop(), Some(320));
        orders.insert(order.clone());
        order.sort_unstable();
        assert!(order.into_iter().eq(0..320));
    }
    assert!(orders.len() > 48, "{} orders", orders.len());
}

#[test]
fn blocks_interleave_and_start_in_any_order() {
    let orders: Vec<Vec<u64>> = (0..20)
        .map(|seed| run(&open(Some(seed)), TICKETS, shape(8, 32), 257)[..256].iter().map(|id| id / 32).collect())
        .collect();
    assert!(orders.iter().any(|blocks| blocks[0] != 0), "all start with the first block");
    let switches = |blocks: &[u64]| blocks.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(orders.iter().any(|blocks| switches(blocks) > 50), "none interleaves blocks");
}

#[test]
fn a_race_is_exposed_within_100_seeds_and_an_atomic_is_not() {
    for (blocks, threads) in [(1, 32), (2, 32), (1, 64)] {
        let lanes = u64::from(blocks * threads);
        let lost = (0..100).filter(|&seed| run(&open(Some(seed)), RACY, shape(blocks, threads), 1)[0] < lanes).count();
        assert!(lost > 50, "{lost} of 100 seeds expose the race");
        for seed in (0..100).map(Some).chain([None]) {
            assert_eq!(run(&open(seed), ATOMIC, shape(blocks, threads), 1), [lanes]);
        }
    }
}

#[test]
fn a_claim_by_plain_store_is_exposed_within_100_seeds() {
    // Two lanes insert the same key, and exactly one may claim a slot.
    let claim = |claim: &str| {
        format!(
            "u64 key = 1 + threadIdx.x / 2, at = key % 16;
         for (u64 i = 0; i < 64; ++i, at = (at + 1) % 64) {{
             u64 seen = load_relaxed(p.out + at);
             if (seen == 0) {{ {claim} }}
             if (seen == 0) {{ atomicAdd(p.out + 64, 1ull); return; }}
             if (seen == key) return;
         }}"
        )
    };
    let distinct = |body: &str, seed| run(&open(seed), body, shape(1, 32), 65)[64];
    let (good, bad) = (claim("seen = atomicCAS(p.out + at, 0ull, key);"), claim("p.out[at] = key;"));
    for seed in seeds() {
        assert_eq!(distinct(&good, seed), 16);
    }
    assert!((0..100).any(|seed| distinct(&bad, Some(seed)) != 16));
}

#[test]
fn a_lane_that_waits_for_another_makes_progress() {
    // Each lane waits for the next lane of its block.
    let body = "u64 i = blockIdx.x * blockDim.x + threadIdx.x;
        if (threadIdx.x + 1 < blockDim.x) { for (u64 k = 0; k < 100000000 && load_relaxed(p.out + i + 1) == 0; ++k); }
        atomicExch(p.out + i, load_relaxed(p.out + i + 1) + 1);";
    for seed in seeds() {
        let out = run(&open(seed), body, shape(4, 128), 4 * 128 + 1);
        for block in 0..3 {
            assert!(out[block * 128..(block + 1) * 128].windows(2).all(|pair| pair[0] == pair[1] + 1), "{seed:?}");
        }
    }
}

#[test]
fn fast_mode_counts_correctly_over_many_blocks() {
    let out =
        run(&open(None), "atomicAdd(p.out, 1ull); atomicAdd(p.out + 1 + blockIdx.x, 1ull);", shape(1000, 256), 1001);
    assert_eq!(out[0], 256_000);
    assert!(out[1..].iter().all(|&count| count == 256));
}

#[test]
fn races_of_plain_accesses_are_exposed_on_request() {
    let open = |seed, yield_at_plain_accesses| {
        open_simulated(&SimOptions { yield_at_plain_accesses, ..options(Some(seed)) }).unwrap().remove(0)
    };
    let racy = "if (p.out[0] < 3) p.out[0] = p.out[0] + 1; else atomicAdd(p.out + 1, 1ull);";
    let total = |seed, yields| run(&open(seed, yields), racy, shape(1, 32), 2).iter().sum::<u64>();
    assert!((0..100).all(|seed| total(seed, false) == 32));
    assert!((0..100).filter(|&seed| total(seed, true) != 32).count() > 20);
    for seed in 0..20 {
        assert_eq!(run(&open(seed, true), ATOMIC, shape(2, 32), 1), [64]);
        assert_eq!(
            run(&open(seed, true), TICKETS, shape(2, 32), 65),
            run(&open(seed, true), TICKETS, shape(2, 32), 65)
        );
    }
}
