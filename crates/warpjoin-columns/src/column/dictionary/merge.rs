//! Brings the strings of several interners together: the chunks of a column are interned one by one, on all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::interner::{FIRST_SLOTS_LOG2, Interner};
use crate::{Reason, Result};

/// Distinct strings of several interners, with codes in the order in which a single interner would have given them: those
/// of the first one, then those of the second one that the first has not, and so on.
pub(in crate::column) struct MergedStrings<'a> {
    interners: &'a [Interner],
    /// Of each interner: the codes whose strings no earlier one has, ascending.
    new: Vec<Vec<u32>>,
    /// Of each interner: the merged codes by its own. `None`: they are the same.
    codes: Vec<Option<Vec<u32>>>,
}

/// Strings are told apart in shards by the first bits of their hash, each by a thread.
const SHARD_LOG2: u32 = 6;
const _: () = assert!(SHARD_LOG2 <= FIRST_SLOTS_LOG2);

/// Most distinct strings: codes are 32 bits, and slots hold a code + 1.
const STRINGS_MAX: usize = u32::MAX as usize - 1;

impl<'a> MergedStrings<'a> {
    /// # Errors
    /// When there are more distinct strings than codes.
    pub(in crate::column) fn of(interners: &'a [Interner]) -> Result<Self> {
        let new = if interners.len() > 1 { new_strings(interners) } else { NewStrings::all(interners) };
        let mut first_codes = vec![];
        let mut strings = 0;
        for new in &new.codes {
            first_codes.push(strings as u32);
            strings += new.len();
            if strings > STRINGS_MAX {
                return Err(Reason::Limit("4 G distinct strings in a dictionary; use raw strings".into()).into());
            }
        }
        let codes = new.merged_codes(interners, &first_codes);
        Ok(Self { interners, new: new.codes, codes })
    }

    /// Number of distinct strings.
    pub(in crate::column) fn len(&self) -> usize {
        self.new.iter().map(Vec::len).sum()
    }

    /// All strings, by code.
    pub(in crate::column) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.interners.iter().zip(&self.new).flat_map(|(interner, new)| strings_of(interner, new))
    }

    /// All strings one behind the other, and 0, then the end of each.
    pub(in crate::column) fn bytes_and_ends(&self) -> (Vec<u8>, Vec<i64>) {
        let parts = || self.interners.par_iter().zip(&self.new);
        let lengths: Vec<usize> =
            parts().map(|(interner, new)| strings_of(interner, new).map(<[u8]>::len).sum()).collect();
        let mut bytes = vec![0; lengths.iter().sum()];
        let mut ends = vec![0; self.len() + 1];
        let (mut bytes_rest, mut ends_rest, mut first) = (bytes.as_mut_slice(), &mut ends[1..], 0);
        let mut targets = Vec::with_capacity(lengths.len());
        for (new, length) in self.new.iter().zip(&lengths) {
            let (bytes, bytes_behind) = bytes_rest.split_at_mut(*length);
            let (ends, ends_behind) = ends_rest.split_at_mut(new.len());
            targets.push((bytes, ends, first));
            (bytes_rest, ends_rest, first) = (bytes_behind, ends_behind, first + length);
        }
        parts().zip(targets).for_each(|((interner, new), (bytes, ends, first))| {
            let mut at = 0;
            for (text, end) in strings_of(interner, new).zip(ends) {
                bytes[at..at + text.len()].copy_from_slice(text);
                at += text.len();
                *end = (first + at) as i64;
            }
        });
        (bytes, ends)
    }

    /// Of each interner: the merged codes by its own. `None`: they are the same.
    pub(in crate::column) fn into_codes(self) -> Vec<Option<Vec<u32>>> {
        self.codes
    }
}

fn strings_of<'a>(interner: &'a Interner, codes: &'a [u32]) -> impl Iterator<Item = &'a [u8]> {
    codes.iter().map(|&code| interner.get(code))
}

/// Which strings are new in each interner.
struct NewStrings {
    /// Of each interner: where each of its strings occurs first.
    owners: Vec<Vec<AtomicU64>>,
    /// Of each interner: the codes of the strings that occur there first, ascending.
    codes: Vec<Vec<u32>>,
}

/// An interner and a code in a word.
fn owner(interner: usize, code: u32) -> u64 {
    (interner as u64) << 32 | u64::from(code)
}

impl NewStrings {
    /// Of at most one interner.
    fn all(interners: &[Interner]) -> Self {
        Self { owners: vec![], codes: interners.iter().map(|it| (0..it.len() as u32).collect()).collect() }
    }

    /// `first_codes`: the merged code of the first new string of each interner.
    fn merged_codes(&self, interners: &[Interner], first_codes: &[u32]) -> Vec<Option<Vec<u32>>> {
        // Of new strings only: where other interners look them up.
        let of_new: Vec<Vec<u32>> = self
            .codes
            .par_iter()
            .zip(interners)
            .zip(first_codes)
            .map(|((new, interner), first)| {
                let mut codes = vec![0; interner.len()];
                new.iter().zip(*first..).for_each(|(&code, merged)| codes[code as usize] = merged);
                codes
            })
            .collect();
        let merged = |owners: &Vec<AtomicU64>| {
            let code = |owner: &AtomicU64| {
                let owner = owner.load(Ordering::Relaxed);
                of_new[(owner >> 32) as usize][owner as u32 as usize]
            };
            Some(owners.iter().map(code).collect())
        };
        let others = self.owners.par_iter().skip(1).map(merged);
        let mut codes: Vec<_> = std::iter::once(None).take(interners.len()).collect();
        codes.par_extend(others);
        codes
    }
}

fn new_strings(interners: &[Interner]) -> NewStrings {
    let words = |interner: &Interner| {
        let mut owners = Vec::new();
        owners.resize_with(interner.len(), AtomicU64::default);
        owners
    };
    let owners: Vec<Vec<AtomicU64>> = interners.par_iter().map(words).collect();
    (0..1usize << SHARD_LOG2).into_par_iter().for_each(|shard| {
        let mut table = ShardTable::default();
        for (at, interner) in interners.iter().enumerate() {
            for (tag, code) in interner.shard(shard, SHARD_LOG2) {
                let is_same = |known: u64| interner.is_same(code, &interners[(known >> 32) as usize], known as u32);
                let owner = table.find_or_insert(tag, owner(at, code), is_same);
                owners[at][code as usize].store(owner, Ordering::Relaxed);
            }
        }
    });
    let new = |(at, owners): (usize, &Vec<AtomicU64>)| {
        let is_new = |code: &u32| owners[*code as usize].load(Ordering::Relaxed) == owner(at, *code);
        (0..owners.len() as u32).filter(is_new).collect()
    };
    let codes = owners.par_iter().enumerate().map(new).collect();
    NewStrings { owners, codes }
}

/// Strings of a shard by their tag: open addressing, at most half full.
struct ShardTable {
    /// 0, or position in `strings` + 1.
    slots: Vec<u32>,
    /// Tag and owner.
    strings: Vec<(u32, u64)>,
}

impl Default for ShardTable {
    fn default() -> Self {
        Self { slots: vec![0; 1 << FIRST_SLOTS_LOG2], strings: vec![] }
    }
}

impl ShardTable {
    /// The owner that is known for a string, else this one.
    fn find_or_insert(&mut self, tag: u32, owner: u64, is_same: impl Fn(u64) -> bool) -> u64 {
        let mut position = self.position(tag);
        // Bounded: at least half of the slots are free.
        while let Some(at) = self.slots[position].checked_sub(1) {
            let (known_tag, known) = self.strings[at as usize];
            if known_tag == tag && is_same(known) {
                return known;
            }
            position = (position + 1) & (self.slots.len() - 1);
        }
        self.strings.push((tag, owner));
        self.slots[position] = self.strings.len() as u32;
        if self.strings.len() * 2 > self.slots.len() {
            self.grow();
        }
        owner
    }

    /// All tags of a shard have the same first bits.
    fn position(&self, tag: u32) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (u64::from(tag.wrapping_mul(0x9e37_79b9)) >> 32_u32.saturating_sub(bits)) as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 4];
        for at in 0..self.strings.len() {
            let mut position = self.position(self.strings[at].0);
            while self.slots[position] != 0 {
                position = (position + 1) & (self.slots.len() - 1);
            }
            self.slots[position] = at as u32 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::super::interner::Seed;
    use super::*;

    /// Interners of random strings, and one of all strings.
    fn interned(parts: usize, each: usize, distinct: u32, seed: u64) -> (Vec<Interner>, Interner) {
        let mut rng = StdRng::seed_from_u64(seed);
        let hashes = Seed::default();
        let mut all = Interner::new(hashes);
        let mut part = || {
            let mut interner = Interner::new(hashes);
            for _ in 0..each {
                let number = rng.random_range(0..distinct);
                let text = if number % 2 == 0 { format!("{number}") } else { format!("the same prefix {number:08}") };
                interner.intern_bytes(text.as_bytes()).unwrap();
                all.intern_bytes(text.as_bytes()).unwrap();
            }
            interner
        };
        let interners = (0..parts).map(|_| part()).collect();
        (interners, all)
    }

    #[test]
    fn codes_are_those_of_a_single_interner() {
        for (parts, each, distinct) in
            [(0, 0, 1), (1, 1000, 500), (2, 0, 1), (3, 1, 2), (2, 300, 7), (5, 20_000, 30_000), (9, 40_000, u32::MAX)]
        {
            let (interners, all) = interned(parts, each, distinct, each as u64);
            let merged = MergedStrings::of(&interners).unwrap();
            let what = format!("{parts} parts of {each} of {distinct}");
            assert_eq!(merged.len(), all.len(), "{what}");
            assert!(merged.iter().eq((0..all.len() as u32).map(|code| all.get(code))), "{what}");
            let (bytes, ends) = merged.bytes_and_ends();
            let cut = ends.windows(2).map(|pair| &bytes[pair[0] as usize..pair[1] as usize]);
            assert!(cut.eq(merged.iter()), "{what}");
            for (interner, codes) in interners.iter().zip(merged.into_codes()) {
                for code in 0..interner.len() as u32 {
                    let merged = codes.as_ref().map_or(code, |codes| codes[code as usize]);
                    assert_eq!(all.get(merged), interner.get(code), "{what}");
                }
            }
        }
    }

    #[test]
    fn shards_have_each_string_once() {
        let (interners, _) = interned(1, 50_000, u32::MAX, 1);
        let shards = (0..1 << SHARD_LOG2).flat_map(|shard| interners[0].shard(shard, SHARD_LOG2));
        let mut codes: Vec<u32> = shards.map(|(_, code)| code).collect();
        codes.sort_unstable();
        assert!(codes.into_iter().eq(0..interners[0].len() as u32));
    }
}
