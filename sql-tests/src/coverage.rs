//! How much of a plan runs on devices.
//!
//! [`warpjoin_datafusion::Placement`] lists parts and declined nodes. Here every operator that processes rows counts: joins,
//! aggregates, filters, projections, sorts, windows, limits and unions. Two kinds do not count: filters and projections
//! between a source in host memory and the upload, and queries that read no rows, such as `SELECT 1 + 1`.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use warpjoin::plan::Plan;
use warpjoin_datafusion::{CpuReasonExec, WarpjoinExec};

/// Nodes that only read rows or move them between partitions. They may stay on the CPU.
const READS_OR_MOVES_ROWS: [&str; 17] = [
    "CachedScanExec",
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
    "WarpjoinKept",
    "LazyMemoryExec",
    "WorkTableExec",
];

/// Which operators of a plan run on devices.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Descriptions of the operators on devices, one entry each.
    pub on_devices: Vec<String>,
    /// Operators on the CPU, with the reason if there is one.
    pub on_cpu: Vec<String>,
    /// Fallbacks because of faults, which are defects of the engine.
    pub defects: Vec<String>,
}

impl Coverage {
    /// Reads a plan before or after its execution.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut coverage = Self::default();
        if reads_rows(plan) {
            coverage.visit(plan, None);
        }
        coverage
    }

    /// Whether there are operators, and all of them are on devices.
    pub fn is_whole(&self) -> bool {
        !self.on_devices.is_empty() && self.on_cpu.is_empty()
    }

    /// Whether there are operators.
    pub fn has_operators(&self) -> bool {
        !self.on_devices.is_empty() || !self.on_cpu.is_empty()
    }

    fn visit(&mut self, node: &Arc<dyn ExecutionPlan>, reason: Option<String>) {
        if let Some(annotation) = node.downcast_ref::<CpuReasonExec>() {
            return self.visit(annotation.input(), Some(annotation.reason().to_string()));
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
            None if READS_OR_MOVES_ROWS.contains(&node.name()) => {}
            None => self.on_cpu.push(match reason {
                Some(reason) => format!("{}: {reason}", node.name()),
                None => node.name().to_string(),
            }),
        }
        let is_on_devices = node.is::<WarpjoinExec>();
        for child in node.children() {
            if !(is_on_devices && is_upload_source(child)) {
                self.visit(child, None);
            }
        }
    }

    fn collect(&mut self, plan: &Plan) {
        let line = plan.describe();
        // Such as `HashJoin: Inner` for a join, and the first word for other operators.
        let end = if line.starts_with("HashJoin") { line.find(',') } else { line.find(':') };
        self.on_devices.push(line[..end.unwrap_or(line.len())].to_string());
        plan.inputs().into_iter().for_each(|input| self.collect(input));
    }
}

/// Whether the plan has a source other than a constant row or an empty relation.
fn reads_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    match node.children().as_slice() {
        [] => !matches!(node.name(), "PlaceholderRowExec" | "EmptyExec"),
        children => children.iter().any(|child| reads_rows(child)),
    }
}

/// Whether the node only reads, filters and projects rows that are not resident on devices.
fn is_upload_source(node: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = READS_OR_MOVES_ROWS.contains(&node.name()) || matches!(node.name(), "FilterExec" | "ProjectionExec");
    passes && node.name() != "DeviceScanExec" && node.children().into_iter().all(is_upload_source)
}
