//! The plan node that shows why the node below it stays on the CPU.

use warpjoin::Reason;

use crate::pass_through::{PassThroughExec, Role};

/// Shows in EXPLAIN why the node below stays on the CPU.
pub type CpuReasonExec = PassThroughExec<CpuReason>;

/// Why a node stays on the CPU.
#[derive(Debug, Clone)]
pub struct CpuReason(pub(crate) Reason);

impl Role for CpuReason {
    const NAME: &'static str = "WarpjoinCpu";

    fn label(&self) -> String {
        format!("reason={}", self.0)
    }

    fn fresh(&self) -> Self {
        self.clone()
    }
}

impl CpuReasonExec {
    /// Why the node below stays on the CPU.
    pub fn reason(&self) -> &Reason {
        &self.role().0
    }
}
