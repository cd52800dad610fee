//! How EXPLAIN prints a device node.
//!
//! DataFusion indents only the first line of a node, and appends the metrics to the last line.

use std::fmt;

use warpjoin::exec::PipelineMetrics;
use warpjoin::plan::{Plan, PlanKind};

use super::WarpjoinExec;

/// A line for the node, the device plan as a tree, and a line for each pipeline, with its metrics after a run.
pub(super) fn lines(node: &WarpjoinExec, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let indent = " ".repeat(2 * node.state().depth() + 4);
    write!(f, "WarpjoinExec: devices=[{}], joins={}, aggregates={}", devices(node), node.joins(), node.aggregates())?;
    if node.sorts() > 0 {
        write!(f, ", sorts={}", node.sorts())?;
    }
    if !node.session().of_plan(node.plan()).has_peer_access() {
        write!(f, "\n{indent}exchange: through the host, because the devices have no peer access")?;
    }
    for left_out in &node.part.left_out {
        write!(f, "\n{indent}not used: {left_out}")?;
    }
    for line in node.plan().to_string().lines() {
        write!(f, "\n{indent}| {line}")?;
    }
    let metrics = node.last_metrics();
    match &metrics {
        // An exchange adds pipelines at run time, so show the pipelines that ran.
        Some(metrics) => {
            let mut decided = metrics.host_decisions.iter().peekable();
            for (position, cost) in metrics.pipelines.iter().enumerate() {
                write!(f, "\n{indent}pipeline {}: {}", position + 1, cost.name)?;
                pipeline_cost(cost, f)?;
                while let Some(taken) = decided.next_if(|taken| taken.pipelines <= position + 1) {
                    write!(f, "\n{indent}  decided by the host: {}", taken.decision)?;
                }
            }
        }
        None => {
            for (position, pipeline) in node.part.explanation().pipelines.iter().enumerate() {
                write!(f, "\n{indent}pipeline {}: {pipeline}", position + 1)?;
                for open in node.part.explanation().host_decisions.get(position).into_iter().flatten() {
                    write!(f, "\n{indent}  host decides: {open}")?;
                }
            }
        }
    }
    // What is chosen by the sizes of inputs is known only after a run.
    let decisions = metrics.as_ref().map_or_else(|| &node.part.explanation().decisions, |metrics| &metrics.decisions);
    for decision in decisions {
        write!(f, "\n{indent}planned: {decision}")?;
    }
    for waited in metrics.iter().flat_map(|metrics| &metrics.kernel_waits) {
        write!(f, "\n{indent}waited {waited}")?;
    }
    if let Some(why) = node.last_fallback() {
        write!(f, "\n{indent}ran on the CPU: {why}")?;
    } else if metrics.is_some() {
        write!(f, "\n{indent}ran on the devices")?;
    }
    Ok(())
}

fn pipeline_cost(cost: &PipelineMetrics, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        ", rows_in={}, rows_out={}, read_bytes={}, kernel_time={:.3}ms",
        cost.rows_in,
        cost.rows_out,
        cost.read_bytes,
        cost.kernel_ns as f64 / 1e6
    )?;
    if cost.probes > 0 {
        write!(f, ", probes={}, pruned={}", cost.probes, cost.pruned)?;
    }
    if cost.retries > 0 {
        write!(f, ", retries={}", cost.retries)?;
    }
    Ok(())
}

/// Lines for the boxes of `EXPLAIN FORMAT TREE`.
pub(super) fn tree_render(node: &WarpjoinExec, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "devices={}", devices(node))?;
    writeln!(f, "joins={}", node.joins())?;
    writeln!(f, "aggregates={}", node.aggregates())?;
    if node.sorts() > 0 {
        writeln!(f, "sorts={}", node.sorts())?;
    }
    writeln!(f, "pipelines={}", node.part.explanation().pipelines.len())?;
    writeln!(f, "resident_rows={}", resident_rows(node.plan()))?;
    if let Some(why) = node.last_fallback() {
        writeln!(f, "fallback={why}")?;
    }
    Ok(())
}

/// The devices that the last run had, or those of the node's tables.
fn devices(node: &WarpjoinExec) -> String {
    let of_tables = || node.session().of_plan(node.plan()).devices().iter().map(|device| device.label()).collect();
    let labels: Vec<String> = node.last_metrics().map_or_else(of_tables, |metrics| metrics.devices);
    labels.join(", ")
}

fn resident_rows(plan: &Plan) -> u64 {
    let own = match &plan.kind {
        PlanKind::Scan { table, .. } => table.rows(),
        _ => 0,
    };
    own + plan.inputs().into_iter().map(resident_rows).sum::<u64>()
}
