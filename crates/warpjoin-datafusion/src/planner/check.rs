//! Checks that a kept plan equals a newly made plan of the same query.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::exec::WarpjoinExec;
use crate::kept::LeasedExec;

/// Compares a kept plan with a new one of the same query, for `warpjoin.check_plans`.
///
/// # Errors
/// If they differ.
pub(super) fn check(kept: &Arc<dyn ExecutionPlan>, new: &Arc<dyn ExecutionPlan>) -> Result<()> {
    if is_same(kept, new) {
        return Ok(());
    }
    Err(DataFusionError::Internal(format!(
        "warpjoin.check_plans: the kept plan differs from a new one. Kept:\n{}\nNew:\n{}",
        lines(kept).join("\n"),
        lines(new).join("\n")
    )))
}

/// Whether both plans have the same nodes with the same words, ignoring order and column numbers. DataFusion's order of
/// a join's keys varies, and it orders the sides of a join by estimates.
pub(super) fn is_same(one: &Arc<dyn ExecutionPlan>, other: &Arc<dyn ExecutionPlan>) -> bool {
    let (one, other) = (lines(one), lines(other));
    let is_same = nodes(&one) == nodes(&other);
    if !is_same {
        log::debug!("two plans of a query:\n{}\nand\n{}", one.join("\n"), other.join("\n"));
    }
    is_same
}

/// The words of each line, sorted, without lines that only choose columns.
fn nodes(lines: &[String]) -> Vec<Vec<&str>> {
    let mut nodes: Vec<_> = lines.iter().map(|line| words(line)).collect();
    nodes.retain(|words| !words.iter().all(|word| ["|", "Project:", "ProjectionExec:"].contains(word)));
    nodes.sort_unstable();
    nodes
}

/// A line for each node, including the nodes of device parts.
fn lines(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    fn add(node: &Arc<dyn ExecutionPlan>, depth: usize, lines: &mut Vec<String>) {
        if let Some(leased) = node.downcast_ref::<LeasedExec>() {
            return add(leased.input(), depth, lines);
        }
        let indent = "  ".repeat(depth);
        match node.downcast_ref::<WarpjoinExec>() {
            Some(part) => {
                lines.push(format!("{indent}{}", part.name()));
                lines.extend(part.plan().to_string().lines().map(|line| format!("{indent}| {line}")));
            }
            None => lines.push(format!("{indent}{}", displayable(node.as_ref()).one_line().to_string().trim_end())),
        }
        node.children().into_iter().for_each(|child| add(child, depth + 1, lines));
    }
    let mut lines = vec![];
    add(plan, 0, &mut lines);
    lines
}

/// The words of a line, sorted, without column numbers and without numbers of cached columns.
fn words(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split([' ', ',', '(', ')', '[', ']']).collect();
    words.retain(|word| {
        !word.is_empty() && !word.starts_with('#') && !word.contains('@') && !word.starts_with("cached=")
    });
    words.sort_unstable();
    words
}
