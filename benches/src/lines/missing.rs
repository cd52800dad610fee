//! Targets of what does not exist yet, so that the report shows that nothing was measured.

use crate::{Line, SetUp, Unit};

const CUCOLLECTIONS: &str = "cuCollections";
const BGHT: &str = "BGHT";

/// Figure and name of the best peer.
type Peer = Option<(f64, &'static str)>;

fn missing(group: &'static str, name: &str, unit: Unit, target: f64, peer: Peer, why: &'static str) -> Line {
    Line::new(group, name, SetUp::Missing(why)).against(unit, target, peer)
}

/// Hash tables.
pub(super) fn tables() -> Vec<Line> {
    let rates: [(&str, f64, Peer); 14] = [
        ("2^27, 4+4 B, load factor 0.5, build", 11.5, Some((10.7, CUCOLLECTIONS))),
        ("2^27, 4+4 B, load factor 0.5, find hit", 27.0, Some((24.6, CUCOLLECTIONS))),
        ("2^27, 4+4 B, load factor 0.5, find miss", 24.0, Some((19.4, CUCOLLECTIONS))),
        ("2^27, 4+4 B, load factor 0.9, build", 11.0, Some((9.5, CUCOLLECTIONS))),
        ("2^27, 4+4 B, load factor 0.9, find hit", 21.0, Some((16.6, CUCOLLECTIONS))),
        ("2^27, 4+4 B, load factor 0.9, find miss", 15.0, Some((9.5, BGHT))),
        ("2^27, 4+4 B, load factor 0.95, build", 10.5, Some((8.8, CUCOLLECTIONS))),
        ("2^27, 4+4 B, load factor 0.95, find hit", 19.0, Some((14.2, BGHT))),
        ("2^27, 4+4 B, load factor 0.95, find miss", 12.0, Some((8.8, BGHT))),
        ("2^20, 4+4 B, load factor 0.5, build", 35.0, Some((21.8, CUCOLLECTIONS))),
        ("2^20, 4+4 B, load factor 0.5, find hit", 85.0, Some((54.0, BGHT))),
        ("2^27 partitioned, 4+4 B, load factor 0.5, build", 28.0, None),
        ("2^27 partitioned, 4+4 B, load factor 0.5, find hit", 50.0, None),
        ("2^27 partitioned, 4+4 B, load factor 0.5, find miss", 42.0, None),
    ];
    let line = |(name, target, peer)| {
        missing("table", name, Unit::GigaRowsPerSecond, target, peer, "no hash table in the API")
    };
    rates.map(line).into()
}
