//! The pipelines of a plan in words, for EXPLAIN.

use std::collections::HashMap;

use crate::Session;
use crate::optimize::costs::prefers_partition;
use crate::optimize::{Optimized, optimize};
use crate::options::{ExecOptions, JoinForm};
use crate::plan::join::JoinNode;
use crate::plan::ordered::OutputRange;
use crate::plan::physical::{Bindings, PhysicalPlan, Pipeline, Sink, Source, Step, TableNode, lower};
use crate::plan::{JoinPlan, Mark, Plan, PlanKind};

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
    let Optimized { plan, notes, .. } = optimize(plan, &[], session.device_set(), session.orders(), options);
    let (physical, bindings) = lower(&plan);
    let explain = Explain {
        session,
        options,
        plan: &physical,
        bindings: &bindings,
        lines: vec![],
        outputs: vec![],
        tables: HashMap::new(),
    };
    Explanation { pipelines: explain.pipelines(), decisions: notes }
}

struct Explain<'a> {
    session: &'a Session,
    options: &'a ExecOptions,
    plan: &'a PhysicalPlan,
    bindings: &'a Bindings<'a>,
    lines: Vec<String>,
    /// What the readers of each pipeline begin with.
    outputs: Vec<String>,
    /// Lines that make shared build tables.
    tables: HashMap<usize, usize>,
}

/// How the matches of a join will be found.
enum Form {
    Table(&'static str),
    Partitioned,
    /// A decision of the host, once the inputs are there.
    BySize,
}

impl<'a> Explain<'a> {
    /// All pipelines.
    fn pipelines(mut self) -> Vec<String> {
        self.plan.pipelines.iter().for_each(|pipeline| self.add(pipeline));
        self.lines
    }

    /// Adds the line of the next pipeline, and what reads it begins with.
    fn add(&mut self, pipeline: &'a Pipeline) {
        let id = self.outputs.len();
        // What a subquery has left is not made again.
        if self.plan.found.iter().any(|found| (found.first.0..=found.last.0).contains(&id)) {
            self.outputs.push("Rows[a subquery's]".to_string());
            return;
        }
        let mut words = self.source(&pipeline.source);
        for step in &pipeline.steps {
            words = self.after(words, step);
        }
        let rows = |line: usize| format!("Rows[pipeline {line}]");
        let output = match &pipeline.sink {
            Sink::Result => rows(self.close(words, "Result")),
            Sink::InPlace => rows(self.close(words, "InPlace")),
            Sink::Slice(range) if pipeline.steps.is_empty() && *range == OutputRange::ALL => words,
            Sink::Slice(_) => rows(self.close(words, "InPlace")),
            Sink::Limit { .. } => rows(self.close(words, "Limit")),
            // Rows that nothing is looked up for are read again.
            Sink::Keep | Sink::Share(_) if !pipeline.steps.iter().any(Step::looks_up) => words,
            Sink::Write | Sink::Keep | Sink::Share(_) => rows(self.close(words, "Materialise")),
            Sink::Build => {
                let sink = match self.build_form(id) {
                    Form::Table(table) => table,
                    Form::Partitioned => "Partition",
                    Form::BySize => "BuildHashTable or Partition, by size",
                };
                self.close(words, sink).to_string()
            }
            Sink::ShareBuild { number, .. } => {
                let line = self.close(words, "BuildHashTable");
                self.tables.insert(*number, line);
                line.to_string()
            }
            Sink::Count => self.close(words, "Count").to_string(),
            Sink::UnionInput => self.close(words, "Rows").to_string(),
            Sink::Sort { range, .. } => {
                let name = if range.fetch.is_some() { "TopK" } else { "Sort" };
                format!("{name}[pipeline {}]", self.close(words, "SortKeys"))
            }
            Sink::Window { calls, .. } => rows(self.close(words, &format!("Window[{} functions]", calls.len()))),
            Sink::Aggregate { group_by, .. } => {
                let sink = if group_by.is_empty() { "Aggregate" } else { "GroupBy" };
                format!("Groups[pipeline {}]", self.close(words, sink))
            }
            Sink::GroupingSets { sets, .. } => {
                format!("Union[pipeline {}]", self.close(words, &format!("GroupBy[{} sets]", sets.len())))
            }
        };
        self.outputs.push(output);
    }

    fn source(&mut self, source: &Source) -> String {
        match source {
            Source::Table { table, columns } => match self.bindings.tables[table.0] {
                TableNode::Source(Plan { kind: PlanKind::Input { index }, .. }) => format!("Upload[input {index}]"),
                _ => format!("Scan[{} columns]", columns.len()),
            },
            Source::Pipeline(id) => self.outputs[id.0].clone(),
            Source::Union(ids) => {
                let lines: Vec<&str> = ids.iter().map(|id| self.outputs[id.0].as_str()).collect();
                format!("Union[pipelines {}]", lines.join(", "))
            }
        }
    }

    fn after(&mut self, words: String, step: &Step) -> String {
        match step {
            Step::Filter(_) => format!("{words} -> Filter"),
            Step::Project(_) => format!("{words} -> Project"),
            Step::RowNumber | Step::Number { .. } => words,
            Step::Fetch { table, .. } => {
                let names = match self.bindings.tables[table.0] {
                    TableNode::Fetch(fetch) => fetch.names(),
                    TableNode::Source(_) => vec![],
                };
                format!("{words} -> Fetch[{}]", names.join(", "))
            }
            Step::HasRows { of, .. } => format!("{words} -> HasRows[pipeline {}]", self.outputs[of.0]),
            Step::Probe { table, .. } => format!("{words} -> Probe[pipeline {}]", self.table(*table)),
            Step::Reduce { table, test, .. } => {
                format!("{words} -> RuntimeFilter[pipeline {}, {test}]", self.table(*table))
            }
            Step::Join { build, .. } => {
                let line = self.outputs[build.0].clone();
                match self.build_form(build.0) {
                    Form::Table(_) => format!("{words} -> Probe[pipeline {line}]"),
                    Form::Partitioned => {
                        let probe = self.close(words, "Partition");
                        format!("Matches[pipelines {line} and {probe}]")
                    }
                    Form::BySize => format!("{words} -> Join[pipeline {line}]"),
                }
            }
        }
    }

    fn table(&self, number: usize) -> usize {
        self.tables.get(&number).copied().unwrap_or_default()
    }

    /// Ends a line; its number.
    fn close(&mut self, words: String, sink: &str) -> usize {
        self.lines.push(format!("{words} -> {sink}"));
        self.lines.len()
    }

    /// How the join with this build side finds its matches.
    fn build_form(&self, id: usize) -> Form {
        let steps = self.plan.pipelines.iter().flat_map(|pipeline| &pipeline.steps);
        let mut joins = steps.filter_map(|step| match step {
            Step::Join { build, join, .. } if build.0 == id => Some(join.node),
            _ => None,
        });
        match joins.next().map(|node| &self.bindings.nodes[node.0].kind) {
            Some(PlanKind::Join(join)) => self.form(join),
            _ => Form::BySize,
        }
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
        if prefers_partition(&JoinNode::of(join), rows, self.session.devices(), &[], self.options) {
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
        PlanKind::Marked { input, mark: Mark::Shared(_) | Mark::SharedBuild(_) } => side(input),
        PlanKind::Sort { input, skip: 0, fetch: None, .. } => side(input),
        PlanKind::Union { .. } | PlanKind::GroupingSets { .. } | PlanKind::Window { .. } => Side::Columns(None),
        PlanKind::Shared(plan) => side(plan),
        PlanKind::Numbered { input } | PlanKind::RowNumbers { input } => side(input),
        PlanKind::Filter { .. }
        | PlanKind::Fetch(_)
        | PlanKind::Join(_)
        | PlanKind::Aggregate { .. }
        | PlanKind::HasRows { .. }
        | PlanKind::Marked { .. }
        | PlanKind::Sort { .. }
        | PlanKind::Limit { .. } => Side::Rows,
    }
}
