//! What tables cost: making them, and looking rows up.

use super::rates::{
    CLEAR_PS_PER_BYTE, IDLE_PS, INSERT_PS, LIST_INSERTS, LIST_LAUNCHES, LISTED_PS, NEAR_PS, ORDERED_INSERT_PS,
    ORDERED_PROBE_PS, PAYLOAD_PS, PROBE_PS, WAITING_PS, WRITTEN_PS_PER_BYTE,
};
use super::{BuildSide, Costs, ProbeSide};

/// Rows of a warp.
const WARP_ROWS: i32 = 32;
/// Bytes of a slot: key word and value word.
pub const SLOT_BYTES: u64 = 16;
/// Load factor where nothing else is asked for: one lane a key is as fast as two up to here. A denser
/// table that just fits L2 is slower: at 0.7, with 52 MB of slots, the probes of TPC-H Q5 at scale 10
/// took 7.5 ms on an H100 instead of 4.4 ms.
pub const LOAD_FACTOR: f64 = 0.5;
/// Payload that a slot has room for beside its key.
const SLOT_PAYLOAD_BYTES: f64 = 4.0;
/// A direct table may be so many times as large as a hash table.
const DIRECT_SIZE_MAX: f64 = 4.0;
/// Share of L2 that a direct table may take in any case.
const DIRECT_L2_SHARE: f64 = 0.25;

/// Whether a table of `rows` that is indexed by the key is small enough to be made where nobody asked for it.
pub fn is_direct_small(direct_bytes: f64, l2_bytes: f64, rows: impl FnOnce() -> f64) -> bool {
    direct_bytes <= DIRECT_L2_SHARE * l2_bytes || direct_bytes <= DIRECT_SIZE_MAX * hash_bytes(rows())
}

/// Bytes of a hash table of so many rows.
fn hash_bytes(rows: f64) -> f64 {
    rows / LOAD_FACTOR * SLOT_BYTES as f64
}

/// A probe of a table of this share of L2.
pub(super) fn probe_ps(share: f64) -> f64 {
    PROBE_PS.iter().find(|(up_to, _)| share <= *up_to).map_or(0.0, |(_, ps)| *ps)
}

/// An insert into a table of this share of L2; `is_ordered`: rows come in the order in which they lie there.
pub(super) fn insert_ps(share: f64, is_ordered: bool) -> f64 {
    match (is_ordered, share <= 1.0) {
        (true, _) => ORDERED_INSERT_PS,
        (false, true) => INSERT_PS.0,
        (false, false) => INSERT_PS.1,
    }
}

/// What rows cost that do not probe: a warp waits for a probe if one of its rows is alive.
fn idle_ps(probe: &ProbeSide, lookup_ps: f64) -> f64 {
    let source_rows = probe.source_rows.max(probe.rows);
    let alive = probe.rows / source_rows.max(1.0);
    let in_step = source_rows * (1.0 - (1.0 - alive).powi(WARP_ROWS));
    (in_step - probe.rows).max(0.0) * WAITING_PS.min(lookup_ps / 2.0) + (source_rows - in_step).max(0.0) * IDLE_PS
}

impl Costs {
    /// Making a table and probing it.
    pub(in crate::optimize) fn join_ps(&self, build: &BuildSide, probe: &ProbeSide) -> f64 {
        let (table_bytes, is_direct) = self.table(build);
        let share = table_bytes / self.l2_bytes;
        let insert = insert_ps(share, is_direct && build.sorted);
        let insert = if build.unique { insert } else { insert * LIST_INSERTS };
        // Key and payload are words.
        let payload_bytes = if build.payload_bytes > 0.0 { build.payload_bytes.max(8.0) } else { 0.0 };
        let row_ps = insert + (8.0 + payload_bytes) * WRITTEN_PS_PER_BYTE;
        let build_ps = build.rows * row_ps + table_bytes * CLEAR_PS_PER_BYTE;
        let lookup = match probe.run_rows {
            Some(_) if is_direct => ORDERED_PROBE_PS,
            // Lanes of a warp ask for one key.
            Some(run_rows) => (probe_ps(share) / run_rows.max(1.0)).max(ORDERED_PROBE_PS),
            None => probe_ps(share),
        };
        let mut of_match = if build.unique { 0.0 } else { LISTED_PS };
        if build.payload_bytes > SLOT_PAYLOAD_BYTES {
            of_match += PAYLOAD_PS;
        }
        let launches = if build.unique { 0.0 } else { LIST_LAUNCHES };
        launches * self.launch_ps + build_ps + probe.rows * lookup + idle_ps(probe, lookup) + probe.matches * of_match
    }

    /// Whether a table is indexed by the key.
    pub(super) fn is_direct(&self, side: &BuildSide) -> bool {
        self.table(side).1
    }

    /// Whether L2 holds a table.
    pub(in crate::optimize) fn is_near(&self, side: &BuildSide) -> bool {
        self.lookup_ps(side, false) <= NEAR_PS
    }

    /// A lookup in a table.
    pub(in crate::optimize) fn lookup_ps(&self, side: &BuildSide, is_ordered: bool) -> f64 {
        let (table_bytes, is_direct) = self.table(side);
        if is_ordered && is_direct { ORDERED_PROBE_PS } else { probe_ps(table_bytes / self.l2_bytes) }
    }

    /// Bytes of the table, and whether it is indexed by the key.
    fn table(&self, build: &BuildSide) -> (f64, bool) {
        let hash_bytes = hash_bytes(build.rows);
        match build.span.map(|span| span * 4.0).filter(|_| build.unique) {
            Some(bytes) if is_direct_small(bytes, self.l2_bytes, || build.rows) => (bytes, true),
            _ if build.unique && build.payload_bytes <= SLOT_PAYLOAD_BYTES => (hash_bytes / 2.0, false),
            _ => (hash_bytes, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::COSTS;
    use super::*;

    fn build(rows: f64) -> BuildSide {
        BuildSide { rows, unique: true, span: None, sorted: false, payload_bytes: 0.0 }
    }

    fn probe(rows: f64, source_rows: f64) -> ProbeSide {
        ProbeSide { rows, matches: rows, source_rows, run_rows: None }
    }

    #[test]
    fn the_smaller_side_becomes_the_table() {
        let (small, large) = (1e5, 6e7);
        let right = COSTS.join_ps(&build(small), &probe(large, large));
        let wrong = COSTS.join_ps(&build(large), &probe(small, small));
        assert!(right * 5.0 < wrong, "{right} {wrong}");
    }

    #[test]
    fn few_lineitems_rather_than_all_orders() {
        // TPC-H Q12 at scale 10: both keys in order.
        let orders = BuildSide { span: Some(6e7), sorted: true, payload_bytes: 1.0, ..build(1.5e7) };
        let given = COSTS.join_ps(&orders, &ProbeSide { run_rows: Some(4.0), ..probe(3.1e5, 6e7) });
        let lineitems = BuildSide { span: Some(6e7), unique: false, payload_bytes: 1.0, ..build(3.1e5) };
        let sides = ProbeSide { matches: 3.1e5, run_rows: Some(1.0), ..probe(1.5e7, 1.5e7) };
        assert!(COSTS.join_ps(&lineitems, &sides) < 0.8 * given);
    }

    #[test]
    fn rows_that_are_gone_cost_less_than_those_that_probe() {
        for alive in [0.001, 0.03, 0.5] {
            let few = COSTS.join_ps(&build(1e6), &probe(6e7 * alive, 6e7));
            let all = COSTS.join_ps(&build(1e6), &probe(6e7, 6e7));
            assert!(few < all, "{alive}");
        }
        assert!(COSTS.lookup_ps(&build(1e4), false) < COSTS.lookup_ps(&build(1e8), false));
    }
}
