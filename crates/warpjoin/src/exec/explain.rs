//! The pipelines of a plan in words, for EXPLAIN.

use crate::plan::{Plan, PlanKind};

/// One line a pipeline, in the order in which they run: source, steps and sink.
pub fn pipelines(plan: &Plan) -> Vec<String> {
    let mut lines = vec![];
    let last = open(plan, &mut lines);
    lines.push(format!("{last} -> Result"));
    lines
}

/// The pipeline that is open above `plan`; finished ones go to `lines`.
fn open(plan: &Plan, lines: &mut Vec<String>) -> String {
    match &plan.kind {
        PlanKind::Scan { projection, .. } => format!("Scan[{} columns]", projection.len()),
        PlanKind::Input { index } => format!("Upload[input {index}]"),
        PlanKind::Filter { input, .. } => format!("{} -> Filter", open(input, lines)),
        PlanKind::Project { input, .. } => format!("{} -> Project", open(input, lines)),
        PlanKind::Join(join) => {
            let build = open(&join.build, lines);
            lines.push(format!("{build} -> BuildHashTable"));
            let number = lines.len();
            format!("{} -> Probe[pipeline {number}]", open(&join.probe, lines))
        }
        PlanKind::Aggregate { input, group_by, .. } => {
            let input = open(input, lines);
            let sink = if group_by.is_empty() { "Aggregate" } else { "GroupBy" };
            lines.push(format!("{input} -> {sink}"));
            format!("Groups[pipeline {}]", lines.len())
        }
    }
}
