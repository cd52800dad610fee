//! Reports of the race detector of simulated devices.
//!
//! Owns their fields and text. Must not know how races are found.

use std::fmt;

/// Two unordered accesses to the same bytes, at least one of them a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceReport {
    /// The later access, then the earlier one.
    pub accesses: [RaceAccess; 2],
    /// Seed of the schedule.
    pub seed: u64,
}

/// One access of a race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceAccess {
    /// The kernel's name, or the host operation: `write`, `fill`, `copy`, `read`, `alloc`, `free`.
    pub operation: String,
    /// Ordinal of the stream's device.
    pub device: usize,
    /// Number of the stream in its simulation, starting at 1.
    pub stream: u64,
    /// Block, and thread within it; `None` for host operations.
    pub lane: Option<(u32, u32)>,
    /// Source lines, `file:line`: the access itself, then its inlined callers.
    /// Empty for host operations, and where `addr2line` is missing.
    pub lines: Vec<String>,
    /// Whether it writes.
    pub writes: bool,
    /// Scope of an atomic: `block`, `device` or `system`. `None` for plain accesses.
    pub scope: Option<&'static str>,
}

impl fmt::Display for RaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.writes, self.scope) {
            (true, None) => "plain write".to_string(),
            (false, None) => "plain read".to_string(),
            (true, Some(scope)) => format!("atomic write of {scope} scope"),
            (false, Some(scope)) => format!("atomic read of {scope} scope"),
        };
        match self.lane {
            Some((block, thread)) => {
                write!(f, "{what} by kernel {}, block {block}, thread {thread}", self.operation)?;
            }
            None => write!(f, "{what} by the host's {}", self.operation)?,
        }
        write!(f, " (sim:{}, stream {})", self.device, self.stream)?;
        if !self.lines.is_empty() {
            write!(f, " at {}", self.lines.join(" in "))?;
        }
        Ok(())
    }
}

impl fmt::Display for RaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [later, earlier] = &self.accesses;
        write!(f, "data race, seed {}: {later}; not ordered after the {earlier}", self.seed)
    }
}
