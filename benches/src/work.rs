//! The minimum work of a line, and its time at the limits of a device.
//!
//! Must not know how limits are measured.

use serde::Serialize;

use crate::limits::Limits;

/// A kind of random access of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AccessKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Compare and swap.
    Cas,
    /// Atomic addition.
    Add,
}

/// Random accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Kind.
    pub kind: AccessKind,
    /// Number of accesses.
    pub count: u64,
    /// Bytes over which they are spread; for additions, the number of addresses.
    pub footprint: u64,
}

/// Streaming and random accesses, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of streaming reads.
    pub read_bytes: u64,
    /// Bytes of streaming writes.
    pub write_bytes: u64,
    /// Random accesses.
    pub accesses: Vec<Access>,
    /// Bytes that go from one device to another.
    pub exchanged_bytes: u64,
}

/// A possible algorithm for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    /// For example `one table` or `two passes`.
    pub name: &'static str,
    /// Its minimum work.
    pub work: Work,
}

impl Work {
    /// Streaming reads and writes only.
    pub fn streams(read_bytes: u64, write_bytes: u64) -> Self {
        Self { read_bytes, write_bytes, ..Self::default() }
    }

    /// Adds `bytes` that are read and written once more.
    #[must_use]
    pub fn and_copy(mut self, bytes: u64) -> Self {
        self.read_bytes += bytes;
        self.write_bytes += bytes;
        self
    }

    /// Adds random accesses.
    #[must_use]
    pub fn and(mut self, kind: AccessKind, count: u64, footprint: u64) -> Self {
        self.accesses.push(Access { kind, count, footprint });
        self
    }

    /// Nanoseconds at the limits. Equal amounts of reads and writes take the rate of a copy, the rest the
    /// rate of reads or writes alone, and random accesses their own rate. Several devices share the work evenly.
    pub fn limit_ns(&self, limits: &Limits) -> f64 {
        let copied_bytes = self.read_bytes.min(self.write_bytes);
        let streams_s = 2.0 * copied_bytes as f64 / limits.copy_bytes_per_s
            + (self.read_bytes - copied_bytes) as f64 / limits.read_bytes_per_s
            + (self.write_bytes - copied_bytes) as f64 / limits.write_bytes_per_s;
        let accesses_s: f64 = self.accesses.iter().map(|access| access.seconds(limits)).sum();
        let links_s = limits.link_bytes_per_s.map_or(0.0, |rate| self.exchanged_bytes as f64 / rate);
        (streams_s + accesses_s + links_s) / limits.devices as f64 * 1e9
    }
}

impl Access {
    fn seconds(&self, limits: &Limits) -> f64 {
        let curve = match self.kind {
            AccessKind::Read => &limits.random_reads,
            AccessKind::Write => &limits.random_writes,
            AccessKind::Cas => &limits.random_cas,
            AccessKind::Add => &limits.random_adds,
        };
        self.count as f64 / curve.rate_at(self.footprint)
    }
}

impl Design {
    /// The fastest design at the limits, and its nanoseconds.
    pub fn fastest<'a>(designs: &'a [Design], limits: &Limits) -> Option<(&'a Design, f64)> {
        let timed = designs.iter().map(|design| (design, design.work.limit_ns(limits)));
        timed.min_by(|(_, left), (_, right)| left.total_cmp(right))
    }
}

/// Bytes of a slot that holds `bytes` and is read by one access: a power of two, at least 4.
pub(crate) fn slot_bytes(bytes: u64) -> u64 {
    bytes.max(4).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Curve;

    fn limits() -> Limits {
        let flat = |rate| Curve(vec![(1, rate)]);
        Limits {
            devices: 1,
            link_bytes_per_s: None,
            copy_bytes_per_s: 3e12,
            read_bytes_per_s: 4e12,
            write_bytes_per_s: 2e12,
            random_reads: flat(30e9),
            random_writes: flat(15e9),
            random_cas: flat(10e9),
            random_adds: flat(20e9),
            gathers: vec![],
        }
    }

    #[test]
    fn streams_and_accesses_add_up() {
        // Copying 1.5 GB takes 1 ms, and reading the other 4 GB takes 1 ms.
        let work = Work::streams(5_500_000_000, 1_500_000_000);
        assert_eq!(work.limit_ns(&limits()).round(), 2e6);
        let work = Work::streams(0, 2_000_000_000).and(AccessKind::Read, 30_000_000, 1 << 30);
        assert_eq!(work.limit_ns(&limits()).round(), 2e6);
        let work = Work::default().and(AccessKind::Cas, 10_000_000, 1).and(AccessKind::Add, 20_000_000, 1);
        assert_eq!(work.and_copy(1_500_000_000).limit_ns(&limits()).round(), 3e6);
    }

    #[test]
    fn devices_share_the_work_and_send_at_once() {
        let limits = Limits { devices: 4, link_bytes_per_s: Some(400e9), ..limits() };
        // Each copies 1.5 GB, which takes 1 ms, and sends 0.8 GB, which takes 2 ms.
        let work = Work { exchanged_bytes: 3_200_000_000, ..Work::default() }.and_copy(6_000_000_000);
        assert_eq!(work.limit_ns(&limits).round(), 3e6);
    }

    #[test]
    fn the_fastest_design_determines_the_limit() {
        let designs = [
            Design { name: "slow", work: Work::streams(8_000_000_000, 0) },
            Design { name: "fast", work: Work::default().and(AccessKind::Write, 15_000_000, 8) },
        ];
        let (design, limit_ns) = Design::fastest(&designs, &limits()).expect("two designs");
        assert_eq!((design.name, limit_ns.round()), ("fast", 1e6));
        assert!(Design::fastest(&[], &limits()).is_none());
    }
}
