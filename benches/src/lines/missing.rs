//! Targets of what does not exist yet, so that the report shows that nothing was measured.

use crate::{Line, SetUp, Unit};

const CUB: &str = "CUB";
const CUCOLLECTIONS: &str = "cuCollections";
const BGHT: &str = "BGHT";
const LIBCUDF: &str = "libcudf";

/// Figure and name of the best peer.
type Peer = Option<(f64, &'static str)>;

fn missing(group: &'static str, name: &str, unit: Unit, target: f64, peer: Peer, why: &'static str) -> Line {
    Line::new(group, name, SetUp::Missing(why)).against(unit, target, peer)
}

/// Partition and hash tables.
pub(super) fn kernels() -> Vec<Line> {
    let rates: [(&str, &str, f64, Peer); 15] = [
        ("partition", "8 bits, 4+4 B", 100.0, Some((107.0, CUB))),
        ("partition", "8 bits, 8+8 B", 55.0, Some((55.0, CUB))),
        ("table", "2^27, 4+4 B, load factor 0.5, build", 11.5, Some((10.7, CUCOLLECTIONS))),
        ("table", "2^27, 4+4 B, load factor 0.5, find hit", 27.0, Some((24.6, CUCOLLECTIONS))),
        ("table", "2^27, 4+4 B, load factor 0.5, find miss", 24.0, Some((19.4, CUCOLLECTIONS))),
        ("table", "2^27, 4+4 B, load factor 0.9, build", 11.0, Some((9.5, CUCOLLECTIONS))),
        ("table", "2^27, 4+4 B, load factor 0.9, find hit", 21.0, Some((16.6, CUCOLLECTIONS))),
        ("table", "2^27, 4+4 B, load factor 0.9, find miss", 15.0, Some((9.5, BGHT))),
        ("table", "2^27, 4+4 B, load factor 0.95, build", 10.5, Some((8.8, CUCOLLECTIONS))),
        ("table", "2^27, 4+4 B, load factor 0.95, find hit", 19.0, Some((14.2, BGHT))),
        ("table", "2^27, 4+4 B, load factor 0.95, find miss", 12.0, Some((8.8, BGHT))),
        ("table", "2^20, 4+4 B, load factor 0.5, build", 35.0, Some((21.8, CUCOLLECTIONS))),
        ("table", "2^20, 4+4 B, load factor 0.5, find hit", 85.0, Some((54.0, BGHT))),
        ("table", "2^27 partitioned, 4+4 B, load factor 0.5, build", 28.0, None),
        ("table", "2^27 partitioned, 4+4 B, load factor 0.5, find hit", 50.0, None),
    ];
    let mut lines: Vec<Line> = rates
        .into_iter()
        .map(|(group, name, target, peer)| {
            let why = if group == "partition" { "no partition operator" } else { "no hash table in the API" };
            missing(group, name, Unit::GigaRowsPerSecond, target, peer, why)
        })
        .collect();
    let name = "2^27 partitioned, 4+4 B, load factor 0.5, find miss";
    lines.push(missing("table", name, Unit::GigaRowsPerSecond, 42.0, None, "no hash table in the API"));
    lines
}

/// Join kinds.
pub(super) fn joins() -> Vec<Line> {
    [("2^27 x 2^27", 7.0, 18.2), ("2^20 x 2^27", 2.0, 4.4), ("2^24 x 2^28", 8.0, 18.1)]
        .map(|(name, target, peer)| {
            let name = format!("semi, {name}, int32");
            missing("join", &name, Unit::Milliseconds, target, Some((peer, LIBCUDF)), "no semi join")
        })
        .into()
}
