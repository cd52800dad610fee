//! What of a finished plan the CPU does besides reading inputs and moving rows.
//!
//! Owns the list of nodes that only read or move. Every other node is work, known or not, so that a new node of DataFusion
//! never passes unseen.

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
use crate::matcher::reads_tables;
use crate::rules::reason::CpuReasonExec;
use crate::rules::strict::{RefusedExec, RowLimitExec};

/// Nodes that hand rows on, cut or join streams of them, or write them out.
const MOVES_ROWS: [&str; 11] = [
    "AnalyzeExec",
    "BufferExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "DataSinkExec",
    "ExplainExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "OutputRequirementExec",
    "RepartitionExec",
    // Its subqueries are children of their own.
    "ScalarSubqueryExec",
];

/// A node that handles rows on the CPU.
#[derive(Debug, Clone)]
pub struct HostWork {
    /// The node's name.
    pub name: String,
    /// Why it is not on the devices, if they were asked.
    pub reason: Option<Reason>,
    /// Rows that it takes at least; 0 if that is not known before it runs.
    pub rows_min: u64,
    /// The node.
    address: usize,
    /// Whether its output is what the CPU handles, rather than its inputs.
    pub(crate) is_output: bool,
}

impl HostWork {
    /// What the node does to its inputs.
    fn of_inputs(node: &Arc<dyn ExecutionPlan>, reason: Option<&Reason>) -> Self {
        let rows_min = node.children().into_iter().map(rows_of).sum();
        let name = node.name().to_string();
        Self { name, reason: reason.cloned(), rows_min, address: address(node), is_output: false }
    }

    /// Rows of a part on the devices that another one needs.
    fn between_parts(lower: &Arc<dyn ExecutionPlan>) -> Self {
        let name = "rows fetched to the host between two parts on the devices".to_string();
        Self { name, reason: None, rows_min: rows_of(lower), address: address(lower), is_output: true }
    }

    /// Whether it is the work of this node.
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

/// Filters, projections that compute, sorts, windows, joins, aggregates, unions and anything unknown on the CPU, and rows
/// that are fetched from one part on the devices for another one above it; from the top. Reading tables and files,
/// decoding and encoding are not work; nor is what is done to rows that come from no table.
pub(crate) fn host_work(plan: &Arc<dyn ExecutionPlan>) -> Vec<HostWork> {
    let mut found = vec![];
    collect(plan, None, false, &mut found);
    found
}

/// `is_below`: a node above is on the devices.
fn collect(node: &Arc<dyn ExecutionPlan>, reason: Option<&Reason>, is_below: bool, found: &mut Vec<HostWork>) {
    if let Some(said) = node.downcast_ref::<CpuReasonExec>() {
        return collect(said.input(), Some(said.reason()), is_below, found);
    }
    let is_device = node.is::<WarpjoinExec>();
    if is_device && is_below {
        found.push(HostWork::between_parts(node));
    } else if !is_device && !only_moves(node) && reads_tables(node) {
        found.push(HostWork::of_inputs(node, reason));
    }
    for child in node.children() {
        collect(child, None, is_device || is_below, found);
    }
}

fn only_moves(node: &Arc<dyn ExecutionPlan>) -> bool {
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
    node.is::<RefusedExec>() || node.is::<RowLimitExec>()
}

/// Rows that the node puts out for certain.
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
