//! The lines of the bench, in the order in which they run.
//!
//! To add one, write a function of [`Scale`] that returns a [`Line`], whose set-up returns a
//! [`crate::Case`], and call it in [`all`]. A line that cannot run yet has [`crate::SetUp::Missing`], and
//! is reported as missing.

mod group_by;
mod hash_table;
mod join;
mod operator;
mod partition;
mod sort;

use std::collections::HashSet;

use warpjoin_device::ModuleSource;

use crate::data::data_module;
use crate::limits::kernels::limits_module;
use crate::{Line, Scale};

/// The lines over several devices, to be compared with the same over one.
pub fn over_devices(scale: Scale, devices: u64) -> Vec<Line> {
    let mut lines = join::over_devices(scale, devices);
    lines.extend(group_by::over_devices(scale, devices));
    lines
}

/// All lines of one device at a scale. Lines that become equal at a small scale occur once.
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
        // Targets and peers apply to full sizes.
        for line in &mut lines {
            (line.target, line.peer, line.relative) = (None, None, None);
        }
    }
    lines
}

/// The modules of the benches' own kernels. Tests compile them for every architecture.
pub fn kernel_modules() -> Vec<ModuleSource> {
    vec![data_module(), limits_module(), partition::check_module(), sort::check_module()]
}

/// A number of rows as text: `2^27`, or the number if it is not a power of two.
fn rows_name(rows: u64) -> String {
    if rows.is_power_of_two() { format!("2^{}", rows.ilog2()) } else { rows.to_string() }
}

/// A number of groups or duplicates as text: `16 K`, `4 M`.
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
    fn only_full_sizes_have_targets() {
        let lines = all(Scale::FULL);
        assert_eq!(lines.iter().filter(|line| line.target.is_some()).count(), 42);
        let relative: Vec<_> = lines.iter().filter_map(|line| line.relative.as_ref()).collect();
        assert_eq!(relative.len(), 6);
        assert!(relative.iter().all(|relative| lines.iter().any(|line| line.id() == relative.to)));
        assert!(all(Scale::TINY).iter().all(|line| line.target.is_none() && line.peer.is_none()));
    }

    #[test]
    fn sizes_as_text() {
        assert_eq!((rows_name(1 << 27), rows_name(100)), ("2^27".into(), "100".into()));
        assert_eq!(
            (count_name(4), count_name(1 << 14), count_name(1 << 22)),
            ("4".into(), "16 K".into(), "4 M".into())
        );
    }
}
