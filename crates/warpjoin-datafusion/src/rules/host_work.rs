//! The work that the CPU does in a finished plan: everything but reading and moving rows.
//!
//! Owns the list of nodes that only move rows. Every other node counts as work, so a new node of DataFusion cannot pass
//! unnoticed. Must not decide what happens to work on the CPU ([`crate::rules::strict`]).

use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::expressions::{Column, Literal};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use warpjoin::Reason;

use crate::exec::WarpjoinExec;
use crate::kept::LeasedExec;
use crate::matcher::reads_tables;
use crate::rules::reason::CpuReasonExec;
use crate::rules::strict::{RefusedExec, RowLimitExec};

/// Nodes that pass rows on, limit or merge streams, or write rows.
const MOVES_ROWS: [&str; 12] = [
    "AnalyzeExec",
    "BufferExec",
    "CachedScanExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "DataSinkExec",
    "ExplainExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "OutputRequirementExec",
    "RepartitionExec",
    // Its subqueries are among its children.
    "ScalarSubqueryExec",
];

/// A node that processes rows on the CPU.
#[derive(Debug, Clone)]
pub struct HostWork {
    /// The node's name.
    pub name: String,
    /// Why the matcher declined the node, if it did.
    pub reason: Option<Reason>,
    /// Lower bound of the rows that it takes; 0 if unknown before it runs.
    pub rows_min: u64,
    /// Address of the node, as its identity.
    address: usize,
    /// Whether the rows to count are the node's output, not its inputs.
    pub(crate) is_output: bool,
}

impl HostWork {
    /// Work on the inputs of a node.
    fn of_inputs(node: &Arc<dyn ExecutionPlan>, reason: Option<&Reason>) -> Self {
        let rows_min = node.children().into_iter().map(rows_of).sum();
        let name = node.name().to_string();
        Self { name, reason: reason.cloned(), rows_min, address: address(node), is_output: false }
    }

    /// Rows of a device part that another device part reads through the host.
    fn between_parts(lower: &Arc<dyn ExecutionPlan>) -> Self {
        let name = "rows fetched to the host between two parts on the devices".to_string();
        Self { name, reason: None, rows_min: rows_of(lower), address: address(lower), is_output: true }
    }

    /// Whether this is the work of `node`.
    pub(crate) fn is_of(&self, node: &Arc<dyn ExecutionPlan>) -> bool {
        self.address == address(node)
    }
}

impl fmt::Display for HostWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }
        if self.rows_min > 0 {
            write!(f, " of {} rows", self.rows_min)?;
        }
        Ok(())
    }
}

/// The work on the CPU, from the top of the plan.
///
/// Work is: filters, projections that compute, sorts, windows, joins, aggregates, unions and unknown nodes on the CPU, and
/// rows fetched from one device part for another one. Not work are: reading, decoding and encoding tables and files, and
/// processing rows that come from no table.
pub(crate) fn host_work(plan: &Arc<dyn ExecutionPlan>) -> Vec<HostWork> {
    let mut found = vec![];
    collect(plan, None, false, &mut found);
    found
}

/// `is_below_device`: a node above is on the devices.
fn collect(node: &Arc<dyn ExecutionPlan>, reason: Option<&Reason>, is_below_device: bool, found: &mut Vec<HostWork>) {
    if let Some(annotation) = node.downcast_ref::<CpuReasonExec>() {
        return collect(annotation.input(), Some(annotation.reason()), is_below_device, found);
    }
    let is_device = node.is::<WarpjoinExec>();
    if is_device && is_below_device {
        found.push(HostWork::between_parts(node));
    } else if !is_device && !only_moves_rows(node) && reads_tables(node) {
        found.push(HostWork::of_inputs(node, reason));
    }
    for child in node.children() {
        collect(child, None, is_device || is_below_device, found);
    }
}

fn only_moves_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    if node.children().is_empty() || MOVES_ROWS.contains(&node.name()) {
        return true;
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let is_plain = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Column>() || expr.is::<Literal>();
        return projection.expr().iter().all(|projected| is_plain(&projected.expr));
    }
    if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        return merge.input().output_partitioning().partition_count() <= 1;
    }
    node.is::<RefusedExec>() || node.is::<RowLimitExec>() || node.is::<LeasedExec>()
}

/// The exact number of output rows, or 0 if unknown.
fn rows_of(node: &Arc<dyn ExecutionPlan>) -> u64 {
    match StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new()) {
        Ok(statistics) => match statistics.num_rows {
            Precision::Exact(rows) => rows as u64,
            _ => 0,
        },
        Err(_) => 0,
    }
}

fn address(node: &Arc<dyn ExecutionPlan>) -> usize {
    Arc::as_ptr(node).cast::<()>().addr()
}
