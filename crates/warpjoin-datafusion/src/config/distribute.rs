//! On how many devices tables lie.

use std::sync::Arc;

use warpjoin::{MemoryBudget, Session};
use warpjoin_device::DeviceKind;

/// Tables lie on one device alone up to this fraction of its memory (1 / divisor): the rest is for queries.
const HOME_DIVISOR: u64 = 2;

/// Maximum bytes of a table that stays on the first GPU when others go to all: one GPU scans it as fast.
const SMALL_BYTES: u64 = 64 << 20;

/// Minimum bytes of a table that is distributed to all GPUs by default: from this size, scan time exceeds coordination
/// cost.
const LARGE_BYTES: u64 = 2 << 30;

/// The same for all columns of files; queries read about half of these.
const LARGE_FILES_BYTES: u64 = 2 * LARGE_BYTES;

/// On how many devices of a session tables lie. Queries run where their tables lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Distribute {
    /// On the first GPU as long as it has room, large tables on all GPUs; with simulated devices, on all.
    #[default]
    Auto,
    /// On the first device.
    One,
    /// On all devices, in contiguous runs of rows; small tables on the first GPU.
    All,
}

impl Distribute {
    pub(super) const NAMES: [(&str, Self); 3] = [("auto", Self::Auto), ("one", Self::One), ("all", Self::All)];

    /// Maximum bytes of a table that is now loaded to the first of a session's devices alone: see
    /// [`TableBuilder::on_first_up_to`](warpjoin::TableBuilder::on_first_up_to).
    pub fn home_bytes_max(self, session: &Session, budget: MemoryBudget) -> u64 {
        self.home_bytes(session, budget, LARGE_BYTES)
    }

    /// The same; a table of at least `large_bytes` is large.
    fn home_bytes(self, session: &Session, budget: MemoryBudget, large_bytes: u64) -> u64 {
        match (self, session.devices()) {
            (Self::All, [_, _, ..]) if session.kind() == DeviceKind::Cuda => SMALL_BYTES,
            (Self::All, _) => 0,
            (Self::One, _) => u64::MAX,
            (Self::Auto, [first, _, ..]) if session.kind() == DeviceKind::Cuda => {
                let memory = first.memory();
                let limit_bytes = memory.limit_bytes().min(budget.device_bytes);
                (limit_bytes / HOME_DIVISOR).saturating_sub(memory.used_bytes()).min(large_bytes)
            }
            (Self::Auto, _) => 0,
        }
    }

    /// The session to load columns of files to; all columns together take about `bytes`.
    ///
    /// # Errors
    /// When the first device fails.
    pub(crate) fn session_for(
        self,
        session: &Arc<Session>,
        bytes: u64,
        budget: MemoryBudget,
    ) -> warpjoin::Result<Arc<Session>> {
        let is_alone = bytes <= self.home_bytes(session, budget, LARGE_FILES_BYTES);
        if is_alone { session.member(0) } else { Ok(Arc::clone(session)) }
    }
}
