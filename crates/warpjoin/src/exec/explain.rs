//! The pipelines of a plan in words, for EXPLAIN.

use std::collections::HashMap;

use crate::Session;
use crate::optimize::device_cost::prefers_partition;
use crate::optimize::optimize;
use crate::options::{ExecOptions, JoinForm};
use crate::plan::join::JoinNode;
use crate::plan::ordered::{Ordered, OutputRange, RowWise};
use crate::plan::{JoinPlan, Mark, Plan, PlanKind, Share};

/// A plan in words.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// One line a pipeline, in the order in which they run: source, steps and sink. Forms are those that tables and
    /// settings tell; what depends on rows that are not counted yet is left open.
    pub pipelines: Vec<String>,
    /// What the optimiser changed.
    pub decisions: Vec<String>,
}

/// How a plan would run. Inputs that are not there yet leave the order of their joins open.
pub fn explain(plan: &Plan, session: &Session, options: &ExecOptions) -> Explanation {
    let optimized = optimize(plan, &[], session, options);
    let mut explain = Explain { session, options, lines: vec![], tables: HashMap::new(), shared: HashMap::new() };
    let last = match Ordered::of(&optimized.plan) {
        Some(ordered) => explain.sort(&ordered),
        None => explain.open(&optimized.plan),
    };
    explain.lines.push(format!("{last} -> Result"));
    Explanation { pipelines: explain.lines, decisions: optimized.notes }
}

struct Explain<'a> {
    session: &'a Session,
    options: &'a ExecOptions,
    lines: Vec<String>,
    /// Pipelines that make published tables.
    tables: HashMap<usize, usize>,
    /// What is left open of shared relations.
    shared: HashMap<Share, String>,
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
            PlanKind::Marked { input, mark } => self.open_marked(input, mark),
            PlanKind::Join(join) if join.build.published().is_some() => self.open_published(join),
            PlanKind::Join(join) => {
                let form = self.form(join);
                let first = join.build.reads_tables_of(&join.probe).then(|| self.open(&join.probe));
                let build = self.open(&join.build);
                match form {
                    Form::Table(table) => {
                        let build = self.close(format!("{build} -> {table}"));
                        let probe = first.unwrap_or_else(|| self.open(&join.probe));
                        format!("{probe} -> Probe[pipeline {build}]")
                    }
                    Form::Partitioned => {
                        let build = self.close(format!("{build} -> Partition"));
                        let probe = first.unwrap_or_else(|| self.open(&join.probe));
                        let probe = self.close(format!("{probe} -> Partition"));
                        format!("Matches[pipelines {build} and {probe}]")
                    }
                    Form::BySize => {
                        let build = self.close(format!("{build} -> BuildHashTable or Partition, by size"));
                        let probe = first.unwrap_or_else(|| self.open(&join.probe));
                        format!("{probe} -> Join[pipeline {build}]")
                    }
                }
            }
            PlanKind::Aggregate { input, group_by, .. } => {
                let input = self.open(input);
                let sink = if group_by.is_empty() { "Aggregate" } else { "GroupBy" };
                format!("Groups[pipeline {}]", self.close(format!("{input} -> {sink}")))
            }
            PlanKind::Sort { input, .. } | PlanKind::Limit { input, .. } => match Ordered::of(plan) {
                Some(Ordered { range: OutputRange { skip: 0, fetch: None }, .. }) => self.open(input),
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
            PlanKind::Window { input, calls, .. } => {
                let input = self.open(input);
                let keys = self.close(format!("{input} -> SortKeys"));
                let sorted = self.close(format!("Sort[pipeline {keys}] -> Rows"));
                format!("Window[{} functions, pipeline {sorted}]", calls.len())
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
            PlanKind::Numbered { input } | PlanKind::RowNumbers { input } => self.open(input),
            PlanKind::Fetch(fetch) => format!("{} -> Fetch[{}]", self.open(&fetch.input), fetch.names().join(", ")),
        }
    }

    /// A sort, as it runs: what stands between it and the rows put out is computed before.
    fn sort(&mut self, ordered: &Ordered<'_>) -> String {
        let input = self.open(ordered.input);
        let project = if ordered.projections.is_empty() { "" } else { " -> Project" };
        let mut behind = String::new();
        for step in &ordered.behind {
            behind += &match step {
                RowWise::Project(_) => " -> Project".to_string(),
                RowWise::Fetch(fetch) => format!(" -> Fetch[{}]", fetch.names().join(", ")),
            };
        }
        if ordered.keys.is_none() {
            return format!("{input}{project}{behind}");
        }
        let keys = self.close(format!("{input}{project} -> SortKeys"));
        let name = if ordered.range.fetch.is_some() { "TopK" } else { "Sort" };
        format!("{name}[pipeline {keys}]{behind}")
    }

    /// A join whose table is there before its probe side is read.
    fn open_published(&mut self, join: &JoinPlan) -> String {
        let first = join.build.reads_tables_of(&join.probe).then(|| self.open(&join.probe));
        let number = join.build.published().unwrap_or_default();
        let build = match self.tables.get(&number) {
            Some(&made) => made,
            None => {
                let build = self.open(&join.build);
                let made = self.close(format!("{build} -> BuildHashTable"));
                self.tables.insert(number, made);
                made
            }
        };
        format!("{} -> Probe[pipeline {build}]", first.unwrap_or_else(|| self.open(&join.probe)))
    }

    fn open_marked(&mut self, input: &Plan, mark: &Mark) -> String {
        match mark {
            Mark::Published(_) => self.open(input),
            Mark::Reduced { table, test, .. } => {
                let input = self.open(input);
                let pipeline = self.tables.get(table).copied().unwrap_or(0);
                format!("{input} -> RuntimeFilter[pipeline {pipeline}, {test}]")
            }
            Mark::Shared(share) => {
                if let Some(open) = self.shared.get(share) {
                    return open.clone();
                }
                if let Share::Found(_) = share {
                    return "Rows[a subquery's]".to_string();
                }
                let input = self.open(input);
                let open = match input.strip_prefix("Groups") {
                    Some(rest) if !rest.contains("Filter") && !rest.contains("Probe") => input,
                    _ => format!("Rows[pipeline {}]", self.close(format!("{input} -> Materialise"))),
                };
                self.shared.insert(*share, open.clone());
                open
            }
        }
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
        if prefers_partition(&JoinNode::of(join), rows, self.session, &[], self.options) {
            Form::Partitioned
        } else {
            table
        }
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
        PlanKind::Marked { input, mark: Mark::Shared(_) | Mark::Published(_) } => side(input),
        PlanKind::Sort { input, skip: 0, fetch: None, .. } => side(input),
        PlanKind::Union { .. } | PlanKind::GroupingSets { .. } | PlanKind::Window { .. } => Side::Columns(None),
        PlanKind::Shared(plan) => side(plan),
        PlanKind::Numbered { input } | PlanKind::RowNumbers { input } => side(input),
        PlanKind::Filter { .. }
        | PlanKind::Fetch(_)
        | PlanKind::Join(_)
        | PlanKind::Aggregate { .. }
        | PlanKind::Marked { .. }
        | PlanKind::Sort { .. }
        | PlanKind::Limit { .. } => Side::Rows,
    }
}
