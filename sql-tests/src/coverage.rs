//! How much of a plan devices ran.
//!
//! [`warpjoin_datafusion::Placement`] lists parts and declined nodes; here every operator that handles rows counts: joins
//! and aggregates, but also filters, projections, sorts, windows, limits and unions that stayed on the CPU. Two things do
//! not count: filters and projections straight above a read from host memory or files, whose rows then go to the devices,
//! and queries that read no rows at all, such as `SELECT 1 + 1`.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use warpjoin::plan::Plan;
use warpjoin_datafusion::{CpuReasonExec, WarpjoinExec};

/// Operators that only read, or only move rows between partitions: they may stay on the CPU.
const NO_OPERATORS: [&str; 15] = [
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "DataSourceExec",
    "DeviceScanExec",
    "EmptyExec",
    "MemoryExec",
    "OutputRequirementExec",
    "PlaceholderRowExec",
    "RepartitionExec",
    "ScalarSubqueryExec",
    "SortPreservingMergeExec",
    "StreamingTableExec",
    "LazyMemoryExec",
    "WorkTableExec",
];
/// What of a plan ran where.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Operators that devices ran, in words: one entry each time.
    pub on_devices: Vec<String>,
    /// Operators that the CPU ran, with the reason where there is one.
    pub on_cpu: Vec<String>,
    /// Fallbacks that only a defect of the engine explains.
    pub defects: Vec<String>,
}

impl Coverage {
    /// Reads a plan, after its execution or before.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut coverage = Self::default();
        if reads_rows(plan) {
            coverage.visit(plan, None);
        }
        coverage
    }

    /// Whether it has operators, and all of them are on devices.
    pub fn is_whole(&self) -> bool {
        !self.on_devices.is_empty() && self.on_cpu.is_empty()
    }

    /// Whether it has operators at all.
    pub fn has_operators(&self) -> bool {
        !self.on_devices.is_empty() || !self.on_cpu.is_empty()
    }

    fn visit(&mut self, node: &Arc<dyn ExecutionPlan>, reason: Option<String>) {
        if let Some(above) = node.downcast_ref::<CpuReasonExec>() {
            return self.visit(above.input(), Some(above.reason().to_string()));
        }
        match node.downcast_ref::<WarpjoinExec>() {
            Some(device) => match device.last_fallback() {
                None => self.collect(device.plan()),
                Some(why) => {
                    if why.is_fault() {
                        self.defects.push(why.to_string());
                    }
                    self.on_cpu.push(format!("a device part fell back: {why}"));
                }
            },
            None if NO_OPERATORS.contains(&node.name()) => {}
            None => self.on_cpu.push(match reason {
                Some(reason) => format!("{}: {reason}", node.name()),
                None => node.name().to_string(),
            }),
        }
        let is_on_devices = node.is::<WarpjoinExec>();
        for child in node.children() {
            if !(is_on_devices && only_reads(child)) {
                self.visit(child, None);
            }
        }
    }

    fn collect(&mut self, plan: &Plan) {
        let line = plan.describe();
        // Such as `HashJoin: Inner` of a join, and the first word of the others.
        let end = if line.starts_with("HashJoin") { line.find(',') } else { line.find(':') };
        self.on_devices.push(line[..end.unwrap_or(line.len())].to_string());
        plan.inputs().into_iter().for_each(|input| self.collect(input));
    }
}

/// Whether the plan has a leaf that is more than one made-up row.
fn reads_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    match node.children().as_slice() {
        [] => !matches!(node.name(), "PlaceholderRowExec" | "EmptyExec"),
        children => children.iter().any(|child| reads_rows(child)),
    }
}

/// Whether the node reads rows that are not on devices yet, and at most filters and projects them.
fn only_reads(node: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = NO_OPERATORS.contains(&node.name()) || matches!(node.name(), "FilterExec" | "ProjectionExec");
    passes && node.name() != "DeviceScanExec" && node.children().into_iter().all(only_reads)
}
