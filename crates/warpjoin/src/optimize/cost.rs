//! What a join costs on a device: picoseconds by the rates of [`crate::exec::cost`].

use crate::exec::cost::{BUILD_ROWS_PS_PER_BYTE, INSERT_PS, ORDERED_INSERT_PS, probe_ps};

/// A probe of a direct table in the order of its keys: neighbours read one line.
const ORDERED_PROBE_PS: f64 = 3.0;
/// A row that is not alive any more while others of its warp probe.
const WAITING_PS: f64 = 4.0;
/// A row of a warp that has nothing left to probe.
const IDLE_PS: f64 = 0.2;
/// Rows of a warp.
const WARP_ROWS: i32 = 32;
/// So many times an insert are lists of the rows of each key: the table is made twice, and counted.
const LISTS: f64 = 2.5;
/// A match that is read from a list.
const LISTED_PS: f64 = 10.0;
/// A match whose payload is not in the slot.
const PAYLOAD_PS: f64 = 6.0;
/// Payload that a slot has room for beside its key.
const SLOT_PAYLOAD_BYTES: f64 = 4.0;

/// What rows cost that do not probe: a warp waits for a probe if one of its rows is alive.
fn idle_ps(probe: &ProbeSide) -> f64 {
    let source_rows = probe.source_rows.max(probe.rows);
    let alive = probe.rows / source_rows.max(1.0);
    let in_step = source_rows * (1.0 - (1.0 - alive).powi(WARP_ROWS));
    (in_step - probe.rows).max(0.0) * WAITING_PS + (source_rows - in_step).max(0.0) * IDLE_PS
}

/// What tables of a device cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub l2_bytes: f64,
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
        let build_ps = build.rows * (insert + (8.0 + build.payload_bytes) * BUILD_ROWS_PS_PER_BYTE);
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
        build_ps + probe.rows * lookup + idle_ps(probe) + probe.matches * of_match
    }

    /// A probe of a set of so many keys.
    pub(super) fn set_probe_ps(&self, rows: f64, span: Option<f64>) -> f64 {
        let side = BuildSide { rows, unique: true, span, sorted: false, payload_bytes: 0.0 };
        probe_ps(self.table(&side).0 / self.l2_bytes)
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
