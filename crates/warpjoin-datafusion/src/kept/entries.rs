//! A bounded list of kept plans.

use super::{Bound, KeptPlan};

/// Kept plans by their keys, with eviction of the least recently used.
#[derive(Debug)]
pub(super) struct Entries<K> {
    entries: Vec<Entry<K>>,
    /// Grows with each use.
    uses: u64,
}

#[derive(Debug)]
pub(super) struct Entry<K> {
    hash: u64,
    key: K,
    plan: Bound,
    last_use: u64,
}

impl<K> Default for Entries<K> {
    fn default() -> Self {
        Self { entries: vec![], uses: 0 }
    }
}

impl<K: PartialEq> Entries<K> {
    /// The plan whose key has this hash and satisfies `is_it`.
    pub(super) fn find(&mut self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<Bound> {
        self.find_all(hash, is_it).next().map(|(_, plan)| plan)
    }

    /// All plans whose keys have this hash and satisfy `is_it`.
    pub(super) fn find_all(&mut self, hash: u64, is_it: impl Fn(&K) -> bool) -> impl Iterator<Item = (&K, Bound)> {
        self.uses += 1;
        let uses = self.uses;
        self.entries.iter_mut().filter(move |entry| entry.hash == hash && is_it(&entry.key)).map(move |entry| {
            entry.last_use = uses;
            (&entry.key, entry.plan.clone())
        })
    }

    /// Adds a plan, replacing the one with an equal key, and returns the evicted plans; with `plans_max` 0, the new
    /// one.
    pub(super) fn add(&mut self, hash: u64, key: K, plan: Bound, plans_max: usize) -> Vec<Entry<K>> {
        self.uses += 1;
        let mut gone: Vec<_> = self.entries.extract_if(.., |entry| entry.hash == hash && entry.key == key).collect();
        self.entries.push(Entry { hash, key, plan, last_use: self.uses });
        while self.entries.len() > plans_max {
            let uses = self.entries.iter().map(|entry| entry.last_use).enumerate();
            let Some((oldest, _)) = uses.min_by_key(|&(_, last_use)| last_use) else { break };
            gone.push(self.entries.swap_remove(oldest));
        }
        gone
    }

    /// Removes the plans for which `is_gone` is true, and returns them.
    pub(super) fn remove_if(&mut self, is_gone: impl Fn(&KeptPlan) -> bool) -> Vec<Entry<K>> {
        self.entries.extract_if(.., |entry| is_gone(&entry.plan.plan)).collect()
    }
}
