//! The lines: everything that the bench measures, in the order in which it does.
//!
//! To add one: a function of [`Scale`] that gives a [`Line`] (its set-up returns a [`crate::Case`]), named
//! in [`all`]. What can't be run yet is a line with [`crate::SetUp::Missing`], so that the report says so.

mod group_by;
mod hash_table;
mod join;
mod operator;
pub(crate) mod partition;
pub(crate) mod sort;

use std::collections::HashSet;

use crate::{Line, Scale};

/// All lines, at a scale. Sizes that fall together at a small scale give one line.
pub fn all(scale: Scale) -> Vec<Line> {
    let mut lines = vec![];
    lines.extend(partition::lines(scale));
    lines.extend(hash_table::targets(scale));
    lines.extend(hash_table::sweeps(scale));
    lines.extend(join::targets(scale));
    lines.extend(join::sweeps(scale));
    lines.extend(group_by::targets(scale));
    lines.extend(group_by::decimals(scale));
    lines.extend(join::skew(scale));
    lines.extend(sort::lines(scale));
    let mut ids = HashSet::new();
    lines.retain(|line| ids.insert(line.id()));
    if !scale.is_full() {
        // Targets and peers are about full sizes.
        for line in &mut lines {
            (line.target, line.peer, line.relative) = (None, None, None);
        }
    }
    lines
}

/// A number of rows in words: `2^27`, or as it is where it is no power of two.
fn rows_name(rows: u64) -> String {
    if rows.is_power_of_two() { format!("2^{}", rows.ilog2()) } else { rows.to_string() }
}

/// A number of groups or duplicates in words: `16 K`, `4 M`.
pub(crate) fn count_name(count: u64) -> String {
    match count {
        c if c >= 1 << 20 && c.is_multiple_of(1 << 20) => format!("{} M", c >> 20),
        c if c >= 1 << 10 && c.is_multiple_of(1 << 10) => format!("{} K", c >> 10),
        c => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_targets_are_there_at_full_size_only() {
        let lines = all(Scale::FULL);
        assert_eq!(lines.iter().filter(|line| line.target.is_some()).count(), 42);
        let relative: Vec<_> = lines.iter().filter_map(|line| line.relative.as_ref()).collect();
        assert_eq!(relative.len(), 6);
        assert!(relative.iter().all(|relative| lines.iter().any(|line| line.id() == relative.to)));
        assert!(all(Scale::TINY).iter().all(|line| line.target.is_none() && line.peer.is_none()));
    }

    #[test]
    fn sizes_in_words() {
        assert_eq!((rows_name(1 << 27), rows_name(100)), ("2^27".into(), "100".into()));
        assert_eq!(
            (count_name(4), count_name(1 << 14), count_name(1 << 22)),
            ("4".into(), "16 K".into(), "4 M".into())
        );
    }
}
