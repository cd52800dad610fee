//! What a join costs on a device: picoseconds by the rates of [`crate::optimize::device_cost`].

use crate::DeviceSet;
use crate::optimize::device_cost::{
    BUILD_ROWS_PS_PER_BYTE, CLEAR_PS_PER_BYTE, FilteredTable, INSERT_PS, MATCH_PS_PER_BYTE, NEAR_PS, ORDERED_INSERT_PS,
    PASS_PS_PER_BYTE, filter_form, launch_ps, probe_ps,
};
use crate::plan::FilterForm;

/// A probe of a direct table in the order of its keys: neighbours read one line.
const ORDERED_PROBE_PS: f64 = 3.0;
/// A row that is not alive any more while others of its warp probe; but never more than a probe.
const WAITING_PS: f64 = 4.0;
/// A row of a warp that has nothing left to probe.
const IDLE_PS: f64 = 0.2;
/// Rows of a warp.
const WARP_ROWS: i32 = 32;
/// So many times an insert are lists of the rows of each key: the table is made twice, and counted.
const LISTS: f64 = 2.5;
/// Launches that lists take beside those of a table of unique keys.
const LIST_LAUNCHES: f64 = 3.0;
/// Less is not measured.
const GAIN_PS_MIN: f64 = 1e5;
/// A match that is read from a list.
const LISTED_PS: f64 = 10.0;
/// A match whose payload is not in the slot.
const PAYLOAD_PS: f64 = 6.0;
/// Reading bytes in order, at the rate of device memory.
const STREAM_PS_PER_BYTE: f64 = 0.3;
/// Groups that blocks hold in shared memory, so that rows are not moved for them.
const BLOCK_GROUPS: f64 = 4096.0;
/// What carrying all columns of a row hardly costs.
const CARRIED_PS_MAX: f64 = 1000.0;
/// Payload that a slot has room for beside its key.
const SLOT_PAYLOAD_BYTES: f64 = 4.0;

/// What rows cost that do not probe: a warp waits for a probe if one of its rows is alive.
fn idle_ps(probe: &ProbeSide, lookup_ps: f64) -> f64 {
    let source_rows = probe.source_rows.max(probe.rows);
    let alive = probe.rows / source_rows.max(1.0);
    let in_step = source_rows * (1.0 - (1.0 - alive).powi(WARP_ROWS));
    (in_step - probe.rows).max(0.0) * WAITING_PS.min(lookup_ps / 2.0) + (source_rows - in_step).max(0.0) * IDLE_PS
}

/// What tables of a device cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    l2_bytes: f64,
    /// A launch, and that the host looks at what it reports.
    launch_ps: f64,
    devices: usize,
}

/// The side that a table is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildSide {
    pub rows: f64,
    pub unique: bool,
    /// How far its single key's values are apart.
    pub span: Option<f64>,
    /// Rows come in the order of the key.
    pub sorted: bool,
    pub payload_bytes: f64,
}

/// The side that probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeSide {
    pub rows: f64,
    /// Rows that go on.
    pub matches: f64,
    /// Rows of the pipeline's source.
    pub source_rows: f64,
    /// Rows that come one after the other with the same key; `None`: they come in any order.
    pub run_rows: Option<f64>,
}

impl Costs {
    /// Those of devices.
    pub(super) fn of(devices: &DeviceSet) -> Self {
        let launch_ps = launch_ps(devices.kind());
        Self { l2_bytes: devices.l2_bytes(), launch_ps, devices: devices.devices().len() }
    }

    /// Gains below this are not worth another plan.
    pub(super) fn gain_ps_min(&self) -> f64 {
        GAIN_PS_MIN.max(self.launch_ps / 2.0)
    }

    /// Making a table and probing it.
    pub(super) fn join_ps(&self, build: &BuildSide, probe: &ProbeSide) -> f64 {
        let (table_bytes, is_direct) = self.table(build);
        let share = table_bytes / self.l2_bytes;
        let insert = match (is_direct && build.sorted, share <= 1.0) {
            (true, _) => ORDERED_INSERT_PS,
            (false, true) => INSERT_PS.0,
            (false, false) => INSERT_PS.1,
        };
        let insert = if build.unique { insert } else { insert * LISTS };
        // Key and payload are words.
        let payload_bytes = if build.payload_bytes > 0.0 { build.payload_bytes.max(8.0) } else { 0.0 };
        let row_ps = insert + (8.0 + payload_bytes) * BUILD_ROWS_PS_PER_BYTE;
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

    /// The cheapest way to test `rows` rows for a match in a table, and what that costs; in the order of the keys, lookups
    /// in a table that is indexed by them are of neighbours.
    pub(super) fn filter(&self, side: &BuildSide, rows: f64, is_ordered: bool) -> (FilterForm, f64) {
        let table = FilteredTable { keys: side.rows, span: side.span, lookup_ps: self.lookup_ps(side, is_ordered) };
        filter_form(&table, rows, self.l2_bytes, self.launch_ps)
    }

    /// Whether L2 holds a table.
    pub(super) fn is_near(&self, side: &BuildSide) -> bool {
        self.lookup_ps(side, false) <= NEAR_PS
    }

    /// Devices that have a copy of a table each.
    pub(super) fn copies(&self) -> f64 {
        self.devices as f64
    }

    /// A launch.
    pub(super) fn launch_ps(&self) -> f64 {
        self.launch_ps
    }

    /// A lookup in a table.
    pub(super) fn lookup_ps(&self, side: &BuildSide, is_ordered: bool) -> f64 {
        let (table_bytes, is_direct) = self.table(side);
        if is_ordered && is_direct { ORDERED_PROBE_PS } else { probe_ps(table_bytes / self.l2_bytes) }
    }

    /// Reading bytes that lie side by side.
    pub(super) fn stream_ps(&self, bytes: f64) -> f64 {
        bytes * STREAM_PS_PER_BYTE
    }

    /// Writing bytes down, and reading them again.
    pub(super) fn written_ps(&self, bytes: f64) -> f64 {
        bytes * BUILD_ROWS_PS_PER_BYTE
    }

    /// Reading one of values anywhere in so many bytes.
    pub(super) fn random_read_ps(&self, bytes: f64) -> f64 {
        probe_ps(bytes / self.l2_bytes)
    }

    /// A side of a partitioned join that carries so many bytes a row, to so many matches.
    pub(super) fn partitioned_ps(&self, rows: f64, matches: f64, bytes: f64) -> f64 {
        rows * bytes * PASS_PS_PER_BYTE + matches * bytes * MATCH_PS_PER_BYTE
    }

    /// A group-by as far as its keys count: the table that they are looked up in, and moving them.
    pub(super) fn groups_ps(&self, rows: f64, groups: f64, key_bits: f64, calls: usize) -> f64 {
        if key_bits == 0.0 {
            return 0.0;
        }
        let words = (key_bits / 64.0).ceil();
        // Longer keys are found through an index of rows, which hold them.
        let is_wide = words > 1.0;
        let table_bytes = groups * 8.0 * (1.0 + calls as f64 + if is_wide { words + 1.0 } else { 0.0 });
        let lookups = if is_wide { 2.0 } else { 1.0 };
        let launches = if is_wide { self.launch_ps } else { 0.0 };
        let moved = if groups > BLOCK_GROUPS { rows * words * 8.0 * PASS_PS_PER_BYTE } else { 0.0 };
        launches + rows * self.random_read_ps(table_bytes) * lookups + moved + self.written_ps(groups * words * 8.0)
    }

    /// More than the columns of a row cost on their way.
    pub(super) fn carried_ps_per_row(&self) -> f64 {
        CARRIED_PS_MAX
    }

    /// Bytes of the table, and whether it is indexed by the key.
    fn table(&self, build: &BuildSide) -> (f64, bool) {
        let hash_bytes = 2.0 * build.rows * 16.0;
        match build.span.map(|span| span * 4.0).filter(|_| build.unique) {
            Some(bytes) if bytes <= (4.0 * hash_bytes).max(self.l2_bytes / 4.0) => (bytes, true),
            _ if build.unique && build.payload_bytes <= SLOT_PAYLOAD_BYTES => (hash_bytes / 2.0, false),
            _ => (hash_bytes, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::device_cost::LAUNCH_PS;

    /// An H100.
    const COSTS: Costs = Costs { l2_bytes: 5e7, launch_ps: LAUNCH_PS, devices: 1 };

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
