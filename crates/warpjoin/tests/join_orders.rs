//! Trees of joins in every order: whatever the optimizer chooses, the rows are the oracle's.
//!
//! `WARPJOIN_RANDOM_SEED=<seed>` begins with that tree; `WARPJOIN_RANDOM_CASES=<n>` runs so many.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

use common::case::Outcome;
use common::join_trees;
use common::sessions::{Opener, in_threads, say, simulated};
use common::settings::Settings;
use warpjoin::exec::{JoinOrder, RuntimeFilters};
use warpjoin::plan::FilterForm;

/// Trees of a run that asks for no number.
const CASES: u64 = 40;
/// Orders of each tree.
const ORDERS: u64 = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// How rows are dropped early: wherever that is right, by each form. With a bit a key a Bloom filter drops few.
const FILTERS: [(RuntimeFilters, Option<u32>); ORDERS as usize] = [
    (RuntimeFilters::Always, None),
    (RuntimeFilters::AlwaysBy(FilterForm::Bitmap), None),
    (RuntimeFilters::AlwaysBy(FilterForm::Bloom), None),
    (RuntimeFilters::AlwaysBy(FilterForm::Bloom), Some(1)),
];

/// What is wrong with a tree, in words.
fn check(opener: &dyn Opener, seed: u64) -> Result<usize, String> {
    let case = join_trees::case(seed);
    let verdict = case.verdict();
    let mut equal = 0;
    for order in 0..ORDERS {
        let (runtime_filters, filter_bits) = FILTERS[((order + seed) % ORDERS) as usize];
        let settings = Settings {
            join_order: if order == 0 { JoinOrder::Auto } else { JoinOrder::Seeded(seed ^ order) },
            runtime_filters,
            filter_bits,
            ..case.settings.clone()
        };
        let session = opener.open(settings.devices).expect("a session");
        match case.check_against(&verdict, &session, &settings)? {
            Outcome::Equal => equal += 1,
            Outcome::TooLarge => return Ok(0),
            other => return Err(format!("{other:?}\n{}{settings:?}", case.plan)),
        }
    }
    Ok(equal)
}

#[test]
fn every_order_equals_the_oracle() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let base = number("WARPJOIN_RANDOM_SEED").unwrap_or_else(now);
    let cases =
        number("WARPJOIN_RANDOM_CASES").unwrap_or(if number("WARPJOIN_RANDOM_SEED").is_some() { 1 } else { CASES });
    say(&format!("join orders: {cases} trees from WARPJOIN_RANDOM_SEED={base}"));
    let seeds: Vec<u64> = (0..cases).map(|index| base.wrapping_add(index)).collect();
    let opener = simulated();
    let results = in_threads(&seeds, |&seed| {
        let result = catch_unwind(AssertUnwindSafe(|| check(&opener, seed)));
        (seed, result.unwrap_or_else(|_| Err("a panic".into())))
    });
    let mut equal = 0;
    let mut failures = vec![];
    for (seed, result) in results {
        match result {
            Ok(count) => equal += count,
            Err(difference) => failures.push(format!("WARPJOIN_RANDOM_SEED={seed}: {difference}")),
        }
    }
    assert!(failures.is_empty(), "{} differences\n{}", failures.len(), failures.join("\n\n"));
    say(&format!("join orders: {equal} equal"));
    assert!(cases < CASES || equal as u64 * 2 > cases * ORDERS, "few trees say something: {equal}");
}

/// Orders are really different ones: the tables that are built tell.
#[test]
fn seeds_draw_different_orders() {
    let case = join_trees::chain(5);
    let session = simulated().open(1).expect("a session");
    let tables: Vec<_> = case.inputs.iter().map(|batch| common::case::upload(&session, batch)).collect();
    let mut seen = std::collections::HashSet::new();
    for seed in 0..12 {
        let settings = Settings { join_order: JoinOrder::Seeded(seed), ..Settings::default() };
        let output = warpjoin::exec::run(&session, &case.plan, &tables, &settings.options()).expect("rows");
        seen.insert(output.metrics.decisions.join("\n"));
    }
    assert!(seen.len() > 4, "{seen:?}");
}
