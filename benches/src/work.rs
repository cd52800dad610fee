//! What work must be done at least, and how long a device's limits let it take.

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
    /// How many.
    pub count: u64,
    /// Bytes over which they are spread; of additions, the number of addresses.
    pub footprint: u64,
}

/// Streams and random accesses, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes read in order.
    pub read_bytes: u64,
    /// Bytes written in order.
    pub write_bytes: u64,
    /// Random accesses.
    pub accesses: Vec<Access>,
}

/// A way to do what a line does, in the words of the design notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    /// Such as `one table` or `two passes`.
    pub name: &'static str,
    /// What it must do.
    pub work: Work,
}

impl Work {
    /// Bytes read and written in order, and nothing else.
    pub fn streams(read_bytes: u64, write_bytes: u64) -> Self {
        Self { read_bytes, write_bytes, accesses: vec![] }
    }

    /// The same, and `bytes` more that are read and written again.
    #[must_use]
    pub fn and_copy(mut self, bytes: u64) -> Self {
        self.read_bytes += bytes;
        self.write_bytes += bytes;
        self
    }

    /// The same, and random accesses.
    #[must_use]
    pub fn and(mut self, kind: AccessKind, count: u64, footprint: u64) -> Self {
        self.accesses.push(Access { kind, count, footprint });
        self
    }

    /// Nanoseconds that it takes at the limits: what is read and written in equal parts at the rate of
    /// a copy, the rest at the rate of reading or writing alone, and each access at its own rate.
    pub fn limit_ns(&self, limits: &Limits) -> f64 {
        let copied_bytes = self.read_bytes.min(self.write_bytes);
        let streams_s = 2.0 * copied_bytes as f64 / limits.copy_bytes_per_s
            + (self.read_bytes - copied_bytes) as f64 / limits.read_bytes_per_s
            + (self.write_bytes - copied_bytes) as f64 / limits.write_bytes_per_s;
        let accesses_s: f64 = self.accesses.iter().map(|access| access.seconds(limits)).sum();
        (streams_s + accesses_s) * 1e9
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
    /// The fastest of several ways, and its nanoseconds.
    pub fn fastest<'a>(designs: &'a [Design], limits: &Limits) -> Option<(&'a Design, f64)> {
        let timed = designs.iter().map(|design| (design, design.work.limit_ns(limits)));
        timed.min_by(|(_, left), (_, right)| left.total_cmp(right))
    }
}

/// Bytes of a slot that holds so many: what one access can read, and so a power of two from 4 on.
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
        // 2 GB copied take 1 ms of 1.5 GB each way; the other 4 GB are read in 1 ms.
        let work = Work::streams(5_500_000_000, 1_500_000_000);
        assert_eq!(work.limit_ns(&limits()).round(), 2e6);
        let work = Work::streams(0, 2_000_000_000).and(AccessKind::Read, 30_000_000, 1 << 30);
        assert_eq!(work.limit_ns(&limits()).round(), 2e6);
        let work = Work::default().and(AccessKind::Cas, 10_000_000, 1).and(AccessKind::Add, 20_000_000, 1);
        assert_eq!(work.and_copy(1_500_000_000).limit_ns(&limits()).round(), 3e6);
    }

    #[test]
    fn the_limit_is_that_of_the_fastest_design() {
        let designs = [
            Design { name: "slow", work: Work::streams(8_000_000_000, 0) },
            Design { name: "fast", work: Work::default().and(AccessKind::Write, 15_000_000, 8) },
        ];
        let (design, limit_ns) = Design::fastest(&designs, &limits()).expect("two designs");
        assert_eq!((design.name, limit_ns.round()), ("fast", 1e6));
        assert!(Design::fastest(&[], &limits()).is_none());
    }
}
