//! The pipelines of a plan in words, for EXPLAIN.

use super::cost::prefers_partition;
use super::options::{ExecOptions, JoinForm};
use super::sort::{Ordered, Window};
use crate::Session;
use crate::plan::{JoinPlan, Plan, PlanKind};

/// One line a pipeline, in the order in which they run: source, steps and sink. Forms are those that tables and
/// settings tell; what depends on rows that are not counted yet is left open.
pub fn pipelines(plan: &Plan, session: &Session, options: &ExecOptions) -> Vec<String> {
    let mut explain = Explain { session, options, lines: vec![] };
    let last = match Ordered::of(plan) {
        Some(ordered) => explain.sort(&ordered),
        None => explain.open(plan),
    };
    explain.lines.push(format!("{last} -> Result"));
    explain.lines
}

struct Explain<'a> {
    session: &'a Session,
    options: &'a ExecOptions,
    lines: Vec<String>,
}

/// How the matches of a join will be found.
enum Form {
    Table(&'static str),
    Partitioned,
    /// Known once its inputs are there.
    BySize,
}

impl Explain<'_> {
    /// The pipeline that is open above `plan`; finished ones go to `lines`.
    fn open(&mut self, plan: &Plan) -> String {
        match &plan.kind {
            PlanKind::Scan { projection, .. } => format!("Scan[{} columns]", projection.len()),
            PlanKind::Input { index } => format!("Upload[input {index}]"),
            PlanKind::Filter { input, .. } => format!("{} -> Filter", self.open(input)),
            PlanKind::Project { input, .. } => format!("{} -> Project", self.open(input)),
            PlanKind::Join(join) => {
                let form = self.form(join);
                let build = self.open(&join.build);
                match form {
                    Form::Table(table) => {
                        let build = self.close(format!("{build} -> {table}"));
                        format!("{} -> Probe[pipeline {build}]", self.open(&join.probe))
                    }
                    Form::Partitioned => {
                        let build = self.close(format!("{build} -> Partition"));
                        let probe = self.open(&join.probe);
                        let probe = self.close(format!("{probe} -> Partition"));
                        format!("Matches[pipelines {build} and {probe}]")
                    }
                    Form::BySize => {
                        let build = self.close(format!("{build} -> BuildHashTable or Partition, by size"));
                        format!("{} -> Join[pipeline {build}]", self.open(&join.probe))
                    }
                }
            }
            PlanKind::Aggregate { input, group_by, .. } => {
                let input = self.open(input);
                let sink = if group_by.is_empty() { "Aggregate" } else { "GroupBy" };
                format!("Groups[pipeline {}]", self.close(format!("{input} -> {sink}")))
            }
            PlanKind::Sort { input, .. } | PlanKind::Limit { input, .. } => match Ordered::of(plan) {
                Some(Ordered { window: Window { skip: 0, fetch: None }, .. }) => self.open(input),
                Some(ordered) => self.sort(&ordered),
                None => {
                    let input = self.open(input);
                    format!("Rows[pipeline {}]", self.close(format!("{input} -> Limit")))
                }
            },
            PlanKind::GroupingSets { input, sets, .. } => {
                let input = self.open(input);
                format!("Union[pipeline {}]", self.close(format!("{input} -> GroupBy[{} sets]", sets.len())))
            }
            PlanKind::Union { inputs } => {
                let parts: Vec<String> = inputs
                    .iter()
                    .map(|input| {
                        let part = self.open(input);
                        self.close(format!("{part} -> Rows")).to_string()
                    })
                    .collect();
                format!("Union[pipelines {}]", parts.join(", "))
            }
            PlanKind::Shared(plan) => self.open(plan),
            PlanKind::Numbered { input } => self.open(input),
        }
    }

    /// A sort, as it runs: what stands between it and the rows put out is computed before.
    fn sort(&mut self, ordered: &Ordered<'_>) -> String {
        let input = self.open(ordered.input);
        let project = if ordered.projections.is_empty() { "" } else { " -> Project" };
        let keys = self.close(format!("{input}{project} -> SortKeys"));
        let name = if ordered.window.fetch.is_some() { "TopK" } else { "Sort" };
        format!("{name}[pipeline {keys}]")
    }

    /// Finishes a pipeline; its number.
    fn close(&mut self, line: String) -> usize {
        self.lines.push(line);
        self.lines.len()
    }

    fn form(&self, join: &JoinPlan) -> Form {
        let table = Form::Table(match self.options.join_form {
            Some(JoinForm::Direct) => "BuildDirectTable",
            _ => "BuildHashTable",
        });
        let is_chosen = self.options.join_form.is_some() || self.session.devices().len() != 1;
        let sides = [&join.build, &join.probe].map(side);
        let rows = match sides {
            [Side::Columns(Some(build)), Side::Columns(Some(probe))] => Some((build, probe)),
            [Side::Columns(_), Side::Columns(_)] if !is_chosen => return Form::BySize,
            _ => None,
        };
        if prefers_partition(join, rows, self.session, &[], self.options) { Form::Partitioned } else { table }
    }
}

/// What a side of a join is read from.
enum Side {
    /// All rows of columns, and how many these are if that is known.
    Columns(Option<u64>),
    /// What a pipeline leaves over.
    Rows,
}

fn side(plan: &Plan) -> Side {
    match &plan.kind {
        PlanKind::Scan { table, .. } => Side::Columns(Some(table.rows())),
        PlanKind::Input { .. } => Side::Columns(None),
        PlanKind::Project { input, .. } => side(input),
        PlanKind::Sort { input, skip: 0, fetch: None, .. } => side(input),
        PlanKind::Union { .. } | PlanKind::GroupingSets { .. } => Side::Columns(None),
        PlanKind::Shared(plan) => side(plan),
        PlanKind::Numbered { input } => side(input),
        PlanKind::Filter { .. }
        | PlanKind::Join(_)
        | PlanKind::Aggregate { .. }
        | PlanKind::Sort { .. }
        | PlanKind::Limit { .. } => Side::Rows,
    }
}
